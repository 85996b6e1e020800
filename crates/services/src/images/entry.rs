//! One image of the catalogue: what it is, who may use it, what is stored of it, and how far a pull is. All of it is
//! plain data; the words are those that users read.

use std::{path::PathBuf, sync::Arc};

use lyceum_images::{Image, RootForm};
use lyceum_model::{Role, Timestamp, User, UserId, cuda};
use lyceum_wire::protocol::{
    Container,
    container::{Runner, Writable},
};

use super::Source;

/// An image that sessions and jobs can name.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Empty: the source says enough.
    pub title: String,
    pub source: Source,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// The only user who may use it.
    pub owner: Option<UserId>,
    /// The user who added it; absent for an image of the configuration file.
    pub added_by: Option<String>,
    /// What workloads run with: what the source named when it was pulled last.
    pub stored: Option<Arc<Image>>,
    pub pulled_at: Option<Timestamp>,
    pub work: Work,
    /// When a pull ended since the portal was started.
    pub ended_at: Option<Timestamp>,
    /// Distinguishes it from a removed image of the same name.
    pub(super) serial: u64,
}

/// What is done with an image now, or how the last pull failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Work {
    #[default]
    None,
    Pulling(Amount),
    Unpacking(Amount),
    /// The reason, as a sentence for people.
    Failed(String),
}

/// How far a pull is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub bytes: u64,
    /// Known once the registry has listed the layers.
    pub total: Option<u64>,
}

impl Amount {
    /// Returns a percentage, at most 99 before the end.
    #[must_use]
    pub fn percent(self) -> Option<u64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((u128::from(self.bytes) * 100 / u128::from(total)).min(99).try_into().unwrap_or(99))
    }
}

/// Where an image is on the way to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Missing,
    Pulling,
    Unpacking,
    Ready,
    Failed,
}

impl State {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Pulling => "pulling",
            Self::Unpacking => "unpacking",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// Where JupyterLab runs for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lab {
    /// In the image.
    Inside,
    /// On the host, with its kernel in the image, which has no JupyterLab of its own.
    Outside,
    /// Nowhere: the image has neither JupyterLab nor ipykernel.
    None,
}

/// Returns where JupyterLab runs for an image. One that was not looked into is believed to have it.
#[must_use]
pub fn lab(image: &Image) -> Lab {
    match &image.contents {
        None => Lab::Inside,
        Some(contents) if contents.has("jupyterlab") => Lab::Inside,
        // The messages of a kernel travel through sockets that only bubblewrap's containers are given.
        Some(contents) if contents.has("ipykernel") && image.form != RootForm::Sif => Lab::Outside,
        Some(_) => Lab::None,
    }
}

/// Returns why a driver is too old for an image, as a sentence with both versions.
#[must_use]
pub fn driver_objection(name: &str, image: &Image, driver: cuda::Driver) -> Option<String> {
    let config = image.config.as_ref()?;
    let is_off =
        |(name, value): &(String, String)| name == "NVIDIA_DISABLE_REQUIRE" && (value == "1" || value == "true");
    let require = config.require_cuda.as_deref().filter(|_| !config.env.iter().any(is_off))?;
    cuda::unmet_requirement(name, require, driver)
}

/// Whether a workload can start in an image.
#[derive(Clone, Debug)]
pub enum Readiness {
    Ready(Box<Entry>, Arc<Image>),
    /// It is being pulled; the sentence says how far that is.
    Waits(String),
    /// It cannot, for the reason that the sentence says.
    Never(String),
}

impl Entry {
    /// Returns the state. An image that is updated can be used meanwhile, and also if the update fails.
    #[must_use]
    pub fn state(&self) -> State {
        match (&self.work, &self.stored) {
            (Work::Pulling(_), _) => State::Pulling,
            (Work::Unpacking(_), _) => State::Unpacking,
            (_, Some(_)) => State::Ready,
            (Work::Failed(_), None) => State::Failed,
            (Work::None, None) => State::Missing,
        }
    }

    /// Returns how far a pull is that goes on.
    #[must_use]
    pub fn amount(&self) -> Option<Amount> {
        match self.work {
            Work::Pulling(amount) | Work::Unpacking(amount) => Some(amount),
            Work::None | Work::Failed(_) => None,
        }
    }

    /// Returns why the last pull failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        match &self.work {
            Work::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns whether a user may use it. Administrators use the images of all groups, and no other user's own.
    #[must_use]
    pub fn allows(&self, user: &User) -> bool {
        if let Some(owner) = self.owner {
            return owner == user.id;
        }
        user.may_use(&self.groups)
    }

    /// Returns whether a user may see that it exists, and for what it is pulled or removed.
    #[must_use]
    pub fn is_visible_to(&self, user: &User) -> bool {
        user.role == Role::Admin || self.allows(user)
    }

    /// Returns whether a user may pull and remove it.
    #[must_use]
    pub fn may_change(&self, user: &User) -> bool {
        user.role == Role::Admin || self.owner == Some(user.id)
    }

    /// Returns whether a user added it, or it is theirs alone: then how a pull ends is news to them.
    #[must_use]
    pub fn is_of(&self, user: &User) -> bool {
        self.owner == Some(user.id) || self.added_by.as_deref() == Some(user.name.as_str())
    }

    /// Returns whether a workload can start in it.
    pub(super) fn readiness(&self) -> Readiness {
        let name = &self.name;
        if let Some(image) = &self.stored {
            return Readiness::Ready(Box::new(self.clone()), image.clone());
        }
        let (amount, verb) = match &self.work {
            Work::Failed(reason) => {
                return Readiness::Never(format!("The image ‘{name}’ could not be pulled: {reason}"));
            }
            Work::Unpacking(amount) => (*amount, "unpacked"),
            Work::Pulling(amount) => (*amount, "pulled"),
            Work::None => (Amount::default(), "pulled"),
        };
        Readiness::Waits(match amount.percent() {
            Some(percent) => format!("Waits for image ‘{name}’, {percent} % {verb}."),
            None => format!("Waits for image ‘{name}’, which is being {verb}."),
        })
    }

    /// Returns how a program is started in the stored image, with these folders of the host inside. Programs run as
    /// they were written, and not through the image's entrypoint.
    #[must_use]
    pub fn container(&self, image: &Image, mounts: Vec<PathBuf>) -> Container {
        let config = image.config.clone().unwrap_or_default();
        Container {
            name: self.name.clone(),
            digest: image.digest.to_string(),
            root: image.root(),
            env: config.env.into_iter().filter(|(name, _)| !name.is_empty()).collect(),
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            working_dir: Some(PathBuf::from(config.working_dir)).filter(|folder| folder.is_absolute()),
            use_entrypoint: false,
            runner: if image.form == RootForm::Sif { Runner::Apptainer } else { Runner::Bwrap },
            writable: Writable::Discard,
            mounts,
            gpus: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::Username;

    fn entry(work: Work) -> Entry {
        Entry {
            name: "torch".to_owned(),
            title: String::new(),
            source: "nvcr.io/nvidia/pytorch:26.10".parse().unwrap(),
            groups: vec!["vision".to_owned()],
            owner: None,
            added_by: None,
            stored: None,
            pulled_at: None,
            ended_at: None,
            work,
            serial: 0,
        }
    }

    #[test]
    fn states_and_sentences() {
        let amount = |bytes, total| Amount { bytes, total };
        for (work, state, sentence) in [
            (Work::None, "missing", "Waits for image ‘torch’, which is being pulled."),
            (Work::Pulling(amount(0, None)), "pulling", "Waits for image ‘torch’, which is being pulled."),
            (Work::Pulling(amount(43, Some(100))), "pulling", "Waits for image ‘torch’, 43 % pulled."),
            (Work::Unpacking(amount(200, Some(100))), "unpacking", "Waits for image ‘torch’, 99 % unpacked."),
            (Work::Failed("no.".to_owned()), "failed", "The image ‘torch’ could not be pulled: no."),
        ] {
            let entry = entry(work);
            assert_eq!(entry.state().as_str(), state);
            match entry.readiness() {
                Readiness::Waits(said) => assert!(said == sentence && state != "failed", "{said}"),
                Readiness::Never(said) => assert!(said == sentence && state == "failed", "{said}"),
                Readiness::Ready(..) => panic!("nothing is stored"),
            }
        }
    }

    #[test]
    fn groups_and_owners_bind() {
        let user = |role, groups: &[&str]| User {
            id: UserId::new(),
            name: Username::parse("ada").unwrap(),
            display_name: String::new(),
            source: "local".to_owned(),
            unix_name: None,
            directory_unix_name: None,
            role,
            given_role: role,
            disabled: false,
            expires_at: None,
            expired_at: None,
            dormant_at: None,
            absent_since: None,
            uid_number: None,
            groups: groups.iter().map(|name| (*name).to_owned()).collect(),
            manages: Vec::new(),
            created_at: Timestamp(0),
            last_seen_at: None,
        };
        let one = entry(Work::None);
        let (member, other, admin) =
            (user(Role::User, &["x", "vision"]), user(Role::User, &["x"]), user(Role::Admin, &[]));
        assert!(one.allows(&member) && !one.allows(&other) && one.allows(&admin));
        assert!(!one.may_change(&member) && one.may_change(&admin));
        assert!(Entry { groups: Vec::new(), ..one.clone() }.allows(&other));
        let private = Entry { groups: Vec::new(), owner: Some(member.id), ..one };
        assert!(private.allows(&member) && !private.allows(&other) && !private.allows(&admin));
        assert!(private.is_visible_to(&admin) && !private.is_visible_to(&other));
        assert!(private.may_change(&member) && private.may_change(&admin) && !private.may_change(&other));
    }
}
