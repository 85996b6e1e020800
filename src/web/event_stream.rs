//! The event stream that keeps pages fresh: a few words whenever a session of the reader's
//! changes, an environment or an image makes progress, or an announcement appears. All pages of a browser share one
//! (static/stream.js)
//! and fetch what changed themselves, so that it holds nothing that needs escaping or could be
//! stale, and what was missed while it was away is caught up with by looking at everything.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{Response, sse::Event},
};
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{MissedTickBehavior, interval},
};

use super::{
    Portal,
    http::{error::Result, extract::CurrentUser, streams::sse_for},
    sessions::cards,
};
use crate::{
    images::Entry,
    model::{Timestamp, User},
};

/// How often the stream looks whether its reader still may read.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// `/events`
pub async fn stream(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Response> {
    // The first words show that the line is open, and whose: a browser may meanwhile be
    // somebody else's.
    let hello = event(&json!({ "type": "open", "user": user.user.name }));
    let id = user.id();
    let messages = futures_util::stream::once(async { hello }).chain(messages(portal.clone(), user));
    sse_for(&portal, id, messages)
}

fn messages(portal: Arc<Portal>, user: CurrentUser) -> impl Stream<Item = Event> {
    let sees_all = cards::is_operator(&user);
    let mut look = interval(ACCESS_CHECK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let told = (portal.announcements.subscribe(), portal.notifications.subscribe());
    let software = (portal.sessions.environments.subscribe(), portal.sessions.images.subscribe());
    let pulls = ended_pulls(&portal.sessions.images.list(), &user.user);
    let heard = (portal.sessions.subscribe(), software, told, look);
    let open = portal.metrics.event_stream();
    futures_util::stream::unfold(
        (heard, pulls, open),
        move |(
            (mut changes, (mut environments, mut images), (mut announcements, mut notices), mut look),
            mut pulls,
            open,
        )| {
            let (portal, user) = (Arc::clone(&portal), user.clone());
            async move {
                let message = loop {
                    tokio::select! {
                        change = changes.recv() => match change {
                            Ok(change) if sees_all || change.owner == user.id() => {
                                let told = change.told && change.owner == user.id();
                                break match change.job {
                                    Some(job) => json!({ "type": "job", "id": job, "notices": told }),
                                    None => json!({ "type": "session", "id": change.session, "notices": told }),
                                };
                            }
                            Ok(_) => {}
                            // It missed some: the page looks at everything.
                            Err(RecvError::Lagged(_)) => break json!({ "type": "environment", "notices": true }),
                            Err(RecvError::Closed) => return None,
                        },
                        progress = environments.changed() => {
                            progress.ok()?;
                            break json!({ "type": "environment" });
                        }
                        progress = images.changed() => {
                            progress.ok()?;
                            let now = ended_pulls(&images.borrow_and_update(), &user.user);
                            let notices = now != pulls;
                            pulls = now;
                            break json!({ "type": "environment", "notices": notices });
                        }
                        told = announcements.changed() => {
                            told.ok()?;
                            break json!({ "type": "announcements" });
                        }
                        heard = notices.recv() => match heard {
                            Ok(owner) if owner == user.id() => break json!({ "type": "notices", "notices": true }),
                            Ok(_) => {}
                            Err(RecvError::Lagged(_)) => break json!({ "type": "notices", "notices": true }),
                            Err(RecvError::Closed) => return None,
                        },
                        // Not a pause between messages: where something changes all the time, the
                        // login must still be looked at.
                        _ = look.tick() => {
                            if !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                                return None;
                            }
                        }
                    }
                };
                Some((
                    event(&message),
                    ((changes, (environments, images), (announcements, notices), look), pulls, open),
                ))
            }
        },
    )
}

/// When the last pulls of the images of a user's own ended.
fn ended_pulls(images: &[Entry], user: &User) -> Vec<Option<Timestamp>> {
    images.iter().filter(|image| image.is_of(user)).map(|image| image.ended_at).collect()
}

fn event(message: &serde_json::Value) -> Event {
    Event::default().data(message.to_string())
}
