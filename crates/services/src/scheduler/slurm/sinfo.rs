//! `sinfo`: which words ask for all nodes at once, and reading the answer. As with `squeue`,
//! fields end in a separator that is drawn for each call, for a reason may hold line breaks.

use super::queue;
use lyceum_model::{machines::MachineState, size::MIB};

/// What GPUs are called where Slurm gives them no type.
pub(super) const ANY_GPU: &str = "GPU";

/// A node in one of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub name: String,
    /// Where it is reached, as the controller says.
    pub address: String,
    pub partition: String,
    /// Whether jobs go there that name no partition.
    pub by_default: bool,
    /// Whether the partition takes jobs.
    pub is_up: bool,
    pub state: MachineState,
    /// Slurm's own word for the state.
    pub word: String,
    /// Why it takes no jobs, in its administrator's words.
    pub reason: Option<String>,
    pub cpus: i64,
    pub cpus_used: i64,
    pub memory_bytes: i64,
    pub memory_used_bytes: i64,
    /// Models and how many of each.
    pub gpus: Vec<(String, i64)>,
    pub gpus_used: Vec<(String, i64)>,
    /// The longest that a job may run in this partition; `None`: for ever.
    pub most_seconds: Option<i64>,
}

const FIELDS: [&str; 12] = [
    "nodelist",
    "nodeaddr",
    "partition",
    "available",
    "statelong",
    "cpusstate",
    "memory",
    "allocmem",
    "gres",
    "gresused",
    "time",
    "reason",
];

pub(super) fn arguments(separator: &str) -> Vec<String> {
    let fields = FIELDS.map(|field| format!("{field}:{separator}")).join(",");
    let mut arguments: Vec<String> =
        ["--Node", "--noheader", "--noconvert", "--all", "--Format"].map(str::to_owned).into();
    arguments.push(fields);
    arguments
}

pub(super) fn parse(output: &str, separator: &str) -> Result<Vec<Node>, String> {
    let read = |row: Result<[&str; FIELDS.len()], String>| {
        let row = row?;
        node(&row).ok_or_else(|| queue::unreadable("sinfo", &row.join(" ")))
    };
    queue::rows(output, separator, "sinfo")?.map(read).collect()
}

fn node(row: &[&str; FIELDS.len()]) -> Option<Node> {
    let [name, address, partition, available, word, cpus, memory, memory_used, gres, gres_used, time, reason] =
        row.map(str::trim);
    let (cpus, cpus_used) = cores(cpus)?;
    let mebibytes = |text: &str| text.parse::<i64>().ok()?.checked_mul(MIB);
    let (state, word) = state(word);
    Some(Node {
        name: name.to_owned(),
        address: address.to_owned(),
        partition: partition.trim_end_matches('*').to_owned(),
        by_default: partition.ends_with('*'),
        is_up: available == "up",
        state,
        word,
        reason: Some(clean(reason)).filter(|reason| !["", "none"].contains(&reason.as_str())),
        cpus,
        cpus_used,
        memory_bytes: mebibytes(memory)?,
        memory_used_bytes: mebibytes(memory_used).unwrap_or(0),
        gpus: gpus(gres),
        gpus_used: gpus(gres_used),
        most_seconds: seconds(time),
    })
}

/// `2/1/1/4`, of which two are taken, one is free, and one can be had by nobody: how many
/// there are, and how many are taken.
fn cores(text: &str) -> Option<(i64, i64)> {
    let counts: Vec<i64> = text.split('/').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [used, _, _, all] = counts[..] else { return None };
    Some((all, used))
}

/// The states of `sinfo(1)`, "NODE STATE CODES"; a sign behind the word says more, and so do further words behind `+`.
fn state(text: &str) -> (MachineState, String) {
    let word: String = text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect();
    let rest = text.get(word.len()..).unwrap_or_default();
    let flags = || rest.split('+').map(|flag| flag.trim_end_matches(|c: char| !c.is_ascii_alphabetic()));
    let has = |words: &[&str]| flags().any(|flag| words.iter().any(|word| flag.eq_ignore_ascii_case(word)));
    // Nothing new will be started there, whatever it does now.
    let closed = match rest.chars().last() {
        Some('*') => Some((MachineState::Down, "not responding")),
        Some('%') => Some((MachineState::Down, "powering down")),
        Some('!') => Some((MachineState::Draining, "to be powered down")),
        Some('^') => Some((MachineState::Down, "rebooting")),
        Some('$') => Some((MachineState::Drained, "in a maintenance reservation")),
        _ if has(&["not_responding", "no_respond"]) => Some((MachineState::Down, "not responding")),
        _ if has(&["down", "fail", "power_down", "powered_down", "powering_down"]) => {
            Some((MachineState::Down, "down"))
        }
        _ if has(&["drain", "draining", "drained"]) => {
            let is_idle = word.eq_ignore_ascii_case("idle");
            Some((if is_idle { MachineState::Drained } else { MachineState::Draining }, "draining"))
        }
        _ if has(&["maint", "maintenance", "reserved"]) => Some((MachineState::Drained, "reserved")),
        _ => None,
    };
    if let Some((state, what)) = closed {
        return (state, format!("{word}, {what}"));
    }
    let more = match rest.chars().last() {
        Some('#') => ", powering up",
        Some('~') => ", powered off until it is needed",
        Some('@') => ", to be rebooted",
        Some('-') => ", planned for a job",
        _ => "",
    };
    let state = match word.to_ascii_lowercase().as_str() {
        "idle" | "planned" => MachineState::Idle,
        "mixed" => MachineState::Mixed,
        "allocated" | "completing" => MachineState::Full,
        "draining" => MachineState::Draining,
        "drained" | "maint" | "reserved" | "blocked" => MachineState::Drained,
        "down" | "error" | "fail" | "failing" | "future" | "inval" | "no_respond" | "power_down" | "powered_down"
        | "powering_down" | "powering_up" | "power_up" | "reboot" | "reboot_issued" | "reboot_requested" => {
            MachineState::Down
        }
        _ => MachineState::Unknown,
    };
    (state, word + more)
}

/// An administrator's words as one line.
fn clean(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `gpu:a100:2(S:0-1),gpu:1,shard:8`: the GPUs among the generic resources.
pub(super) fn gpus(gres: &str) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    // What is in use has this where a type would stand.
    let gres = gres.replace("(null):", "");
    for one in gres.split(outside) {
        let bare = one.split('(').next().unwrap_or_default();
        let words: Vec<&str> = bare.trim().split(':').collect();
        match words[..] {
            ["gpu"] => found.push((ANY_GPU.to_owned(), 1)),
            ["gpu", count] if count.parse::<i64>().is_ok() => {
                found.push((ANY_GPU.to_owned(), count.parse().unwrap_or(0)));
            }
            ["gpu", model] => found.push((model.to_owned(), 1)),
            ["gpu", model, count] => found.push((model.to_owned(), count.parse().unwrap_or(0))),
            _ => {}
        }
    }
    found
}

/// `1-00:00:00`, `5:00`, `infinite`.
pub(super) fn seconds(time: &str) -> Option<i64> {
    let (days, clock) = time.split_once('-').unwrap_or(("0", time));
    let parts: Vec<i64> = clock.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let clock = match parts[..] {
        [hours, minutes, seconds] => hours * 3600 + minutes * 60 + seconds,
        [minutes, seconds] => minutes * 60 + seconds,
        // A bare number is minutes, as everywhere in Slurm.
        [minutes] => minutes * 60,
        _ => return None,
    };
    Some(days.parse::<i64>().ok()? * 86_400 + clock)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scheduler::slurm::queue::tests::{is_linear, other_columns};
    use lyceum_model::size::GIB;

    /// As `sinfo` of Slurm 22.05.8 wrote it, with a reason of two lines.
    pub const RECORDED: &str = "\
        node1<S>127.0.0.1<S>debug*<S>up<S>mixed<S>2/2/0/4<S>4096<S>512<S>gpu:a100:2<S>gpu:a100:1(IDX:0)<S>1:00:00<S>none<S>\n\
        node1<S>127.0.0.1<S>small<S>up<S>mixed<S>2/2/0/4<S>4096<S>512<S>gpu:a100:2<S>gpu:a100:1(IDX:0)<S>5:00<S>none<S>\n\
        node2<S>127.0.0.2<S>debug*<S>up<S>drained<S>0/0/8/8<S>8192<S>0<S>(null)<S>gpu:0<S>1:00:00<S>fan is\n broken | yes<S>\n\
        node2<S>127.0.0.2<S>long<S>down<S>drained<S>0/0/8/8<S>8192<S>0<S>(null)<S>gpu:0<S>infinite<S>fan is\n broken | yes<S>\n";

    #[test]
    fn rows_as_they_were_recorded() {
        let nodes = parse(RECORDED, "<S>").unwrap();
        assert_eq!(nodes.len(), 4);
        let one = &nodes[0];
        assert_eq!(
            (one.name.as_str(), one.by_default, one.is_up, one.state),
            ("node1", true, true, MachineState::Mixed)
        );
        assert_eq!((one.cpus, one.cpus_used, one.memory_bytes, one.memory_used_bytes), (4, 2, 4 * GIB, GIB / 2));
        assert_eq!((one.gpus.clone(), one.gpus_used.clone()), (gpus("gpu:a100:2"), gpus("gpu:a100:1")));
        assert_eq!((one.reason.as_deref(), one.most_seconds), (None, Some(3600)));
        let long = &nodes[3];
        assert_eq!((long.state, long.is_up, long.most_seconds), (MachineState::Drained, false, None));
        assert_eq!(long.reason.as_deref(), Some("fan is broken | yes"));
        assert_eq!(parse("", "<S>").unwrap(), []);
        for bad in ["what?", "a<S>b<S>", &RECORDED.replace("2/2/0/4", "4"), &RECORDED.replace("<S>4096<S>", "<S>x<S>")]
        {
            assert!(parse(bad, "<S>").is_err(), "{bad}");
        }
    }

    #[test]
    fn large_clusters_are_read_in_linear_time() {
        let (short, long) = (RECORDED.repeat(250), RECORDED.repeat(2_500));
        assert_eq!(parse(&long, "<S>").unwrap().len(), 10_000, "5 000 nodes in two partitions each");
        is_linear("sinfo", || parse(&short, "<S>").unwrap().len(), || parse(&long, "<S>").unwrap().len());
    }

    #[test]
    fn columns_of_another_version_are_an_error() {
        let recorded = RECORDED.repeat(FIELDS.len() / 4);
        for column in 0..FIELDS.len() {
            for is_twice in [false, true] {
                let other = other_columns(&recorded, FIELDS.len(), column, is_twice);
                assert!(parse(&other, "<S>").is_err(), "column {column}, twice: {is_twice}");
            }
        }
    }

    #[test]
    fn states_of_nodes() {
        for (text, wanted, word) in [
            ("idle", MachineState::Idle, "idle"),
            ("idle*", MachineState::Down, "idle, not responding"),
            ("mixed", MachineState::Mixed, "mixed"),
            ("allocated+", MachineState::Full, "allocated"),
            ("draining@", MachineState::Draining, "draining, to be rebooted"),
            ("maint$", MachineState::Drained, "maint, in a maintenance reservation"),
            ("down", MachineState::Down, "down"),
            ("hibernating\u{1b}[31m", MachineState::Unknown, "hibernating"),
            ("mixed-", MachineState::Mixed, "mixed, planned for a job"),
            ("idle~", MachineState::Idle, "idle, powered off until it is needed"),
            ("allocated#", MachineState::Full, "allocated, powering up"),
            ("idle%", MachineState::Down, "idle, powering down"),
            ("idle!", MachineState::Draining, "idle, to be powered down"),
            ("mixed@", MachineState::Mixed, "mixed, to be rebooted"),
            ("idle^", MachineState::Down, "idle, rebooting"),
            ("idle$", MachineState::Drained, "idle, in a maintenance reservation"),
            ("mixed-*", MachineState::Down, "mixed, not responding"),
            ("IDLE+DRAIN", MachineState::Drained, "IDLE, draining"),
            ("MIXED+DRAIN", MachineState::Draining, "MIXED, draining"),
            ("IDLE+CLOUD", MachineState::Idle, "IDLE"),
            ("DOWN+CLOUD+NOT_RESPONDING", MachineState::Down, "DOWN, not responding"),
            ("ALLOCATED+MAINTENANCE", MachineState::Drained, "ALLOCATED, reserved"),
            ("quantum", MachineState::Unknown, "quantum"),
        ] {
            assert_eq!(state(text), (wanted, word.to_owned()), "{text}");
        }
    }

    #[test]
    fn generic_resources() {
        let of = |gres| gpus(gres);
        assert_eq!(of("(null)"), []);
        assert_eq!(of("gpu:2"), [("GPU".to_owned(), 2)]);
        assert_eq!(of("gpu:(null):1(IDX:0)"), [("GPU".to_owned(), 1)]);
        assert_eq!(of("gpu:a100:0(IDX:N/A)"), [("a100".to_owned(), 0)]);
        assert_eq!(
            of("gpu:a100:2(S:0,1),gpu:h100:4(S:0-1),shard:8,nic:1"),
            [("a100".to_owned(), 2), ("h100".to_owned(), 4)]
        );
    }

    #[test]
    fn times() {
        for (text, wanted) in [
            ("infinite", None),
            ("5:00", Some(300)),
            ("1:00:00", Some(3600)),
            ("1-00:00:00", Some(86_400)),
            ("30", Some(1800)),
            ("n/a", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
