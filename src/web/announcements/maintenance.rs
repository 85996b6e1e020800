//! Maintenance over REST and as a page. Everybody may read what holds, administrators change
//! it; the rules are `model::maintenance`'s.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Nullable,
    pages::{moment, typed_or_previous},
};
use crate::{
    auth::Principal,
    model::{
        FieldError, Maintenance, Phase, Timestamp,
        maintenance::{Draft, Mode, phase},
        time::form_moment,
    },
    web::{
        Portal,
        http::{
            error::{Error, Problem, Result},
            extract::{Admin, CurrentUser, Form, Json, Query},
            versions::{check_version, tagged},
        },
        page::{Nav, Page},
        views::{self, MaintenanceForm, MaintenancePage},
    },
};

/// Planned or active maintenance. No sessions start during maintenance.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Maintenance)]
pub struct MaintenanceView {
    mode: Mode,
    /// `coming` or `active`; null if no maintenance is planned.
    phase: Option<Phase>,
    /// Shown to all users after the times.
    message: String,
    #[schema(value_type = Option<String>, format = "date-time")]
    from: Option<Timestamp>,
    /// Null if it lasts until it is ended.
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Option<Timestamp>,
    /// When running sessions are ended; null if they continue.
    #[schema(value_type = Option<String>, format = "date-time")]
    drain_at: Option<Timestamp>,
    /// Whether administrators may start sessions during maintenance.
    administrators_may_start: bool,
}

/// It changes by itself.
const VOLATILE_FIELDS: [&str; 1] = ["phase"];

impl MaintenanceView {
    /// What is over is as if it had never been.
    fn new(set: Option<&Maintenance>, now: Timestamp) -> Self {
        let phase = phase(set, now);
        let Draft { mode, message, from, to, drain_at, admins_may_start } = Draft::of(set.filter(|_| phase.is_some()));
        Self { mode, phase, message, from, to, drain_at, administrators_may_start: admins_may_start }
    }
}

/// Returns planned or active maintenance.
#[utoipa::path(get, path = "/maintenance", tag = "maintenance", responses((status = 200, body = MaintenanceView)))]
pub async fn find(_: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Response> {
    let set = portal.db.maintenance().await?;
    Ok(tagged(&MaintenanceView::new(set.as_ref(), portal.clock.now()), &VOLATILE_FIELDS))
}

/// A change of maintenance. Fields that are omitted are not changed. `mode` schedules maintenance, changes its kind,
/// or ends it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceChange {
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    #[schema(max_length = 500)]
    message: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    from: Option<Timestamp>,
    /// Null: it lasts until it is ended.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    to: Nullable<Timestamp>,
    /// For the mode `drain`: when running sessions are ended.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "date-time")]
    drain_at: Nullable<Timestamp>,
    #[serde(default)]
    administrators_may_start: Option<bool>,
}

impl MaintenanceChange {
    fn on(self, set: Option<&Maintenance>) -> Result<Draft> {
        let before = Draft::of(set);
        let mode = self.mode.unwrap_or(before.mode);
        let names_more =
            self.message.is_some() || self.from.is_some() || self.to.is_named() || self.drain_at.is_named();
        if mode == Mode::Off && names_more {
            let message = "Maintenance is off. Set the mode to no_new_sessions or drain.";
            return Err(Error::field("mode", "missing_field", message));
        }
        // In another mode than drain nothing is left of it.
        let drain_at = self.drain_at.or(before.drain_at.filter(|_| mode == Mode::Drain));
        Ok(Draft {
            mode,
            message: self.message.unwrap_or(before.message),
            from: self.from.or(before.from),
            to: self.to.or(before.to),
            drain_at,
            admins_may_start: self.administrators_may_start.unwrap_or(before.admins_may_start),
        })
    }
}

/// Schedules, changes or ends maintenance, with immediate effect.
#[utoipa::path(patch, path = "/maintenance", tag = "maintenance", request_body = MaintenanceChange,
    responses((status = 200, body = MaintenanceView),
        (status = 403, description = "Not an administrator", body = Problem),
        (status = 412, description = "Changed since the version in If-Match", body = Problem),
        (status = 422, description = "The message or the times are invalid", body = Problem)))]
pub async fn change(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Json(change): Json<MaintenanceChange>,
) -> Result<Response> {
    let now = portal.clock.now();
    let stored = portal.db.maintenance().await?;
    let set = stored.as_ref().filter(|set| set.window.phase(now) != Phase::Past);
    check_version(&headers, &MaintenanceView::new(set, now), &VOLATILE_FIELDS)?;
    let draft = change.on(set)?;
    let changed = order(&portal, &admin, stored.as_ref(), draft).await?;
    Ok(tagged(&MaintenanceView::new(changed.as_ref(), now), &VOLATILE_FIELDS))
}

async fn order(
    portal: &Portal,
    admin: &Principal,
    before: Option<&Maintenance>,
    draft: Draft,
) -> Result<Option<Maintenance>> {
    let changed = portal.announcements.set_maintenance(admin.user.name.as_str(), before, draft).await?;
    // Waiters learn why they wait, or are let in.
    portal.sessions.wake();
    Ok(changed)
}

/// The address of the page.
#[derive(Default, Deserialize)]
pub struct PageParams {
    done: Option<String>,
}

/// `/admin/maintenance`
pub async fn page(
    Admin(admin): Admin,
    State(portal): State<Arc<Portal>>,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let set = portal.db.maintenance().await?;
    let mut view = view(&portal, &admin, set.as_ref());
    view.notice = visit.done.and_then(|done| notice(&done)).map(str::to_owned);
    Ok(Page(view).into_response())
}

fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "on" => "Maintenance was scheduled. All users see it on their pages.",
        "off" => "Maintenance was ended. Sessions can start again, pending ones first.",
        _ => return None,
    })
}

/// `POST /admin/maintenance`
pub async fn order_by_form(Admin(admin): Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let stored = portal.db.maintenance().await?;
    let typed = MaintenanceForm {
        mode: if form.get("mode") == Mode::Drain.as_str() { Mode::Drain } else { Mode::NoNewSessions },
        message: form.get("message").chars().take(2000).collect(),
        from: form.get("from").chars().take(100).collect(),
        to: form.get("to").chars().take(100).collect(),
        drain_at: form.get("drain_at").chars().take(100).collect(),
        admins_may_start: form.get("admins_may_start") == "yes",
    };
    let outcome = match draft(&typed) {
        Ok(draft) => {
            let before = Draft::of(stored.as_ref());
            let from = typed_or_previous(draft.from, before.from);
            let (to, drain_at) =
                (typed_or_previous(draft.to, before.to), typed_or_previous(draft.drain_at, before.drain_at));
            order(&portal, &admin, stored.as_ref(), Draft { from, to, drain_at, ..draft }).await
        }
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match outcome {
        Ok(_) => return Ok(Redirect::to("/admin/maintenance?done=on").into_response()),
        Err(error) if error.field_errors().is_empty() => return Err(error),
        Err(error) => error,
    };
    let mut view = view(&portal, &admin, stored.as_ref());
    view.errors = error.field_errors().iter().map(views::FieldError::from).collect();
    view.form = typed;
    Ok(error.with_page(Page(view)))
}

/// `POST /admin/maintenance/off`
pub async fn off_by_form(Admin(admin): Admin, State(portal): State<Arc<Portal>>) -> Result<Redirect> {
    let stored = portal.db.maintenance().await?;
    order(&portal, &admin, stored.as_ref(), Draft::of(None)).await?;
    Ok(Redirect::to("/admin/maintenance?done=off"))
}

fn draft(typed: &MaintenanceForm) -> Result<Draft, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut read = |field, text: &str| {
        moment(field, text).unwrap_or_else(|fault| {
            faults.push(fault);
            None
        })
    };
    let draft = Draft {
        mode: typed.mode,
        message: typed.message.clone(),
        from: read("from", &typed.from),
        to: read("to", &typed.to),
        // Typed before the other mode was chosen, it is no fault.
        drain_at: if typed.mode == Mode::Drain { read("drain_at", &typed.drain_at) } else { None },
        admins_may_start: typed.admins_may_start,
    };
    if faults.is_empty() { Ok(draft) } else { Err(faults) }
}

fn view(portal: &Portal, admin: &Arc<Principal>, set: Option<&Maintenance>) -> MaintenancePage {
    let now = portal.clock.now();
    let phase = phase(set, now);
    let set = set.filter(|_| phase.is_some());
    let Draft { mode, message, from, to, drain_at, admins_may_start } = Draft::of(set);
    let shown = |at: Option<Timestamp>| at.map(form_moment).unwrap_or_default();
    MaintenancePage {
        layout: portal.layout_of(admin, Nav::Administration),
        notice: None,
        errors: Vec::new(),
        phase,
        says: set.map(|set| views::AnnouncementLine::of_maintenance(set, now).sentence),
        form: MaintenanceForm {
            mode: if mode == Mode::Off { Mode::NoNewSessions } else { mode },
            message,
            from: shown(from),
            to: shown(to),
            drain_at: shown(drain_at),
            admins_may_start,
        },
    }
}
