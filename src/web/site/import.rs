//! `/admin/import`: a CSV file of users is read into the declaration of a site, planned, shown and, once the plan is
//! confirmed, carried out as `POST /site/apply` does. The form holds the table all the way, so nothing is kept between
//! the two steps.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{services, table};
use crate::{
    auth::Principal,
    site::{self, Options},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form},
        },
        page::{Nav, Page},
        views::{ImportFault, ImportLink, ImportPage, ImportPlan},
    },
};

/// `GET /admin/import`
pub async fn page(Admin(admin): Admin, State(portal): State<Arc<Portal>>) -> Response {
    Page(empty(&portal, &admin)).into_response()
}

/// `POST /admin/import`: shows the plan of a table, or with `version` carries out exactly the plan that was shown.
pub async fn import(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response> {
    let text = form.get("table");
    let read = table::read_users(text);
    let mut view = ImportPage { table: text.to_owned(), ignored: read.ignored, ..empty(&portal, &admin) };
    let expected = Some(form.get("version").to_owned()).filter(|version| !version.is_empty());
    let options = Options { dry_run: expected.is_none(), prune: false, expected };
    let mut outcome = site::apply(services(&portal), &admin, &read.declared, read.faults.clone(), &options).await;
    if matches!(outcome, Err(site::Error::Stale)) {
        view.is_stale = true;
        let again = Options { dry_run: true, prune: false, expected: None };
        outcome = site::apply(services(&portal), &admin, &read.declared, read.faults, &again).await;
    }
    let applied = match outcome {
        Ok(applied) => applied,
        Err(site::Error::Invalid(faults)) => {
            (view.faults, view.more_faults) = ImportFault::list(&faults);
            return Ok(Error::from(site::Error::Invalid(faults)).with_page(Page(view)));
        }
        Err(other) => return Err(other.into()),
    };
    let plan = ImportPlan::new(applied.version, &applied.changes);
    if options.dry_run || view.is_stale {
        view.plan = Some(plan);
    } else {
        let base = portal.config.origin(&headers);
        let link =
            |new: site::NewInvitation| ImportLink { url: format!("{base}/welcome#{}", new.secret), name: new.name };
        view.table.clear();
        view.done = Some((plan, applied.invitations.into_iter().map(link).collect()));
    }
    Ok(Page(view).into_response())
}

fn empty(portal: &Portal, admin: &Arc<Principal>) -> ImportPage {
    ImportPage {
        layout: portal.layout_of(admin, Nav::Administration),
        table: String::new(),
        has_outside_accounts: services(portal).has_directory || portal.access.has_header(),
        faults: Vec::new(),
        more_faults: 0,
        ignored: Vec::new(),
        plan: None,
        is_stale: false,
        done: None,
    }
}
