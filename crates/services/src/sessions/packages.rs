//! What people installed themselves over the shared environments: what it is, how large, who
//! uses it, and its removal. It lies at their homes, and is looked at and removed as they.

use super::{Actor, Error, Result, Sessions, launch::is_path};
use lyceum_db::sessions::Filter;
use lyceum_model::{Session, SessionId};
use lyceum_node::apps::AppKind;
use lyceum_wire::protocol::{Errand, ErrandOutcome, Overlay};

use crate::{
    environments::DEFAULT,
    scheduler::{self, Person, PortalUser},
};

/// How many environments of somebody's own are remembered for the form.
const MAX_PATHS: usize = 10;

/// Somebody's own packages over one environment.
#[derive(Clone, Debug)]
pub struct OwnPackages {
    pub overlay: Overlay,
    /// False for those of an earlier Python: no session sees them.
    pub is_current: bool,
    /// Live sessions that run in it, by name.
    pub used_by: Vec<(SessionId, String)>,
}

impl Sessions {
    /// All of somebody's, as their home tells.
    pub async fn packages(&self, actor: Actor<'_>) -> Result<Vec<OwnPackages>> {
        let Some(person) = self.known_person(actor).await? else { return Ok(Vec::new()) };
        let overlays = match self.scheduler.errand(&person, Errand::Overlays).await? {
            ErrandOutcome::Overlays { overlays } => overlays,
            other => return Err(unexpected(other)),
        };
        let live = Filter { owner: Some(actor.user.id), live_only: true, limit: 500, ..Filter::default() };
        let live = self.db.list_sessions(live).await?;
        let own = overlays.into_iter().map(|overlay| {
            let is_current = self.environments.overlay_name(&overlay.environment).as_ref() == Some(&overlay.name);
            let users = live.iter().filter(|session| is_current && self.runs_in(session, &overlay.environment));
            let used_by = users.map(|session| (session.id, session.name.clone())).collect();
            OwnPackages { overlay, is_current, used_by }
        });
        Ok(own.collect())
    }

    /// Removes what somebody installed into one overlay. Their sessions go on running.
    pub async fn reset_packages(&self, actor: Actor<'_>, name: &str) -> Result<()> {
        let Some(person) = self.known_person(actor).await? else { return Err(Error::NotFound) };
        match self.scheduler.errand(&person, Errand::ResetOverlay { name: name.to_owned() }).await? {
            ErrandOutcome::Done => {}
            ErrandOutcome::Nothing => return Err(Error::NotFound),
            ErrandOutcome::Failed { message } => return Err(Error::Conflict(message)),
            other => return Err(unexpected(other)),
        }
        let now = self.clock.now();
        if let Err(error) = self.db.add_audit(now, actor.user.name.as_str(), "packages.reset", name, "").await {
            tracing::error!(%error, "failed to write an audit row");
        }
        Ok(())
    }

    /// The paths of environments of their own that somebody used before, the latest first.
    pub async fn own_environments(&self, actor: Actor<'_>) -> Result<Vec<String>> {
        let all = Filter { owner: Some(actor.user.id), limit: 200, ..Filter::default() };
        let mut paths: Vec<String> = Vec::new();
        for session in self.db.list_sessions(all).await? {
            let path = session.spec.environment.filter(|environment| is_path(environment));
            paths.extend(path.filter(|path| !paths.contains(path)));
        }
        paths.truncate(MAX_PATHS);
        Ok(paths)
    }

    /// Who somebody is on the machine. An account is not made for looking: without a session
    /// there has been nothing to install into.
    async fn known_person(&self, actor: Actor<'_>) -> Result<Option<Person>> {
        let one = Filter { owner: Some(actor.user.id), limit: 1, ..Filter::default() };
        if self.db.list_sessions(one).await?.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.scheduler.person(&PortalUser::from(actor.user)).await?))
    }

    fn runs_in(&self, session: &Session, environment: &str) -> bool {
        let takes = |app: &lyceum_node::apps::App| app.takes_environment() && app.kind != AppKind::TensorBoard;
        let asked = session.spec.environment.as_deref().unwrap_or(DEFAULT);
        self.apps.find(&session.app).is_some_and(takes) && !is_path(asked) && asked == environment
    }
}

fn unexpected(found: ErrandOutcome) -> Error {
    let why = match found {
        ErrandOutcome::Failed { message } => message,
        _ => "the home directory does not respond: its file server may be down; try again later".to_owned(),
    };
    Error::Scheduler(scheduler::Error::Unavailable(why))
}
