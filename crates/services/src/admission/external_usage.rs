//! What people hold that never came to the portal: jobs that they handed in on a shell. Whoever
//! looks at the batch system's queue keeps the list; decisions and bars count it beside what the
//! portal knows of itself. It is charged to a person, to all together, and to the
//! group whose account the batch system charges, if any.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::RwLock;

use lyceum_db::counted_groups::CountedGroups;
use lyceum_model::{
    GroupId, Resources, UserId,
    quota::{Class, Usage},
};

/// Holds the usage of jobs outside the portal. A clone shares the same list.
#[derive(Clone, Debug, Default)]
pub struct ExternalUsage(Arc<RwLock<List>>);

#[derive(Debug, Default)]
struct List {
    by_person: HashMap<UserId, UserExternalUsage>,
    all: Usage,
}

/// One person's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserExternalUsage {
    /// What the person is called in the portal.
    pub name: String,
    pub usage: Usage,
    /// The parts of it that are charged to groups.
    pub by_group: BTreeMap<GroupId, Usage>,
    /// What each job is called, and its GPUs.
    pub jobs: Vec<(String, i64)>,
}

impl UserExternalUsage {
    /// Adds a job that runs.
    pub fn add(&mut self, name: String, resources: &Resources, group: Option<GroupId>) {
        count(&mut self.usage, resources);
        if let Some(group) = group {
            count(self.by_group.entry(group).or_default(), resources);
        }
        self.jobs.push((name, resources.gpus));
    }
}

fn count(usage: &mut Usage, resources: &Resources) {
    usage.add(resources, Class::Job);
    if let Some(model) = &resources.gpu_model {
        *usage.gpus_by_model.entry(model.clone()).or_default() += resources.gpus;
    }
}

impl ExternalUsage {
    /// Exchanges the list; whether it is another one.
    pub fn set(&self, by_person: HashMap<UserId, UserExternalUsage>) -> bool {
        if self.0.read().by_person == by_person {
            return false;
        }
        let mut list = List { by_person, ..List::default() };
        for held in list.by_person.values() {
            list.all.add_held(&held.usage);
        }
        *self.0.write() = list;
        true
    }

    /// What one person holds, if anything.
    #[must_use]
    pub fn of(&self, owner: UserId) -> Option<UserExternalUsage> {
        self.0.read().by_person.get(&owner).cloned()
    }

    /// Everybody who holds something.
    #[must_use]
    pub fn all(&self) -> Vec<(UserId, UserExternalUsage)> {
        self.0.read().by_person.iter().map(|(owner, held)| (*owner, held.clone())).collect()
    }

    /// What counts in a group: what is charged to it, and all that those hold who count there as its
    /// members; without a group, what all hold together.
    #[must_use]
    pub fn counted(&self, group: Option<GroupId>, together: &CountedGroups) -> Usage {
        let list = self.0.read();
        let Some(group) = group else { return list.all.clone() };
        let mut usage = Usage::default();
        for (owner, held) in &list.by_person {
            if together.has_member(group, *owner) {
                usage.add_held(&held.usage);
            } else if let Some(charged) = held.by_group.get(&group) {
                usage.add_held(charged);
            }
        }
        usage
    }
}
