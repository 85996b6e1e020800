//! The `#SBATCH` lines of a script that was written for Slurm: what it asks for, so that quotas
//! can be judged, how it wants to be started, and which options go to Slurm as they are. A line
//! that cannot be counted or obeyed is refused, never passed over: what is held must be what is
//! charged. All of it is pure.

mod options;
mod size;
mod values;

pub(super) use self::size::SizeDefaults;
use self::{
    options::{OptionSpec, Use},
    size::Numbers,
    values::Time,
};
use lyceum_model::{Capacity, FieldError, Resources, job::Start};

/// What the lines of a script say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub name: Option<String>,
    pub working_directory: Option<String>,
    pub seconds: Option<i64>,
    /// It asks for as long as it may run.
    pub is_unlimited: bool,
    /// The tasks of an array, as Slurm writes them: `0-9%3`.
    pub array: Option<String>,
    /// The most there may be.
    pub nodes: i64,
    pub tasks_per_node: i64,
    /// Of each node; of the whole job where it is spread.
    pub resources: Resources,
    pub is_spread: bool,
    /// Whether they say anything of that.
    pub says_size: bool,
    pub start: Start,
    /// Variables that `--export` gives a value.
    pub variables: Vec<(String, String)>,
    pub requeue: Option<bool>,
    /// Words for `sbatch`, each beginning with `--`.
    pub options: Vec<String>,
}

/// The variables that `--export` gives a value, where it can be read.
pub(super) fn given(export: &str) -> Option<Vec<(String, String)>> {
    values::given(export).ok()
}

/// The word that such a line begins with.
const WORD: &str = "#SBATCH";

/// Words of other batch systems that `sbatch` reads as well.
const OTHER_WORDS: [&str; 2] = ["#PBS", "#BSUB"];

/// What names a job for Slurm.
pub(super) const JOB_NAME: &str = "--job-name=";

/// The longest value of an option (bytes).
const MAX_VALUE_LENGTH: usize = 1024;

/// Reads the lines of a script; what it does not say is taken from `usual`. `node` tells how large the largest
/// node is that a job with these options may get. Every fault names its line.
pub(super) fn read(
    script: &str,
    usual: &SizeDefaults,
    node: &dyn Fn(&[String]) -> Option<Capacity>,
) -> Result<Lines, Vec<FieldError>> {
    let (mut lines, mut numbers, mut faults) = (Lines::default(), Numbers::default(), Vec::new());
    if !script.starts_with("#!") {
        let message = "is not a Slurm script: its first line must name the program that runs it, such as #!/bin/bash";
        return Err(vec![FieldError::new("script", "not_a_script", message)]);
    }
    let mut of_others = Vec::new();
    let mut ignores_others = false;
    for (index, line) in head(script).enumerate() {
        if let Some(word) = OTHER_WORDS.into_iter().find(|word| behind(line, word).is_some()) {
            of_others.push((index, word));
        }
        let Some(words) = behind(line, WORD) else { continue };
        if ["hetjob", "packjob"].contains(&words.trim()) {
            let why = "heterogeneous jobs are not supported: submit a job for each part, or give all parts the same \
                       size";
            faults.push(FieldError::new("script", "sbatch_line", format!("line {}: {why}", index + 1)));
            continue;
        }
        let read = options::split(words).and_then(|options| {
            options.into_iter().try_for_each(|(known, value)| {
                ignores_others |= known.name == "ignore-pbs";
                take(&mut lines, &mut numbers, known, value.as_deref())
            })
        });
        if let Err(why) = read {
            faults.push(FieldError::new("script", "sbatch_line", format!("line {}: {why}", index + 1)));
        }
    }
    for (index, word) in of_others.into_iter().filter(|_| !ignores_others) {
        let why = format!("line {}: `{word}` lines are not supported: write them as {WORD} lines", index + 1);
        faults.push(FieldError::new("script", "sbatch_line", why));
    }
    if faults.is_empty() {
        let node = node(&lines.options);
        if let Err(why) = numbers.put_together(&mut lines, usual, node) {
            faults.push(FieldError::new("script", "sbatch_size", why));
        }
    }
    if faults.is_empty() { Ok(lines) } else { Err(faults) }
}

/// Whether a script has lines for `sbatch`, well written or not.
pub(super) fn has_lines(script: &str) -> bool {
    head(script).any(|line| behind(line, WORD).is_some())
}

/// The lines that Slurm reads: those before the first command.
fn head(script: &str) -> impl Iterator<Item = &str> {
    let is_read = |line: &&str| matches!(line.trim().chars().next(), None | Some('#'));
    script.lines().take_while(is_read)
}

fn behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix(word).filter(|rest| rest.starts_with([' ', '\t']))
}

/// The tasks of the array that a script asks for, where its lines can be read.
pub(super) fn array_of(script: &str) -> Option<String> {
    of_any_size(script)?.array
}

/// The folder that a script's lines name.
pub(super) fn folder_of(script: &str) -> Option<String> {
    of_any_size(script)?.working_directory
}

/// What the lines say besides sizes, which another cluster may count otherwise.
fn of_any_size(script: &str) -> Option<Lines> {
    let node = Capacity { gpus: 1, cpus: 1, memory_bytes: 1 };
    read(script, &SizeDefaults::default(), &|_| Some(node)).ok()
}

fn take(lines: &mut Lines, numbers: &mut Numbers, known: &OptionSpec, value: Option<&str>) -> Result<(), String> {
    let (name, text) = (known.name, value.unwrap_or_default());
    match known.becomes {
        Use::Refuse(why) => return Err(format!("`--{name}`: {why}")),
        Use::Nothing => return Ok(()),
        Use::Read => return take_here(lines, name, text),
        Use::Size => numbers.take(name, value)?,
        Use::Pass => {}
    }
    let is_plain = !text.contains(|c: char| c.is_control()) && text.len() <= MAX_VALUE_LENGTH;
    if !is_plain || text.starts_with('-') && name != "nice" {
        return Err(format!("`--{name}` has a value that Slurm does not accept"));
    }
    if name == "dependency" && text != "singleton" {
        return Err("`--dependency`: use the field `after` for dependencies".to_owned());
    }
    // What is said last counts.
    lines.options.retain(|option| option.split('=').next() != Some(&format!("--{name}")));
    lines.options.push(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
    Ok(())
}

/// What does not go to Slurm.
fn take_here(lines: &mut Lines, name: &str, text: &str) -> Result<(), String> {
    let streams = &mut lines.start.streams;
    if ["output", "error", "input"].contains(&name) && (text.is_empty() || text.contains(char::is_control)) {
        return Err(format!("`--{name}` needs the name of a file"));
    }
    match name {
        "time" => match values::time(text) {
            Some(Time::Seconds(seconds)) => (lines.seconds, lines.is_unlimited) = (Some(seconds), false),
            Some(Time::Unlimited) => (lines.seconds, lines.is_unlimited) = (None, true),
            None => {
                return Err(format!("`--time={text}` is not a time in Slurm's format, such as 30, 2:00:00 or 1-12"));
            }
        },
        "array" => lines.array = Some(text.to_owned()),
        "job-name" => {
            lines.name = Some(text.to_owned());
            // Slurm calls all tasks of an array alike.
            if !text.is_empty() && !text.contains(char::is_control) {
                lines.options.retain(|option| !option.starts_with(JOB_NAME));
                lines.options.push(format!("{JOB_NAME}{text}"));
            }
        }
        "output" => streams.output = Some(text.to_owned()),
        "error" => streams.error = Some(text.to_owned()),
        "input" => streams.input = Some(text.to_owned()),
        "open-mode" => match text {
            "append" | "a" => streams.append = true,
            "truncate" | "t" => streams.append = false,
            _ => return Err(format!("`--open-mode={text}`: must be append or truncate")),
        },
        "export" => {
            lines.variables = values::given(text)?;
            lines.start.export = Some(text.to_owned());
        }
        "get-user-env" => lines.start.login_shell = true,
        "requeue" => lines.requeue = Some(true),
        "no-requeue" => lines.requeue = Some(false),
        // `workdir` is its older name.
        _ => lines.working_directory = Some(text.to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::{job::Streams, size::GIB};

    const NODE: Capacity = Capacity { gpus: 2, cpus: 4, memory_bytes: 4 * GIB };

    fn lines(lines: &[&str]) -> Result<Lines, Vec<FieldError>> {
        let script = format!("#!/bin/bash\n{}\necho hello\n#SBATCH --uid=0\n", lines.join("\n"));
        read(&script, &SizeDefaults::default(), &|_| Some(NODE))
    }

    #[test]
    fn what_a_script_asks_for() {
        let read = lines(&[
            "# a remark",
            "#SBATCH --job-name=train  # not the name",
            "#SBATCH -N 2 -c4",
            "",
            "#SBATCH --ntasks-per-node=2",
            "#SBATCH\t--mem-per-cpu=512M --gres=gpu:a100:2",
            "#SBATCH -t 1-02:30 --partition debug",
            "#SBATCH -p gpu,long",
            "#SBATCH --output=slurm-%j.out --open-mode=append --requeue",
            "##SBATCH --array=1-4",
            "#SBATCHX --array=1-4",
        ])
        .unwrap();
        let resources = Resources { gpus: 2, gpu_model: Some("a100".to_owned()), cpus: 8, memory_bytes: 4 * GIB };
        let streams = Streams { output: Some("slurm-%j.out".to_owned()), append: true, ..Streams::default() };
        let options =
            ["--nodes=2", "--cpus-per-task=4", "--ntasks-per-node=2", "--mem-per-cpu=512M", "--gres=gpu:a100:2"];
        let wanted = Lines {
            name: Some("train".to_owned()),
            seconds: Some(95_400),
            nodes: 2,
            tasks_per_node: 2,
            resources,
            says_size: true,
            start: Start { streams, ..Start::default() },
            requeue: Some(true),
            options: ["--job-name=train"]
                .into_iter()
                .chain(options)
                .chain(["--partition=gpu,long"])
                .map(str::to_owned)
                .collect(),
            ..Lines::default()
        };
        assert_eq!(read, wanted);
        let usual = Resources { gpus: 1, cpus: 3, memory_bytes: 7, ..Resources::default() };
        let given = SizeDefaults { resources: usual.clone(), nodes: 2, tasks_per_node: 3 };
        let read = super::read("#!/bin/sh\n#SBATCH -p gpu\ntrue\n", &given, &|_| None).unwrap();
        assert_eq!((read.resources.gpus, read.nodes, read.tasks_per_node, read.seconds), (1, 2, 3, None));
        assert!(!read.says_size);
    }

    /// Nodes, tasks of each, and whether it is spread; then cores, memory and GPUs.
    type Size = (i64, i64, bool, (i64, i64, i64));

    fn size(line: &str) -> Size {
        let read = lines(&[&format!("#SBATCH {line}")]).unwrap_or_else(|faults| panic!("{line}: {faults:?}"));
        let Resources { cpus, memory_bytes, gpus, .. } = read.resources;
        (read.nodes, read.tasks_per_node, read.is_spread, (cpus, memory_bytes / MIB, gpus))
    }

    const MIB: i64 = 1 << 20;

    #[test]
    fn sizes_in_every_way() {
        let usual = Resources::default().memory_bytes / MIB;
        for (line, wanted) in [
            ("-n 8 -N 2-2 --gpus=4 --mem=1G", (2, 4, false, (4, 1024, 2))),
            ("-n 3 -c 2 --gpus-per-task=h100:1 --mem=2048", (2, 2, true, (6, 4096, 3))),
            ("-n 3 --mem=2048", (1, 3, false, (3, 2048, 0))),
            ("--gres=gpu", (1, 1, false, (1, usual, 1))),
            ("--gres=none", (1, 1, false, (1, usual, 0))),
            // Slurm chooses the nodes: tasks times cores.
            ("--ntasks=8", (1, 8, true, (8, 8 * usual, 0))),
            ("--ntasks=8 -c2 --mem-per-cpu=100", (1, 8, true, (16, 1600, 0))),
            ("--ntasks=7 --nodes=2 --mem=1G", (2, 4, true, (7, 2048, 0))),
            ("--nodes=1-2 --mem=1G", (2, 1, true, (2, 2048, 0))),
            ("--gpus=4 --nodes=2 --mem=1G", (2, 1, false, (1, 1024, 2))),
            ("--gpus=3 --nodes=2 --mem-per-gpu=1G", (2, 1, true, (2, 3072, 3))),
            ("--gpus=2 --cpus-per-gpu=2 --mem-per-gpu=300", (1, 1, true, (4, 600, 2))),
            ("--gpus=2 --ntasks-per-gpu=2", (1, 4, true, (4, 4 * usual, 2))),
            ("-n4 --ntasks-per-gpu=2", (1, 4, true, (4, 4 * usual, 2))),
            ("-n2 --ntasks-per-node=1 -c2 --mem=1G", (2, 1, false, (2, 1024, 0))),
            ("--mincpus=3", (1, 1, false, (3, usual, 0))),
            ("-O -n4 -N1", (1, 4, false, (1, usual, 0))),
            // Whole nodes, as Slurm then gives them.
            ("--exclusive", (1, 1, false, (4, usual, 2))),
            ("--exclusive=user", (1, 1, false, (1, usual, 0))),
            ("--exclusive -N2 --mem=0", (2, 1, false, (4, 4096, 2))),
            ("--exclusive -n 6 --mem=1G", (2, 3, true, (8, 2048, 4))),
            ("--mem=0", (1, 1, false, (1, 4096, 0))),
        ] {
            assert_eq!(size(line), wanted, "{line}");
        }
        let model = |line: &str| lines(&[&format!("#SBATCH {line}")]).unwrap().resources.gpu_model;
        assert_eq!(
            (model("-G a100"), model("--gpus-per-task=h100:1")),
            (Some("a100".to_owned()), Some("h100".to_owned()))
        );
    }

    #[test]
    fn how_it_is_started() {
        let read = lines(&[
            "#SBATCH -o out-%A_%a.txt --error=/dev/null -i in.txt --open-mode=t --get-user-env",
            "#SBATCH --export=ALL,SEED=7 --no-requeue --time=UNLIMITED -D runs --nice=-5",
        ])
        .unwrap();
        let Start { streams, login_shell, export, .. } = read.start;
        assert_eq!((streams.output.as_deref(), streams.error.as_deref()), (Some("out-%A_%a.txt"), Some("/dev/null")));
        assert_eq!((streams.input.as_deref(), streams.append, login_shell), (Some("in.txt"), false, true));
        assert_eq!(
            (export.as_deref(), read.variables),
            (Some("ALL,SEED=7"), vec![("SEED".to_owned(), "7".to_owned())])
        );
        assert_eq!((read.requeue, read.is_unlimited, read.seconds), (Some(false), true, None));
        assert_eq!((read.working_directory.as_deref(), read.options), (Some("runs"), vec!["--nice=-5".to_owned()]));
    }

    #[test]
    fn the_tasks_of_an_array() {
        for (line, array) in [
            ("#SBATCH --array=0-9%3 -N 2 --ntasks=4", Some("0-9%3")),
            ("#SBATCH -a 1,3", Some("1,3")),
            ("#SBATCH --mem=1G", None),
            ("#SBATCH --array=1-2 --exclusive --mem=0", Some("1-2")),
            ("#SBATCH --array=1-2 --uid=0", None),
        ] {
            assert_eq!(array_of(&format!("#!/bin/sh\n{line}\ntrue\n")).as_deref(), array, "{line}");
        }
        assert_eq!(array_of("true"), None);
        assert!(has_lines("#!/bin/sh\n# words\n\n#SBATCH\t-n 2\n") && has_lines("#SBATCH --nonsense\n"));
        for script in ["", "true", "#!/bin/sh\n #SBATCH -n 2\n", "#!/bin/sh\ntrue\n#SBATCH -n 2\n", "#SBATCHES -n 2"] {
            assert!(!has_lines(script), "{script}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_refused_with_its_line() {
        for (line, part) in [
            ("--exclusive=topo", "`--exclusive=topo`"),
            ("--nodes=0", "`--nodes=0`"),
            ("--nodes=4-2", "`--nodes=4-2`"),
            ("-N 4 -n 3", "3 tasks cannot use 4 nodes"),
            ("--gpus=1 --gres=gpu:1", "two ways"),
            ("--gres=gpu:1,nic:1", "`--gres=gpu:1,nic:1`"),
            ("--gres=shard:1", "`--gres=shard:1`"),
            ("--gpus=-1", "`--gpus=-1`"),
            ("--cpus-per-task=1e9", "`--cpus-per-task=1e9`"),
            ("--cpus-per-task=99999999999999999999", "cpus-per-task"),
            ("--cpus-per-task=2 --cpus-per-gpu=2 --gpus=1", "cannot be combined"),
            ("--mem=1G --mem-per-cpu=1G", "cannot be combined"),
            ("--time=soon", "`--time=soon`"),
            ("--open-mode=x", "append or truncate"),
            ("--export=A='x", "not closed"),
            ("--export=1A=2", "not a variable"),
            ("--output=", "name of a file"),
            ("--uid=0", "user who submits"),
            ("--dependency=afterok:1", "`after`"),
            ("--core-spec=2", "another number of cores"),
            ("-S 2", "another number of cores"),
            ("--container=x", "would not run"),
            ("--wait", "responds immediately"),
            ("--unheard-of=2", "`--unheard-of` is not supported"),
            ("--partition=--uid=0", "does not accept"),
            ("--comment='x", "not closed"),
            ("--partition", "needs a value"),
            ("nonsense", "not an option of sbatch"),
            ("hetjob", "heterogeneous"),
        ] {
            let faults = lines(&["#SBATCH -J x", &format!("#SBATCH {line}")]).unwrap_err();
            let said = &faults[0].message;
            assert!(faults.len() == 1 && said.contains(part), "{line}: {faults:?}");
            assert!(said.starts_with("line 3: ") || faults[0].code == "sbatch_size", "{line}: {said}");
        }
        assert!(lines(&["#PBS -l nodes=1"]).unwrap_err()[0].message.starts_with("line 2: `#PBS`"));
        assert!(lines(&["#PBS -l nodes=1", "#SBATCH --ignore-pbs"]).is_ok());
        let faults = read("echo hello", &SizeDefaults::default(), &|_| None).unwrap_err();
        assert_eq!((faults[0].field.as_str(), faults[0].code.as_str()), ("script", "not_a_script"));
        let faults = read("#!/bin/sh\n#SBATCH --exclusive\n", &SizeDefaults::default(), &|_| None).unwrap_err();
        assert!(faults[0].message.contains("until Slurm responds"), "{faults:?}");
    }

    #[test]
    fn options_are_single_words() {
        let read =
            lines(&["#SBATCH --constraint='[rack1|rack2]&a100' --nice", "#SBATCH --mail-user=a@b.example"]).unwrap();
        assert_eq!(read.options, ["--constraint=[rack1|rack2]&a100", "--nice", "--mail-user=a@b.example"]);
    }
}
