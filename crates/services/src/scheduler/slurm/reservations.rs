//! Reservations, from `scontrol show reservation`: reading the answer. Which nodes one holds is a list as Slurm writes
//! it, which `lyceum_model::node_list` takes apart.

use super::queue::{moment, unreadable};
use lyceum_model::{Reservation, node_list::hostnames};

/// The words for all reservations, one a line.
pub(super) fn arguments() -> Vec<String> {
    ["--oneliner", "--all", "show", "reservation"].map(str::to_owned).into()
}

/// Reads the reservations. A line whose times are none holds nothing; what is no such line is an error, for then
/// nothing can be said of any reservation.
pub(super) fn parse(output: &str) -> Result<Vec<Reservation>, String> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines[..] {
        [] => Ok(Vec::new()),
        [line] if line.starts_with("No reservations") => Ok(Vec::new()),
        // Half a line.
        [.., last] if !output.ends_with('\n') => Err(odd(last)),
        _ => lines.into_iter().map(read).filter_map(Result::transpose).collect(),
    }
}

fn odd(line: &str) -> String {
    unreadable("scontrol show reservation", line)
}

fn read(line: &str) -> Result<Option<Reservation>, String> {
    let words = || line.split_whitespace().filter_map(|word| word.split_once('='));
    let field = |name: &str| words().find(|(key, _)| *key == name).map(|(_, value)| value).ok_or_else(|| odd(line));
    let value = |name: &str| field(name).ok().filter(|value| *value != "(null)");
    let list = |name: &str| value(name).into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
    let flags: Vec<&str> = value("Flags").unwrap_or_default().split(',').collect();
    let name = field("ReservationName")?.chars().filter(|c| !c.is_control()).take(100).collect();
    let nodes = match field("Nodes")? {
        "(null)" | "" => Vec::new(),
        list => hostnames(list).ok_or_else(|| odd(line))?,
    };
    let (Some(from), Some(to)) = (moment(field("StartTime")?), moment(field("EndTime")?)) else { return Ok(None) };
    Ok(Some(Reservation {
        name,
        from,
        to,
        nodes,
        partition: value("PartitionName").map(str::to_owned),
        users: list("Users"),
        accounts: list("Accounts"),
        is_maintenance: flags.contains(&"MAINT"),
        is_ours: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::Timestamp;

    #[test]
    fn reservations_are_read() {
        let text = "ReservationName=maint StartTime=1800000000 EndTime=1800007200 Duration=02:00:00 Nodes=node[1-2] \
            NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES \
            TRES=cpu=8 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE MaxStartDelay=(null)\n\
            ReservationName=course StartTime=1800000000 EndTime=1800003600 Nodes=node3 PartitionName=debug Flags= \
            Users=(null) Accounts=lab,chem State=ACTIVE\n";
        let found = parse(text).unwrap();
        let maint = &found[0];
        assert_eq!(
            (&*maint.name, maint.is_maintenance, maint.nodes.join(" ")),
            ("maint", true, "node1 node2".to_owned())
        );
        assert_eq!((maint.from, maint.to), (Timestamp(1_800_000_000_000), Timestamp(1_800_007_200_000)));
        assert_eq!((&maint.users[..], &maint.partition), (&["root".to_owned()][..], &None));
        let course = &found[1];
        assert_eq!((course.is_maintenance, course.accounts.len(), course.users.len()), (false, 2, 0));
        let nothing = "ReservationName=x StartTime=Unknown EndTime=5 Nodes=(null)\n";
        for text in ["", "No reservations in the system\n", nothing] {
            assert_eq!(parse(text), Ok(Vec::new()), "{text}");
        }
        let half = text.get(..text.len() - 1).unwrap();
        for odd in ["what?\n", "ReservationName=x Nodes=a\n", half, &text.replace("node[1-2]", "node[1-99999999]")] {
            assert!(parse(odd).unwrap_err().starts_with("unexpected output of scontrol"), "{odd}");
        }
    }
}
