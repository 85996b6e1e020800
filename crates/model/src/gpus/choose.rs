//! Which of the free GPUs a workload gets: those with the best links among them, taken so
//! that those left behind keep theirs. Pure; who holds which is known before.

use std::{cmp::Reverse, collections::HashSet};

use super::{Gpu, GpuInventory, Link};

/// Up to so many sets are all looked at; of more, those that grow from each GPU.
const MAX_SETS: u64 = 5_000;

/// More GPUs than any machine has, slices included. More of them belong to several machines and have no links.
const MAX_GPUS: usize = 128;

/// How good a set is, the greatest first: its own links, the fewest links torn to those that
/// stay behind, closeness of numbers, and the lowest of these.
type Merit = (i64, Reverse<i64>, Reverse<i64>, Reverse<Vec<usize>>);

impl GpuInventory {
    /// Chooses `want` of the GPUs that are not in `taken` (UUIDs), or `None` where too few of
    /// that model are left.
    ///
    /// GPUs of one model go together where that is possible. Of those, the set with the best sum
    /// of links wins; of several, the one that tears the fewest links, so that a single GPU comes
    /// from an island that is broken already and whole ones stay whole.
    pub fn pick(&self, taken: &HashSet<String>, want: usize, model: Option<&str>) -> Option<Vec<Gpu>> {
        let mut free: Vec<&Gpu> = self
            .gpus
            .iter()
            .filter(|gpu| !taken.contains(&gpu.uuid) && model.is_none_or(|model| model == gpu.model))
            .collect();
        free.sort_by_key(|gpu| (gpu.index, gpu.slice));
        let mut models: Vec<&str> = Vec::new();
        for gpu in &free {
            if !models.contains(&gpu.model.as_str()) {
                models.push(&gpu.model);
            }
        }
        let alike = |model: &str| free.iter().copied().filter(|gpu| gpu.model == model).collect::<Vec<_>>();
        let candidates = models.into_iter().map(alike).find(|alike| want <= alike.len());
        let mut candidates = candidates.or_else(|| (want <= free.len()).then(|| free.clone()))?;
        candidates.truncate(want.max(MAX_GPUS));
        if candidates.len() == want {
            return Some(candidates.into_iter().cloned().collect());
        }
        let worth = self.worths(&candidates);
        let chosen = best(&worth, want);
        Some(chosen.into_iter().map(|place| candidates[place].clone()).collect())
    }

    /// What each pair's link is worth. Where the driver tells nothing, 0 and 1, 2 and 3 … are
    /// thought to share a switch, as they do on most machines.
    fn worths(&self, gpus: &[&Gpu]) -> Vec<Vec<i64>> {
        let known = self.topology.is_known();
        let link = |one: &Gpu, other: &Gpu| match (known, one.index ^ other.index) {
            (true, _) => self.topology.link(one, other),
            (false, 0) => Link::Board,
            (false, 1) => Link::Switch,
            (false, _) => Link::System,
        };
        gpus.iter().map(|one| gpus.iter().map(|other| link(one, other).worth()).collect()).collect()
    }
}

/// The best `want` places of a table of worths, in order.
fn best(worth: &[Vec<i64>], want: usize) -> Vec<usize> {
    let sets = if count_sets(worth.len(), want) <= MAX_SETS {
        all_sets(worth.len(), want)
    } else {
        (0..worth.len()).map(|seed| grown(worth, seed, want)).collect()
    };
    sets.into_iter().max_by_key(|set| merit(worth, set)).unwrap_or_default()
}

fn merit(worth: &[Vec<i64>], set: &[usize]) -> Merit {
    let within =
        set.iter().enumerate().flat_map(|(at, &one)| set[at + 1..].iter().map(move |&other| worth[one][other]));
    let torn = set.iter().flat_map(|&one| {
        (0..worth.len()).filter(|other| set.binary_search(other).is_err()).map(move |other| worth[one][other])
    });
    let span = set.last().zip(set.first()).map_or(0, |(last, first)| last - first);
    (within.sum(), Reverse(torn.sum()), Reverse(i64::try_from(span).unwrap_or(i64::MAX)), Reverse(set.to_vec()))
}

/// From one on, always with the one that is linked best to those that are in.
fn grown(worth: &[Vec<i64>], seed: usize, want: usize) -> Vec<usize> {
    let mut set = vec![seed];
    while set.len() < want {
        let outside = (0..worth.len()).filter(|place| !set.contains(place));
        let links = |place: usize| set.iter().map(|&member| worth[place][member]).sum::<i64>();
        let Some(next) = outside.max_by_key(|&place| (links(place), Reverse(place.abs_diff(seed)))) else { break };
        set.push(next);
    }
    set.sort_unstable();
    set
}

/// How many sets of `want` there are, as far as that matters here.
fn count_sets(of: usize, want: usize) -> u64 {
    let want = want.min(of.saturating_sub(want));
    (0..want).fold(1_u64, |count, step| {
        let (of, step) = (of as u64, step as u64);
        count.saturating_mul(of - step) / (step + 1)
    })
}

fn all_sets(of: usize, want: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..want {
        let longer = |set: Vec<usize>| {
            let from = set.last().map_or(0, |last| last + 1);
            (from..of).map(move |next| set.iter().copied().chain([next]).collect())
        };
        sets = sets.into_iter().flat_map(longer).collect();
    }
    sets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(models: &[&str]) -> GpuInventory {
        let gpu = |(model, index): (&&str, i64)| Gpu {
            index,
            uuid: format!("u{index}"),
            model: (*model).to_owned(),
            ..Gpu::default()
        };
        GpuInventory { gpus: models.iter().zip(0..).map(gpu).collect(), driver: true, ..GpuInventory::default() }
    }

    fn taken(indices: &[i64]) -> HashSet<String> {
        indices.iter().map(|index| format!("u{index}")).collect()
    }

    fn indices(picked: Option<Vec<Gpu>>) -> Option<Vec<i64>> {
        picked.map(|gpus| gpus.iter().map(|gpu| gpu.index).collect())
    }

    #[track_caller]
    fn check(models: &[&str], busy: &[i64], want: usize, model: Option<&str>, expected: Option<&[i64]>) {
        let indices = indices(machine(models).pick(&taken(busy), want, model));
        assert_eq!(indices.as_deref(), expected, "{models:?} without {busy:?}: {want} of {model:?}");
    }

    #[test]
    fn picks() {
        let eight = ["A"; 8];
        check(&eight, &[], 0, None, Some(&[]));
        check(&[], &[], 0, None, Some(&[]));
        check(&[], &[], 1, None, None);
        check(&eight, &[], 1, None, Some(&[0]));
        check(&eight, &[], 8, None, Some(&[0, 1, 2, 3, 4, 5, 6, 7]));
        check(&eight, &[], 9, None, None);
        check(&eight, &[3], 1, None, Some(&[2])); // the other half of a broken pair
        check(&eight, &[0], 2, None, Some(&[2, 3])); // a pair, although 1 is lower
        check(&eight, &[0, 2], 2, None, Some(&[4, 5]));
        check(&eight, &[0, 3, 4, 7], 2, None, Some(&[1, 2])); // neighbours at least
        check(&eight, &[1, 3, 5], 3, None, Some(&[4, 6, 7])); // a pair and the nearest
        check(&eight, &[0], 4, None, Some(&[2, 3, 4, 5]));
        check(&eight, &[0, 1, 2, 3, 4, 5, 6], 2, None, None);
        check(&["A", "B", "A", "B"], &[], 2, None, Some(&[0, 2])); // alike goes before adjacent
        check(&["A", "B", "B", "A"], &[0], 2, None, Some(&[1, 2]));
        check(&["A", "B"], &[], 2, None, Some(&[0, 1])); // mixed, where nothing else is left
        check(&["A", "A", "B", "B"], &[], 1, Some("B"), Some(&[2]));
        check(&["A", "A", "B", "B"], &[2], 2, Some("B"), None);
        check(&["A"], &[], 1, Some("C"), None);
    }

    #[test]
    fn of_a_clusters_gpus_as_quickly_as_of_a_machines() {
        let many = machine(&vec!["A"; 20_000]);
        let began = std::time::Instant::now();
        assert_eq!(indices(many.pick(&taken(&[0, 1]), 2, None)).as_deref(), Some(&[2, 3][..]));
        assert_eq!(many.pick(&taken(&[0]), 19_999, None).map(|gpus| gpus.len()), Some(19_999));
        assert_eq!(many.pick(&taken(&[0]), 500, Some("A")).map(|gpus| gpus.len()), Some(500));
        // A table of all pairs would take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// Islands of so many GPUs each, linked within.
    fn islands(sizes: &[usize], within: Link, between: Link) -> GpuInventory {
        let all: usize = sizes.iter().sum();
        let mut machine = machine(&vec!["A"; all]);
        let island = |index: usize| {
            let mut end = 0;
            sizes.iter().position(|size| {
                end += size;
                index < end
            })
        };
        for one in 0..all {
            for other in one + 1..all {
                let link = if island(one) == island(other) { within } else { between };
                machine.topology.set(&format!("u{one}"), &format!("u{other}"), link);
            }
        }
        machine
    }

    #[test]
    fn neighbours_by_their_links() {
        let two_islands = islands(&[4, 4], Link::NvLink(4), Link::System);
        let pick = |busy: &[i64], want| indices(two_islands.pick(&taken(busy), want, None)).unwrap();
        assert_eq!(pick(&[], 4), [0, 1, 2, 3]);
        assert_eq!(pick(&[0], 4), [4, 5, 6, 7], "not three here and one there");
        assert_eq!(pick(&[0], 2), [1, 2], "the island that is broken already");
        assert_eq!(pick(&[5], 1), [4]);
        assert_eq!(pick(&[0, 1, 4], 2), [2, 3], "the rest of one island");

        // Numbers say nothing where the driver tells of links.
        let mut crossed = machine(&["A"; 4]);
        for (one, other, link) in [
            ("u0", "u1", Link::System),
            ("u0", "u2", Link::NvLink(2)),
            ("u0", "u3", Link::Switch),
            ("u1", "u2", Link::System),
            ("u1", "u3", Link::NvLink(4)),
            ("u2", "u3", Link::System),
        ] {
            crossed.topology.set(one, other, link);
        }
        assert_eq!(indices(crossed.pick(&taken(&[]), 2, None)).unwrap(), [1, 3], "four links are better than two");
        assert_eq!(indices(crossed.pick(&taken(&[1]), 2, None)).unwrap(), [0, 2]);
    }

    #[test]
    fn many_gpus_take_no_time() {
        let many = islands(&[8; 16], Link::NvLink(18), Link::Node);
        let picked = indices(many.pick(&taken(&[3, 9]), 8, None)).unwrap();
        assert!(picked.iter().all(|index| index / 8 == picked[0] / 8), "one whole island: {picked:?}");
        assert_eq!(many.pick(&taken(&[]), 100, None).map(|gpus| gpus.len()), Some(100));
    }

    fn link() -> impl Strategy<Value = Link> {
        prop_oneof![
            Just(Link::System),
            Just(Link::Node),
            Just(Link::HostBridge),
            Just(Link::Switch),
            (1..19_u32).prop_map(Link::NvLink),
        ]
    }

    proptest! {
        #[test]
        fn the_best_links_among_the_free(links in prop::collection::vec(link(), 28), busy in 0..256_u32, want in 1..6_usize) {
            let mut machine = machine(&["A"; 8]);
            let pairs = (0..8).flat_map(|one| (one + 1..8).map(move |other| (one, other)));
            for ((one, other), link) in pairs.zip(links) {
                machine.topology.set(&format!("u{one}"), &format!("u{other}"), link);
            }
            let busy: Vec<i64> = (0..8).filter(|index| busy & (1 << index) != 0).collect();
            let sum = |set: &[Gpu]| -> i64 {
                let pairs = set.iter().enumerate().flat_map(|(at, one)| set[at + 1..].iter().map(move |other| (one, other)));
                pairs.map(|(one, other)| machine.topology.link(one, other).worth()).sum()
            };
            let free: Vec<Gpu> = machine.gpus.iter().filter(|gpu| !busy.contains(&gpu.index)).cloned().collect();
            let picked = machine.pick(&taken(&busy), want, None);
            prop_assert_eq!(picked.is_some(), want <= free.len());
            if let Some(picked) = picked {
                prop_assert!(picked.iter().all(|gpu| free.contains(gpu)));
                let different: HashSet<&Gpu> = picked.iter().collect();
                prop_assert_eq!(different.len(), want);
                // No exchange of one GPU makes the set better, and neither does any other set.
                let others = (0..1_u32 << free.len()).filter(|bits| bits.count_ones() as usize == want);
                for bits in others {
                    let set: Vec<Gpu> =
                        free.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, gpu)| gpu.clone()).collect();
                    prop_assert!(sum(&set) <= sum(&picked));
                }
            }
        }

        #[test]
        fn whole_islands_stay_whole(size in 2..5_usize, count in 2..5_usize, busy in any::<u16>(), want in 1..5_usize) {
            let machine = islands(&vec![size; count], Link::NvLink(2), Link::System);
            let all = i64::try_from(machine.gpus.len()).unwrap();
            let busy: Vec<i64> = (0..all).filter(|index| busy & (1 << index) != 0).collect();
            let island = |index: i64| usize::try_from(index).unwrap() / size;
            let free_of = |place: usize| (0..all).filter(|index| island(*index) == place && !busy.contains(index)).count();
            let broken_with_room = (0..count).any(|place| (want..size).contains(&free_of(place)));
            if let Some(picked) = indices(machine.pick(&taken(&busy), want, None))
                && (0..count).any(|place| want <= free_of(place))
            {
                prop_assert!(picked.iter().all(|index| island(*index) == island(picked[0])), "of one island: {picked:?}");
                if broken_with_room {
                    prop_assert!(free_of(island(picked[0])) < size, "a whole one was broken: {picked:?} of {busy:?}");
                }
            }
        }
    }
}
