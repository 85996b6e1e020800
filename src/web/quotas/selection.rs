//! One change of limits for some people, chosen in the table: fields that nobody touches stay
//! what they are for each of them. It is looked at first, and made for all of them or for none.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};

use super::{
    draw::with_foretold,
    find_several,
    form::{FormRequest, LimitForm, Row, fields},
    save, writable,
};
use crate::{
    db::{
        limits::{LevelChange, Outcome},
        quotas::{Level, SetLimit, Version},
    },
    model::{FieldError, Timestamp, User, quota::Kind},
    web::{
        Portal,
        http::{
            error::{Error, Result},
            extract::{Admin, Form},
        },
        page::{Nav, Page},
        views::{
            ChangeLine, EnteredAmount, LimitBox, LimitSection, LimitsHead, LimitsPage, LimitsPreview, Moment,
            field_words,
        },
    },
};

const ADDRESS: &str = "/admin/quotas/selection";

/// Some people, with what is set for each of them.
struct SelectedUsers {
    people: Vec<(User, Vec<SetLimit>)>,
    sheet: LimitForm,
}

/// `POST /admin/quotas/selection`: the form for those who were chosen, its preview, its saving.
pub async fn change(Admin(admin): Admin, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let names: Vec<String> = form.all("user").map(str::to_owned).collect();
    if names.is_empty() {
        return Ok(Redirect::to("/admin/quotas?done=nobody").into_response());
    }
    writable(&portal)?;
    let chosen = choose(&portal, &names).await?;
    let now = portal.clock.now();
    let sheet = if form.get("version").is_empty() { chosen.sheet.clone() } else { chosen.sheet.posted(&form) };
    let draw = |sheet: &LimitForm, faults: &[FieldError]| page(&portal, &admin, &chosen, sheet, faults);
    if !matches!(form.get("step"), "preview" | "save") {
        return Ok(Page(draw(&sheet, &[])).into_response());
    }
    let FormRequest { changes, .. } = match sheet.asked(now) {
        Ok(asked) if asked.is_empty() => {
            let fault = FieldError::new("user", "nothing", "Change at least one field.");
            return Ok(Error::invalid(vec![fault.clone()]).with_page(Page(draw(&sheet, &[fault]))));
        }
        Ok(asked) => asked,
        Err(faults) => return Ok(Error::invalid(faults.clone()).with_page(Page(draw(&sheet, &faults)))),
    };
    let seen: Vec<&str> = sheet.version.split(' ').collect();
    let change = |(index, (user, _)): (usize, &(User, Vec<SetLimit>))| LevelChange {
        seen: Some(Version::from(seen.get(index).copied().unwrap_or_default())),
        ..LevelChange::new(Level::User(user.id), changes.clone())
    };
    let changes: Vec<LevelChange> = chosen.people.iter().enumerate().map(change).collect();
    let outcome = if form.get("step") == "save" {
        save(&portal, &admin, &changes).await?
    } else if sheet.version == chosen.sheet.version {
        let told = portal.sessions.admission.preview(&changes).await?;
        let lines = changes.first().map(lines).unwrap_or_default();
        let mut hidden = sheet.pairs();
        hidden.extend(names.iter().map(|name| ("user".to_owned(), name.clone())));
        let view = LimitsPreview {
            layout: portal.layout_of(&admin, Nav::Administration),
            tab: "people",
            title: title(&chosen),
            action: ADDRESS.to_owned(),
            hidden,
            lines,
            people: names,
            over: Vec::new(),
            people_over: 0,
            more_over: 0,
            refused: Vec::new(),
            more_refused: 0,
        };
        return Ok(Page(with_foretold(view, told, now)).into_response());
    } else {
        Outcome::Stale(Level::Default)
    };
    match outcome {
        Outcome::Done => Ok(Redirect::to("/admin/quotas?done=saved").into_response()),
        Outcome::Gone(_) => Err(Error::not_found()),
        Outcome::Refused(faults) => Ok(Error::invalid(faults.clone()).with_page(Page(draw(&sheet, &faults)))),
        Outcome::Stale(_) => {
            let stored = choose(&portal, &names).await?;
            let mut view = page(&portal, &admin, &stored, &sheet.clone().upon(&stored.sheet), &[]);
            view.stale = Some(others(&stored, &sheet.version, now));
            Ok(Error::stale().with_page(Page(view)))
        }
    }
}

/// The people of these names, and a form in which nothing is chosen yet. Its version is all of
/// theirs, in their order.
async fn choose(portal: &Portal, names: &[String]) -> Result<SelectedUsers> {
    let mut people = Vec::new();
    for user in find_several(portal, names).await? {
        let set = portal.db.limits_at(Level::User(user.id)).await?;
        people.push((user, set));
    }
    let versions: Vec<String> = people.iter().map(|(_, set)| Version::of(set, None).to_string()).collect();
    let all: Vec<SetLimit> = people.iter().flat_map(|(_, set)| set.iter().cloned()).collect();
    let models =
        portal.sessions.admission.stock.inventory().models().into_iter().map(|(model, _)| model).collect::<Vec<_>>();
    let fields = fields(Level::User(people[0].0.id), &all, &models);
    Ok(SelectedUsers { sheet: LimitForm::of_several(fields, versions.join(" ")), people })
}

fn title(chosen: &SelectedUsers) -> String {
    match chosen.people.as_slice() {
        [(one, _)] => format!("Limits of {}", one.name),
        many => format!("Limits of {} users", many.len()),
    }
}

fn page(
    portal: &Portal,
    admin: &Arc<crate::auth::Principal>,
    chosen: &SelectedUsers,
    sheet: &LimitForm,
    faults: &[FieldError],
) -> LimitsPage {
    let external_usage: Vec<&str> =
        faults.iter().filter(|fault| fault.field == "user").map(|fault| fault.message.as_str()).collect();
    let alert = match (faults, external_usage.as_slice()) {
        ([], _) => None,
        (_, []) => Some("Some fields are invalid. Nothing was saved.".to_owned()),
        (_, said) => Some(said.join(" ")),
    };
    LimitsPage {
        layout: portal.layout_of(admin, Nav::Administration),
        tab: "people",
        head: LimitsHead {
            title: title(chosen),
            crumb: Some(("/admin/quotas".to_owned(), "Users".to_owned())),
            lead: "The values that you choose are set for each of these users. Other fields keep their values."
                .to_owned(),
            ..LimitsHead::default()
        },
        notice: None,
        alert,
        stale: None,
        action: ADDRESS.to_owned(),
        version: sheet.version.clone(),
        sections: vec![LimitSection {
            title: "",
            hint: "",
            holds: "Currently set",
            shows_use: false,
            rows: sheet.rows.iter().map(|row| limit_box(row, chosen, faults)).collect(),
        }],
        slurm: None,
        marks: None,
        may_change: true,
        people: chosen.people.iter().map(|(user, _)| user.name.to_string()).collect(),
        person: None,
    }
}

fn limit_box(row: &Row, chosen: &SelectedUsers, faults: &[FieldError]) -> LimitBox {
    let name = row.name();
    let (label, hint) = field_words(&row.field, Kind::Each);
    let set = chosen.people.iter().filter(|(_, set)| set.iter().any(|limit| limit.field == row.field)).count();
    let parts = [("choice", ".choice"), ("value", ".value"), ("until", ".until"), ("note", ".note")];
    let errors = parts.into_iter().filter_map(|(part, end)| {
        let fault = faults.iter().find(|fault| fault.field == format!("{name}{end}"))?;
        Some((part, fault.message.clone()))
    });
    LimitBox {
        label,
        hint,
        meter: None,
        effective: Some((
            match set {
                0 => "for none of them".to_owned(),
                count if count == chosen.people.len() => "for all of them".to_owned(),
                count => format!("for {count} of them"),
            },
            None,
        )),
        otherwise: None,
        typed: row.typed.clone(),
        was: row.was.clone(),
        set_by: None,
        theirs: None,
        may_change: true,
        errors: errors.collect(),
        can_stay: true,
        is_slurms: false,
        name,
    }
}

fn lines(change: &LevelChange) -> Vec<ChangeLine> {
    let line = |change: &crate::model::quota::Change| ChangeLine {
        label: field_words(&change.field, Kind::Each).0,
        before: "each user's current value".to_owned(),
        after: EnteredAmount::of(change.to.as_ref(), &change.field).says(),
    };
    change.changes.iter().map(line).collect()
}

/// Whose limits were changed by somebody else, and what they are by now.
fn others(stored: &SelectedUsers, seen: &str, now: Timestamp) -> Vec<String> {
    let changed = stored
        .people
        .iter()
        .zip(seen.split(' '))
        .filter(|((_, set), seen)| Version::of(set, None) != Version::from(*seen));
    let said = |limit: &SetLimit| {
        let (label, _) = field_words(&limit.field, limit.kind);
        let since = Moment::ago(limit.at, now).plain();
        format!("{label}: {}, by {} {since}", EnteredAmount::of(Some(&limit.terms), &limit.field).says(), limit.by)
    };
    changed
        .map(|((user, set), _)| {
            let now: Vec<String> = set.iter().map(said).collect();
            format!(
                "{}: {}",
                user.name,
                if now.is_empty() { "all fields inherited".to_owned() } else { now.join("; ") }
            )
        })
        .collect()
}
