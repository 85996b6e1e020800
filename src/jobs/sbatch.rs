//! The `#SBATCH` lines of a script that was written for Slurm: what it asks for, so that quotas
//! can be judged, and which options go to Slurm as they are. A line whose meaning for the size
//! of a job is not known here is refused, never passed on: what is held must be what is charged.
//! All of it is pure.

use crate::model::{
    FieldError, Resources,
    size::{MIB, parse_size},
};

/// What the lines of a script say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub name: Option<String>,
    pub working_directory: Option<String>,
    pub seconds: Option<i64>,
    /// The tasks of an array, as Slurm writes them: `0-9%3`.
    pub array: Option<String>,
    pub nodes: i64,
    pub tasks_per_node: i64,
    /// Of each node.
    pub resources: Resources,
    /// Whether they say anything of that.
    pub says_size: bool,
    /// Words for `sbatch`, each beginning with `--`.
    pub options: Vec<String>,
}

/// What counts where the lines say nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual {
    pub resources: Resources,
    pub nodes: i64,
    pub tasks_per_node: i64,
}

/// The word that such a line begins with.
const WORD: &str = "#SBATCH";

/// Options that go to Slurm as they are: none of them changes how much a job gets.
const PASSED: [(&str, Option<char>); 20] = [
    ("partition", Some('p')),
    ("account", Some('A')),
    ("qos", Some('q')),
    ("constraint", Some('C')),
    ("prefer", None),
    ("reservation", None),
    ("nodelist", Some('w')),
    ("exclude", Some('x')),
    ("licenses", Some('L')),
    ("mail-type", None),
    ("mail-user", None),
    ("begin", Some('b')),
    ("nice", None),
    ("switches", None),
    ("wckey", None),
    ("hint", None),
    ("cpu-freq", None),
    ("gpu-bind", None),
    ("gpu-freq", None),
    ("distribution", Some('m')),
];

/// Options that say how much.
const SIZES: [(&str, Option<char>); 13] = [
    ("array", Some('a')),
    ("nodes", Some('N')),
    ("ntasks", Some('n')),
    ("ntasks-per-node", None),
    ("cpus-per-task", Some('c')),
    ("mem", None),
    ("mem-per-cpu", None),
    ("gres", None),
    ("gpus", Some('G')),
    ("gpus-per-node", None),
    ("gpus-per-task", None),
    ("time", Some('t')),
    ("job-name", Some('J')),
];

/// Options about what the portal does itself: output and errors are the job's log, it is told
/// from others by a comment, and tried again by `retries`.
const OURS: [(&str, Option<char>); 8] = [
    ("chdir", Some('D')),
    ("output", Some('o')),
    ("error", Some('e')),
    ("input", Some('i')),
    ("open-mode", None),
    ("export", None),
    ("comment", None),
    ("time-min", None),
];

/// Options without a value that change nothing here.
const FLAGS: [(&str, Option<char>); 5] =
    [("parsable", None), ("requeue", None), ("no-requeue", None), ("verbose", Some('v')), ("quiet", Some('Q'))];

/// What to do instead.
const INSTEAD: [(&str, &str); 7] = [
    ("dependency", "name the jobs that go before in the field `after`"),
    ("hold", "it begins when its turn comes: leave the line out"),
    ("exclusive", "ask for all cores of the node instead, so that they can be counted"),
    ("clusters", "jobs go to this cluster alone"),
    ("wrap", "there is a script already"),
    ("uid", "a job runs as whoever submits it"),
    ("gid", "a job runs as whoever submits it"),
];

/// Short names of some of these.
const SHORT_INSTEAD: [(char, &str); 3] = [('d', "dependency"), ('H', "hold"), ('M', "clusters")];

/// Numbers as they were written, before they are put together.
#[derive(Default)]
struct Numbers {
    nodes: Option<i64>,
    tasks: Option<i64>,
    tasks_per_node: Option<i64>,
    cpus_per_task: Option<i64>,
    memory: Option<i64>,
    memory_per_cpu: Option<i64>,
    gpus: Option<(Option<String>, i64)>,
    gpus_per_node: Option<(Option<String>, i64)>,
    gpus_per_task: Option<(Option<String>, i64)>,
}

impl Numbers {
    fn say_a_size(&self) -> bool {
        let counts = [self.tasks, self.tasks_per_node, self.cpus_per_task, self.memory, self.memory_per_cpu];
        let gpus = [&self.gpus, &self.gpus_per_node, &self.gpus_per_task];
        counts.iter().any(Option::is_some) || gpus.iter().any(|gpus| gpus.is_some())
    }
}

/// Reads the lines of a script; what it does not say is taken from `usual`. Every fault names
/// its line.
pub(super) fn read(script: &str, usual: Usual) -> Result<Lines, Vec<FieldError>> {
    let (mut lines, mut numbers, mut faults) = (Lines::default(), Numbers::default(), Vec::new());
    if !script.starts_with("#!") {
        let message = "is no script of Slurm's: its first line names the program that runs it, as #!/bin/bash";
        return Err(vec![FieldError::new("script", "not_a_script", message)]);
    }
    for (index, line) in script.lines().enumerate() {
        let bare = line.trim();
        if !bare.is_empty() && !bare.starts_with('#') {
            // Slurm reads no further than the first command.
            break;
        }
        let Some(words) = line.strip_prefix(WORD).filter(|rest| rest.starts_with([' ', '\t'])) else { continue };
        let read = split(words).and_then(|options| {
            options.into_iter().try_for_each(|(name, value)| take(&mut lines, &mut numbers, &name, value.as_deref()))
        });
        if let Err(why) = read {
            faults.push(FieldError::new("script", "sbatch_line", format!("line {}: {why}", index + 1)));
        }
    }
    if let Err(why) = put_together(&mut lines, numbers, usual) {
        faults.push(FieldError::new("script", "sbatch_size", why));
    }
    if faults.is_empty() { Ok(lines) } else { Err(faults) }
}

/// The tasks of the array that a script asks for, where its lines can be read.
pub(super) fn array_of(script: &str) -> Option<String> {
    let usual = Usual { nodes: 1, tasks_per_node: 1, ..Usual::default() };
    read(script, usual).ok()?.array
}

/// The options of one line by their long names, each with its value.
fn split(words: &str) -> Result<Vec<(String, Option<String>)>, String> {
    // Slurm takes what stands behind `#` for a remark; so does shlex.
    let words = shlex::split(words).ok_or("a quotation mark is never closed")?;
    let mut words = words.into_iter();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        let (name, mut value) = if let Some(long) = word.strip_prefix("--") {
            match long.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (long.to_owned(), None),
            }
        } else {
            let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
            let letter = letters.next().ok_or_else(|| format!("`{word}` is no option of sbatch"))?;
            let rest = letters.as_str();
            (long_name(letter)?.to_owned(), Some(rest.to_owned()).filter(|rest| !rest.is_empty()))
        };
        // Whether a value follows does not matter any more.
        if let Some((_, why)) = INSTEAD.iter().find(|(instead, _)| *instead == name) {
            return Err(format!("`--{name}`: {why}"));
        }
        let is_flag = FLAGS.iter().any(|(flag, _)| *flag == name);
        if value.is_none() && !is_flag && name != "nice" {
            value = Some(words.next().ok_or_else(|| format!("`--{name}` has no value"))?);
        }
        options.push((name, value));
    }
    Ok(options)
}

fn long_name(letter: char) -> Result<&'static str, String> {
    let known = PASSED.iter().chain(&SIZES).chain(&OURS).chain(&FLAGS);
    let known = known.filter_map(|(name, short)| Some((short.as_ref()?, *name)));
    let instead = SHORT_INSTEAD.iter().map(|(short, name)| (short, *name));
    let found = known.chain(instead).find(|(short, _)| **short == letter).map(|(_, name)| name);
    found.ok_or_else(|| format!("it is not known here what `-{letter}` takes, so that it cannot be counted"))
}

fn take(lines: &mut Lines, numbers: &mut Numbers, name: &str, value: Option<&str>) -> Result<(), String> {
    let is_in = |list: &[(&str, Option<char>)]| list.iter().any(|(known, _)| *known == name);
    if is_in(&FLAGS) {
        return Ok(());
    }
    let text = value.unwrap_or_default();
    if is_in(&PASSED) {
        let is_plain = !text.contains(|c: char| c.is_control()) && text.len() <= LONGEST_VALUE;
        if !is_plain || text.starts_with('-') && name != "nice" {
            return Err(format!("`--{name}` has a value that Slurm does not take"));
        }
        lines.options.retain(|option| option.split('=').next() != Some(&format!("--{name}")));
        lines.options.push(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
        return Ok(());
    }
    let unclear = || format!("`--{name}={text}` is not understood here, so that it cannot be counted");
    let count = || text.parse().ok().filter(|count| (1..=MOST).contains(count)).ok_or_else(unclear);
    match name {
        // `2-2` is two; any other range leaves open how many there will be.
        "nodes" => {
            let (least, most) = text.split_once('-').unwrap_or((text, text));
            let exact = least.parse().ok().filter(|_| least == most).filter(|nodes| (1..=MOST).contains(nodes));
            numbers.nodes = Some(exact.ok_or_else(|| format!("`--nodes={text}`: name one number of nodes"))?);
        }
        "ntasks" => numbers.tasks = Some(count()?),
        "ntasks-per-node" => numbers.tasks_per_node = Some(count()?),
        "cpus-per-task" => numbers.cpus_per_task = Some(count()?),
        "mem" | "mem-per-cpu" => {
            let bytes = memory(text).ok_or_else(unclear)?;
            *(if name == "mem" { &mut numbers.memory } else { &mut numbers.memory_per_cpu }) = Some(bytes);
        }
        "gres" => {
            let gpus = text.strip_prefix("gpu").filter(|rest| rest.is_empty() || rest.starts_with(':'));
            let gpus = gpus.map(|rest| rest.trim_start_matches(':')).ok_or_else(unclear)?;
            numbers.gpus_per_node = Some(gpu_count(if gpus.is_empty() { "1" } else { gpus }).ok_or_else(unclear)?);
        }
        "gpus" => numbers.gpus = Some(gpu_count(text).ok_or_else(unclear)?),
        "gpus-per-node" => numbers.gpus_per_node = Some(gpu_count(text).ok_or_else(unclear)?),
        "gpus-per-task" => numbers.gpus_per_task = Some(gpu_count(text).ok_or_else(unclear)?),
        "time" => lines.seconds = Some(seconds(text).ok_or_else(unclear)?),
        "array" => lines.array = Some(text.to_owned()),
        "job-name" => lines.name = Some(text.to_owned()),
        "chdir" => lines.working_directory = Some(text.to_owned()),
        _ if is_in(&OURS) => {}
        _ => return Err(format!("it is not known here what `--{name}` takes, so that it cannot be counted")),
    }
    Ok(())
}

/// The longest value of an option (bytes), and the largest count.
const LONGEST_VALUE: usize = 1024;
const MOST: i64 = 1_000_000;

fn put_together(lines: &mut Lines, numbers: Numbers, usual: Usual) -> Result<(), String> {
    lines.says_size = numbers.say_a_size();
    let nodes = numbers.nodes.unwrap_or(usual.nodes);
    let (usual_tasks, usual) = (usual.tasks_per_node, usual.resources);
    let tasks_per_node = match (numbers.tasks_per_node, numbers.tasks) {
        (Some(each), None) => each,
        (Some(each), Some(tasks)) if each.saturating_mul(nodes) == tasks => each,
        (None, Some(tasks)) if tasks % nodes == 0 => tasks / nodes,
        (None, None) => usual_tasks,
        (_, Some(tasks)) => {
            return Err(format!(
                "{tasks} tasks are not the same number on each of {nodes} nodes: say --ntasks-per-node"
            ));
        }
    };
    let cpus = match numbers.cpus_per_task {
        Some(cpus) => cpus.saturating_mul(tasks_per_node),
        // One core for each task is Slurm's own rule.
        None if 1 < tasks_per_node => tasks_per_node,
        None => usual.cpus,
    };
    let memory_bytes = match (numbers.memory, numbers.memory_per_cpu) {
        (Some(_), Some(_)) => return Err("--mem and --mem-per-cpu exclude each other".to_owned()),
        (Some(bytes), None) => bytes,
        (None, Some(bytes)) => bytes.saturating_mul(cpus),
        (None, None) => usual.memory_bytes,
    };
    let (gpu_model, gpus) = match (numbers.gpus_per_node, numbers.gpus, numbers.gpus_per_task) {
        (None, None, None) => (usual.gpu_model, usual.gpus),
        (Some(gpus), None, None) => gpus,
        (None, Some((model, gpus)), None) if gpus % nodes == 0 => (model, gpus / nodes),
        (None, Some((_, gpus)), None) => {
            return Err(format!("{gpus} GPUs are not the same number on each of {nodes} nodes: say --gpus-per-node"));
        }
        (None, None, Some((model, gpus))) => (model, gpus.saturating_mul(tasks_per_node)),
        _ => return Err("GPUs are asked for in two ways: keep one of them".to_owned()),
    };
    (lines.nodes, lines.tasks_per_node) = (nodes, tasks_per_node);
    lines.resources = Resources { gpus, gpu_model, cpus, memory_bytes };
    Ok(())
}

/// `2`, `a100:2`, `a100`
fn gpu_count(text: &str) -> Option<(Option<String>, i64)> {
    let is_model = |model: &str| {
        model.starts_with(|first: char| first.is_ascii_alphanumeric())
            && model.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let count = |text: &str| text.parse::<i64>().ok().filter(|count| (0..=MOST).contains(count));
    match text.split_once(':') {
        Some((model, number)) => Some((Some(model.to_owned()).filter(|model| is_model(model))?.into(), count(number)?)),
        None => match count(text) {
            Some(count) => Some((None, count)),
            None => is_model(text).then(|| (Some(text.to_owned()), 1)),
        },
    }
}

/// `512`, `4G`: a bare number is megabytes. Nothing, which is all of a node, cannot be counted.
fn memory(text: &str) -> Option<i64> {
    let bytes = match text.parse::<i64>() {
        Ok(megabytes) => megabytes.checked_mul(MIB),
        Err(_) => parse_size(text),
    };
    bytes.filter(|bytes| 0 < *bytes)
}

/// `30`, `30:00`, `2:00:00`, `1-12`, `1-12:30`, `1-12:30:00`. Without end is no answer.
fn seconds(text: &str) -> Option<i64> {
    let numbers = |text: &str| {
        let part = |part: &str| part.parse::<i64>().ok().filter(|number| (0..=MOST).contains(number));
        text.split(':').map(part).collect::<Option<Vec<i64>>>()
    };
    let seconds = match text.split_once('-') {
        Some((days, clock)) => {
            let days = numbers(days).filter(|days| days.len() == 1)?[0];
            let clock = numbers(clock)?;
            let (hours, minutes, seconds) = match clock[..] {
                [hours] => (hours, 0, 0),
                [hours, minutes] => (hours, minutes, 0),
                [hours, minutes, seconds] => (hours, minutes, seconds),
                _ => return None,
            };
            days * 86_400 + hours * 3600 + minutes * 60 + seconds
        }
        None => match numbers(text)?[..] {
            [minutes] => minutes * 60,
            [minutes, seconds] => minutes * 60 + seconds,
            [hours, minutes, seconds] => hours * 3600 + minutes * 60 + seconds,
            _ => return None,
        },
    };
    Some(seconds).filter(|seconds| 0 < *seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::size::GIB;

    fn usual() -> Usual {
        Usual { resources: Resources::default(), nodes: 1, tasks_per_node: 1 }
    }

    fn lines(lines: &[&str]) -> Result<Lines, Vec<FieldError>> {
        let script = format!("#!/bin/bash\n{}\necho hello\n#SBATCH --uid=0\n", lines.join("\n"));
        read(&script, usual())
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
            "#SBATCH --output=slurm-%j.out",
            "##SBATCH --array=1-4",
            "#SBATCHX --array=1-4",
        ])
        .unwrap();
        let resources = Resources { gpus: 2, gpu_model: Some("a100".to_owned()), cpus: 8, memory_bytes: 4 * GIB };
        let wanted = Lines {
            name: Some("train".to_owned()),
            working_directory: None,
            seconds: Some(95_400),
            array: None,
            nodes: 2,
            tasks_per_node: 2,
            resources,
            says_size: true,
            options: vec!["--partition=gpu,long".to_owned()],
        };
        assert_eq!(read, wanted);
        let usual = Resources { gpus: 1, cpus: 3, memory_bytes: 7, ..Resources::default() };
        let given = Usual { resources: usual.clone(), nodes: 2, tasks_per_node: 3 };
        let read = super::read("#!/bin/sh\n#SBATCH -p gpu\ntrue\n", given).unwrap();
        assert_eq!((read.resources, read.nodes, read.tasks_per_node, read.seconds), (usual, 2, 3, None));
        assert!(!read.says_size);
    }

    #[test]
    fn sizes_in_every_way() {
        let of = |line: &str| {
            let read = lines(&[&format!("#SBATCH {line}")]).unwrap();
            (read.nodes, read.tasks_per_node, read.resources)
        };
        let (nodes, tasks, resources) = of("-n 8 -N 2-2 --gpus=4");
        assert_eq!((nodes, tasks, resources.cpus, resources.gpus), (2, 4, 4, 2));
        let (nodes, tasks, resources) = of("-n 3 -c 2 --gpus-per-task=h100:1 --mem=2048");
        assert_eq!((nodes, tasks, resources.cpus, resources.gpus), (1, 3, 6, 3));
        assert_eq!((resources.gpu_model.as_deref(), resources.memory_bytes), (Some("h100"), 2 * GIB));
        assert_eq!(of("--gres=gpu").2.gpus, 1);
        assert_eq!(of("-G a100").2.gpu_model.as_deref(), Some("a100"));
        for (text, wanted) in
            [("30", 1800), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86_400), ("1-1:1", 90_060), ("0-0:0:5", 5)]
        {
            assert_eq!(seconds(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn the_tasks_of_an_array() {
        for (line, array) in [
            ("#SBATCH --array=0-9%3 -N 2 --ntasks=4", Some("0-9%3")),
            ("#SBATCH -a 1,3", Some("1,3")),
            ("#SBATCH --mem=1G", None),
            ("#SBATCH --array=1-2 --exclusive", None),
        ] {
            assert_eq!(array_of(&format!("#!/bin/sh\n{line}\ntrue\n")).as_deref(), array, "{line}");
        }
        assert_eq!(array_of("true"), None);
    }

    #[test]
    fn what_cannot_be_counted_is_refused_with_its_line() {
        for (line, part) in [
            ("--exclusive", "all cores"),
            ("--mem=0", "`--mem=0`"),
            ("--nodes=2-4", "one number"),
            ("--nodes=0", "one number"),
            ("-N 2 -n 3", "not the same number"),
            ("-N 2 --gpus=3", "not the same number"),
            ("--gpus=1 --gres=gpu:1", "two ways"),
            ("--gres=gpu:1,nic:1", "`--gres=gpu:1,nic:1`"),
            ("--gres=shard:1", "`--gres=shard:1`"),
            ("--gpus=-1", "`--gpus=-1`"),
            ("--cpus-per-task=1e9", "`--cpus-per-task=1e9`"),
            ("--cpus-per-task=99999999999999999999", "cpus-per-task"),
            ("--mem=1G --mem-per-cpu=1G", "exclude each other"),
            ("--time=UNLIMITED", "`--time=UNLIMITED`"),
            ("--time=0", "`--time=0`"),
            ("--uid=0", "whoever submits"),
            ("--dependency=afterok:1", "`after`"),
            ("--mem-per-gpu=1G", "not known here what `--mem-per-gpu`"),
            ("--core-spec=2", "not known here what `--core-spec`"),
            ("-S 2", "not known here what `-S`"),
            ("--partition=--uid=0", "does not take"),
            ("--comment='x", "never closed"),
            ("--partition", "has no value"),
            ("nonsense", "no option of sbatch"),
            ("hetjob", "no option of sbatch"),
        ] {
            let faults = lines(&["#SBATCH -J x", &format!("#SBATCH {line}")]).unwrap_err();
            let said = &faults[0].message;
            assert!(faults.len() == 1 && said.contains(part), "{line}: {faults:?}");
            assert!(said.starts_with("line 3: ") || faults[0].code == "sbatch_size", "{line}: {said}");
        }
        let faults = read("echo hello", usual()).unwrap_err();
        assert_eq!((faults[0].field.as_str(), faults[0].code.as_str()), ("script", "not_a_script"));
    }

    #[test]
    fn options_are_single_words() {
        let read =
            lines(&["#SBATCH --constraint='[rack1|rack2]&a100' --nice", "#SBATCH --mail-user=a@b.example"]).unwrap();
        assert_eq!(read.options, ["--constraint=[rack1|rack2]&a100", "--nice", "--mail-user=a@b.example"]);
    }
}
