//! Profiles: named sizes that a request can name instead of numbers. They come from the configuration file and from
//! administrators; where neither has any, the portal calculates some from the hardware. A profile may be for the members
//! of some groups. What runs keeps its size whatever becomes of its profile.

mod added;
mod shipped;

pub use added::{Error, MAX_POSITION, NewProfile};
pub(crate) use added::{checked, told};

use parking_lot::RwLock;

use super::{Actor, Sessions};
use lyceum_model::Resources;

/// A named size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: String,
    pub title: String,
    pub resources: Resources,
    pub duration_seconds: i64,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// Lists show smaller numbers first. Those of the configuration file have 10, 20, 30 and so on.
    pub position: i64,
    pub origin: Origin,
}

/// Where a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The portal calculated it from the hardware.
    Shipped,
    /// The configuration file.
    File,
    /// An administrator, while the portal runs.
    Added { by: String },
}

/// The profiles of the configuration file and those that administrators added, in the order of lists.
pub struct Profiles {
    known: RwLock<Vec<Profile>>,
    /// Held while one is changed.
    changes: tokio::sync::Mutex<()>,
}

impl Profiles {
    pub(super) fn new(configured: Vec<Profile>) -> Self {
        Self { known: RwLock::new(configured), changes: tokio::sync::Mutex::default() }
    }

    fn find(&self, name: &str) -> Option<Profile> {
        self.known.read().iter().find(|one| one.name == name).cloned()
    }

    /// Replaces the profile of this name, or adds it.
    fn put(&self, profile: Profile) {
        let mut known = self.known.read().clone();
        known.retain(|one| one.name != profile.name);
        known.push(profile);
        self.set(known);
    }

    fn set(&self, mut all: Vec<Profile>) {
        // Equal numbers stay in the order of their names, those of the file first.
        all.sort_by(|one, other| order(one).cmp(&order(other)));
        *self.known.write() = all;
    }
}

fn order(one: &Profile) -> (i64, bool, Option<&str>) {
    let is_added = matches!(one.origin, Origin::Added { .. });
    (one.position, is_added, is_added.then_some(one.name.as_str()))
}

impl Sessions {
    /// Returns the profiles that this user may choose, in the order of lists.
    pub fn profiles_for(&self, actor: Actor<'_>) -> Vec<Profile> {
        let mut all = self.all_profiles();
        all.retain(|one| actor.user.may_use(&one.groups));
        all
    }

    /// Returns the profiles of all groups, in the order of lists.
    pub fn all_profiles(&self) -> Vec<Profile> {
        let known = self.profiles.known.read();
        if known.is_empty() { self.shipped_profiles() } else { known.clone() }
    }

    /// Returns the profiles of the configuration file.
    pub fn configured_profiles(&self) -> &[Profile] {
        &self.config.profiles
    }

    /// Returns the profiles that the portal calculates from the hardware, whether or not they are used.
    pub fn shipped_profiles(&self) -> Vec<Profile> {
        shipped::profiles(&self.scheduler.largest())
    }
}
