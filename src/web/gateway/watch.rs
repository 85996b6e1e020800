//! The loops that end what may live no longer: connections whose access has ended, and the
//! endpoints of sessions that have ended; and whose agents may call at all.

use std::{sync::Arc, time::Duration};

use tokio::sync::broadcast::error::RecvError;

use crate::{nodes::Expects, proxy::Access, web::Portal};

/// A login and a token also end by their age, which is not a change that anybody reports. A look
/// asks memory alone.
const ACCESS_CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// When somebody's access changes, and now and then, every live connection is judged again.
pub async fn cut_what_lost_access(portal: Arc<Portal>) {
    let mut changes = portal.access.changes();
    while !matches!(tokio::time::timeout(ACCESS_CHECK_INTERVAL, changes.changed()).await, Ok(Err(_))) {
        portal.live_requests.cut_what_lost_access(&portal.access).await;
        let tunnels = portal.gateway.proxy.tunnels();
        for holder in tunnels.holders() {
            let still = match holder.access {
                Access::Login(id) => portal.access.by_login(id).await,
                Access::Token(id) => portal.access.by_token_id(id).await,
            };
            // A database that does not answer proves nothing against anybody.
            if let Ok(None) = still {
                tunnels.cut(|tunnel| tunnel.holder == holder);
            }
        }
    }
}

/// An ended session's endpoint is invalid from that moment on.
pub async fn forget_ended(portal: Arc<Portal>) {
    let mut changes = portal.sessions.subscribe();
    loop {
        match changes.recv().await {
            Ok(change) if change.ended => portal.gateway.forget(change.session),
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => {
                for (session, _) in portal.gateway.activity() {
                    if portal.sessions.routes.find(session).is_none() {
                        portal.gateway.forget(session);
                    }
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Agents of live sessions may call, each of the very start that the portal made.
pub fn expected(portal: Arc<Portal>) -> Expects {
    Arc::new(move |session, attempt| {
        let route = portal.sessions.routes.find(session);
        route.is_some_and(|route| route.link.as_ref().is_some_and(|link| link.attempt == attempt))
    })
}
