//! The first page after sign-in: quota bars, what is being built, live sessions, what ended
//! lately. It also draws the quota bars for the start form.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    Portal,
    error::Result,
    extract::CurrentUser,
    page::{Nav, Page},
    show,
    views::{EnvironmentBanner, Home, Meter, Moment, Unit},
};
use crate::{
    admission::Standing,
    db::sessions::Filter,
    environments::State as Building,
    model::quota::{Field, Limit},
};

/// How many ended sessions the page shows.
const ENDED: i64 = 8;

/// More live sessions than this nobody has.
const LIVE: i64 = 200;

/// `/`
pub async fn page(user: CurrentUser, State(portal): State<Arc<Portal>>, headers: HeaderMap) -> Result<Response> {
    let standing = portal.sessions.standing(user.id()).await?;
    let own = Filter { owner: Some(user.id()), ..Filter::default() };
    let live = portal.sessions.list(Filter { live_only: true, limit: LIVE, ..own }).await?;
    let ended =
        portal.sessions.list(Filter { state: Some(crate::model::SessionState::Ended), limit: ENDED, ..own }).await?;
    let view = Home {
        layout: portal.layout_of(&user.0, Nav::Home),
        notice: None,
        meters: meters(&standing),
        single_user: portal.single_user.clone(),
        environment: banner(&portal),
        most_sessions: show::most_sessions(&standing),
        live: live.iter().map(|session| show::card(&portal, &user, &headers, session, &standing.limits)).collect(),
        ended: ended.iter().map(|session| show::card(&portal, &user, &headers, session, &standing.limits)).collect(),
    };
    Ok(Page(view).into_response())
}

/// Somebody's quota bars.
pub(super) fn meters(standing: &Standing) -> Vec<Meter> {
    let usage = &standing.usage;
    let rows = [
        (Field::Gpus, "gpus", "GPUs", usage.gpus, Unit::Count, standing.capacity.gpus),
        (Field::Cpus, "cpus", "cores", usage.cpus, Unit::Count, standing.capacity.cpus),
        (Field::MemoryBytes, "memory_bytes", "memory", usage.memory_bytes, Unit::Bytes, standing.capacity.memory_bytes),
        (Field::Sessions, "sessions", "sessions", usage.sessions, Unit::Count, i64::MAX),
    ];
    let meter = |(field, name, label, used, unit, machine): (Field, &'static str, &str, i64, Unit, i64)| {
        let effective = standing.limits.of(field);
        // A limit beyond the machine is the machine's.
        let limit = match effective.limit {
            Limit::Unlimited if machine == i64::MAX => None,
            limit => Some(limit.cap(machine)),
        };
        Meter { field: name, label: label.to_owned(), used, asked: 0, limit, unit, source: effective.source.clone() }
    };
    // A machine without GPUs has nothing to draw there.
    rows.into_iter().filter(|row| row.0 != Field::Gpus || 0 < standing.capacity.gpus).map(meter).collect()
}

/// The environment that is being built, or could not be.
fn banner(portal: &Portal) -> Option<EnvironmentBanner> {
    let now = portal.clock.now();
    portal.sessions.environments.list().into_iter().find_map(|environment| match environment.state {
        Building::Building { percent, step, since } => Some(EnvironmentBanner::Building {
            name: environment.title,
            step,
            percent: Some(i64::from(percent)),
            started: Moment { at: since, show: super::views::Show::Since, now },
        }),
        Building::Failed { what, command, .. } => {
            Some(EnvironmentBanner::Failed { name: environment.title, message: what, command: Some(command) })
        }
        Building::Ready { .. } | Building::Missing => None,
    })
}
