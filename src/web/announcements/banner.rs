//! The strip on top of every page: maintenance, then the announcements that the reader has not
//! put aside. A page is drawn with it; when it changes, `announcements.js` hears of it and fetches it
//! alone.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};

use crate::{
    model::{AnnouncementId, Timestamp, UserId},
    web::{
        Portal,
        http::{
            error::Result,
            extract::{CurrentUser, Id},
        },
        page::{Nav, Page},
        views::{AnnouncementLine, AnnouncementStrip},
    },
};

/// `/announcements/strip`: the strip alone.
pub async fn fragment(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Response {
    Page(AnnouncementStrip { layout: portal.layout_of(&user.0, Nav::None) }).into_response()
}

/// `POST /announcements/{id}/dismiss`
pub async fn dismiss(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<AnnouncementId>,
) -> Result<Redirect> {
    portal.announcements.dismiss(user.id(), id).await?;
    Ok(Redirect::to("/"))
}

/// What stands on top of a page for this reader; `None` has not signed in.
pub(in crate::web) fn strip(portal: &Portal, reader: Option<UserId>) -> Vec<AnnouncementLine> {
    let now: Timestamp = portal.clock.now();
    let maintenance = portal.announcements.maintenance().map(|set| AnnouncementLine::of_maintenance(&set, now));
    let announcements = portal.announcements.seen_by(reader);
    maintenance
        .into_iter()
        .chain(announcements.iter().map(|one| AnnouncementLine::of_announcement(one, reader.is_some())))
        .collect()
}
