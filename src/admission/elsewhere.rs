//! What people hold that never came to the portal: jobs that they handed in on a shell. Whoever
//! looks at the batch system's queue keeps the list; decisions and bars count it beside what the
//! portal knows of itself. It is charged to a person and to all together, and to no group.

use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;

use crate::model::{
    Resources, UserId,
    quota::{Class, Usage},
};

/// What is held elsewhere, by person. A copy is another handle on the same list.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<RwLock<HashMap<UserId, Held>>>);

/// One person's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What the person is called in the portal.
    pub name: String,
    pub usage: Usage,
    /// What each job is called, and its GPUs.
    pub jobs: Vec<(String, i64)>,
}

impl Held {
    /// Adds a job that runs.
    pub fn add(&mut self, name: String, resources: &Resources) {
        self.usage.add(resources, Class::Job);
        if let Some(model) = &resources.gpu_model {
            *self.usage.gpus_by_model.entry(model.clone()).or_default() += resources.gpus;
        }
        self.jobs.push((name, resources.gpus));
    }
}

impl Elsewhere {
    /// Exchanges the list; whether it is another one.
    pub fn set(&self, held: HashMap<UserId, Held>) -> bool {
        let mut list = self.0.write();
        let changed = *list != held;
        *list = held;
        changed
    }

    /// What one person holds, if anything.
    #[must_use]
    pub fn of(&self, owner: UserId) -> Option<Held> {
        self.0.read().get(&owner).cloned()
    }

    /// Everybody who holds something.
    #[must_use]
    pub fn all(&self) -> Vec<(UserId, Held)> {
        self.0.read().iter().map(|(owner, held)| (*owner, held.clone())).collect()
    }
}
