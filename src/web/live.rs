//! The event stream that keeps pages fresh: a few words whenever a session of the reader's
//! changes or an environment gets further. Pages fetch what changed themselves, so that the
//! stream holds nothing that needs escaping or could be stale.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse, Response, sse::Event},
};
use futures_util::Stream;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::{Portal, cards, extract::CurrentUser, streams::sse};

/// How often the stream looks whether its reader still may read.
const LOOK: Duration = Duration::from_secs(2);

/// `/events`
pub async fn stream(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Response {
    sse(portal.stopping.clone(), messages(portal, user)).into_response()
}

fn messages(portal: Arc<Portal>, user: CurrentUser) -> impl Stream<Item = Event> {
    let changes = portal.sessions.subscribe();
    let environments = portal.sessions.environments.subscribe();
    let sees_all = cards::is_operator(&user);
    futures_util::stream::unfold((changes, environments), move |(mut changes, mut environments)| {
        let (portal, user) = (Arc::clone(&portal), user.clone());
        async move {
            let message = loop {
                tokio::select! {
                    change = changes.recv() => match change {
                        Ok(change) if sees_all || change.owner == user.id() => {
                            break json!({ "type": "session", "id": change.session });
                        }
                        Ok(_) => {}
                        // It missed some: the page looks at everything.
                        Err(RecvError::Lagged(_)) => break json!({ "type": "environment" }),
                        Err(RecvError::Closed) => return None,
                    },
                    progress = environments.changed() => {
                        progress.ok()?;
                        break json!({ "type": "environment" });
                    }
                    () = tokio::time::sleep(LOOK) => {
                        if !matches!(portal.access.still(&user).await, Ok(Some(_))) {
                            return None;
                        }
                    }
                }
            };
            let event = Event::default().json_data(message).unwrap_or_default();
            Some((event, (changes, environments)))
        }
    })
}
