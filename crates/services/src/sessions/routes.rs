//! The route table: where each live session's app answers and whose it is. The proxy reads
//! it on every request, so it lies in memory; rows of the database fill it, and it is
//! emptied of a session the moment that session ends.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::RwLock;

use lyceum_model::{SessionId, SessionState, UserId, session::Link};

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

impl Route {
    /// How far its session is in its life, which goes one way.
    fn stage(&self) -> Option<usize> {
        SessionState::ALL.iter().position(|state| *state == self.state)
    }
}

/// All live sessions' routes.
#[derive(Debug, Default)]
pub struct Routes(RwLock<HashMap<SessionId, Arc<Route>>>);

impl Routes {
    pub fn find(&self, id: SessionId) -> Option<Arc<Route>> {
        self.0.read().get(&id).cloned()
    }

    /// Sets how a session is reached, unless a later stage of it is known: a round works on rows that it read a while
    /// ago, and would remove the socket of a session that was launched in the meantime.
    pub(super) fn set(&self, route: Route) {
        let mut routes = self.0.write();
        let is_news = |known: &Arc<Route>| {
            **known != route && (known.stage(), known.socket.is_some()) <= (route.stage(), route.socket.is_some())
        };
        if routes.get(&route.session).is_none_or(is_news) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_earlier_takes_nothing_back() {
        let (routes, session, owner) = (Routes::default(), SessionId::new(), UserId::new());
        let route = |state, socket: Option<&str>| Route {
            session,
            owner,
            state,
            app: "web".to_owned(),
            socket: socket.map(PathBuf::from),
            port: None,
            link: None,
            uid: 7,
            is_terminals: false,
            authorization: None,
            strip_prefix: false,
        };
        let found = || routes.find(session).map(|route| (route.state, route.socket.is_some()));
        let (queued, starting) = (route(SessionState::Queued, None), route(SessionState::Starting, None));
        let launched = route(SessionState::Starting, Some("app"));
        let running = route(SessionState::Running, Some("app"));
        for (told, known) in [
            (&queued, (SessionState::Queued, false)),
            (&launched, (SessionState::Starting, true)),
            (&starting, (SessionState::Starting, true)),
            (&queued, (SessionState::Starting, true)),
            (&running, (SessionState::Running, true)),
            (&launched, (SessionState::Running, true)),
            (&route(SessionState::Running, Some("other")), (SessionState::Running, true)),
            (&route(SessionState::Stopping, Some("other")), (SessionState::Stopping, true)),
        ] {
            routes.set(told.clone());
            assert_eq!(found(), Some(known), "{told:?}");
        }
        assert_eq!(routes.find(session).unwrap().socket, Some(PathBuf::from("other")), "a new socket is news");
    }
}
