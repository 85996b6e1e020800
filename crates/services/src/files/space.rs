//! How full the file systems are on which somebody's folders lie. Nobody waits for a file server that hangs: a user's
//! folders are asked by one task, one after the other and each for a few seconds at most, pages wait a moment for it,
//! and an answer, or that there was none, is remembered for a while.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::{Error, Files, Result, unexpected};
use lyceum_model::{
    User, UserId,
    files::{RawPath, Root, Space},
};
use lyceum_wire::protocol::files_agent::{FilesAnswer, FilesRequest};

/// How old an answer may be.
const MAX_AGE: Duration = Duration::from_mins(1);

/// How long one folder may take, and how long a page waits for all of them.
const PATIENCE: Duration = Duration::from_secs(3);
const A_LOOK: Duration = Duration::from_millis(700);

/// A folder and what is known of its file system.
#[derive(Clone, Debug)]
pub struct RootSpace {
    pub root: Root,
    pub state: SpaceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceState {
    Known(Space),
    /// It did not answer, or nobody has asked yet.
    Unknown,
    /// It did not answer in time.
    Silent,
}

/// What was answered last.
#[derive(Debug, Default)]
pub struct Spaces(Mutex<HashMap<UserId, Known>>);

#[derive(Debug)]
struct Known {
    states: Vec<SpaceState>,
    at: Option<Instant>,
    /// Ends when the task does that asks now.
    asking: Option<watch::Receiver<()>>,
}

impl Files {
    /// How full the file systems of somebody's folders are, in the order of the folders.
    pub async fn spaces(self: &Arc<Self>, user: &User) -> Result<Vec<RootSpace>> {
        let roots = self.roots(user).await?;
        if let Some(mut asking) = self.asking(user, &roots) {
            // It ends by an error: nothing is ever sent.
            let _ = timeout(A_LOOK, asking.changed()).await;
        }
        let known = self.spaces.0.lock();
        let states = known.get(&user.id).map(|known| known.states.clone()).unwrap_or_default();
        drop(known);
        let state = |place: usize| states.get(place).copied().unwrap_or(SpaceState::Unknown);
        Ok(roots.into_iter().enumerate().map(|(place, root)| RootSpace { state: state(place), root }).collect())
    }

    /// The task that asks, begun where the last answers are old; `None` where they are not.
    fn asking(self: &Arc<Self>, user: &User, roots: &[Root]) -> Option<watch::Receiver<()>> {
        let mut all = self.spaces.0.lock();
        all.retain(|id, known| {
            *id == user.id || known.asking.is_some() || known.at.is_some_and(|at| at.elapsed() < MAX_AGE)
        });
        let known = all.entry(user.id).or_insert_with(|| Known { states: Vec::new(), at: None, asking: None });
        if let Some(asking) = &known.asking {
            return Some(asking.clone());
        }
        if known.at.is_some_and(|at| at.elapsed() < MAX_AGE) && known.states.len() == roots.len() {
            return None;
        }
        known.states.resize(roots.len(), SpaceState::Unknown);
        let (ends, asking) = watch::channel(());
        known.asking = Some(asking.clone());
        drop(all);
        let (this, user, roots) = (Arc::clone(self), user.clone(), roots.to_vec());
        tokio::spawn(async move {
            for (place, root) in roots.iter().enumerate() {
                let state = match timeout(PATIENCE, this.space(&user, root)).await {
                    Ok(Ok(space)) => SpaceState::Known(space),
                    Err(_) | Ok(Err(Error::Silent { .. })) => SpaceState::Silent,
                    Ok(Err(_)) => SpaceState::Unknown,
                };
                if let Some(known) = this.spaces.0.lock().get_mut(&user.id)
                    && let Some(slot) = known.states.get_mut(place)
                {
                    *slot = state;
                }
            }
            if let Some(known) = this.spaces.0.lock().get_mut(&user.id) {
                (known.at, known.asking) = (Some(Instant::now()), None);
            }
            drop(ends);
        });
        Some(asking)
    }

    async fn space(&self, user: &User, root: &Root) -> Result<Space> {
        let (pool, rooted) = self.find(user, &RawPath::from(root.path.as_path())).await?;
        match self.once(&pool, &rooted, &FilesRequest::Space { place: rooted.place.clone() }).await? {
            FilesAnswer::Space { space } => Ok(space),
            other => Err(unexpected(&other)),
        }
    }
}
