//! The route table: where each live session's app answers and whose it is. The proxy reads
//! it on every request, so it lies in memory; rows of the database fill it, and it is
//! emptied of a session the moment that session ends.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::RwLock;

use crate::model::{SessionId, SessionState, UserId, session::Link};

/// How to reach one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub session: SessionId,
    pub owner: UserId,
    pub state: SessionState,
    pub app: String,
    /// The app's socket; `None` while nothing is launched.
    pub socket: Option<PathBuf>,
    pub port: Option<u16>,
    /// How its node is reached, where that is another one.
    pub link: Option<Link>,
    /// Whose process must answer there.
    pub uid: u32,
    /// The agent itself answers, with terminals: the app, or those beside a job's program.
    pub is_terminals: bool,
    /// What the proxy shows to the app.
    pub authorization: Option<String>,
    pub strip_prefix: bool,
}

/// All live sessions' routes.
#[derive(Debug, Default)]
pub struct Routes(RwLock<HashMap<SessionId, Arc<Route>>>);

impl Routes {
    pub fn find(&self, id: SessionId) -> Option<Arc<Route>> {
        self.0.read().get(&id).cloned()
    }

    pub(super) fn set(&self, route: Route) {
        let mut routes = self.0.write();
        if routes.get(&route.session).is_none_or(|known| **known != route) {
            routes.insert(route.session, Arc::new(route));
        }
    }

    /// Forgets all others.
    pub(super) fn retain(&self, live: &HashSet<SessionId>) {
        self.0.write().retain(|id, _| live.contains(id));
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.0.write().remove(&id);
    }

    /// Whether the app of a live session has this port.
    pub(super) fn uses_port(&self, port: u16) -> bool {
        self.0.read().values().any(|route| route.port == Some(port))
    }

    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
