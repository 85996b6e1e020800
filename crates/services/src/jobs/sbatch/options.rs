//! The options of `sbatch`: how each is written, and what becomes of it. What only says where and
//! when a job runs goes to Slurm as it is; what says how much is counted first; what is about the
//! script's start and its files is the agent's to obey; the rest is refused with the reason.

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    None,
    Needed,
    /// Only behind `=`, or right behind the letter.
    Optional,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It goes to Slurm and changes no size.
    Pass,
    /// It says how much, and goes to Slurm as it is.
    Size,
    /// It is read here and does not go to Slurm.
    Read,
    /// It changes nothing here.
    Nothing,
    /// It cannot be obeyed; the words say why, and what to do.
    Refuse(&'static str),
}

#[derive(Debug)]
pub(super) struct OptionSpec {
    pub name: &'static str,
    short: Option<char>,
    pub value: Value,
    pub becomes: Use,
}

const fn of(name: &'static str, short: Option<char>, value: Value, becomes: Use) -> OptionSpec {
    OptionSpec { name, short, value, becomes }
}

const NODES_OF_OWN: &str = "it adds nodes or sites that Lyceum cannot count: remove it";
const AS_OWNER: &str = "a job runs as the user who submits it";
const WHOLE_CORES: &str = "it gives the job another number of cores than Lyceum counts: remove it";

/// All of them, as Slurm 22.05 to 24.11 list them.
const OPTIONS: [OptionSpec; 110] = {
    use Use::{Nothing, Pass, Read, Refuse, Size};
    use Value::{Needed, None as Without, Optional};
    [
        of("partition", Some('p'), Needed, Pass),
        of("account", Some('A'), Needed, Pass),
        of("qos", Some('q'), Needed, Pass),
        of("constraint", Some('C'), Needed, Pass),
        of("batch", None, Needed, Pass),
        of("prefer", None, Needed, Pass),
        of("reservation", None, Needed, Pass),
        of("nodelist", Some('w'), Needed, Pass),
        of("exclude", Some('x'), Needed, Pass),
        of("licenses", Some('L'), Needed, Pass),
        of("mail-type", None, Needed, Pass),
        of("mail-user", None, Needed, Pass),
        of("begin", Some('b'), Needed, Pass),
        of("deadline", None, Needed, Pass),
        of("delay-boot", None, Needed, Pass),
        of("nice", None, Optional, Pass),
        of("priority", None, Needed, Pass),
        of("switches", None, Needed, Pass),
        of("wckey", None, Needed, Pass),
        of("hint", None, Needed, Pass),
        of("cpu-freq", None, Needed, Pass),
        of("gpu-bind", None, Needed, Pass),
        of("gpu-freq", None, Needed, Pass),
        of("mem-bind", None, Needed, Pass),
        of("gres-flags", None, Needed, Pass),
        of("distribution", Some('m'), Needed, Pass),
        of("contiguous", None, Without, Pass),
        of("use-min-nodes", None, Without, Pass),
        of("oversubscribe", Some('s'), Without, Pass),
        of("reboot", None, Without, Pass),
        of("no-kill", Some('k'), Optional, Pass),
        of("wait-all-nodes", None, Needed, Pass),
        of("kill-on-invalid-dep", None, Needed, Pass),
        of("dependency", Some('d'), Needed, Pass),
        of("propagate", None, Optional, Pass),
        of("signal", None, Needed, Pass),
        of("time-min", None, Needed, Pass),
        of("tmp", None, Needed, Pass),
        of("mcs-label", None, Needed, Pass),
        of("network", None, Needed, Pass),
        of("power", None, Needed, Pass),
        of("profile", None, Needed, Pass),
        of("acctg-freq", None, Needed, Pass),
        of("bb", None, Needed, Pass),
        of("bbf", None, Needed, Pass),
        of("sockets-per-node", None, Needed, Pass),
        of("cores-per-socket", None, Needed, Pass),
        of("threads-per-core", None, Needed, Pass),
        of("extra-node-info", Some('B'), Needed, Pass),
        of("ntasks-per-socket", None, Needed, Pass),
        of("ntasks-per-core", None, Needed, Pass),
        of("nodes", Some('N'), Needed, Size),
        of("ntasks", Some('n'), Needed, Size),
        of("ntasks-per-node", None, Needed, Size),
        of("tasks-per-node", None, Needed, Size),
        of("ntasks-per-gpu", None, Needed, Size),
        of("cpus-per-task", Some('c'), Needed, Size),
        of("cpus-per-gpu", None, Needed, Size),
        of("mincpus", None, Needed, Size),
        of("mem", None, Needed, Size),
        of("mem-per-cpu", None, Needed, Size),
        of("mem-per-gpu", None, Needed, Size),
        of("gres", None, Needed, Size),
        of("gpus", Some('G'), Needed, Size),
        of("gpus-per-node", None, Needed, Size),
        of("gpus-per-task", None, Needed, Size),
        of("exclusive", None, Optional, Size),
        of("overcommit", Some('O'), Without, Size),
        of("spread-job", None, Without, Size),
        of("array", Some('a'), Needed, Read),
        of("time", Some('t'), Needed, Read),
        of("job-name", Some('J'), Needed, Read),
        of("chdir", Some('D'), Needed, Read),
        of("workdir", None, Needed, Read),
        of("output", Some('o'), Needed, Read),
        of("error", Some('e'), Needed, Read),
        of("input", Some('i'), Needed, Read),
        of("open-mode", None, Needed, Read),
        of("export", None, Needed, Read),
        of("get-user-env", None, Optional, Read),
        of("requeue", None, Without, Read),
        of("no-requeue", None, Without, Read),
        of("ignore-pbs", None, Without, Nothing),
        of("parsable", None, Without, Nothing),
        of("verbose", Some('v'), Without, Nothing),
        of("quiet", Some('Q'), Without, Nothing),
        of("comment", None, Needed, Pass),
        of("hold", Some('H'), Without, Refuse("Lyceum starts jobs when they are admitted: remove the line")),
        of("clusters", Some('M'), Needed, Refuse("jobs are only submitted to this cluster")),
        of("cluster", None, Needed, Refuse("jobs are only submitted to this cluster")),
        of("cluster-constraint", None, Needed, Refuse("jobs are only submitted to this cluster")),
        of("wrap", None, Needed, Refuse("the script is already given")),
        of("uid", None, Needed, Refuse(AS_OWNER)),
        of("gid", None, Needed, Refuse(AS_OWNER)),
        of(
            "wait",
            Some('W'),
            Without,
            Refuse("the portal responds immediately: `lyceum job submit --wait` waits for the end"),
        ),
        of("test-only", None, Without, Refuse("it would not run the job: remove it, or use a dry run")),
        of("core-spec", Some('S'), Needed, Refuse(WHOLE_CORES)),
        of("thread-spec", None, Needed, Refuse(WHOLE_CORES)),
        of("gpus-per-socket", None, Needed, Refuse("the number of sockets is not known: use --gpus-per-node")),
        of("tres-per-task", None, Needed, Refuse("use --cpus-per-task and --gpus-per-task instead")),
        of("tres-bind", None, Needed, Refuse("use --gpu-bind instead")),
        of("nodefile", Some('F'), Needed, Refuse("the file is not read: list the nodes with --nodelist")),
        of("export-file", None, Needed, Refuse("the file is not read: give the variables in the request")),
        of("container", None, Needed, Refuse("the script itself would not run: start the container in the script")),
        of("container-id", None, Needed, Refuse("the script itself would not run: start the container in the script")),
        of("x11", None, Optional, Refuse("a job has no display: open a terminal in it")),
        of(
            "resv-ports",
            None,
            Optional,
            Refuse("ports are only reserved for steps: pass the option to srun in the script"),
        ),
        of("stepmgr", None, Without, Refuse("it changes who starts the job's steps: remove it")),
        of("segment", None, Needed, Refuse(NODES_OF_OWN)),
        of("licenses-file", None, Needed, Refuse("the file is not read: list the licences with --licenses")),
    ]
};

/// The option of this long name, or of an unmistakable beginning of it, as `sbatch` reads them.
pub(super) fn long(name: &str) -> Option<&'static OptionSpec> {
    let exact = OPTIONS.iter().find(|known| known.name == name);
    exact.or_else(|| {
        let mut beginning = OPTIONS.iter().filter(|known| !name.is_empty() && known.name.starts_with(name));
        beginning.next().filter(|_| beginning.next().is_none())
    })
}

pub(super) fn short(letter: char) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|known| known.short == Some(letter))
}

/// What a line says: options with their values, in order.
pub(super) type Options = Vec<(&'static OptionSpec, Option<String>)>;

/// The options of one line; an error says what of it cannot be read, or is refused.
pub(super) fn split(words: &str) -> Result<Options, String> {
    // Slurm takes what stands behind `#` for a remark; so does shlex.
    let words = shlex::split(words).ok_or("a quotation mark is not closed")?;
    let mut words = words.into_iter();
    let mut options = Options::new();
    while let Some(word) = words.next() {
        if let Some(text) = word.strip_prefix("--") {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            let known = long(name)
                .ok_or_else(|| format!("`--{name}` is not supported, so the resources cannot be determined"))?;
            if known.value == Value::None && value.is_some() {
                return Err(format!("`--{}` has no value", known.name));
            }
            add(&mut options, known, value, &mut words)?;
            continue;
        }
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty());
        let mut letters = letters.ok_or_else(|| format!("`{word}` is not an option of sbatch"))?.chars();
        while let Some(letter) = letters.next() {
            let known = short(letter)
                .ok_or_else(|| format!("`-{letter}` is not supported, so the resources cannot be determined"))?;
            let rest = letters.as_str();
            if known.value == Value::None {
                add(&mut options, known, None, &mut words)?;
                continue;
            }
            add(&mut options, known, Some(rest.to_owned()).filter(|rest| !rest.is_empty()), &mut words)?;
            break;
        }
    }
    Ok(options)
}

fn add(
    options: &mut Options,
    known: &'static OptionSpec,
    value: Option<String>,
    words: &mut impl Iterator<Item = String>,
) -> Result<(), String> {
    // Whether a value follows does not matter any more.
    if let Use::Refuse(why) = known.becomes {
        return Err(format!("`--{}`: {why}", known.name));
    }
    let value = match value {
        None if known.value == Value::Needed => {
            Some(words.next().ok_or_else(|| format!("`--{}` needs a value", known.name))?)
        }
        value => value,
    };
    options.push((known, value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> Result<Vec<String>, String> {
        let shown = |(known, value): &(&OptionSpec, Option<String>)| match value {
            Some(value) => format!("{}={value}", known.name),
            None => known.name.to_owned(),
        };
        Ok(split(words)?.iter().map(shown).collect())
    }

    #[test]
    fn as_getopt_reads_them() {
        for (words, wanted) in [
            ("-N 2 -c4", &["nodes=2", "cpus-per-task=4"][..]),
            ("-sk --exclusive", &["oversubscribe", "no-kill", "exclusive"]),
            ("--exclusive=user --nice --nice=5", &["exclusive=user", "nice", "nice=5"]),
            ("--cpus-per-t 3 --part=x", &["cpus-per-task=3", "partition=x"]),
            ("-J 'a b' -o x%j  # a remark", &["job-name=a b", "output=x%j"]),
        ] {
            assert_eq!(told(words).unwrap(), wanted, "{words}");
        }
        for (words, part) in [
            ("--cpus 3", "`--cpus` is not supported"),
            ("--requeue=yes", "has no value"),
            ("-N", "`--nodes` needs a value"),
            ("-H", "when they are admitted"),
            ("nonsense", "not an option"),
            ("-", "not an option"),
            ("-Z", "`-Z`"),
        ] {
            let said = told(words).unwrap_err();
            assert!(said.contains(part), "{words}: {said}");
        }
    }

    #[test]
    fn each_is_named_once() {
        let mut names: Vec<&str> = OPTIONS.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPTIONS.len());
        let mut letters: Vec<char> = OPTIONS.iter().filter_map(|known| known.short).collect();
        letters.sort_unstable();
        let count = letters.len();
        letters.dedup();
        assert_eq!(letters.len(), count);
    }
}
