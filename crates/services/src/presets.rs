//! Presets of requests: who may save, use, share and remove them, and what a request becomes that names one. The fields
//! of a request take precedence over those of its preset; what a preset names is checked when it is used.

use lyceum_db::{self as db, Db, audit::Entry, presets::SaveOutcome};
use lyceum_model::{
    Clock, FieldError, GroupId, PresetId, Role, User,
    description::parse_name,
    preset::{Preset, PresetHolder, PresetKind},
};

use crate::{
    jobs::JobRequest,
    sessions::{Options, StartRequest},
};

/// How many presets a user can save, and how many a group can have.
pub const MAX_PRESETS: i64 = 50;

/// The longest request that a preset stores (bytes of JSON). A script has at most half of it.
const MAX_REQUEST_LENGTH: usize = 128 * 1024;

/// The parts of names of environment variables that hold secrets.
const SECRET_NAMES: [&str; 6] = ["TOKEN", "PASSWORD", "PASSWD", "SECRET", "CREDENTIAL", "KEY"];

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("preset not found")]
    NotFound,
    #[error("validation failed")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("changed by another request")]
    Stale,
    #[error("database error")]
    Db(#[from] db::Error),
}

impl Error {
    fn field(field: &str, code: &str, message: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError::new(field, code, message)])
    }
}

/// The request that a preset saves.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time is read, and passed on at once")]
pub enum SavedRequest {
    Session(StartRequest),
    Job(JobRequest),
}

impl SavedRequest {
    /// Reads the request of a stored preset.
    pub fn of(preset: &Preset) -> Result<Self> {
        let read = match preset.kind {
            PresetKind::Session => serde_json::from_str(&preset.request).map(Self::Session),
            PresetKind::Job => serde_json::from_str(&preset.request).map(Self::Job),
        };
        read.map_err(|_err| Error::Db(db::Error::Stored("request of a preset")))
    }

    fn kind(&self) -> PresetKind {
        match self {
            Self::Session(_) => PresetKind::Session,
            Self::Job(_) => PresetKind::Job,
        }
    }

    /// Returns the request as it is stored, or what prevents that.
    fn text(&self) -> Result<String, FieldError> {
        let field = self.kind().as_str();
        let (nested, text) = match self {
            Self::Session(request) => (request.preset.is_some(), serde_json::to_string(request)),
            Self::Job(request) => {
                let variables = request.variables.iter().flatten().map(|(name, _)| name);
                if let Some(name) = variables.into_iter().find(|name| is_secret(name)) {
                    let message = format!(
                        "a preset must not store secrets, and `{name}` looks like one; remove it, and read it from a \
                         file in the job"
                    );
                    return Err(FieldError::new("job.variables", "secret", message));
                }
                (request.preset.is_some(), serde_json::to_string(request))
            }
        };
        if nested {
            let message = "a preset cannot use another preset; omit this field";
            return Err(FieldError::new(format!("{field}.preset"), "not_available", message));
        }
        let text = text.expect("a request has string keys");
        if text.len() > MAX_REQUEST_LENGTH {
            return Err(FieldError::new(field, "too_long", "a preset can have at most 128 KiB"));
        }
        Ok(text)
    }
}

/// Whether a variable of this name holds a secret, as `HF_TOKEN` does.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// A preset to save.
#[derive(Clone, Debug)]
pub struct NewPreset {
    pub name: String,
    /// The group that it is shared with, by name or id; none for a preset of one's own.
    pub group: Option<String>,
    pub request: SavedRequest,
}

/// A change of a preset. What is absent does not change.
#[derive(Clone, Debug, Default)]
pub struct PresetChange {
    pub name: Option<String>,
    /// The group that it becomes a preset of; an empty name makes it the user's own.
    pub group: Option<String>,
    pub request: Option<SavedRequest>,
}

/// The service.
#[derive(Clone, Debug)]
pub struct Presets {
    db: Db,
    clock: Clock,
}

impl Presets {
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// Returns the presets that a user can use, by name.
    pub async fn of(&self, user: &User) -> Result<Vec<Preset>> {
        Ok(self.db.presets(user.id, false).await?)
    }

    /// Returns the presets that a user can see, by name; administrators see those of every group.
    pub async fn seen_by(&self, user: &User) -> Result<Vec<Preset>> {
        Ok(self.db.presets(user.id, user.role == Role::Admin).await?)
    }

    /// Returns a preset that a user can see.
    pub async fn find(&self, user: &User, id: PresetId) -> Result<Preset> {
        self.seen_by(user).await?.into_iter().find(|preset| preset.id == id).ok_or(Error::NotFound)
    }

    /// Returns whether a user may change a preset: their own, and that of a group as its manager or an administrator.
    pub async fn may_change(&self, user: &User, preset: &Preset) -> Result<bool> {
        Ok(match &preset.holder {
            PresetHolder::User(owner) => *owner == user.id,
            PresetHolder::Group(group, _) => self.keeps(user, *group).await?,
        })
    }

    async fn keeps(&self, user: &User, group: GroupId) -> Result<bool> {
        Ok(user.role == Role::Admin || self.db.is_manager(group, user.id).await?)
    }

    /// Saves a preset.
    pub async fn save(&self, by: &User, new: NewPreset) -> Result<Preset> {
        let mut faults = Vec::new();
        let name = parse_name(&new.name).unwrap_or_else(|fault| {
            faults.push(fault);
            String::new()
        });
        let request = new.request.text().unwrap_or_else(|fault| {
            faults.push(fault);
            String::new()
        });
        let holder = match self.holder(by, new.group.as_deref()).await {
            Err(Error::Invalid(more)) => {
                faults.extend(more);
                None
            }
            found => Some(found?),
        };
        let Some(holder) = holder.filter(|_| faults.is_empty()) else { return Err(Error::Invalid(faults)) };
        let now = self.clock.now();
        let preset = Preset {
            id: PresetId::new(),
            holder,
            kind: new.request.kind(),
            name,
            request,
            saved_by: by.name.to_string(),
            created_at: now,
            changed_at: now,
        };
        let detail = held(&preset.holder);
        let noted = self.entry(by, "preset.add", &preset.name, &detail);
        let outcome = self.db.add_preset(&preset, MAX_PRESETS, &noted).await;
        saved(outcome, &preset)?;
        Ok(preset)
    }

    /// Changes a preset that still is as it was read.
    pub async fn change(&self, by: &User, before: &Preset, change: PresetChange) -> Result<Preset> {
        self.check_rights(by, before).await?;
        let mut after = before.clone();
        let mut faults = Vec::new();
        if let Some(name) = change.name {
            match parse_name(&name) {
                Ok(name) => after.name = name,
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(request) = change.request {
            if request.kind() == before.kind {
                match request.text() {
                    Ok(text) => after.request = text,
                    Err(fault) => faults.push(fault),
                }
            } else {
                let message = format!("this is a preset of a {}; its kind cannot change", before.kind.as_str());
                faults.push(FieldError::new(request.kind().as_str(), "wrong_kind", message));
            }
        }
        if let Some(group) = change.group {
            match self.holder(by, Some(&group)).await {
                Ok(holder) => after.holder = holder,
                Err(Error::Invalid(more)) => faults.extend(more),
                Err(error) => return Err(error),
            }
        }
        if !faults.is_empty() {
            return Err(Error::Invalid(faults));
        }
        after.changed_at = self.clock.now();
        after.saved_by = by.name.to_string();
        let detail = held(&after.holder);
        let noted = self.entry(by, "preset.change", &after.name, &detail);
        let outcome = self.db.change_preset(before, &after, MAX_PRESETS, &noted).await;
        saved(outcome, &after)?;
        Ok(after)
    }

    /// Removes a preset.
    pub async fn remove(&self, by: &User, preset: &Preset) -> Result<()> {
        self.check_rights(by, preset).await?;
        let detail = held(&preset.holder);
        let noted = self.entry(by, "preset.remove", &preset.name, &detail);
        if self.db.remove_preset(preset.id, &noted).await? { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Returns a request for a session with what its preset says besides.
    pub async fn complete_session(&self, user: &User, mut request: StartRequest) -> Result<StartRequest> {
        let Some(name) = request.preset.take() else { return Ok(request) };
        match SavedRequest::of(&self.named(user, PresetKind::Session, &name).await?)? {
            SavedRequest::Session(preset) => Ok(preset.with(request)),
            SavedRequest::Job(_) => Err(Error::NotFound),
        }
    }

    /// Returns a request for a job with what its preset says besides.
    pub async fn complete_job(&self, user: &User, mut request: JobRequest) -> Result<JobRequest> {
        let Some(name) = request.preset.take() else { return Ok(request) };
        match SavedRequest::of(&self.named(user, PresetKind::Job, &name).await?)? {
            SavedRequest::Job(preset) => Ok(preset.with(request)),
            SavedRequest::Session(_) => Err(Error::NotFound),
        }
    }

    /// Returns the preset that a user means by an id or a name: their own, else the only one of their groups.
    pub async fn named(&self, user: &User, kind: PresetKind, text: &str) -> Result<Preset> {
        let mut usable = self.of(user).await?;
        usable.retain(|preset| preset.kind == kind);
        choose(usable, text).map_err(|(code, message)| Error::field("preset", code, message))
    }

    async fn check_rights(&self, by: &User, preset: &Preset) -> Result<()> {
        if self.may_change(by, preset).await? {
            return Ok(());
        }
        Err(Error::Forbidden("only managers of the group and administrators can change its presets"))
    }

    /// Returns whose a preset becomes.
    async fn holder(&self, by: &User, group: Option<&str>) -> Result<PresetHolder> {
        let Some(text) = group.map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(PresetHolder::User(by.id));
        };
        let mut kept = Vec::new();
        for found in self.db.find_groups(text).await? {
            if self.keeps(by, found.group.id).await? {
                kept.push(found.group);
            }
        }
        match kept.as_slice() {
            [group] => Ok(PresetHolder::Group(group.id, group.name.clone())),
            [] => {
                Err(Error::field("group", "unknown_group", "you do not manage a group with this name; ask its manager"))
            }
            _ => Err(Error::field("group", "ambiguous", "several groups have this name; give the id of the group")),
        }
    }

    fn entry<'a>(&self, by: &'a User, action: &'a str, subject: &'a str, detail: &'a str) -> Entry<'a> {
        Entry { at: self.clock.now(), actor: by.name.as_str(), action, subject, detail }
    }
}

impl StartRequest {
    /// Returns this request with what another one names instead.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let new_size = other.profile.is_some() || other.resources.is_some();
        // Another app has its own size and options; an environment replaces an image, and an image an environment.
        let new_app = !other.app.is_empty() && other.app != self.app;
        let new_logs = new_app || other.options != Options::default();
        let new_software = other.environment.is_some() || other.image.is_some();
        Self {
            app: if other.app.is_empty() { self.app } else { other.app },
            preset: other.preset,
            name: other.name.or(self.name),
            profile: if new_size { other.profile } else { self.profile },
            resources: if new_size { other.resources } else { self.resources },
            environment: if new_software { other.environment } else { self.environment },
            image: if new_software { other.image } else { self.image },
            working_directory: other.working_directory.or(self.working_directory),
            group: other.group.or(self.group),
            modules: if other.modules.is_empty() { self.modules } else { other.modules },
            duration_seconds: other.duration_seconds.or(self.duration_seconds),
            usual_seconds: other.usual_seconds.or(self.usual_seconds),
            slurm: if other.slurm.is_empty() { self.slurm } else { other.slurm },
            options: if new_logs { other.options } else { self.options },
        }
    }
}

/// Chooses a preset by its id or name, or returns the code and the sentence of what is wrong.
fn choose(mut usable: Vec<Preset>, text: &str) -> Result<Preset, (&'static str, String)> {
    let text = text.trim();
    usable.retain(|preset| preset.name == text || preset.id.to_string() == text);
    if let Some(own) = usable.iter().position(|preset| matches!(preset.holder, PresetHolder::User(_))) {
        return Ok(usable.swap_remove(own));
    }
    match (usable.pop(), usable.len()) {
        (Some(preset), 0) => Ok(preset),
        (Some(_), _) => Err(("ambiguous", "several of your groups have a preset of this name; give its id".to_owned())),
        (None, _) => Err(("unknown_preset", "there is no preset with this name; GET /presets lists them".to_owned())),
    }
}

fn held(holder: &PresetHolder) -> String {
    match holder {
        PresetHolder::User(_) => String::new(),
        PresetHolder::Group(_, name) => format!("group {name}"),
    }
}

fn saved(outcome: db::Result<SaveOutcome>, preset: &Preset) -> Result<()> {
    match outcome {
        Ok(SaveOutcome::Saved) => Ok(()),
        Ok(SaveOutcome::Stale) => Err(Error::Stale),
        Ok(SaveOutcome::Full) => {
            let (field, whose) = match preset.holder {
                PresetHolder::User(_) => ("name", "you have"),
                PresetHolder::Group(..) => ("group", "this group has"),
            };
            let message = format!("{whose} {MAX_PRESETS} presets, the maximum: delete one of them first");
            Err(Error::field(field, "too_many", message))
        }
        Err(db::Error::Unique) => {
            let message = format!("there is already a preset of a {} with this name", preset.kind.as_str());
            Err(Error::field("name", "in_use", message))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_secrets_are_not_stored() {
        for name in ["HF_TOKEN", "wandb_api_key", "AWS_SECRET_ACCESS", "PGPASSWORD"] {
            let variables = [(name.to_owned(), "x".to_owned())].into();
            let request = JobRequest { variables: Some(variables), ..JobRequest::default() };
            assert_eq!(SavedRequest::Job(request).text().unwrap_err().code, "secret", "{name}");
        }
        let variables = [("SEED".to_owned(), "7".to_owned())].into();
        assert!(SavedRequest::Job(JobRequest { variables: Some(variables), ..JobRequest::default() }).text().is_ok());
    }
}
