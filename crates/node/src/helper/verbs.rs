//! The verbs, one function each. What is true of the host is asked of the host every time;
//! nothing is remembered between two requests but the children to reap.

use std::{os::fd::OwnedFd, process::Child, time::Duration};

use rustix::process::Signal;

use super::{
    Config, Error, Result, VerbAnswer, account,
    batch::Orders,
    cgroup, doing,
    errand::Errands,
    failed,
    files::FilesAgents,
    identity::{self, Identity},
    launch,
    placement::{self, Record},
    privilege_mode::PrivilegeMode,
    process::{self, Life},
    remove,
};
use lyceum_model::{SessionId, session::Placement};
use lyceum_wire::protocol::{BatchOrder, Errand, ErrandOutcome, HelperAnswer, HelperRequest, LaunchRequest};

/// How long `kill` waits for what it killed. More is needed only where the kernel itself is
/// stuck (a network file system away), and then asking again is all that can be done.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Who carries out the verbs, and with what.
#[derive(Debug)]
pub struct Verbs {
    config: Config,
    way: PrivilegeMode,
    children: Vec<Child>,
    errands: Errands,
    files: FilesAgents,
    orders: Orders,
}

impl Verbs {
    /// As root: becomes whoever is asked for, within the rules of [`identity`].
    pub(super) fn root(config: Config) -> Self {
        Self::new(config, PrivilegeMode::Root)
    }

    fn new(config: Config, way: PrivilegeMode) -> Self {
        Self {
            config,
            way,
            children: Vec::new(),
            errands: Errands::default(),
            files: FilesAgents::default(),
            orders: Orders::default(),
        }
    }

    /// As the user this process runs as, who must not be root; or as others, by sudo.
    pub(super) fn ordinary(config: Config) -> Result<Self> {
        let way = PrivilegeMode::of_ordinary(&config)?;
        Ok(Self::new(config, way))
    }

    /// Whether workloads can run as other users than this process.
    pub(super) fn changes_user(&self) -> bool {
        !matches!(self.way, PrivilegeMode::SingleUser(_))
    }

    pub(super) fn answer(&mut self, request: HelperRequest) -> VerbAnswer {
        let done = |()| HelperAnswer::Done;
        let answer = match request {
            HelperRequest::Files { unix_name, launch } => {
                return match self.files(&unix_name, launch) {
                    Ok(socket) => VerbAnswer { answer: HelperAnswer::Done, socket: Some(socket) },
                    Err(err) => failed(&err).into(),
                };
            }
            HelperRequest::Launch(request) => self.launch(&request).map(|placement| HelperAnswer::Placed { placement }),
            HelperRequest::Terminate { session } => self.terminate(session).map(done),
            HelperRequest::Kill { session } => self.kill(session).map(done),
            HelperRequest::Clean { session } => self.clean(session).map(done),
            HelperRequest::Account { name } => self.account(&name).map(|unix_name| HelperAnswer::Account { unix_name }),
            HelperRequest::Errand { unix_name, errand } => self.errand(&unix_name, &errand),
            HelperRequest::Batch { session, unix_name, order } => self.batch(session, &unix_name, order),
        };
        answer.unwrap_or_else(|err| failed(&err)).into()
    }

    /// Takes note of agents that have ended, so that none stays as a zombie.
    pub fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.errands.reap();
        self.files.reap();
        self.orders.reap();
    }

    fn launch(&mut self, request: &LaunchRequest) -> Result<Placement> {
        if self.way.is_sudo() {
            return Err(Error::Refused("without root, only a batch system can start workloads".to_owned()));
        }
        let identity = self.identity(&request.unix_name)?;
        let launched = launch::launch(&self.config, request, &identity, self.way.target_identity(&identity))?;
        self.children.extend(launched.child);
        Ok(launched.placement)
    }

    fn terminate(&self, session: SessionId) -> Result<()> {
        // Where a damaged record hides the agent, `kill` finds its processes later by their groups and marks.
        let Ok(Some(record)) = self.record(session) else { return Ok(()) };
        process::signal(&record.placement, Signal::TERM).map(drop).map_err(doing("ending the agent"))
    }

    fn kill(&mut self, session: SessionId) -> Result<()> {
        let (placement, groups) = self.holdings(session);
        let gone = cgroup::kill(&groups, KILL_TIMEOUT)
            .and_then(|gone| Ok(gone & process::kill_all(|| Self::strays(session, placement.as_ref()), KILL_TIMEOUT)?))
            .map_err(doing("killing the session's processes"))?;
        self.reap();
        if gone { Ok(()) } else { Err(Error::Busy("some processes do not end, even after SIGKILL".to_owned())) }
    }

    fn clean(&mut self, session: SessionId) -> Result<()> {
        self.reap();
        let (placement, groups) = self.holdings(session);
        let mut living = cgroup::processes(&groups).map_err(doing("reading the cgroups"))?;
        living.extend(Self::strays(session, placement.as_ref()).map_err(doing("searching for processes"))?);
        if !living.is_empty() {
            return Err(Error::Busy(format!("{} processes of the session are still running", living.len())));
        }
        cgroup::remove(&groups).map_err(doing("removing the cgroups"))?;
        if !self.remove_run_directory(session)? {
            return Err(Error::Busy("the run directory is so large that removing it takes several steps".to_owned()));
        }
        // Last, because whoever looks for leftovers looks for placements.
        placement::remove(&self.config.placements, session).map_err(doing("removing the placement"))
    }

    /// Whether nothing is left of it; more may be to do in another turn.
    fn remove_run_directory(&mut self, session: SessionId) -> Result<bool> {
        let (run, name) = (&self.config.run, session.short());
        if !self.way.is_sudo() {
            return remove::remove_tree(run, &name, remove::MAX_TURN).map_err(doing("removing the run directory"));
        }
        let Some(owner) = remove::owner(&run.join(name)).map_err(doing("reading the run directory"))? else {
            return Ok(true);
        };
        let owner = identity::name_of(owner).ok_or_else(|| {
            Error::Busy(format!("the name service does not know uid {owner}, the owner of the run directory"))
        })?;
        match self.errand(&owner, &Errand::RemoveRunDirectory { session })? {
            HelperAnswer::Found { found: ErrandOutcome::Done } => Ok(true),
            HelperAnswer::Found { found: ErrandOutcome::Failed { message } } => Err(Error::Busy(message)),
            _ => Ok(false),
        }
    }

    fn account(&self, name: &str) -> Result<String> {
        if !matches!(self.way, PrivilegeMode::Root) {
            return Err(Error::Refused(
                "Unix accounts can only be created by a portal that was started by root".to_owned(),
            ));
        }
        account::ensure(name, &self.config.account_uids)
    }

    fn errand(&mut self, unix_name: &str, errand: &Errand) -> Result<HelperAnswer> {
        let identity = self.identity(unix_name)?;
        let found = self.errands.run(&self.config, &self.way, &identity, errand)?;
        Ok(found.map_or(HelperAnswer::Looking, |found| HelperAnswer::Found { found }))
    }

    fn batch(&mut self, session: SessionId, unix_name: &str, order: BatchOrder) -> Result<HelperAnswer> {
        let identity = self.identity(unix_name)?;
        let ran = self.orders.run(&self.config, &self.way, &identity, session, order)?;
        Ok(ran.map_or(HelperAnswer::Looking, |ran| HelperAnswer::Ran { ran }))
    }

    fn files(&mut self, unix_name: &str, launch: serde_json::Value) -> Result<OwnedFd> {
        let identity = self.identity(unix_name)?;
        self.files.start(&self.config, &self.way, &identity, launch)
    }

    /// Whom something may be done as.
    fn identity(&self, unix_name: &str) -> Result<Identity> {
        let PrivilegeMode::SingleUser(own) = &self.way else {
            let identity = Identity::look_up(unix_name)?;
            if identity.uid == self.config.service_uid {
                return Err(Error::Refused(format!("`{unix_name}` is the portal's own account")));
            }
            return Ok(identity);
        };
        if own.name == unix_name {
            return Ok(own.clone());
        }
        Err(Error::Refused(format!(
            "this portal was not started by root, so it runs everything as `{}`, not as `{unix_name}`",
            own.name
        )))
    }

    fn record(&self, session: SessionId) -> Result<Option<Record>> {
        placement::read(&self.config.placements, session).map_err(doing("reading the placement"))
    }

    /// What a session has on this machine: where it was placed, and all cgroups it may be in.
    fn holdings(&self, session: SessionId) -> (Option<Placement>, Vec<std::path::PathBuf>) {
        let mut groups = self.config.hierarchy.groups(&session.short());
        // A damaged record says nothing: then all that bears the session's name is its own.
        let Ok(Some(record)) = self.record(session) else { return (None, groups) };
        for group in record.cgroups {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        (Some(record.placement), groups)
    }

    /// The session's processes that no cgroup tells: all of them where there is none.
    fn strays(session: SessionId, placement: Option<&Placement>) -> std::io::Result<std::collections::BTreeSet<i32>> {
        let is_sampled = placement.is_none_or(|placement| placement.limits == "sampled");
        if is_sampled {
            return process::of_session(session, placement);
        }
        let agent = placement.filter(|placement| !matches!(process::life(placement), Life::Dead));
        Ok(agent.map(|placement| placement.pid).into_iter().collect())
    }
}
