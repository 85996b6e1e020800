//! What somebody may ask for when they submit a job, or change what they say of one, and the
//! check of every field that a session has not. All faults are reported at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    lines::{NodeSize, check_arguments, check_export, check_shape},
    sbatch,
};
use lyceum_db::jobs::JobChange;
use lyceum_model::{
    FieldError, Job, Resources, SlurmOptions,
    description::parse_name,
    export,
    hold::Prerequisite,
    job::{JobProgram, Shape, Task, Visibility},
};
use lyceum_node::apps::is_variable;

use crate::sessions::{Options, StartRequest};

/// A request for a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = JobRequest)]
pub struct JobRequest {
    /// The id or name of a preset from `GET /presets`, which gives the fields that are omitted here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Default: made from the command.
    pub name: Option<String>,
    /// The program and its arguments, without a shell. Give this or `script`.
    pub command: Option<Vec<String>>,
    /// The text of a script. The program in its first line runs it, such as `#!/bin/bash`, otherwise `/bin/sh`.
    pub script: Option<String>,
    /// On a Slurm cluster: whether the script's `#SBATCH` lines apply. They take precedence over the other fields of this
    /// request, except the name. Default: true if the script has such lines.
    pub sbatch: Option<bool>,
    /// The arguments of `script`.
    pub arguments: Option<Vec<String>>,
    /// Start in the environment of your login shell, which reads its profile files first.
    pub login_shell: Option<bool>,
    /// An absolute path, or a path below the home directory. Default: the home directory.
    pub working_directory: Option<String>,
    /// A named size, instead of `resources`.
    pub profile: Option<String>,
    /// Resources of each node.
    pub resources: Option<Resources>,
    /// Number of nodes, on a cluster. Default: 1.
    pub nodes: Option<i64>,
    /// How many times a command is started on each node, on a cluster. Default: 1. A script is started once and
    /// starts its tasks with `srun`.
    pub tasks_per_node: Option<i64>,
    /// The software environment: a name from `GET /environments`, or the path of your own environment. Default: the
    /// default environment, if it is ready.
    pub environment: Option<String>,
    /// The container image to run in, instead of an environment: a name from `GET /images`. One that was not pulled yet
    /// is pulled first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub modules: Vec<String>,
    /// Where on the Slurm cluster it runs: values from `GET /slurm/choices`. A Slurm script must not ask for others.
    #[serde(skip_serializing_if = "SlurmOptions::is_empty")]
    pub slurm: SlurmOptions,
    /// Environment variables.
    pub variables: Option<BTreeMap<String, String>>,
    /// The group to charge, one of your groups.
    pub group: Option<String>,
    /// The time limit in seconds.
    pub time_limit_seconds: Option<i64>,
    /// What that is where nothing is said, or as long as it can be if that is less. The portal's own.
    #[serde(skip)]
    pub usual_seconds: Option<i64>,
    /// Where the program writes event files and checkpoints; it reads the path from `LYCEUM_LOG_DIRECTORY`. Default:
    /// a new folder below `~/runs`.
    pub log_directory: Option<String>,
    /// Maximum number of automatic retries after a non-zero exit code, a signal or a node failure, 0 to 10.
    pub retries: Option<i64>,
    /// Retry delay after a failure in seconds, 0 to 86400.
    pub retry_wait_seconds: Option<i64>,
    /// Dependencies: jobs of yours that have to end first, at most 100.
    pub after: Option<Vec<Prerequisite>>,
    /// Only for `POST /jobs`: an array job with one job for each index of `0-9%3`. It is created as a sweep, and the
    /// response is its first job.
    pub array: Option<String>,
    /// At most 20 tags, each of at most 32 letters, digits, spaces and `- _ . : / +`. All jobs of an array get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Notes in Markdown. All jobs of an array get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Whether the portal submits it for its owner, as a step of something else. The portal's own.
    #[serde(skip)]
    pub is_helper: bool,
}

/// A change of a job. Omitted fields are not changed.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = JobChanges)]
pub struct Changes {
    pub name: Option<String>,
    /// Markdown.
    pub notes: Option<String>,
    pub tags: Option<Vec<String>>,
    pub starred: Option<bool>,
    pub visibility: Option<Visibility>,
}

/// The longest script and the longest command (bytes). Both travel to the node in one message.
const MAX_SCRIPT_LENGTH: usize = 64 * 1024;
pub(super) const MAX_COMMAND_LENGTH: usize = 32 * 1024;
/// All variables together (bytes).
const MAX_VARIABLES_LENGTH: usize = 16 * 1024;
const MAX_NOTES_LENGTH: usize = 64 * 1024;
const MAX_TAGS: usize = 20;
const MAX_RETRIES: i64 = 10;
const MAX_RETRY_DELAY: i64 = 86_400;
const MAX_DEPENDENCIES: usize = 100;
const MAX_TAG_LENGTH: usize = 32;

/// Of the command in a name that nobody gave (characters).
const MAX_DEFAULT_NAME_LENGTH: usize = 48;

/// Variables that say who and where a job is.
const RESERVED: [&str; 5] = ["HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES"];

pub(super) type Fault<'a> = &'a mut dyn FnMut(&str, &str, &str);

impl JobRequest {
    /// Tells one request from another under the same idempotency key.
    pub(super) fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("a request has string keys");
        hex::encode(Sha256::new().chain_update(b"job ").chain_update(&text).finalize())
    }

    /// What a job asked for.
    pub(super) fn like(job: &Job, task: Task) -> Self {
        let spec = &job.latest.spec;
        let (command, script) = match task.work {
            JobProgram::Command(argv) => (Some(argv), None),
            JobProgram::Script(text) => (None, Some(text)),
        };
        // What its own lines say is read anew.
        let (retries, variables) = if task.shape.as_written {
            let given = task.start.export.as_deref().and_then(sbatch::given).unwrap_or_default();
            let is_own = |name: &String| !given.iter().any(|(of_line, _)| of_line == name);
            (
                if task.requeue { 0 } else { task.retries },
                task.variables.into_iter().filter(|(name, _)| is_own(name)).collect(),
            )
        } else {
            (task.retries, task.variables)
        };
        let has_lines = script.as_deref().is_some_and(|script| sbatch::has_lines(&plain(script)));
        let sbatch = Some(task.shape.as_written).filter(|as_written| *as_written || has_lines);
        // A folder that its lines name begins where it was submitted.
        let of_lines = script.as_deref().filter(|_| task.shape.as_written).and_then(sbatch::folder_of);
        let working_directory = spec.working_directory.as_deref().map(|folder| {
            let base = of_lines.as_ref().and_then(|own| folder.strip_suffix(own.as_str())?.strip_suffix('/'));
            base.unwrap_or(folder).to_owned()
        });
        Self {
            preset: None,
            name: Some(job.name.clone()),
            command,
            script,
            arguments: Some(task.start.arguments).filter(|arguments| !arguments.is_empty()),
            login_shell: Some(true).filter(|_| task.start.login_shell),
            working_directory,
            profile: None,
            resources: Some(task.shape.share(spec.resources.clone())),
            sbatch,
            nodes: Some(task.shape.nodes).filter(|nodes| *nodes > 1),
            tasks_per_node: Some(task.shape.tasks_per_node).filter(|tasks| *tasks > 1),
            environment: spec.environment.clone(),
            image: spec.image.clone(),
            modules: spec.modules.clone(),
            slurm: spec.slurm.clone(),
            variables: Some(variables).filter(|variables: &BTreeMap<_, _>| !variables.is_empty()),
            group: spec.group.clone(),
            time_limit_seconds: Some(spec.duration_seconds),
            usual_seconds: None,
            // A copy does not write among the original's curves.
            retries: Some(retries).filter(|retries| *retries > 0),
            retry_wait_seconds: Some(task.retry_wait_seconds).filter(|wait| *wait > 0),
            // Those have ended, or are another plan's.
            after: None,
            array: None,
            tags: Some(job.tags.clone()).filter(|tags| !tags.is_empty()),
            // Those are about the original.
            notes: None,
            is_helper: false,
            log_directory: spec.log_directory.clone().filter(|folder| !job.is_usual_log_directory(folder)),
        }
    }

    /// With what another one names instead.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let new_work = other.command.is_some() || other.script.is_some();
        let new_size = other.profile.is_some() || other.resources.is_some();
        // An environment replaces an image, and an image an environment.
        let image = if other.environment.is_some() { other.image.clone() } else { other.image.clone().or(self.image) };
        Self {
            preset: other.preset,
            name: other.name.or(self.name),
            command: if new_work { other.command } else { self.command },
            script: if new_work { other.script } else { self.script },
            sbatch: if new_work { other.sbatch } else { self.sbatch },
            arguments: if new_work { other.arguments } else { other.arguments.or(self.arguments) },
            login_shell: other.login_shell.or(self.login_shell),
            working_directory: other.working_directory.or(self.working_directory),
            profile: if new_size { other.profile } else { self.profile },
            resources: if new_size { other.resources } else { self.resources },
            nodes: other.nodes.or(self.nodes),
            tasks_per_node: other.tasks_per_node.or(self.tasks_per_node),
            environment: if other.image.is_some() { other.environment } else { other.environment.or(self.environment) },
            image,
            modules: if other.modules.is_empty() { self.modules } else { other.modules },
            // Where something else is chosen, the rest of the choice goes with it: an account has its own QOS.
            slurm: if other.slurm.is_empty() { self.slurm } else { other.slurm },
            variables: other.variables.or(self.variables),
            group: other.group.or(self.group),
            time_limit_seconds: other.time_limit_seconds.or(self.time_limit_seconds),
            usual_seconds: other.usual_seconds.or(self.usual_seconds),
            log_directory: other.log_directory.or(self.log_directory),
            retries: other.retries.or(self.retries),
            retry_wait_seconds: other.retry_wait_seconds.or(self.retry_wait_seconds),
            after: other.after.or(self.after),
            array: other.array.or(self.array),
            tags: other.tags.or(self.tags),
            notes: other.notes.or(self.notes),
            is_helper: other.is_helper,
        }
    }

    /// Checks what only jobs have; the rest becomes a request that `sessions` checks. On a cluster `node` tells
    /// how large the largest node is that a job of this shape may get.
    ///
    /// # Errors
    ///
    /// All that is wrong, each with its field.
    pub fn check(mut self, node: Option<NodeSize<'_>>) -> Result<(Task, StartRequest), Vec<FieldError>> {
        let mut faults = Vec::new();
        let lines = self.take_lines(node, &mut faults);
        let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));
        let has_requeue = lines.requeue == Some(true) && self.retries.is_none();
        let mut start = lines.start;
        start.login_shell |= self.login_shell.unwrap_or(false);
        start.arguments = self.arguments.take().unwrap_or_default();
        if start.login_shell && self.image.as_ref().is_some_and(|name| !name.trim().is_empty()) {
            fault("login_shell", "ambiguous", "a login shell is the node's own; give it or an image, not both");
        }
        check_arguments(&start.arguments, self.script.is_some(), &mut fault);
        let shape = Shape {
            options: lines.options,
            as_written: lines.as_written,
            is_spread: lines.is_spread,
            ..Shape::default()
        };
        let shape = check_shape(&self, shape, node.is_some(), &mut fault);
        let has_image = self.image.as_ref().is_some_and(|name| !name.trim().is_empty());
        if has_image && (shape.nodes > 1 || shape.is_spread || shape.tasks() > 1 && self.command.is_some()) {
            let sentence = "a program in an image runs on one node: omit the image, or ask for one node; a script can \
                            start several tasks itself";
            fault("image", "one_node", sentence);
        }
        let work = check_work(self.command, self.script, &mut fault);
        let mut variables = self.variables.unwrap_or_default();
        check_export(start.export.as_deref(), &variables, &mut fault);
        let given = lines.variables.into_iter();
        if start.export.as_deref().is_some_and(|text| export::names(text).is_none()) {
            // With ALL, what is there already goes before.
            for (name, value) in given {
                variables.entry(name).or_insert(value);
            }
        } else {
            variables.extend(given);
        }
        check_variables(&variables, &mut fault);
        let retries = if has_requeue { MAX_RETRIES } else { self.retries.unwrap_or(0) };
        let retry_wait_seconds = self.retry_wait_seconds.unwrap_or(0);
        if !(0..=MAX_RETRIES).contains(&retries) {
            fault("retries", "out_of_range", "must be between 0 and 10");
        }
        if !(0..=MAX_RETRY_DELAY).contains(&retry_wait_seconds) {
            fault("retry_wait_seconds", "out_of_range", "must be between 0 and 86400");
        }
        if self.array.is_some() {
            fault("array", "not_available", "creates many jobs: submit it with `POST /jobs` or `POST /sweeps`");
        }
        let after = check_after(self.after.unwrap_or_default(), &mut fault);
        let tags = check_tags(self.tags.unwrap_or_default(), &mut fault);
        let notes = check_notes(&self.notes.unwrap_or_default(), &mut fault);
        // One that is wrong is told together with the rest.
        let named = self.name.filter(|name| !name.trim().is_empty());
        if let Some(Err(problem)) = named.as_deref().map(parse_name) {
            faults.push(problem);
        }
        let Some(work) = work.filter(|_| faults.is_empty()) else { return Err(faults) };
        let name = named.unwrap_or_else(|| name_of(&work));
        let like = StartRequest {
            app: String::new(),
            preset: self.preset,
            name: Some(name),
            profile: self.profile,
            resources: self.resources,
            environment: self.environment,
            image: self.image,
            working_directory: self.working_directory,
            group: self.group,
            modules: self.modules,
            duration_seconds: self.time_limit_seconds,
            usual_seconds: self.usual_seconds,
            slurm: self.slurm,
            options: Options { log_directory: self.log_directory, ..Options::default() },
        };
        let is_helper = self.is_helper;
        let task = Task {
            work,
            variables,
            retries,
            retry_wait_seconds,
            after,
            part: None,
            shape,
            start,
            requeue: has_requeue,
            array: None,
            tags,
            notes,
            is_helper,
        };
        Ok((task, like))
    }
}

impl Changes {
    pub(super) fn check(self) -> Result<JobChange, Vec<FieldError>> {
        let mut faults = Vec::new();
        let name = self.name.and_then(|name| parse_name(&name).map_err(|fault| faults.push(fault)).ok());
        let mut fault = |field: &str, code: &str, message: &str| faults.push(FieldError::new(field, code, message));
        let notes = self.notes.map(|notes| check_notes(&notes, &mut fault));
        let tags = self.tags.map(|tags| check_tags(tags, &mut fault));
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(JobChange { name, notes, tags, starred: self.starred, visibility: self.visibility })
    }
}

/// A script without the mark that some editors put first, which would hide the line that names the program.
pub(super) fn plain(script: &str) -> String {
    unix_lines(script.strip_prefix('\u{feff}').unwrap_or(script))
}

fn check_work(command: Option<Vec<String>>, script: Option<String>, fault: Fault<'_>) -> Option<JobProgram> {
    match (command, script) {
        (Some(_), Some(_)) => {
            fault("script", "ambiguous", "give a command or a script, not both");
            None
        }
        (None, None) => {
            fault("command", "required", "give a command or a script to run");
            None
        }
        (Some(argv), None) => {
            if argv.first().is_none_or(|program| program.trim().is_empty()) {
                fault("command", "empty", "must begin with the program to run");
            } else if argv.iter().any(|word| word.contains('\0')) {
                fault("command", "characters", "must not contain NUL characters");
            } else if argv.iter().map(|word| word.len() + 1).sum::<usize>() > MAX_COMMAND_LENGTH {
                fault("command", "too_long", "must have at most 32 KiB: put the rest into a file and pass its name");
            }
            Some(JobProgram::Command(argv))
        }
        (None, Some(text)) => {
            let text = plain(&text);
            if text.trim().is_empty() {
                fault("script", "empty", "must not be empty");
            } else if text.len() > MAX_SCRIPT_LENGTH {
                fault("script", "too_long", "must have at most 64 KiB: put the rest into a file and run it");
            } else if text.contains(is_unprintable) {
                fault("script", "characters", "must not contain control characters other than tabs and line breaks");
            }
            Some(JobProgram::Script(text))
        }
    }
}

fn check_variables(variables: &BTreeMap<String, String>, fault: Fault<'_>) {
    for (name, value) in variables {
        let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        let field = format!("variables.{shown}");
        if !is_variable(name) {
            fault(
                &field,
                "malformed",
                "a variable name must have 1 to 64 characters of A-Z, a-z, 0-9 and `_`, and not begin with a digit",
            );
        } else if RESERVED.contains(&name.as_str()) || name.starts_with("LYCEUM_") {
            fault(&field, "reserved", "the portal sets this variable: choose another name");
        } else if value.contains('\0') {
            fault(&field, "characters", "must not contain NUL characters");
        }
    }
    if variables.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_VARIABLES_LENGTH {
        fault("variables", "too_long", "must have at most 16 KiB in total: put the rest into a file");
    }
}

fn check_after(after: Vec<Prerequisite>, fault: Fault<'_>) -> Vec<Prerequisite> {
    let mut kept: Vec<Prerequisite> = Vec::new();
    for (index, one) in after.into_iter().enumerate() {
        if kept.iter().any(|known| known.job == one.job) {
            fault(&format!("after[{index}].job"), "twice", "is listed twice");
        }
        kept.push(one);
    }
    if kept.len() > MAX_DEPENDENCIES {
        fault("after", "too_many", "must list at most 100 jobs");
    }
    kept
}

fn check_notes(notes: &str, fault: Fault<'_>) -> String {
    let notes = unix_lines(notes);
    if notes.len() > MAX_NOTES_LENGTH {
        fault("notes", "too_long", "must have at most 64 KiB");
    } else if notes.contains(is_unprintable) {
        fault("notes", "characters", "must not contain control characters");
    }
    notes
}

fn check_tags(tags: Vec<String>, fault: Fault<'_>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for tag in tags {
        let tag = tag.trim();
        let plain = |c: char| c.is_alphanumeric() || "-_.:/+ ".contains(c);
        if tag.is_empty() || tag.chars().count() > MAX_TAG_LENGTH || !tag.chars().all(plain) {
            fault("tags", "malformed", "each tag must have 1 to 32 letters, digits, spaces and - _ . : / +");
        } else if !kept.iter().any(|known| known == tag) {
            kept.push(tag.to_owned());
        }
    }
    if kept.len() > MAX_TAGS {
        fault("tags", "too_many", "must be at most 20");
    }
    kept
}

/// A name for whoever gives none: the program and the script without their folders, and as many whole
/// words behind them as there is room for.
fn name_of(work: &JobProgram) -> String {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let line: String = work.line().chars().map(|c| if hostile(c) { ' ' } else { c }).collect();
    let mut name = String::new();
    // Its first words up to an option are files: what matters of them stands last.
    let mut are_files = true;
    for (at, word) in line.split_whitespace().enumerate() {
        are_files &= at < 3 && !word.starts_with('-') && !word.contains('=');
        let file = word.trim_end_matches('/').rsplit('/').next().filter(|file| are_files && !file.is_empty());
        let shown = file.unwrap_or(word);
        let room = MAX_DEFAULT_NAME_LENGTH - name.chars().count();
        let long = if at == 0 { shown.to_owned() } else { format!(" {shown}") };
        if room < long.chars().count() {
            if at == 0 {
                name = long.chars().take(room).collect();
            }
            name.push('…');
            break;
        }
        name.push_str(&long);
    }
    if name.is_empty() { "Job".to_owned() } else { name }
}

/// With line ends as programs here read them.
fn unix_lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

fn is_unprintable(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t' | '\u{c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(request: JobRequest) -> Vec<(String, String)> {
        let faults = request.check(None).err().unwrap_or_default();
        faults.into_iter().map(|fault| (fault.field, fault.code)).collect()
    }

    fn script(text: &str) -> JobRequest {
        JobRequest { script: Some(text.to_owned()), ..JobRequest::default() }
    }

    #[test]
    fn scripts_as_editors_write_them() {
        for (text, kept) in [
            ("\u{feff}#!/bin/bash\r\necho a\r\n", "#!/bin/bash\necho a\n"),
            ("echo a\recho b", "echo a\necho b"),
            ("if x\n\tthen y\u{c}", "if x\n\tthen y\u{c}"),
        ] {
            let (task, _) = script(text).check(None).unwrap();
            assert_eq!(task.work, JobProgram::Script(kept.to_owned()));
        }
        let long = "x".repeat(5 << 20);
        for (text, code) in [("", "empty"), (" \r\n", "empty"), ("a\0b", "characters"), (&*long, "too_long")] {
            assert_eq!(faults(script(text)), [("script".to_owned(), code.to_owned())]);
        }
    }

    #[test]
    fn every_fault_at_once() {
        let request = JobRequest {
            command: Some(vec!["a\0".to_owned()]),
            name: Some("a\nb".to_owned()),
            nodes: Some(2),
            tasks_per_node: Some(1),
            variables: Some(
                [("1A", ""), ("LYCEUM_JOB", ""), ("A", "\0"), ("B", "x")].map(|(n, v)| (n.into(), v.into())).into(),
            ),
            ..JobRequest::default()
        };
        let fields: Vec<_> = faults(request).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["nodes", "command", "variables.1A", "variables.A", "variables.LYCEUM_JOB", "name"]);
        assert_eq!(faults(JobRequest::default())[0].1, "required");
        assert_eq!(faults(JobRequest { command: Some(Vec::new()), ..script("x") })[0].1, "ambiguous");
        assert_eq!(faults(JobRequest { command: Some(Vec::new()), ..JobRequest::default() })[0].1, "empty");
    }

    #[test]
    fn names_that_nobody_gave() {
        let argv = |line: &str| JobProgram::Command(line.split(' ').map(str::to_owned).collect());
        for (work, name) in [
            (JobProgram::Command(vec!["python".to_owned(), "train.py\n\u{202e}".to_owned()]), "python train.py"),
            (argv("/opt/env/bin/python3 /home/ada/resnet/train.py --data /data/x"), "python3 train.py --data /data/x"),
            (argv("python -m training.main lr=0.1"), "python -m training.main lr=0.1"),
            (
                argv("lyceum demo-train --steps 200000 --rate 50 --learning-rate 0.1 --seed 7"),
                "lyceum demo-train --steps 200000 --rate 50…",
            ),
            (argv(&"x".repeat(80)), &format!("{}…", "x".repeat(48))),
            (argv("/"), "/"),
            (JobProgram::Script("#!/bin/sh\n# x\nsleep 1".to_owned()), "sleep 1"),
            (JobProgram::Script("#".to_owned()), "Job"),
        ] {
            let name_made = name_of(&work);
            assert_eq!(name_made, name);
            assert!(parse_name(&name_made).is_ok());
        }
    }

    #[test]
    fn a_copy_with_another_command() {
        let original = JobRequest {
            variables: Some([("A".to_owned(), "1".to_owned())].into()),
            tags: Some(vec!["paper".to_owned()]),
            ..script("echo a")
        };
        let changes = JobRequest { command: Some(vec!["true".to_owned()]), ..JobRequest::default() };
        let copy = original.clone().with(changes);
        assert_eq!((copy.script, copy.command.map(|argv| argv.len())), (None, Some(1)));
        assert_eq!((copy.variables, copy.tags), (original.variables.clone(), original.tags.clone()));
        let without = JobRequest { tags: Some(Vec::new()), ..JobRequest::default() };
        assert_eq!(original.with(without).tags, Some(Vec::new()));
    }

    #[test]
    fn tags_and_notes() {
        let changes = |tags: &[&str], notes: &str| Changes {
            tags: Some(tags.iter().map(|tag| (*tag).to_owned()).collect()),
            notes: Some(notes.to_owned()),
            ..Changes::default()
        };
        let change = changes(&[" vision ", "a/b:1", "vision"], "a\r\nb").check().unwrap();
        assert_eq!(change.tags.unwrap(), ["vision", "a/b:1"]);
        assert_eq!(change.notes.unwrap(), "a\nb");
        let request = |notes: &str| JobRequest { notes: Some(notes.to_owned()), ..script("echo a") };
        assert_eq!(request("a\r\nb").check(None).unwrap().0.notes, "a\nb");
        assert_eq!(faults(request("\0"))[0].0, "notes");
        for (tags, notes) in
            [(&["<b>"][..], ""), (&["\""], ""), (&[""], ""), (&[], "\0"), (&[], &*"x".repeat(65 * 1024))]
        {
            assert!(changes(tags, notes).check().is_err(), "{tags:?}");
        }
    }
}
