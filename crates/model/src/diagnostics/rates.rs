//! Checks of what was measured. Wrong contents are always critical. A rate has no limit of its own: it is compared with
//! the GPUs of the same model, with links of the same kind, and with the GPU's own past.

use std::collections::BTreeMap;

use super::{
    Baseline, BitsRow, Finding, LinkClass, Links, Measured, Measurement, PartState, Verdict, judge::sentence, median,
};
use crate::gpus::Gpu;

/// Below this share of the best of its model, or of its own median, a GPU is slow.
const MIN_SHARE: f64 = 0.9;
/// The same for bandwidths, which vary more.
pub(super) const MIN_BANDWIDTH_SHARE: f64 = 0.7;

const DO_NOT_USE: &str = "Stop using this GPU: it returns wrong data. Test again after a restart of the machine, and \
                          have it replaced if the result is the same.";
const SLOW: &str =
    "Compare clocks, temperature and power limit with the other GPUs, and test again without other load.";

/// What concerns all GPUs: collectives, and that there are measurements.
pub(super) fn general(measured: Option<&Measured>, failure: &str) -> Vec<Finding> {
    let Some(measured) = measured else {
        let why = if failure.is_empty() { "it wrote no result" } else { failure };
        let advice = "See the log of the job.";
        let seen = format!("The measuring program broke off: {}", sentence(why));
        return vec![Finding::new("program", Verdict::Warning, seen, advice)];
    };
    let part = &measured.collectives;
    let mut findings = Vec::new();
    findings.push(match part.state {
        PartState::NotTested => Finding::not_tested("collectives", sentence(&part.reason)),
        PartState::Failed => failed("collectives", &part.reason),
        PartState::Measured => {
            let wrong: Vec<&str> = part.rows.iter().filter(|row| row.wrong > 0).map(|row| row.name.as_str()).collect();
            match wrong.first() {
                Some(name) => {
                    let seen = format!("The results of {name} are wrong.");
                    let advice = "Do not train on several of these GPUs. Look for the GPU or link at fault in the \
                                  table of copies, and test again with fewer GPUs.";
                    Finding::new("collectives", Verdict::Critical, seen, advice)
                }
                None => Finding::pass("collectives", "All results of the collectives are right."),
            }
        }
    });
    let parts = [
        ("host", measured.host.state, &measured.host.reason),
        ("links", measured.links.state, &measured.links.reason),
        ("matmul", measured.matmul.state, &measured.matmul.reason),
        ("bits", measured.bits.state, &measured.bits.reason),
        ("memory", measured.memory.state, &measured.memory.reason),
    ];
    let broken = parts.iter().filter(|(_, state, _)| *state == PartState::Failed);
    findings.extend(broken.map(|(name, _, reason)| failed(name, reason)));
    findings
}

fn failed(check: &str, reason: &str) -> Finding {
    let advice = "Test again. If it fails again, test each GPU alone to find the one at fault.";
    Finding::new(check, Verdict::Critical, format!("The test broke off: {}", sentence(reason)), advice)
}

/// The numbers of a GPU that later runs are compared with.
pub(super) fn measurement(place: usize, measured: Option<&Measured>) -> Measurement {
    let Some(measured) = measured else { return Measurement::default() };
    let rate = |kind: &str| {
        let mut rows = measured.matmul.rows.iter();
        rows.find(|row| row.device == place && row.kind == kind).map(|row| row.tflops).filter(|rate| rate.is_finite())
    };
    let host = measured.host.rows.iter().find(|row| row.device == place);
    Measurement {
        float32_tflops: rate("float32"),
        bfloat16_tflops: rate("bfloat16"),
        to_device_gb_s: host.map(|row| row.to_device_gb_s),
        to_host_gb_s: host.map(|row| row.to_host_gb_s),
    }
}

/// The checks of one GPU, by its place among those that are held.
pub(super) fn findings(
    place: usize,
    gpus: &[Gpu],
    measured: Option<&Measured>,
    own: &Measurement,
    past: &Baseline,
    classes: &[LinkClass],
    failure: &str,
) -> Vec<Finding> {
    let Some(measured) = measured else {
        let why =
            if failure.is_empty() { "The measuring program wrote no result.".to_owned() } else { sentence(failure) };
        return ["host", "links", "matmul", "bits", "memory"].map(|name| Finding::not_tested(name, why.clone())).into();
    };
    let alike: Vec<usize> =
        (0..gpus.len()).filter(|other| *other != place && gpus[*other].model == gpus[place].model).collect();
    vec![
        host(place, measured, own, past, &alike),
        links(place, gpus, &measured.links, classes),
        matmul(measured, own, past, &alike),
        bits(place, measured, &alike),
        memory(place, measured),
    ]
}

/// A row that is missing was not measured.
fn missing(check: &str, state: PartState, reason: &str) -> Finding {
    let why = match (state, reason) {
        (PartState::Measured, _) => "There is no measurement of this GPU".to_owned(),
        (_, "") => "It was not measured".to_owned(),
        (_, reason) => reason.to_owned(),
    };
    Finding::not_tested(check, sentence(&why))
}

/// Says where a rate is too low: below the best of its peers, or below its own past.
pub(super) fn too_low(
    name: &str,
    unit: &str,
    own: f64,
    best_peer: Option<f64>,
    past: Option<f64>,
    share: f64,
) -> Option<String> {
    let compare = |other: f64, whose: &str| {
        (own < other * share).then(|| {
            let percent = 100.0 * (1.0 - own / other);
            format!("{name}: {own:.1} {unit}, {percent:.0} % below {whose} ({other:.1}).")
        })
    };
    best_peer
        .and_then(|best| compare(best, "the best GPU of this model"))
        .or_else(|| past.and_then(|past| compare(past, "its own median")))
}

pub(super) fn best(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    numbers.flatten().max_by(f64::total_cmp)
}

fn host(place: usize, measured: &Measured, own: &Measurement, past: &Baseline, alike: &[usize]) -> Finding {
    let measure = &measured.host;
    let Some(row) = measure.rows.iter().find(|row| row.device == place) else {
        return missing("host", measure.state, &measure.reason);
    };
    let seen = format!("{:.1} GB/s to the GPU and {:.1} GB/s to the host.", row.to_device_gb_s, row.to_host_gb_s);
    if row.wrong > 0 {
        let seen = format!("{} words of a copy to the GPU and back are wrong.", row.wrong);
        return Finding::new("host", Verdict::Critical, seen, DO_NOT_USE);
    }
    let peers: Vec<Measurement> = alike.iter().map(|other| measurement(*other, Some(measured))).collect();
    let low = [
        (
            "To the GPU",
            own.to_device_gb_s,
            best(peers.iter().map(|peer| peer.to_device_gb_s)),
            past.median.to_device_gb_s,
        ),
        ("To the host", own.to_host_gb_s, best(peers.iter().map(|peer| peer.to_host_gb_s)), past.median.to_host_gb_s),
    ]
    .into_iter()
    .find_map(|(name, own, peer, past)| too_low(name, "GB/s", own?, peer, past, MIN_BANDWIDTH_SHARE));
    match low {
        Some(low) => {
            let advice = "Compare the PCIe generation and lanes with the other GPUs. Another load on the machine, or a \
                          job whose cores are far from the GPU, lowers this rate too.";
            Finding::new("host", Verdict::Warning, low, advice)
        }
        None => Finding::pass("host", seen),
    }
}

fn matmul(measured: &Measured, own: &Measurement, past: &Baseline, alike: &[usize]) -> Finding {
    let measure = &measured.matmul;
    let (Some(single), Some(half)) = (own.float32_tflops, own.bfloat16_tflops) else {
        return missing("matmul", measure.state, &measure.reason);
    };
    let peers: Vec<Measurement> = alike.iter().map(|other| measurement(*other, Some(measured))).collect();
    let low = [
        ("float32", single, best(peers.iter().map(|peer| peer.float32_tflops)), past.median.float32_tflops),
        ("bfloat16", half, best(peers.iter().map(|peer| peer.bfloat16_tflops)), past.median.bfloat16_tflops),
    ]
    .into_iter()
    .find_map(|(name, own, peer, past)| too_low(name, "TFLOP/s", own, peer, past, MIN_SHARE));
    if let Some(low) = low {
        return Finding::new("matmul", Verdict::Warning, low, SLOW);
    }
    let mut seen = format!("{single:.1} TFLOP/s in float32 and {half:.1} in bfloat16.");
    if peers.is_empty() && past.median.is_empty() {
        seen += " There is no other GPU of this model, and no past to compare with.";
    }
    Finding::pass("matmul", seen)
}

fn bits(place: usize, measured: &Measured, alike: &[usize]) -> Finding {
    let part = &measured.bits;
    let of = |place: usize| part.rows.iter().find(|row| row.device == place);
    let Some(row) = of(place).filter(|row| !row.digests.is_empty()) else {
        return missing("bits", part.state, &part.reason);
    };
    if row.digests.iter().any(|digest| *digest != row.digests[0]) {
        let seen = "The same computation gave different bits the second time.";
        return Finding::new("bits", Verdict::Critical, seen, DO_NOT_USE);
    }
    let first = |row: &BitsRow| row.digests.first().cloned();
    let peers: Vec<String> = alike.iter().filter_map(|other| of(*other).and_then(first)).collect();
    let mut votes: BTreeMap<&str, usize> = BTreeMap::from([(row.digests[0].as_str(), 1)]);
    for digest in &peers {
        *votes.entry(digest).or_default() += 1;
    }
    let (own, most) = (votes[row.digests[0].as_str()], votes.values().copied().max().unwrap_or(0));
    if own < most {
        let seen = "This GPU computes other bits than most GPUs of its model.";
        Finding::new("bits", Verdict::Critical, seen, DO_NOT_USE)
    } else if votes.len() > 1 && own * 2 <= peers.len() + 1 {
        let seen = "GPUs of this model compute different bits, and no majority shows which one is wrong.";
        let advice = "Test again together with a third GPU of this model.";
        Finding::new("bits", Verdict::Critical, seen, advice)
    } else if peers.is_empty() {
        Finding::pass("bits", "The same computation gave the same bits twice. There is no other GPU of this model.")
    } else {
        Finding::pass("bits", "The same computation gave the same bits twice, and on the other GPUs of this model.")
    }
}

fn memory(place: usize, measured: &Measured) -> Finding {
    let part = &measured.memory;
    let Some(row) = part.rows.iter().find(|row| row.device == place) else {
        return missing("memory", part.state, &part.reason);
    };
    #[expect(clippy::cast_precision_loss, reason = "it is rounded")]
    let amount = format!("{:.1} GiB", row.bytes as f64 / f64::from(1 << 30));
    if row.wrong > 0 {
        let seen = format!("{} words of {amount} were read back wrong.", row.wrong);
        Finding::new("memory", Verdict::Critical, seen, DO_NOT_USE)
    } else {
        Finding::pass("memory", format!("{amount} were filled twice and read back right."))
    }
}

fn links(place: usize, gpus: &[Gpu], part: &Links, classes: &[LinkClass]) -> Finding {
    if part.state != PartState::Measured {
        return missing("links", part.state, &part.reason);
    }
    let pairs = || pairs(place, gpus.len());
    let wrong = pairs().find(|(from, to)| {
        part.wrong.get(*from).and_then(|row| row.get(*to)).copied().flatten().is_some_and(|count| count > 0)
    });
    if let Some((from, to)) = wrong {
        let seen =
            format!("Copies from GPU {} to GPU {} arrive with wrong contents.", label(gpus, from), label(gpus, to));
        let advice = "Do not use these two GPUs together. Check the link between them, and test each with a third GPU.";
        return Finding::new("links", Verdict::Critical, seen, advice);
    }
    if let Some(seen) = slow_link(place, gpus, &part.bandwidth_gb_s, classes) {
        let advice = "Compare `nvidia-smi topo -m` and the errors of the NVLinks, and test again without other load.";
        return Finding::new("links", Verdict::Warning, seen, advice);
    }
    let rates: Vec<f64> = pairs().filter_map(|(from, to)| cell(&part.bandwidth_gb_s, from, to)).collect();
    match median(&rates) {
        Some(rate) => {
            Finding::pass("links", format!("{rate:.1} GB/s to and from the other GPUs, with right contents."))
        }
        None => missing("links", PartState::Measured, ""),
    }
}

fn label(gpus: &[Gpu], place: usize) -> String {
    gpus.get(place).map_or_else(|| place.to_string(), Gpu::label)
}

fn cell(matrix: &[Vec<Option<f64>>], from: usize, to: usize) -> Option<f64> {
    matrix.get(from)?.get(to).copied().flatten()
}

/// A GPU with each other one, in both directions.
fn pairs(place: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).filter(move |other| *other != place).flat_map(move |other| [(place, other), (other, place)])
}

/// The first copy to or from a GPU that is slower than links of its kind are.
pub(super) fn slow_link(
    place: usize,
    gpus: &[Gpu],
    bandwidths: &[Vec<Option<f64>>],
    classes: &[LinkClass],
) -> Option<String> {
    let class = |one: usize, other: usize| {
        let found = classes.iter().find(|link| (link.one, link.other) == (one.min(other), one.max(other)));
        found.map_or("?", |link| link.word.as_str())
    };
    let usual = |word: &str| {
        let all = (0..gpus.len()).flat_map(|from| (0..gpus.len()).map(move |to| (from, to)));
        let same = all.filter(|(from, to)| from != to && class(*from, *to) == word);
        median(&same.filter_map(|(from, to)| cell(bandwidths, from, to)).collect::<Vec<f64>>())
    };
    pairs(place, gpus.len()).find_map(|(from, to)| {
        let (own, usual) = (cell(bandwidths, from, to)?, usual(class(from, to))?);
        (own < usual * MIN_BANDWIDTH_SHARE).then(|| {
            let (from, to) = (label(gpus, from), label(gpus, to));
            format!("Copies from GPU {from} to GPU {to}: {own:.1} GB/s; links of the same kind have {usual:.1}.")
        })
    })
}
