//! What somebody may ask for, and the check of every field of it. All faults are reported
//! at once, each with its field, and nothing is written while there is one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Actor, Error, Sessions,
    launch::{below_home, is_path},
};
use lyceum_db::quotas::{BillingGroups, QuotaGroup};
use lyceum_model::{
    FieldError, GroupId, Resources, Role, SlurmOptions, User, description::parse_name, job::Shape, modules,
    quota::Class, session::SessionSpec, size::GIB,
};
use lyceum_node::apps::{App, AppKind};
use lyceum_wire::protocol::{Directory, Errand, ErrandOutcome, Installer, OwnEnvironment};

use crate::{
    admission::QuotaStatus,
    environments::{DEFAULT, Environment},
    scheduler::PortalUser,
};

/// A request for a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StartRequest)]
pub struct StartRequest {
    /// `jupyter`, `tensorboard`, `terminal`, or an app of the site. Required, unless a preset names it.
    #[serde(default)]
    pub app: String,
    /// The id or name of a preset from `GET /presets`, which gives the fields that are omitted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    /// A named size, instead of `resources`.
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub resources: Option<Resources>,
    /// The name of an environment from `GET /environments`, or the path of your own environment: absolute, or below
    /// the home directory (`~/…`).
    #[serde(default)]
    pub environment: Option<String>,
    /// The container image to run in, instead of an environment: a name from `GET /images`. One that was not pulled yet
    /// is pulled first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An absolute path, or a path below the home directory. It must exist and be accessible to the user.
    #[serde(default)]
    pub working_directory: Option<String>,
    /// The group to charge, one of the user's groups. Default: the group chosen last, or the only group.
    #[serde(default)]
    pub group: Option<String>,
    /// Environment modules to load, in this order: names from `GET /modules`, with or without a version.
    #[serde(default)]
    pub modules: Vec<String>,
    #[serde(default)]
    pub duration_seconds: Option<i64>,
    /// How long it may run where nothing is said, or as long as it can be if that is less; else what
    /// is usual of its kind. The portal's own, of what it asks for by itself.
    #[serde(skip)]
    pub usual_seconds: Option<i64>,
    /// Where on the Slurm cluster it runs: values from `GET /slurm/choices`.
    #[serde(default, skip_serializing_if = "SlurmOptions::is_empty")]
    pub slurm: SlurmOptions,
    #[serde(default)]
    pub options: Options,
}

/// Options of some apps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StartOptions)]
pub struct Options {
    /// TensorBoard: the log folder. It does not need to exist if the user can create it; TensorBoard is empty until
    /// something is written there. `model`: the directory of a trained or an exported model.
    #[serde(default)]
    pub log_directory: Option<String>,
    /// TensorBoard: several log folders instead, at most 50, by display name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub log_directories: BTreeMap<String, String>,
}

/// TensorBoard shows so many runs at most that were picked.
pub const MAX_LOG_DIRECTORIES: usize = 50;

/// A request without faults.
pub(super) struct Checked {
    pub app: String,
    pub name: String,
    pub spec: SessionSpec,
    pub light: bool,
    pub charged_group: Option<GroupId>,
}

/// The longest time that anybody may ask for where nothing else limits it (seconds).
pub(super) const MAX_DURATION: i64 = 10 * 365 * 86_400;

/// The longest path we pass on (bytes).
const MAX_PATH_LENGTH: usize = 1024;

impl StartRequest {
    /// Tells one request from another under the same idempotency key.
    pub(super) fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("a request has string keys");
        hex::encode(Sha256::digest(&text))
    }
}

impl Sessions {
    /// The apps that somebody may start: their groups', and for administrators all.
    pub fn apps_for<'a>(&'a self, actor: Actor<'a>) -> impl Iterator<Item = &'a App> {
        let all = actor.user.role == Role::Admin;
        self.apps.iter().filter(move |app| all || app.allows(&actor.user.groups))
    }

    /// Returns the environments that this user may choose, in the order of lists.
    pub fn environments_for(&self, actor: Actor<'_>) -> Vec<Environment> {
        let mut all = self.environments.list();
        all.retain(|one| actor.user.may_use(&one.groups));
        all
    }

    /// The app that a request names, if this person may start it.
    pub(super) fn chosen_app<'a>(&'a self, actor: Actor<'a>, name: &str) -> Result<&'a App, FieldError> {
        if name.is_empty() {
            return Err(FieldError::new("app", "required", "name an app, or a preset that names one"));
        }
        self.apps_for(actor).find(|app| app.name == name).ok_or_else(|| {
            let known: Vec<_> = self.apps_for(actor).map(|app| app.name.as_str()).collect();
            let message = format!("there is no app with this name; available are {}", known.join(", "));
            FieldError::new("app", "unknown_app", &message)
        })
    }

    /// Checks a request against what there is, and fills in what it leaves out.
    pub(super) fn check(
        &self,
        actor: Actor<'_>,
        app: Result<&App, FieldError>,
        request: StartRequest,
        standing: &QuotaStatus,
    ) -> Result<Checked, Error> {
        let mut faults = Vec::new();
        let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));

        if request.preset.is_some() {
            fault("preset", "not_available", "a preset cannot be used here; omit this field");
        }
        let app = app.map_err(|unknown| fault(&unknown.field, &unknown.code, &unknown.message)).ok();
        let image = request.image.as_deref().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        if let Some((code, message)) =
            image.as_ref().and_then(|name| self.objection_to_image(actor, app, name, &request))
        {
            fault("image", code, &message);
        }
        let is_job = app.is_some_and(|app| app.kind == AppKind::Job);
        let (what, class, usual) =
            if is_job { ("job", Class::Job, 48 * 3600) } else { ("session", Class::Session, 8 * 3600) };
        let name = match request.name.as_deref().filter(|name| !name.trim().is_empty()) {
            Some(name) => parse_name(name).unwrap_or_else(|problem| {
                fault("name", &problem.code, &problem.message);
                String::new()
            }),
            None => app.map(|app| app.title.clone()).unwrap_or_default(),
        };
        let profiles = self.profiles_for(actor);
        let profile = request.profile.as_ref().and_then(|name| profiles.iter().find(|profile| profile.name == *name));
        if request.profile.is_some() && profile.is_none() {
            fault("profile", "unknown_profile", "there is no profile with this name");
        }
        if request.profile.is_some() && request.resources.is_some() {
            fault("profile", "ambiguous", "give a profile or resources, not both");
        }
        let resources = request
            .resources
            .or_else(|| profile.map(|profile| profile.resources.clone()))
            .or_else(|| app.and_then(|app| app.default_resources.clone()))
            .unwrap_or_default();
        check_resources(&resources, &mut fault);
        if let Some(sentence) = image.as_deref().and_then(|name| self.objection_to_driver(name, &resources)) {
            fault("image", "driver_too_old", &sentence);
        }
        let slurm = request.slurm.trimmed();
        let longest = standing.limits.of(&class.longest()).limit;
        let duration_seconds = request.duration_seconds.unwrap_or_else(|| {
            let usual = request.usual_seconds.unwrap_or(usual);
            let usual = longest.cap(profile.map_or(usual, |profile| profile.duration_seconds));
            let shape = Shape::default().with(&slurm);
            self.scheduler.longest_for(&resources, &shape).map_or(usual, |longest| usual.min(longest))
        });
        check_duration(duration_seconds, what, &mut fault);
        let uses_environment = app.is_some_and(|app| app.uses_environment);
        let takes_environment = app.is_some_and(App::takes_environment);
        let asked = request.environment.as_deref().map(str::trim).filter(|name| !name.is_empty() && takes_environment);
        let environment = match asked {
            _ if image.is_some() => None,
            Some(path) if is_path(path) => {
                check_path("environment", Some(path), &mut fault).map(|path| folder_of_environment(&path).to_owned())
            }
            Some(name) if !self.environments.find(name).is_some_and(|found| actor.user.may_use(&found.groups)) => {
                fault("environment", "unknown_environment", "there is no environment with this name");
                None
            }
            // A terminal takes the default environment where it is there, and waits for none.
            Some(DEFAULT) if !uses_environment => None,
            Some(name) => Some(name.to_owned()),
            // A job takes what is there, and waits for what it names alone.
            None => (uses_environment && !is_job).then(|| DEFAULT.to_owned()),
        };
        let working_directory = check_path("working_directory", request.working_directory.as_deref(), &mut fault);
        let log_directory = check_path("options.log_directory", request.options.log_directory.as_deref(), &mut fault);
        let log_directories = check_folders(&request.options, &mut fault);
        if let Some((field, code, message)) = objection_to_logs(app, log_directory.as_deref(), &log_directories) {
            fault(field, code, message);
        }
        let charged = match charged_group(request.group.as_deref(), &standing.billing_groups) {
            Ok(charged) => charged,
            Err((code, message)) => {
                fault("group", code, &message);
                None
            }
        };
        let modules = request.modules;
        if let Some((code, message)) = self.objection_to_modules(&modules) {
            fault("modules", code, &message);
        }
        if !faults.is_empty() {
            return Err(Error::Invalid(faults));
        }
        let light = resources.is_light();
        let spec = SessionSpec {
            resources,
            profile: request.profile,
            environment,
            working_directory,
            duration_seconds,
            log_directory,
            log_directories,
            group: charged.map(|group| group.name.clone()),
            modules,
            image,
            slurm,
        };
        Ok(Checked { app: request.app, name, spec, light, charged_group: charged.map(|group| group.id) })
    }
}

impl Sessions {
    /// Why these modules will not do: a code and a sentence.
    fn objection_to_modules(&self, names: &[String]) -> Option<(&'static str, String)> {
        if names.is_empty() {
            return None;
        }
        let known = &self.environments.modules();
        if known.init().is_none() {
            return Some(("not_available", "this machine has no environment modules; omit this field".to_owned()));
        }
        if names.len() > modules::MAX_MODULES {
            return Some(("too_many", format!("at most {} modules can be loaded", modules::MAX_MODULES)));
        }
        if let Some(bad) = names.iter().find(|name| !modules::is_name(name)) {
            let shown: String = bad.chars().take(64).collect();
            return Some((
                "characters",
                format!("`{}` is not a valid module name, such as `gcc/13.2`", shown.escape_debug()),
            ));
        }
        let unknown = names.iter().find(|name| !known.may_be(name))?;
        Some(("unknown_module", format!("unknown module `{unknown}`: GET /modules lists those available")))
    }

    /// Whether the user may choose what they chose of the cluster, in the fields of a request or in the lines of a
    /// script, where `shape` has them.
    pub(super) async fn check_slurm(&self, user: &User, chosen: &SlurmOptions, shape: &Shape) -> Result<(), Error> {
        if chosen.is_empty() && shape.options.is_empty() {
            return Ok(());
        }
        let person = self.scheduler.person(&PortalUser::from(user)).await?;
        let Some(choices) = self.scheduler.choices(&person.unix_name).await else {
            let message = "this portal does not use Slurm; omit this field";
            let fault = |name: &str| FieldError::new(format!("slurm.{name}"), "not_available", message);
            let faults: Vec<_> = chosen.chosen().map(|(name, _)| fault(name)).collect();
            return if faults.is_empty() { Ok(()) } else { Err(Error::Invalid(faults)) };
        };
        let mut faults = choices.faults(chosen);
        for (name, value) in chosen.entries() {
            let Some(of_script) = shape.option(name) else { continue };
            if value.is_some_and(|value| value != of_script) {
                let message = format!("the script asks for `--{name}={of_script}`: omit this field, or that line");
                faults.push(FieldError::new(format!("slurm.{name}"), "ambiguous", message));
            } else if let Some((_, why)) =
                choices.objection(name, of_script).filter(|_| choices.listed.contains(&name) && value.is_none())
            {
                faults.push(FieldError::new("script", "not_allowed", format!("`--{name}={of_script}`: {why}")));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid(faults)) }
    }

    /// Looks, as the person, whether the directories of a request are there for them, and an
    /// environment of their own. A folder of logs need not be there yet where they can make
    /// it: TensorBoard shows an empty board until a training has written something.
    pub(super) async fn check_places(&self, user: &User, checked: &Checked) -> Result<(), Error> {
        let spec = &checked.spec;
        let asked = [
            ("working_directory", spec.working_directory.as_deref()),
            ("options.log_directory", spec.log_directory.as_deref()),
        ];
        let several = spec.log_directories.values().map(|path| ("options.log_directories", Some(path.as_str())));
        let asked: Vec<_> = asked.into_iter().chain(several).collect();
        let environment = spec.environment.as_deref().filter(|environment| is_path(environment));
        if environment.is_none() && asked.iter().all(|(_, path)| path.is_none()) {
            return Ok(());
        }
        let portal_user = PortalUser::from(user);
        let person = self.scheduler.person(&portal_user).await?;
        let mut faults = Vec::new();
        let may_come = self.apps.find(&checked.app).is_none_or(|app| app.kind != AppKind::Model);
        for (field, path) in asked {
            if path.is_none() {
                continue;
            }
            let path = below_home(&person, path);
            let found = match self.scheduler.errand(&person, Errand::Directory { path: path.clone() }).await? {
                ErrandOutcome::Directory { directory } => directory,
                _ => Directory::Silent,
            };
            if let Some((code, message)) = objection(found, may_come && field.starts_with("options.log_director")) {
                let message = message.replace("{user}", &person.unix_name);
                faults.push(FieldError::new(field, code, format!("{} {message}", path.display())));
            }
        }
        if let (Some(path), Some(app)) = (environment, self.apps.find(&checked.app)) {
            let path = below_home(&person, Some(path));
            let errand = Errand::Environment { path: path.clone(), needs: self.needs(app) };
            let found = match self.scheduler.errand(&person, errand).await? {
                ErrandOutcome::Environment { environment } => environment,
                _ => OwnEnvironment::Silent,
            };
            if let Some((code, message)) = objection_to_environment(found, &path.display().to_string()) {
                faults.push(FieldError::new("environment", code, message.replace("{user}", &person.unix_name)));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Invalid(faults)) }
    }
}

pub(super) fn check_duration(seconds: i64, what: &str, fault: &mut dyn FnMut(&str, &str, &str)) {
    if seconds < 60 {
        fault("duration_seconds", "too_small", &format!("a {what} must last at least 60 seconds"));
    } else if seconds > MAX_DURATION {
        fault("duration_seconds", "too_large", &format!("a {what} can last at most ten years"));
    }
}

/// Whether an app can begin with these directories: a field, a code and a sentence.
fn objection_to_logs(
    app: Option<&App>,
    one: Option<&str>,
    several: &BTreeMap<String, String>,
) -> Option<(&'static str, &'static str, &'static str)> {
    let kind = &app?.kind;
    if !several.is_empty() && *kind != AppKind::TensorBoard {
        return Some(("options.log_directories", "not_for_this_app", "only TensorBoard accepts several log folders"));
    }
    match (kind, one) {
        (AppKind::Model, None) => Some(("options.log_directory", "required", "give the directory of a trained model")),
        (AppKind::TensorBoard | AppKind::Model | AppKind::Job, _) | (_, None) => None,
        _ => Some((
            "options.log_directory",
            "not_for_this_app",
            "only TensorBoard and the model service accept a folder",
        )),
    }
}

/// Which group pays: the one that was asked for, else the one that was chosen last, else the
/// only one. The fault is a code and a sentence.
fn charged_group<'a>(
    asked: Option<&str>,
    billing_groups: &'a BillingGroups,
) -> Result<Option<&'a QuotaGroup>, (&'static str, String)> {
    let names = || billing_groups.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>().join(", ");
    match asked.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => match billing_groups.groups.iter().find(|group| group.name == name) {
            Some(group) => Ok(Some(group)),
            None if billing_groups.groups.is_empty() => Err((
                "unknown_group",
                "you are not in a group that sessions can be charged to; omit this field".to_owned(),
            )),
            None => Err(("unknown_group", format!("must be one of {}", names()))),
        },
        None if billing_groups.groups.len() > 1 && billing_groups.chosen.is_none() => {
            Err(("required", format!("choose the group that this is charged to: {}", names())))
        }
        None => {
            Ok(billing_groups.default_group().and_then(|id| billing_groups.groups.iter().find(|group| group.id == id)))
        }
    }
}

/// Why an environment of somebody's own will not do: a code, and a sentence that ends with
/// what mends it.
fn objection_to_environment(found: OwnEnvironment, path: &str) -> Option<(&'static str, String)> {
    Some(match found {
        OwnEnvironment::Fine => return None,
        OwnEnvironment::Missing => (
            "not_found",
            format!("{path} does not exist: correct the path, or create it with `python3 -m venv {path}`"),
        ),
        OwnEnvironment::NotADirectory => {
            ("not_a_directory", format!("{path} is not a folder: give the folder that contains `bin/python`"))
        }
        OwnEnvironment::Forbidden => (
            "not_allowed",
            format!(
                "your account `{{user}}` cannot access {path}: its owner can grant access with `chmod -R a+rX {path}`"
            ),
        ),
        OwnEnvironment::NoPython => (
            "no_python",
            format!(
                "{path} does not contain `bin/python`, so it is not an environment: create one with `python3 -m venv \
                 {path}`"
            ),
        ),
        OwnEnvironment::PythonGone { leads_to } => (
            "no_python",
            format!(
                "the Python of {path} is missing or cannot be run ({}), for example after a system upgrade: recreate \
                 the environment, for example with `python3 -m venv --clear {path}`",
                leads_to.display()
            ),
        ),
        OwnEnvironment::TooOld { version } => (
            "python_too_old",
            format!(
                "{path} uses Python {version}, but notebooks need 3.8 or later: create another, for example with \
                 `python3 -m venv {path}-new`"
            ),
        ),
        OwnEnvironment::Lacks { package, installer } => {
            let mend = match installer {
                Installer::Pip => format!("{path}/bin/python -m pip install {package}"),
                Installer::Conda => format!("conda install -p {path} {package}"),
                Installer::Uv => format!("uv pip install -p {path} {package}"),
            };
            ("package_missing", format!("{path} does not contain {package}: run `{mend}` in a terminal"))
        }
        OwnEnvironment::Silent => (
            "no_answer",
            format!("{path} does not respond: its file server may be down; try again later, or choose another"),
        ),
    })
}

/// The folder of an environment, also where its Python or the file to activate it was named.
fn folder_of_environment(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    match path.rsplit_once("/bin/") {
        Some((folder, program)) if program.starts_with("python") || program.starts_with("activate") => folder,
        _ => path.strip_suffix("/bin").unwrap_or(path),
    }
}

/// Why a directory will not do: a code and the rest of a sentence that begins with its path.
fn objection(found: Directory, of_logs: bool) -> Option<(&'static str, &'static str)> {
    match found {
        Directory::Enterable { readable } if readable || !of_logs => None,
        Directory::Missing { can_be_made: true } if of_logs => None,
        Directory::Enterable { .. } | Directory::Forbidden => {
            Some(("not_allowed", "is not accessible to your account `{user}`: choose another, or ask its owner"))
        }
        Directory::Missing { .. } => Some(("not_found", "does not exist: create it first, or choose another")),
        Directory::NotADirectory => Some(("not_a_directory", "is not a directory: choose another")),
        Directory::Silent => {
            Some(("no_answer", "does not respond: its file server may be down; try again later, or choose another"))
        }
    }
}

pub(super) fn check_resources(resources: &Resources, fault: &mut impl FnMut(&str, &str, &str)) {
    if resources.gpus < 0 {
        fault("resources.gpus", "negative", "must be 0 or more");
    }
    if resources.cpus < 1 {
        fault("resources.cpus", "too_small", "must be 1 or more");
    }
    if resources.memory_bytes < GIB / 16 {
        fault("resources.memory_bytes", "too_small", "must be at least 64 MiB (67108864)");
    }
    let odd = |model: &String| model.is_empty() || model.len() > 64 || model.contains(char::is_control);
    if resources.gpu_model.as_ref().is_some_and(odd) {
        fault("resources.gpu_model", "malformed", "must be the name of a GPU model as the machine lists it");
    }
}

/// A path of the user's: absolute, or below their home (`~/x`, `x`); no `..`, no control characters.
/// Several folders of logs, by names that can be names of files.
fn check_folders(options: &Options, fault: &mut impl FnMut(&str, &str, &str)) -> BTreeMap<String, String> {
    const FIELD: &str = "options.log_directories";
    if options.log_directories.len() > MAX_LOG_DIRECTORIES {
        fault(FIELD, "too_many", "must have at most 50 folders");
        return BTreeMap::new();
    }
    if options.log_directory.is_some() && !options.log_directories.is_empty() {
        fault(FIELD, "invalid_value", "cannot be combined with log_directory");
    }
    let mut checked = BTreeMap::new();
    for (name, path) in &options.log_directories {
        let is_name = !matches!(name.trim(), "" | "." | "..") && name.len() <= 200;
        if !is_name || name.contains(['/', '=']) || name.contains(char::is_control) {
            fault(FIELD, "invalid_name", "must have names of at most 200 bytes without / and =");
        } else if let Some(path) = check_path(FIELD, Some(path), fault) {
            checked.insert(name.clone(), path);
        } else {
            fault(FIELD, "missing_field", "must have a path for each name");
        }
    }
    checked
}

fn check_path(field: &str, path: Option<&str>, fault: &mut impl FnMut(&str, &str, &str)) -> Option<String> {
    let path = path.map(str::trim).filter(|path| !path.is_empty())?;
    if path.len() > MAX_PATH_LENGTH {
        fault(field, "too_long", "must have at most 1024 bytes");
    } else if path.contains(char::is_control) {
        fault(field, "characters", "must not contain control characters");
    } else if path.split('/').any(|part| part == "..") {
        fault(field, "dot_dot", "must not contain `..`; write the full path");
    } else {
        return Some(path.to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_by_path() {
        for (typed, folder) in [
            ("~/envs/torch/", "~/envs/torch"),
            ("/opt/x/bin/python3.11", "/opt/x"),
            ("/opt/x/bin/activate", "/opt/x"),
            ("/opt/x/bin", "/opt/x"),
            ("/opt/bin/x", "/opt/bin/x"),
        ] {
            assert_eq!(folder_of_environment(typed), folder);
        }
        assert!(is_path("~/x") && is_path("envs/x") && !is_path("default"));
        let lacks = |installer| OwnEnvironment::Lacks { package: "ipykernel".to_owned(), installer };
        for (found, code, words) in [
            (OwnEnvironment::Missing, "not_found", "`python3 -m venv /e`"),
            (OwnEnvironment::NotADirectory, "not_a_directory", "`bin/python`"),
            (OwnEnvironment::Forbidden, "not_allowed", "`chmod -R a+rX /e`"),
            (OwnEnvironment::NoPython, "no_python", "`python3 -m venv /e`"),
            (OwnEnvironment::PythonGone { leads_to: "/usr/bin/python3.2".into() }, "no_python", "/usr/bin/python3.2"),
            (OwnEnvironment::TooOld { version: "3.6".to_owned() }, "python_too_old", "3.8 or later"),
            (lacks(Installer::Pip), "package_missing", "`/e/bin/python -m pip install ipykernel`"),
            (lacks(Installer::Conda), "package_missing", "`conda install -p /e ipykernel`"),
            (lacks(Installer::Uv), "package_missing", "`uv pip install -p /e ipykernel`"),
            (OwnEnvironment::Silent, "no_answer", "try again"),
        ] {
            let (told, message) = objection_to_environment(found, "/e").unwrap();
            assert!(told == code && message.contains("/e") && message.contains(words), "{message}");
        }
        assert_eq!(objection_to_environment(OwnEnvironment::Fine, "/e"), None);
    }

    #[test]
    fn paths() {
        let check = |path: &str| {
            let mut faults = 0;
            let checked = check_path("p", Some(path), &mut |_, _, _| faults += 1);
            (checked, faults)
        };
        assert_eq!(check("/data/x"), (Some("/data/x".to_owned()), 0));
        assert_eq!(check("logs"), (Some("logs".to_owned()), 0));
        assert_eq!(check(""), (None, 0));
        for bad in ["../etc", "/home/a/../b", "a\nb", &"x".repeat(2000)] {
            assert_eq!(check(bad), (None, 1), "{bad:?}");
        }
    }
}
