//! Reservations, from `scontrol show reservation`: reading the answer. Which nodes one holds is a list as Slurm writes
//! it (`node[1-3,7]`); `scontrol show hostnames` takes it apart.

use super::queue::moment;
use lyceum_model::Reservation;

/// The words for all reservations, one a line.
pub(super) fn arguments() -> Vec<String> {
    ["--oneliner", "--all", "show", "reservation"].map(str::to_owned).into()
}

/// The words that take a list of nodes apart.
pub(super) fn hostnames(list: &str) -> Vec<String> {
    ["show", "hostnames", list].map(str::to_owned).into()
}

/// Reads the reservations, each with its list of nodes as Slurm writes it. A line without times holds nothing.
pub(super) fn parse(output: &str) -> Vec<(Reservation, String)> {
    output.lines().filter_map(read).collect()
}

fn read(line: &str) -> Option<(Reservation, String)> {
    let value = |name: &str| {
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.filter(|(_, value)| *value != "(null)").find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let list = |name: &str| value(name).into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect();
    let flags: Vec<&str> = value("Flags").unwrap_or_default().split(',').collect();
    let reservation = Reservation {
        name: value("ReservationName")?.chars().filter(|c| !c.is_control()).take(100).collect(),
        from: moment(value("StartTime")?)?,
        to: moment(value("EndTime")?)?,
        nodes: Vec::new(),
        partition: value("PartitionName").map(str::to_owned),
        users: list("Users"),
        accounts: list("Accounts"),
        is_maintenance: flags.contains(&"MAINT"),
        is_ours: false,
    };
    Some((reservation, value("Nodes").unwrap_or_default().to_owned()))
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
        let found = parse(text);
        let (maint, nodes) = &found[0];
        assert_eq!((&*maint.name, maint.is_maintenance, &**nodes), ("maint", true, "node[1-2]"));
        assert_eq!((maint.from, maint.to), (Timestamp(1_800_000_000_000), Timestamp(1_800_007_200_000)));
        assert_eq!((&maint.users[..], &maint.partition), (&["root".to_owned()][..], &None));
        let (course, _) = &found[1];
        assert_eq!((course.is_maintenance, course.accounts.len(), course.users.len()), (false, 2, 0));
        for nothing in ["", "No reservations in the system\n", "ReservationName=x StartTime=Unknown EndTime=5"] {
            assert_eq!(parse(nothing), [], "{nothing}");
        }
    }
}
