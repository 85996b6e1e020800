//! The first page after sign-in: quota bars, what is being built, live sessions, what ended
//! lately. The bars and cards themselves are drawn in `cards`.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;

use super::{
    Portal,
    files::pages::space_meter,
    http::{
        error::Result,
        extract::{CurrentUser, Query},
        paging::Part,
    },
    page::{Nav, Page},
    presets,
    sessions::{cards, form::new_key},
    settings,
    views::{EnvironmentBanner, Home, InvitationRow, JobRow, Meter, Moment},
};
use crate::{
    db::{jobs::JobFilter, sessions::Filter},
    environments::{Origin, State as Building},
    files::{RootSpace, SpaceState},
    model::files::RawPath,
};

/// How many ended sessions the page shows.
const ENDED: i64 = 8;

/// How many live jobs the page shows; the list of jobs has them all.
const JOBS: i64 = 20;

/// How many live sessions the page shows.
const LIVE: usize = 20;

/// The address of the page.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct PageParams {
    /// The cursor of the list of live sessions.
    sessions: Option<String>,
}

/// `/`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(visit): Query<PageParams>,
) -> Result<Response> {
    let standing = portal.sessions.standing(user.id()).await?;
    let own = Filter { owner: Some(user.id()), sessions_only: true, ..Filter::default() };
    let live = portal.sessions.list(Filter { live_only: true, limit: i64::MAX, ..own }).await?;
    let live = Part::cut(
        live,
        LIVE,
        visit.sessions.as_deref(),
        |session| session.id,
        |cursor| settings::address("/", "sessions", cursor),
    );
    let ended =
        portal.sessions.list(Filter { state: Some(crate::model::SessionState::Ended), limit: ENDED, ..own }).await?;
    let live_jobs = JobFilter { owner: Some(user.id()), live_only: true, limit: JOBS + 1, ..JobFilter::default() };
    let mut jobs = portal.jobs.list(live_jobs).await?;
    let shown = usize::try_from(JOBS).unwrap_or(0);
    let has_more_jobs = shown < jobs.len();
    jobs.truncate(shown);
    let now = portal.clock.now();
    let invitations = portal.access.invitations_of(&user).await?;
    let (spaces, silent) = spaces(&portal, &user).await;
    let view = Home {
        layout: portal.layout_of(&user.0, Nav::Home),
        spaces,
        silent,
        notice: None,
        invitations: invitations.into_iter().map(|invitation| InvitationRow::new(invitation, now)).collect(),
        meters: cards::meters(&standing),
        elsewhere: cards::elsewhere_note(&standing),
        storage: cards::storage_note(&standing),
        single_user: portal.single_user.clone(),
        environment: banner(&portal, user.0.is_admin()),
        terminal: portal.sessions.apps_for(user.actor()).any(|app| app.name == "terminal").then(new_key),
        presets: presets::pages::starts(&portal, &user).await?,
        live: live
            .items
            .iter()
            .map(|session| cards::card(&portal, &user, &headers, session, &standing.limits))
            .collect(),
        more_live: live.more,
        has_more_jobs,
        jobs: jobs.into_iter().map(|job| JobRow::new(job, true, now)).collect(),
        ended: ended.iter().map(|session| cards::card(&portal, &user, &headers, session, &standing.limits)).collect(),
    };
    Ok(Page(view).into_response())
}

/// The bars of the viewer's folders with their addresses, and the names of those that do not answer. Where files cannot
/// be reached at all, the page has nothing to say of them.
async fn spaces(portal: &Portal, user: &CurrentUser) -> (Vec<(Meter, String)>, Vec<String>) {
    let (mut bars, mut silent) = (Vec::new(), Vec::new());
    for RootSpace { root, state } in portal.files.spaces(&user.user).await.unwrap_or_default() {
        match state {
            SpaceState::Known(space) => {
                let path = RawPath::from(root.path.as_path()).encoded();
                bars.push((
                    space_meter(&root.name, space.total_bytes, space.used_bytes),
                    format!("/files?path={path}"),
                ));
            }
            SpaceState::Silent => silent.push(root.name),
            SpaceState::Unknown => {}
        }
    }
    (bars, silent)
}

/// The environment that is being built, or could not be. Only administrators are shown those that were added.
fn banner(portal: &Portal, is_admin: bool) -> Option<EnvironmentBanner> {
    let now = portal.clock.now();
    let mut all = portal.sessions.environments.list();
    all.retain(|environment| is_admin || !matches!(environment.origin, Origin::Added { .. }));
    all.into_iter().find_map(|environment| match environment.state {
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
