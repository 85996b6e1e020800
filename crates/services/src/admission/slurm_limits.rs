//! Limits that Slurm keeps itself (`scheduler.slurm.quotas = "read"`): what it said of them last, for
//! everybody. Whoever reads that from Slurm exchanges it; decisions, bars and forms take it in the
//! place of what the portal would say of the same. Until it was read first, nothing is limited here.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;

use lyceum_model::{
    GroupId, UserId,
    quota::{Field, Limit, SlurmLimits, SlurmSource, Source, Total, TotalScope, Usage},
};

/// Why nobody changes limits in the portal where Slurm keeps them.
pub const READ_ONLY: &str = "Slurm keeps the limits of this cluster, and the portal only reads them. Change them with sacctmgr. For limits \
     that Slurm does not have, use `lyceum admin quota set` on the portal’s machine.";

/// Holds the last limits that were read from Slurm. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct SharedSlurmLimits(Arc<RwLock<SlurmLimitTable>>);

/// Holds the Slurm limits of all users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmLimitTable {
    /// By person and by the group that is charged; `None` is what is charged to none that has an account.
    pub people: HashMap<(UserId, Option<GroupId>), SlurmLimits>,
    /// What those charge who can charge one group alone.
    pub usual: HashMap<UserId, GroupId>,
    /// The groups that have an account.
    pub groups: HashMap<GroupId, AccountLimits>,
}

/// Holds the limits of a group's Slurm account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// The account.
    pub source: Source,
    pub account: String,
    pub limits: Vec<(Field, Limit)>,
    /// What it holds by Slurm's count: all that is charged to it, wherever it was handed in.
    pub held: Usage,
    /// What else Slurm limits there that the portal does not count alike, in Slurm's words.
    pub besides: Vec<String>,
}

impl SharedSlurmLimits {
    /// Exchanges what is known; whether it is something else.
    pub fn set(&self, reading: SlurmLimitTable) -> bool {
        let mut known = self.0.write();
        let changed = *known != reading;
        *known = reading;
        changed
    }

    /// All of it, to tell whether it is something else.
    pub(super) fn text(&self) -> String {
        format!("{:?}", self.0.read())
    }

    /// What one person is kept to who charges this group.
    #[must_use]
    pub fn of(&self, owner: Option<UserId>, group: Option<GroupId>) -> SlurmLimits {
        let known = self.0.read();
        let group = group.filter(|group| known.groups.contains_key(group));
        let found = owner.and_then(|owner| known.people.get(&(owner, group)));
        found
            .cloned()
            .unwrap_or_else(|| SlurmLimits { source: Source::Slurm(SlurmSource::Unknown), ..SlurmLimits::default() })
    }

    /// What somebody charges where nothing is said, as far as that is known here.
    #[must_use]
    pub fn usual_group(&self, owner: UserId) -> Option<GroupId> {
        self.0.read().usual.get(&owner).copied()
    }

    /// What a group's account may hold; `None` where it has none.
    #[must_use]
    pub fn together(&self, group: GroupId) -> Option<AccountLimits> {
        self.0.read().groups.get(&group).cloned()
    }

    /// Takes what the portal says of all together out of what Slurm keeps, and puts Slurm's in.
    pub(super) fn apply(&self, group: Option<GroupId>, totals: &mut [Total]) {
        for total in totals {
            total.limits.retain(|(field, _)| !field.is_slurms());
            let charged = group.filter(|group| matches!(total.whose, TotalScope::Group { id, .. } if id == *group));
            if let Some(together) = charged.and_then(|group| self.together(group)) {
                total.limits.extend(together.limits.iter().cloned());
                together.count(&mut total.usage);
            }
        }
    }
}

impl AccountLimits {
    /// Puts Slurm's count in the place of ours; hours and what waits stay the portal's.
    pub fn count(&self, usage: &mut Usage) {
        let Usage { gpus, gpus_by_model, cpus, memory_bytes, sessions, jobs, .. } = self.held.clone();
        *usage = Usage { gpus, gpus_by_model, cpus, memory_bytes, sessions, jobs, ..usage.clone() };
    }
}
