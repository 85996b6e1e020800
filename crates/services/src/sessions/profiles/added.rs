//! Profiles that administrators add while the portal runs. They are stored in the database and listed together with those
//! of the configuration file. Names of the file cannot be added; if the file gets a name later, the stored profile is
//! ignored. One change is made at a time.

use super::{
    super::{
        Sessions,
        request::{check_duration, check_resources},
    },
    Origin, Profile,
};
use lyceum_db::{self as db, audit::ChangedBy, profiles::ProfileRow};
use lyceum_model::{FieldError, Resources, group, line, size::human_size, time::human_duration};

/// The longest name, in bytes.
const MAX_NAME_LENGTH: usize = 32;
/// The longest title, in characters.
const MAX_TITLE_LENGTH: usize = 60;
/// The largest number that the order can have.
pub const MAX_POSITION: i64 = 1_000_000;

/// A profile to be added, or what one is changed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProfile {
    pub name: String,
    /// For people; empty: the name.
    pub title: String,
    pub resources: Resources,
    pub duration_seconds: i64,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// `None`: after all others, or where it was.
    pub position: Option<i64>,
}

/// Why a profile cannot be added, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("profile not found")]
    NotFound,
    #[error("invalid profile")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(String),
    #[error("database error")]
    Db(#[from] db::Error),
}

type Result<T> = std::result::Result<T, Error>;

impl Sessions {
    /// Reads the profiles that administrators have added. Those whose name is in the configuration file are ignored.
    pub async fn load_profiles(&self) -> db::Result<()> {
        let configured = self.configured_profiles();
        let (ignored, used): (Vec<_>, Vec<_>) =
            self.db.profiles().await?.into_iter().partition(|row| configured.iter().any(|one| one.name == row.name));
        for row in ignored {
            tracing::warn!(
                name = row.name,
                "ignoring a profile that an administrator added: its name is in the configuration file"
            );
        }
        self.profiles.set(configured.iter().cloned().chain(used.into_iter().map(Profile::from)).collect());
        Ok(())
    }

    /// Waits for the turn to change profiles, which ends when what is returned is dropped.
    pub(crate) async fn change_profiles(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.profiles.changes.lock().await
    }

    /// Adds a profile. The first one replaces those that the portal calculates.
    pub async fn add_profile(&self, new: NewProfile, by: ChangedBy<'_>) -> Result<Profile> {
        let _turn = self.change_profiles().await;
        let new = checked(new)?;
        let taken = || {
            let message = format!("There is already a profile `{}`.", new.name);
            Error::Invalid(vec![FieldError::new("name", "taken", message)])
        };
        if self.profiles.find(&new.name).is_some() {
            return Err(taken());
        }
        let last = self.profiles.known.read().last().map_or(0, |last| last.position);
        let row = new.row(last.saturating_add(10).min(MAX_POSITION), by.actor, by.at);
        match self.db.add_profile(&row, &by.did("profile.add", &new.name, &told(&row))).await {
            Err(db::Error::Unique) => return Err(taken()),
            added => added?,
        }
        let profile = Profile::from(row);
        self.profiles.put(profile.clone());
        Ok(profile)
    }

    /// Changes a profile that an administrator added. Sessions and jobs keep the size that they were started with.
    pub async fn change_profile(&self, new: NewProfile, by: ChangedBy<'_>) -> Result<Profile> {
        let _turn = self.change_profiles().await;
        let (before, added_by) = self.added(&new.name)?;
        let row = checked(new)?.row(before.position, &added_by, by.at);
        let profile = Profile::from(row.clone());
        if profile == before {
            return Ok(before);
        }
        if !self.db.change_profile(&row, &by.did("profile.change", &row.name, &told(&row))).await? {
            return Err(Error::NotFound);
        }
        self.profiles.put(profile.clone());
        Ok(profile)
    }

    /// Removes a profile that an administrator added. Sessions and jobs keep their size.
    pub async fn remove_profile(&self, name: &str, by: ChangedBy<'_>) -> Result<()> {
        let _turn = self.change_profiles().await;
        self.added(name)?;
        if !self.db.remove_profile(name, &by.did("profile.remove", name, "")).await? {
            return Err(Error::NotFound);
        }
        self.profiles.known.write().retain(|one| one.name != name);
        Ok(())
    }

    /// A profile that an administrator added, and who did.
    fn added(&self, name: &str) -> Result<(Profile, String)> {
        let found = self.all_profiles().into_iter().find(|one| one.name == name).ok_or(Error::NotFound)?;
        match found.origin.clone() {
            Origin::Added { by } => Ok((found, by)),
            Origin::File => {
                Err(Error::Conflict(format!("the profile `{name}` is in the configuration file; change it there")))
            }
            Origin::Shipped => Err(Error::Conflict(format!(
                "the portal calculates the profile `{name}` from the hardware; add profiles to replace those"
            ))),
        }
    }
}

impl NewProfile {
    pub(crate) fn row(&self, position: i64, by: &str, at: lyceum_model::Timestamp) -> ProfileRow {
        ProfileRow {
            name: self.name.clone(),
            title: if self.title.is_empty() { self.name.clone() } else { self.title.clone() },
            resources: self.resources.clone(),
            duration_seconds: self.duration_seconds,
            groups: self.groups.clone(),
            position: self.position.unwrap_or(position),
            added_by: by.to_owned(),
            added_at: at,
        }
    }
}

impl From<ProfileRow> for Profile {
    fn from(row: ProfileRow) -> Self {
        let ProfileRow { name, title, resources, duration_seconds, groups, position, added_by, .. } = row;
        Self { name, title, resources, duration_seconds, groups, position, origin: Origin::Added { by: added_by } }
    }
}

/// The audit log's words for a profile: `2 GPUs (A100), 16 cores, 96 GiB, 8 h, for vision`.
pub(crate) fn told(row: &ProfileRow) -> String {
    let size = &row.resources;
    let gpus = match (size.gpus, &size.gpu_model) {
        (0, _) => None,
        (n, Some(model)) => Some(format!("gpus={n} ({model})")),
        (n, None) => Some(format!("gpus={n}")),
    };
    let rest = format!(
        "cpus={}, memory={}, duration={}, position={}",
        size.cpus,
        human_size(size.memory_bytes),
        human_duration(row.duration_seconds),
        row.position
    );
    let groups = (!row.groups.is_empty()).then(|| format!("groups={}", row.groups.join(" ")));
    gpus.into_iter().chain([rest]).chain(groups).collect::<Vec<_>>().join(", ")
}

/// What was entered, without space around it and with each group once, or every fault.
pub(crate) fn checked(mut new: NewProfile) -> Result<NewProfile> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));
    new.name = String::from(new.name.trim());
    if !line::is_short_name(&new.name, MAX_NAME_LENGTH) {
        let message = "Enter 1 to 32 characters of a-z, 0-9, `_`, `.` and `-`, starting with a letter or digit.";
        fault("name", "invalid_name", message);
    } else if RESERVED.contains(&new.name.as_str()) {
        fault("name", "reserved", "The portal uses this name itself. Choose another name.");
    }
    check_resources(&new.resources, &mut fault);
    if new.resources.gpu_model.is_some() && new.resources.gpus == 0 {
        fault("resources.gpu_model", "not_available", "must be omitted for a size without GPUs");
    }
    check_duration(new.duration_seconds, "session", &mut fault);
    if new.position.is_some_and(|position| !(0..=MAX_POSITION).contains(&position)) {
        fault("position", "out_of_range", "must be from 0 to 1000000");
    }
    match group::parse_names(&new.groups) {
        Ok(groups) => new.groups = groups,
        Err(wrong) => faults.push(wrong),
    }
    match line::parse("title", &new.title, MAX_TITLE_LENGTH) {
        Ok(title) => new.title = title,
        Err(wrong) => faults.push(wrong),
    }
    if faults.is_empty() { Ok(new) } else { Err(Error::Invalid(faults)) }
}

/// What the form of a session says for a size of one's own, and for the small one of an app.
const RESERVED: [&str; 2] = ["custom", "app"];

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::size::GIB;

    fn new(name: &str) -> NewProfile {
        let resources = Resources { gpus: 1, gpu_model: None, cpus: 8, memory_bytes: 48 * GIB };
        let (title, groups) = ("1 GPU".to_owned(), Vec::new());
        NewProfile { name: name.to_owned(), title, resources, duration_seconds: 3600, groups, position: None }
    }

    #[test]
    fn all_faults_are_told_together() {
        let tidy = checked(NewProfile {
            title: " One GPU ".to_owned(),
            groups: vec![" vision ".to_owned(), "audio".to_owned(), "vision".to_owned(), String::new()],
            ..new(" gpu-1 ")
        });
        let tidy = tidy.unwrap();
        assert_eq!((tidy.name.as_str(), tidy.title.as_str()), ("gpu-1", "One GPU"));
        assert_eq!(tidy.groups, ["audio", "vision"]);
        let sized = |gpus, model: Option<&str>, cpus, memory_bytes| NewProfile {
            resources: Resources { gpus, gpu_model: model.map(str::to_owned), cpus, memory_bytes },
            ..new("x")
        };
        for (bad, fields) in [
            (new(""), "name"),
            (new("custom"), "name"),
            (new("../x"), "name"),
            (NewProfile { title: "a\nb".to_owned(), duration_seconds: 59, ..new("X") }, "name duration_seconds title"),
            (sized(-1, None, 0, 1), "resources.gpus resources.cpus resources.memory_bytes"),
            (sized(0, Some("A100"), 1, GIB), "resources.gpu_model"),
            (NewProfile { position: Some(-1), groups: vec!["a\nb".to_owned()], ..new("x") }, "position groups"),
            (NewProfile { groups: (0..51).map(|n| n.to_string()).collect(), ..new("x") }, "groups"),
        ] {
            let Err(Error::Invalid(faults)) = checked(bad.clone()) else { panic!("{bad:?}") };
            assert_eq!(faults.iter().map(|one| one.field.as_str()).collect::<Vec<_>>().join(" "), fields, "{bad:?}");
        }
    }

    #[test]
    fn the_audit_log_has_every_number() {
        let mut row = new("x").row(20, "ada", lyceum_model::Timestamp(0));
        assert_eq!(told(&row), "gpus=1, cpus=8, memory=48 GiB, duration=1 h, position=20");
        row.resources = Resources { gpus: 0, ..row.resources };
        row.groups = vec!["audio".to_owned(), "vision".to_owned()];
        assert_eq!(told(&row), "cpus=8, memory=48 GiB, duration=1 h, position=20, groups=audio vision");
    }
}
