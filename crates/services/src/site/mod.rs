//! A site as data: users, groups, who is in them, limits, profiles and announcements, declared in a file. [`apply`] compares the
//! declaration with what is stored, and makes what differs true in one transaction, by the functions and rules of the
//! single changes. [`plan`](plan::Plan) says what differs and is pure; `export` writes what `apply` reads.

pub mod declared;
mod export;
mod limits;
mod plan;
mod profiles;

use sha2::{Digest, Sha256};

use crate::{
    admission::slurm_limits::SharedSlurmLimits,
    announcements::Announcements,
    auth::{self, Access, Principal, people::giver_of_rights},
    sessions::Sessions,
};
pub use declared::{Declared, Limits, Site, SiteGroup, SiteLimit, SiteUser};
pub use export::export;
use lyceum_db::{
    self as db,
    audit::ChangedBy,
    site::{Commit, SiteOutcome, SiteState},
};
use lyceum_model::{FieldError, Timestamp};
pub use plan::{Action, PlannedChange};

/// The services that an application of a file concerns.
#[derive(Clone, Copy)]
pub struct Services<'a> {
    pub access: &'a Access,
    pub announcements: &'a Announcements,
    pub sessions: &'a Sessions,
    /// Accounts come from a directory too.
    pub has_directory: bool,
}

/// How to apply a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Make the plan and nothing else.
    pub dry_run: bool,
    /// Also remove what the file does not list, within what it declares.
    pub prune: bool,
    /// The version of the plan that was shown. Another plan is not carried out.
    pub expected: Option<String>,
}

/// What a file changes, or has changed.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub changes: Vec<PlannedChange>,
    /// What only `prune` would remove.
    pub unlisted: Vec<PlannedChange>,
    /// New accounts without a password, each with the secret that opens it. Empty in a dry run.
    pub invitations: Vec<NewInvitation>,
    /// Identifies the plan.
    pub version: String,
}

/// A new account that its owner opens by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInvitation {
    pub name: String,
    pub secret: String,
    pub expires_at: Timestamp,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every fault of the file, each with its place.
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    /// The plan is not the expected one.
    #[error("changed by another request")]
    Stale,
    #[error(transparent)]
    Auth(#[from] auth::Error),
    #[error("database error")]
    Db(#[from] db::Error),
}

/// Compares a declaration with what is stored and makes what differs true: all of it or nothing.
///
/// `faults` are those that reading the file found. With any fault nothing is changed, and all are returned.
pub async fn apply(
    services: Services<'_>,
    actor: &Principal,
    declared: &Declared,
    faults: Vec<FieldError>,
    options: &Options,
) -> Result<Applied> {
    giver_of_rights(actor)?;
    let now = services.sessions.clock.now();
    let by = ChangedBy { actor: actor.user.name.as_str(), at: now };
    let commit = if options.dry_run { Commit::DryRun } else { Commit::Yes };
    let _turn = services.sessions.change_profiles().await;
    let mut made = None;
    let outcome = services
        .sessions
        .db
        .apply_site(commit, by, |state| {
            let rules = plan::Rules {
                actor,
                now,
                prune: options.prune,
                has_outside_accounts: services.has_directory || services.access.has_header(),
                slurm_keeps_limits: services.sessions.admission.slurm_limits.is_some(),
                configured: services.sessions.configured_profiles(),
            };
            let mut plan = plan::Plan::new(declared, state, rules);
            plan.faults.splice(0..0, faults);
            let version = version(&plan.changes);
            let is_stale = options.expected.as_ref().is_some_and(|expected| *expected != version);
            let is_wanted = plan.faults.is_empty() && !is_stale && !plan.steps.is_empty();
            let plan::Plan { steps, places, changes, unlisted, invitations, faults, .. } = plan;
            let applied = Applied { changes, unlisted, invitations, version };
            made = Some((applied, places, faults, is_stale));
            is_wanted.then_some(steps)
        })
        .await?;
    let (applied, places, faults, is_stale) = made.ok_or(db::Error::Stored("state of the site"))?;
    if !faults.is_empty() {
        return Err(Error::Invalid(faults));
    }
    if is_stale {
        return Err(Error::Stale);
    }
    match outcome {
        SiteOutcome::Refused(step, error) => {
            let place = places.get(step).cloned().unwrap_or_default();
            Err(Error::Invalid(vec![FieldError::new(place, "conflict", error.to_string())]))
        }
        SiteOutcome::RolledBack => Ok(Applied { invitations: Vec::new(), ..applied }),
        SiteOutcome::Done => {
            services.access.poll().await?;
            services.announcements.refresh().await?;
            services.sessions.load_profiles().await?;
            // Raising a limit lets waiters in at once.
            services.sessions.wake();
            Ok(applied)
        }
    }
}

/// Reads everything that a file can declare, as a file.
pub async fn read(sessions: &Sessions) -> Result<Site> {
    let state = sessions.db.site_state(sessions.clock.now()).await?;
    let mut state = as_it_binds(state, sessions.admission.slurm_limits.as_ref());
    // The configuration file has others of these names, which a file cannot declare.
    let configured = sessions.configured_profiles();
    state.profiles.retain(|row| configured.iter().all(|one| one.name != row.name));
    Ok(export(&state))
}

/// Without the limits that Slurm keeps itself.
fn as_it_binds(mut state: SiteState, slurm: Option<&SharedSlurmLimits>) -> SiteState {
    if slurm.is_some() {
        let levels = state.user_limits.values_mut().chain(state.groups.iter_mut().map(|group| &mut group.limits));
        for limits in levels.chain([&mut state.default_limits, &mut state.cluster_limits]) {
            limits.retain(|limit| !limit.field.is_slurms());
        }
    }
    state
}

/// Identifies a plan: the same changes of the same values have the same version.
fn version(changes: &[PlannedChange]) -> String {
    let text = serde_json::to_string(changes).unwrap_or_default();
    hex::encode(&Sha256::digest(text)[..16])
}
