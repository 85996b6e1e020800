//! From a workload to the words of `sbatch`, and what its answer means. All of it is pure: the
//! helper runs the command, as the user. No secret is among the words, for everybody on the
//! cluster can read them: the launch waits in a file of the user's in the run directory.

use std::path::Path;

use super::settings::Settings;
use lyceum_model::{Gpu, Resources, job::Shape, line::abridged, size::MIB};
use lyceum_node::helper::batch::NOT_RUN;
use lyceum_wire::protocol::{CommandOutput, Program, SIGTERM_FOR_PROGRAM, files};

/// A job to hand in.
pub(super) struct Job<'a> {
    pub settings: &'a Settings,
    pub name: &'a str,
    /// The group that is charged.
    pub group: Option<&'a str>,
    /// The mark by which it is found again.
    pub mark: &'a str,
    /// Of each node; of the whole job where Slurm spreads it.
    pub resources: &'a Resources,
    pub shape: &'a Shape,
    /// The GPUs that were counted for it: they tell the model.
    pub gpus: &'a [Gpu],
    /// There are several models, so that it has to be named.
    pub has_models: bool,
    /// A command, which is started once for each task; a script is started once.
    pub is_command: bool,
    /// What Slurm grants, and what the portal does.
    pub seconds: i64,
    pub limit: i64,
    pub run_directory: &'a Path,
    pub working_directory: &'a Path,
}

/// What `sbatch` is given.
#[derive(Debug)]
pub(super) struct Submission {
    /// Each a word of its own.
    pub options: Vec<String>,
    /// Variables that exist only because of options that the user has not set.
    pub hidden: Vec<String>,
}

/// The longest name that a job gets, in characters.
const MAX_NAME: usize = 64;

/// Before the end, where `--signal` does not say how long (seconds), and the longest that Slurm accepts.
const SIGNAL_BEFORE: i64 = 60;
const MAX_SIGNAL_SECONDS: i64 = 65_535;

/// The options of `sbatch`. What the lines of a script say is handed on as it was written; what they leave open
/// and the portal has counted is said for them, and leaves no variable behind.
pub(super) fn options(job: &Job<'_>) -> Submission {
    let Job { settings, shape, .. } = job;
    let mut options: Vec<String> = ["--parsable", "--no-requeue", "--propagate=NONE"].map(str::to_owned).into();
    let comment = shape.option("comment").map(|text| format!(" {text}")).unwrap_or_default();
    options.extend([
        format!("--chdir={}", job.working_directory.display()),
        format!("--job-name={}", name(job.name)),
        format!("--comment={}{comment}", job.mark),
        format!("--output={}", job.run_directory.join(files::BATCH).display()),
        format!("--time={}", minutes(job.seconds)),
    ]);
    let hidden = sizes(job, &mut options);
    for (option, value) in [
        ("partition", settings.partition.as_str()),
        ("account", settings.account_of(job.group)),
        ("qos", &settings.qos),
        ("reservation", &settings.reservation),
        ("constraint", &settings.constraint),
    ] {
        if !value.is_empty() {
            options.push(format!("--{option}={value}"));
        }
    }
    options.extend(settings.arguments.iter().cloned());
    // What is said last counts, as on a shell.
    let beyond = minutes(job.seconds).saturating_mul(60).saturating_sub(job.limit).max(0);
    let model = job.gpus.first().map(|gpu| gpu.model.as_str()).filter(|_| job.has_models);
    for option in shape.options.iter().filter(|option| !option.starts_with("--comment=")) {
        let signal = option.strip_prefix("--signal=").and_then(|signal| before_own_end(signal, beyond));
        options.push(signal.or_else(|| with_model(option, model?)).unwrap_or_else(|| option.clone()));
    }
    Submission { options, hidden }
}

/// What is said of sizes for those who do not; answers the variables that are to be hidden.
fn sizes(job: &Job<'_>, options: &mut Vec<String>) -> Vec<String> {
    let Job { resources, shape, .. } = job;
    let says = |names: &[&str]| shape.as_written && shape.says(names);
    let mut hidden = Vec::new();
    let of_tasks = ["ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"];
    // One task is on one node in any case; and where a number of nodes is said, Slurm makes tasks of some options.
    let has_nodes = shape.nodes > 1 || shape.tasks_per_node > 1 && (!shape.as_written || says(&["ntasks"]));
    if has_nodes && !shape.is_spread && !says(&["nodes"]) {
        options.push(format!("--nodes={}", shape.nodes));
    }
    let asks_tasks = shape.tasks_per_node > 1 || job.is_command && shape.tasks() > 1;
    if asks_tasks && !shape.is_spread && !says(&of_tasks) {
        options.push(format!("--ntasks={}", shape.tasks()));
        if shape.tasks_per_node > 1 || job.is_command {
            options.push(format!("--ntasks-per-node={}", shape.tasks_per_node));
        }
    }
    let cpus = cpus_per_task(shape, resources);
    if cpus > 1 && !shape.is_spread && !says(&["cpus-per-task", "cpus-per-gpu", "exclusive", "overcommit", "mincpus"]) {
        options.push(format!("--cpus-per-task={cpus}"));
    }
    if !says(&["mem", "mem-per-cpu", "mem-per-gpu"]) {
        let (option, variable) = if shape.is_spread {
            (format!("--mem-per-cpu={}M", each_core(resources)), "SLURM_MEM_PER_CPU")
        } else {
            (format!("--mem={}M", mebibytes(resources.memory_bytes)), "SLURM_MEM_PER_NODE")
        };
        options.push(option);
        hidden.extend(shape.as_written.then(|| variable.to_owned()));
    }
    let says_gpus = says(&["gpus", "gres", "gpus-per-node", "gpus-per-task", "ntasks-per-gpu", "exclusive"]);
    if resources.gpus > 0 && !says_gpus {
        let model = model(resources, job.gpus).map(|model| format!("{model}:")).unwrap_or_default();
        options.push(format!("--gres=gpu:{model}{}", resources.gpus));
    }
    hidden
}

/// Of memory, for each core: whole MiB, upwards.
fn each_core(resources: &Resources) -> i64 {
    mebibytes(resources.memory_bytes.div_euclid(resources.cpus.max(1)))
}

/// `--signal` counts from the portal's end, which is `beyond` seconds before Slurm's; `None` where it cannot be
/// read, so that Slurm says so itself. SIGTERM to the script goes by another number: by that one the agent
/// knows that it is to end everything.
fn before_own_end(text: &str, beyond: i64) -> Option<String> {
    let (signal, before) = text.split_once('@').unwrap_or((text, ""));
    let before = if before.is_empty() { SIGNAL_BEFORE } else { before.parse().ok().filter(|before| *before >= 0)? };
    let before = before.saturating_add(beyond).min(MAX_SIGNAL_SECONDS);
    let (whom, signal) = signal.split_once(':').map_or(("", signal), |(whom, signal)| (whom, signal));
    let is_term = ["TERM", "SIGTERM", "15"].iter().any(|term| signal.eq_ignore_ascii_case(term));
    let is_to_script = whom.contains(['B', 'b']);
    let signal = if is_term && is_to_script { SIGTERM_FOR_PROGRAM.to_string() } else { signal.to_owned() };
    let whom = if whom.is_empty() { String::new() } else { format!("{whom}:") };
    Some(format!("--signal={whom}{signal}@{before}"))
}

/// GPUs of no model are of the one that was counted.
fn with_model(option: &str, model: &str) -> Option<String> {
    let (name, value) = option.split_once('=')?;
    let bare = |value: &str| value.parse::<u32>().is_ok_and(|count| count > 0);
    match (name, value.strip_prefix("gpu")) {
        ("--gpus" | "--gpus-per-node" | "--gpus-per-task", _) if bare(value) => Some(format!("{name}={model}:{value}")),
        ("--gres", Some("")) => Some(format!("{name}=gpu:{model}:1")),
        ("--gres", Some(rest)) if rest.strip_prefix(':').is_some_and(bare) => Some(format!("{name}=gpu:{model}{rest}")),
        _ => None,
    }
}

fn cpus_per_task(shape: &Shape, resources: &Resources) -> i64 {
    (resources.cpus / shape.tasks_per_node.max(1)).max(1)
}

/// A command that is started several times is started by `srun`, on all of the job's nodes; a
/// script runs once, and does so itself.
pub(super) fn spread(program: Program, srun: &Path, shape: &Shape, resources: &Resources) -> Program {
    match program {
        Program::Exec { argv } if shape.tasks() > 1 => {
            let srun = [
                srun.display().to_string(),
                format!("--nodes={}", shape.nodes),
                format!("--ntasks={}", shape.tasks()),
                format!("--ntasks-per-node={}", shape.tasks_per_node),
                format!("--cpus-per-task={}", cpus_per_task(shape, resources)),
                "--kill-on-bad-exit=1".to_owned(),
                "--export=ALL".to_owned(),
            ];
            Program::Exec { argv: srun.into_iter().chain(argv).collect() }
        }
        other => other,
    }
}

/// The script: it turns into the agent, which reads the launch and removes it. What comes before the agent
/// listens does not end it; and what Slurm's variables would make of `srun` and of Slurm's commands inside is forgotten.
pub(super) fn script(program: &Path, run_directory: &Path) -> String {
    let launch = run_directory.join(files::LAUNCH);
    let (program, launch) = (program.display(), launch.display());
    format!(
        "#!/bin/sh\ntrap '' HUP INT QUIT USR1 USR2 ALRM {SIGTERM_FOR_PROGRAM}\nunset SLURM_EXPORT_ENV \
         SLURM_GET_USER_ENV SLURM_TIME_FORMAT SLURM_BITSTR_LEN\nexec '{program}' agent --launch '{launch}'\n"
    )
}

/// The model that is asked for by name: the person's wish, else what was counted, where Slurm
/// knows models at all.
fn model<'a>(resources: &'a Resources, gpus: &'a [Gpu]) -> Option<&'a str> {
    let counted = || gpus.first().map(|gpu| gpu.model.as_str());
    resources.gpu_model.as_deref().or_else(counted).filter(|model| *model != super::sinfo::ANY_GPU)
}

/// A name of one line that is never empty.
fn name(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_NAME).collect();
    match clean.trim() {
        "" => "lyceum".to_owned(),
        name => name.to_owned(),
    }
}

/// Whole MiB, upwards: Slurm counts in nothing smaller.
fn mebibytes(bytes: i64) -> i64 {
    bytes.div_euclid(MIB) + i64::from(bytes.rem_euclid(MIB) != 0)
}

/// Whole minutes, upwards, for the same reason; none is no limit at all.
pub(super) fn minutes(seconds: i64) -> i64 {
    (seconds.div_euclid(60) + i64::from(seconds.rem_euclid(60) != 0)).max(1)
}

/// What `sbatch` has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted(u32),
    /// Slurm will not have it as it is; its own sentence.
    Refused(String),
    /// Slurm has taken as many jobs as somebody's limit allows at once; which limit.
    Full(String),
    /// Nobody knows whether it was taken.
    Unclear(String),
}

/// Words by which Slurm says that it was not asked, or that it does not know how that went.
const UNREACHED: [&str; 14] = [
    "unable to contact",
    "timed out",
    "connection refused",
    "connection reset",
    "communication",
    "zero bytes",
    "send/recv",
    "transport endpoint",
    "unexpected message",
    "protocol authentication error",
    "invalid authentication credential",
    "temporarily",
    "try again",
    "backoff",
];

pub(super) fn read(ran: &CommandOutput) -> Answer {
    let said = complaint(&ran.complaints);
    match ran.status {
        Some(0) => match ran.output.trim().lines().last().and_then(job_number) {
            Some(job) => Answer::Accepted(job),
            None => Answer::Unclear(format!("unexpected output of sbatch: {}", abridged(&ran.output, 300))),
        },
        None => Answer::Unclear("no response from the controller within 25 seconds".to_owned()),
        Some(status) if status == i32::from(NOT_RUN) => Answer::Unclear(said),
        // It speaks before anything is run.
        Some(_) if said.starts_with("sudo: ") => Answer::Refused(format!(
            "The portal is not allowed to submit jobs as this account ({said}): an administrator must add it to the \
             portal's sudo rule."
        )),
        Some(_) if full_of(&ran.complaints).is_some() => {
            Answer::Full(full_of(&ran.complaints).unwrap_or_default().to_owned())
        }
        Some(_) if is_unreached(&said) => Answer::Unclear(said),
        Some(_) if said.is_empty() => Answer::Refused("Slurm rejected the job without a reason.".to_owned()),
        Some(_) => Answer::Refused(format!("Slurm rejected the job: {said}.")),
    }
}

/// Slurm's word for a limit on how many jobs are submitted at once: `AssocMaxSubmitJobLimit`,
/// `AssocGrpSubmitJobsLimit`, `QOSMaxSubmitJobPerUserLimit` and their like. Whoever asks for too much time or
/// too many GPUs is refused by the same last line.
fn full_of(complaints: &str) -> Option<&str> {
    let words = complaints.split(|c: char| !c.is_ascii_alphanumeric());
    let is_limit = |word: &&str| {
        (word.starts_with("Assoc") || word.starts_with("QOS")) && word.contains("SubmitJob") && word.ends_with("Limit")
    };
    words.into_iter().find(is_limit)
}

pub(super) fn is_unreached(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    UNREACHED.iter().any(|words| said.contains(words))
}

/// `123`, or `123;cluster`.
fn job_number(line: &str) -> Option<u32> {
    line.split(';').next()?.trim().parse().ok().filter(|job| *job > 0)
}

/// Slurm's own sentences without its ornaments, as one line for people.
pub(super) fn complaint(complaints: &str) -> String {
    let bare = |line: &str| {
        let line = line.trim();
        let line = line.split_once(": error: ").map_or(line, |(_, rest)| rest);
        line.trim_start_matches("Batch job submission failed: ").trim_end_matches('.').to_owned()
    };
    let lines: Vec<String> = complaints.lines().map(bare).filter(|line| !line.is_empty()).collect();
    abridged(&lines.join("; "), 300)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::size::GIB;

    static ONE: Shape = Shape { nodes: 1, tasks_per_node: 1, options: Vec::new(), as_written: false, is_spread: false };

    fn options(job: &Job<'_>) -> Vec<String> {
        super::options(job).options
    }

    fn job<'a>(settings: &'a Settings, name: &'a str, resources: &'a Resources) -> Job<'a> {
        Job {
            settings,
            name,
            group: None,
            mark: "lyceum:x:y",
            resources,
            shape: &ONE,
            gpus: &[],
            has_models: false,
            is_command: true,
            seconds: 5400,
            limit: 4800,
            run_directory: Path::new("/r/1"),
            working_directory: Path::new("/home/ada"),
        }
    }

    #[test]
    fn what_is_asked_for() {
        let resources = Resources { gpus: 2, gpu_model: Some("a100".to_owned()), cpus: 8, memory_bytes: 48 * GIB + 1 };
        let settings = Settings {
            partition: "gpu".to_owned(),
            account: "research".to_owned(),
            arguments: vec!["--nice".to_owned()],
            ..Settings::default()
        };
        let options = options(&job(&settings, "train", &resources));
        for wanted in [
            "--parsable",
            "--no-requeue",
            "--chdir=/home/ada",
            "--job-name=train",
            "--comment=lyceum:x:y",
            "--output=/r/1/batch.log",
            "--cpus-per-task=8",
            "--mem=49153M",
            "--time=90",
            "--gres=gpu:a100:2",
            "--partition=gpu",
            "--account=research",
            "--nice",
        ] {
            assert!(options.iter().any(|option| option == wanted), "{wanted}: {options:?}");
        }
        assert!(!options.iter().any(|option| option.starts_with("--qos")), "what is not set is not asked for");
        assert!(options.iter().all(|option| option.starts_with("--")));
    }

    /// What a script says itself goes to Slurm as it is; what is said for it leaves no variable.
    #[test]
    fn a_script_as_it_was_written() {
        let resources = Resources { cpus: 8, memory_bytes: 8 * GIB, ..Resources::default() };
        let settings = Settings::default();
        let of = |lines: &[&str], is_spread: bool, gpus: &[Gpu]| {
            let options = lines.iter().map(|&line| line.to_owned()).collect();
            let shape = Shape { options, as_written: true, is_spread, ..ONE.clone() };
            let job = Job { shape: &shape, is_command: false, gpus, ..job(&settings, "x", &resources) };
            let told = super::options(&Job { has_models: true, ..job });
            let sizes = ["--nodes", "--ntasks", "--cpus", "--mem", "--g", "--signal", "--comment"];
            let is_size = |option: &String| sizes.iter().any(|size| option.starts_with(size));
            (told.options.into_iter().filter(is_size).collect::<Vec<_>>().join(" "), told.hidden.join(" "))
        };
        let told = |options: &str, hidden: &str| (options.to_owned(), hidden.to_owned());
        let mark = "--comment=lyceum:x:y";
        assert_eq!(
            of(&["--ntasks=8"], true, &[]),
            told(&format!("{mark} --mem-per-cpu=1024M --ntasks=8"), "SLURM_MEM_PER_CPU")
        );
        assert_eq!(
            of(&["--cpus-per-task=8", "--mem=8G", "--comment=a b"], false, &[]),
            told(&format!("{mark} a b --cpus-per-task=8 --mem=8G"), "")
        );
        // Slurm's end is ten minutes after the portal's.
        for (signal, wanted) in [
            ("USR1", "USR1@660"),
            ("B:USR1@120", "B:USR1@720"),
            ("B:TERM@60", "B:44@660"),
            ("SIGTERM@60", "SIGTERM@660"),
            ("RB:15", "RB:44@660"),
            ("B:USR1@soon", "B:USR1@soon"),
        ] {
            let (options, _) = of(&["--mem=1G", "--cpus-per-task=8", &format!("--signal={signal}")], false, &[]);
            assert!(options.ends_with(&format!(" --signal={wanted}")), "{options}");
        }
        let a100 = [Gpu { model: "a100".to_owned(), ..Gpu::default() }];
        for (line, wanted) in [
            ("--gpus=4", "--gpus=a100:4"),
            ("--gres=gpu", "--gres=gpu:a100:1"),
            ("--gres=gpu:2", "--gres=gpu:a100:2"),
            ("--gres=gpu:h100:2", "--gres=gpu:h100:2"),
            ("--gres=none", "--gres=none"),
        ] {
            let (options, _) = of(&[line, "--mem=1G"], true, &a100);
            assert!(options.contains(wanted), "{options}");
        }
    }

    #[test]
    fn whom_slurm_charges() {
        let accounts = [("vision".to_owned(), "lab-vision".to_owned())].into();
        let settings = Settings { account: "research".to_owned(), accounts, ..Settings::default() };
        let resources = Resources::default();
        for (group, account) in [(None, "research"), (Some("vision"), "lab-vision"), (Some("speech"), "research")] {
            let options = options(&Job { group, ..job(&settings, "x", &resources) });
            let told: Vec<_> = options.iter().filter(|option| option.starts_with("--account")).collect();
            assert_eq!(told, [&format!("--account={account}")]);
        }
    }

    #[test]
    fn several_nodes() {
        let resources = Resources { gpus: 2, cpus: 8, memory_bytes: GIB, ..Resources::default() };
        let settings = Settings { partition: "gpu".to_owned(), ..Settings::default() };
        let shape = Shape { nodes: 3, tasks_per_node: 2, options: vec!["--partition=long".to_owned()], ..ONE.clone() };
        let options = options(&Job { shape: &shape, ..job(&settings, "x", &resources) });
        for wanted in
            ["--nodes=3", "--ntasks=6", "--ntasks-per-node=2", "--cpus-per-task=4", "--mem=1024M", "--gres=gpu:2"]
        {
            assert!(options.iter().any(|option| option == wanted), "{wanted}: {options:?}");
        }
        assert_eq!(options.last().unwrap(), "--partition=long", "the last one counts");
        let argv = |program| match spread(program, Path::new("/usr/bin/srun"), &shape, &resources) {
            Program::Exec { argv } => argv,
            other => panic!("{other:?}"),
        };
        let given = argv(Program::Exec { argv: vec!["hostname".to_owned(), "-s".to_owned()] });
        assert_eq!((given[0].as_str(), given.last().unwrap().as_str()), ("/usr/bin/srun", "-s"));
        assert!(given.contains(&"--ntasks=6".to_owned()) && given.contains(&"--cpus-per-task=4".to_owned()));
        let script = Program::Script { text: "x".to_owned() };
        assert!(matches!(spread(script, Path::new("/x"), &shape, &resources), Program::Script { .. }));
    }

    #[test]
    fn injection_corpus() {
        let (settings, resources) = (Settings::default(), Resources::default());
        let long = "x".repeat(1024);
        for (given, wanted) in [
            ("", "lyceum"),
            ("\u{1f}\n", "lyceum"),
            ("a\n#SBATCH --uid=0", "a #SBATCH --uid=0"),
            ("-J; $(id) `id` 'x' \"y\"", "-J; $(id) `id` 'x' \"y\""),
            ("naïve 日本", "naïve 日本"),
            (long.as_str(), &long[..MAX_NAME]),
        ] {
            let options = options(&job(&settings, given, &resources));
            let named: Vec<_> = options.iter().filter(|option| option.starts_with("--job-name=")).collect();
            assert_eq!(named, [&format!("--job-name={wanted}")]);
            assert!(options.iter().all(|option| option.starts_with("--") && !option.contains(['\n', '\u{1f}'])));
        }
    }

    #[test]
    fn models() {
        let gpu = |model: &str| Gpu { model: model.to_owned(), ..Gpu::default() };
        let ask = |wish: Option<&str>, counted: &[Gpu]| {
            let resources = Resources { gpus: 1, gpu_model: wish.map(str::to_owned), ..Resources::default() };
            let settings = Settings::default();
            options(&Job { gpus: counted, ..job(&settings, "x", &resources) }).into_iter().find(|o| o.contains("gres"))
        };
        assert_eq!(ask(Some("h100"), &[gpu("a100")]).unwrap(), "--gres=gpu:h100:1");
        assert_eq!(ask(None, &[gpu("a100")]).unwrap(), "--gres=gpu:a100:1");
        assert_eq!(ask(None, &[gpu("GPU")]).unwrap(), "--gres=gpu:1");
        assert_eq!(ask(None, &[]).unwrap(), "--gres=gpu:1");
    }

    #[test]
    fn answers() {
        let ran = |status, output: &str, complaints: &str| CommandOutput {
            status,
            output: output.to_owned(),
            complaints: complaints.to_owned(),
        };
        assert_eq!(read(&ran(Some(0), "42\n", "")), Answer::Accepted(42));
        assert_eq!(read(&ran(Some(0), "a site's greeting\n42;test\n", "warning")), Answer::Accepted(42));
        assert!(matches!(read(&ran(Some(0), "", "")), Answer::Unclear(_)));
        assert!(matches!(read(&ran(None, "", "")), Answer::Unclear(_)));
        assert!(matches!(read(&ran(Some(i32::from(NOT_RUN)), "", "no disk")), Answer::Unclear(_)));
        let refused = "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: \
                       Invalid partition name specified\n";
        assert_eq!(
            read(&ran(Some(1), "", refused)),
            Answer::Refused(
                "Slurm rejected the job: invalid partition specified: nowhere; Invalid partition name specified."
                    .to_owned()
            )
        );
        for limit in [
            "AssocMaxSubmitJobLimit",
            "AssocGrpSubmitJobsLimit",
            "QOSMaxSubmitJobPerUserLimit",
            "QOSMaxSubmitJobPerAccountLimit",
            "QOSGrpSubmitJobsLimit",
        ] {
            let violates = "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's \
                            size and/or time limits)";
            let said = format!("sbatch: error: {limit}\nsbatch: error: {violates}\n");
            assert_eq!(read(&ran(Some(1), "", &said)), Answer::Full(limit.to_owned()));
            let other = said.replace(limit, "AssocMaxWallDurationPerJobLimit");
            assert!(matches!(read(&ran(Some(1), "", &other)), Answer::Refused(_)), "{other}");
            assert!(matches!(read(&ran(Some(1), "", violates)), Answer::Refused(_)));
        }
        for unclear in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
            "sbatch: error: Batch job submission failed: Protocol authentication error",
        ] {
            assert!(matches!(read(&ran(Some(1), "", unclear)), Answer::Unclear(_)), "{unclear}");
        }
    }

    #[test]
    fn whole_units() {
        assert_eq!([0, 1, 60, 61, 3600].map(minutes), [1, 1, 1, 2, 60]);
        assert_eq!([MIB, MIB + 1, 2 * MIB].map(mebibytes), [1, 2, 2]);
    }
}
