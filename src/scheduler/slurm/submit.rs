//! From a workload to the words of `sbatch`, and what its answer means. All of it is pure: the
//! helper runs the command, as the user. No secret is among the words, for everybody on the
//! cluster can read them: the launch waits in a file of the user's in the run directory.

use std::path::Path;

use super::settings::Settings;
use crate::{
    helper::batch::NOT_RUN,
    model::{Gpu, Resources, job::Shape, line::abridged, size::MIB},
    protocol::{Program, Ran, files},
};

/// A job to hand in.
pub(super) struct Job<'a> {
    pub settings: &'a Settings,
    pub name: &'a str,
    /// The group that is charged.
    pub group: Option<&'a str>,
    /// The mark by which it is found again.
    pub mark: &'a str,
    /// Of each node.
    pub resources: &'a Resources,
    pub shape: &'a Shape,
    /// The GPUs that were counted for it: they tell the model.
    pub gpus: &'a [Gpu],
    pub seconds: i64,
    pub run_directory: &'a Path,
}

/// The longest name that a job gets, in characters.
const MAX_NAME: usize = 64;

/// The options of `sbatch`, each a word of its own.
pub(super) fn options(job: &Job<'_>) -> Vec<String> {
    let Job { settings, resources, shape, .. } = job;
    let mut options: Vec<String> =
        ["--parsable", "--no-requeue", "--export=NIL", "--propagate=NONE", "--chdir=/"].map(str::to_owned).into();
    options.extend([
        format!("--job-name={}", name(job.name)),
        format!("--comment={}", job.mark),
        format!("--output={}", job.run_directory.join(files::BATCH).display()),
        format!("--nodes={}", shape.nodes),
        format!("--ntasks={}", shape.tasks()),
        format!("--cpus-per-task={}", cpus_per_task(shape, resources)),
        format!("--mem={}M", mebibytes(resources.memory_bytes)),
        format!("--time={}", minutes(job.seconds)),
    ]);
    if 1 < shape.tasks() {
        options.push(format!("--ntasks-per-node={}", shape.tasks_per_node));
    }
    if 0 < resources.gpus {
        let model = model(resources, job.gpus).map(|model| format!("{model}:")).unwrap_or_default();
        options.push(format!("--gres=gpu:{model}{}", resources.gpus));
    }
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
    // What is said last counts, as on a shell.
    options.extend(settings.arguments.iter().chain(&shape.options).cloned());
    options
}

fn cpus_per_task(shape: &Shape, resources: &Resources) -> i64 {
    (resources.cpus / shape.tasks_per_node.max(1)).max(1)
}

/// A command that is started several times is started by `srun`, on all of the job's nodes; a
/// script runs once, and does so itself.
pub(super) fn spread(program: Program, srun: &Path, shape: &Shape, resources: &Resources) -> Program {
    match program {
        Program::Exec { argv } if 1 < shape.tasks() => {
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

/// The script: it turns into the agent, which reads the launch and removes it. What Slurm's
/// variables would make of `srun` and of Slurm's commands inside is forgotten.
pub(super) fn script(program: &Path, run_directory: &Path) -> String {
    let launch = run_directory.join(files::LAUNCH);
    let (program, launch) = (program.display(), launch.display());
    format!(
        "#!/bin/sh\nunset SLURM_EXPORT_ENV SLURM_GET_USER_ENV SLURM_TIME_FORMAT\nexec '{program}' agent --launch \
         '{launch}'\n"
    )
}

/// Variables of Slurm's that go to the app: what it was given, and of which job it is.
pub(super) const INHERITED: [&str; 6] =
    ["SLURM*", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "TMPDIR"];

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

pub(super) fn read(ran: &Ran) -> Answer {
    let said = complaint(&ran.complaints);
    match ran.status {
        Some(0) => match ran.output.trim().lines().last().and_then(job_number) {
            Some(job) => Answer::Accepted(job),
            None => Answer::Unclear(format!("sbatch answered something else: {}", abridged(&ran.output, 300))),
        },
        None => Answer::Unclear("the controller took longer than 25 seconds".to_owned()),
        Some(status) if status == i32::from(NOT_RUN) => Answer::Unclear(said),
        // It speaks before anything is run.
        Some(_) if said.starts_with("sudo: ") => Answer::Refused(format!(
            "The portal may not hand in jobs as this account ({said}): an administrator has to name it in the rule that \
             sudo has for the portal."
        )),
        Some(_) if is_unreached(&said) => Answer::Unclear(said),
        Some(_) if said.is_empty() => Answer::Refused("Slurm refused the job and did not say why.".to_owned()),
        Some(_) => Answer::Refused(format!("Slurm refused the job: {said}.")),
    }
}

pub(super) fn is_unreached(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    UNREACHED.iter().any(|words| said.contains(words))
}

/// `123`, or `123;cluster`.
fn job_number(line: &str) -> Option<u32> {
    line.split(';').next()?.trim().parse().ok().filter(|job| 0 < *job)
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
    use crate::model::size::GIB;

    static ONE: Shape = Shape { nodes: 1, tasks_per_node: 1, options: Vec::new() };

    fn job<'a>(settings: &'a Settings, name: &'a str, resources: &'a Resources) -> Job<'a> {
        Job {
            settings,
            name,
            group: None,
            mark: "lyceum:x:y",
            resources,
            shape: &ONE,
            gpus: &[],
            seconds: 5400,
            run_directory: Path::new("/r/1"),
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
            "--export=NIL",
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
        let shape = Shape { nodes: 3, tasks_per_node: 2, options: vec!["--partition=long".to_owned()] };
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
        let ran = |status, output: &str, complaints: &str| Ran {
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
                "Slurm refused the job: invalid partition specified: nowhere; Invalid partition name specified."
                    .to_owned()
            )
        );
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
