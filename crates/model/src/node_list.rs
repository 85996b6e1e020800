//! Lists of nodes as Slurm writes them, `node[1-3,07],rack[0-1]gpu[1-2]`, taken apart here: a command for each of many
//! lists would keep others waiting.

/// More nodes than this has no cluster.
const MAX_NODES: usize = 200_000;

/// The names in a list; `None` of what is none.
#[must_use]
pub fn hostnames(list: &str) -> Option<Vec<String>> {
    let mut depth = 0_usize;
    let outside = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let mut found = Vec::new();
    for pattern in list.split(outside) {
        found.extend(expand(pattern)?);
        if MAX_NODES < found.len() {
            return None;
        }
    }
    Some(found)
}

/// Whether a node is in a list.
#[must_use]
pub fn holds(list: &str, node: &str) -> bool {
    list == node
        || (list.contains(['[', ',']) && hostnames(list).is_some_and(|names| names.iter().any(|one| one == node)))
}

fn expand(pattern: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = pattern.split_once('[') else { return Some(vec![pattern.to_owned()]) };
    let (ranges, tail) = rest.split_once(']')?;
    let tails = expand(tail)?;
    let mut found = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let width = from.len();
        for number in from.parse::<u32>().ok()?..=to.parse().ok()? {
            found.extend(tails.iter().map(|tail| format!("{head}{number:0width$}{tail}")));
            if MAX_NODES < found.len() {
                return None;
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_taken_apart() {
        for (list, wanted) in [
            ("gpu1", "gpu1"),
            ("gpu[1-3,7],login", "gpu1 gpu2 gpu3 gpu7 login"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("rack[0-1]n[1-2]x", "rack0n1x rack0n2x rack1n1x rack1n2x"),
        ] {
            assert_eq!(hostnames(list).unwrap().join(" "), wanted, "{list}");
        }
        for odd in ["n[1-2", "n[a-b]", "n[1-4294967295]", "n[0-999]m[0-999]", "n[]"] {
            assert_eq!(hostnames(odd), None, "{odd}");
        }
        assert!(holds("n[08-11]", "n09") && holds("n1", "n1") && holds("a,b", "b"));
        assert!(!holds("n[08-11]", "n9") && !holds("", "n1") && !holds("n[1-", "n1"));
    }
}
