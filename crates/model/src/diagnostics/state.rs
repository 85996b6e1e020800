//! Checks of what the driver reports: memory errors, links, throttling, clocks, temperature, power. Counters are read
//! before and after the load; what grew between is more urgent than what was there.

use super::{DriverGpu, DriverReport, Finding, GpuFacts, Verdict};
use crate::gpus::{Gpu, Slowdown};

const REPLACE: &str = "Stop using this GPU and have it replaced.";
const RESET: &str = "Reset the GPU (`nvidia-smi --gpu-reset`) or restart the machine when nobody uses it.";
const NOT_REPORTED: &str = "The driver does not report this for this GPU.";

/// What concerns all GPUs: that there is a driver, and that it lists those that are held.
pub(super) fn general(gpus: &[Gpu], report: Option<&DriverReport>) -> Vec<Finding> {
    let Some(report) = report else {
        return vec![Finding::not_tested("driver", "The driver was not queried: see the log of the job.")];
    };
    if report.driver.is_empty() {
        let why = if report.fault.is_empty() { "no driver was found" } else { &report.fault };
        let advice = "If this machine has GPUs, install the NVIDIA driver and check that `nvidia-smi` lists them.";
        let seen = format!("The NVIDIA driver could not be opened: {}.", why.trim_end_matches('.'));
        return vec![Finding::new("driver", Verdict::NotTested, seen, advice)];
    }
    let mut findings = vec![Finding::pass(
        "driver",
        match report.cuda.as_str() {
            "" => format!("Driver {}.", report.driver),
            cuda => format!("Driver {}, for CUDA {cuda} and older.", report.driver),
        },
    )];
    let (held, listed) = (gpus.len().max(report.held), report.gpus.len());
    findings.push(if listed < held {
        let advice = "A GPU has fallen off the bus, or its device file is missing. Compare `nvidia-smi` with the \
                      number of GPUs of the machine, and restart it.";
        Finding::new("count", Verdict::Critical, format!("{held} GPUs are held; the driver lists {listed}."), advice)
    } else {
        Finding::pass("count", format!("The driver lists all {held} GPUs that are held."))
    });
    findings
}

/// The checks of one GPU.
pub(super) fn findings(
    before: Option<&DriverGpu>,
    after: Option<&DriverGpu>,
    peers: &[DriverGpu],
    report: Option<&DriverReport>,
) -> Vec<Finding> {
    let Some(before) = before else {
        let why = match report {
            Some(report) if !report.driver.is_empty() => {
                let advice = "Restart the machine. If the GPU is still missing, have it replaced.";
                return vec![Finding::new("state", Verdict::Critical, "The driver does not list this GPU.", advice)];
            }
            _ => "There is no report of the driver.",
        };
        return vec![Finding::not_tested("state", why)];
    };
    if let Some(fault) = after.and_then(|gpu| gpu.fault.as_ref()).or(before.fault.as_ref()) {
        return vec![Finding::new("state", Verdict::Critical, format!("{}.", fault.trim_end_matches('.')), RESET)];
    }
    let first = &before.facts;
    let last = after.map_or(first, |gpu| &gpu.facts);
    let same_model = |peer: &&DriverGpu| peer.gpu.model == before.gpu.model && peer.gpu.uuid != before.gpu.uuid;
    let most_links =
        peers.iter().filter(same_model).filter_map(|peer| peer.facts.nvlinks).map(|links| links.active).max();
    vec![
        ecc(first, last),
        remapping(last),
        retired_pages(last),
        xids(first, last),
        pcie(last),
        nvlinks(first, last, most_links),
        throttling(first, last),
        clocks(last),
        temperature(last),
        power_limit(last),
        programs(first),
    ]
}

fn not_reported(check: &str) -> Finding {
    Finding::not_tested(check, NOT_REPORTED)
}

/// How much a counter grew.
fn growth(first: Option<u64>, last: Option<u64>) -> u64 {
    last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
}

fn ecc(first: &GpuFacts, last: &GpuFacts) -> Finding {
    let (Some(corrected), Some(uncorrected)) = (last.ecc_corrected, last.ecc_uncorrected) else {
        return if last.ecc_enabled == Some(false) {
            let advice = "To detect memory errors, enable ECC: `nvidia-smi --ecc-config=1`, then restart the machine.";
            Finding::new("ecc", Verdict::Information, "Error correction (ECC) is off.", advice)
        } else {
            not_reported("ecc")
        };
    };
    let seen = format!("{corrected} corrected and {uncorrected} uncorrected errors since the driver was loaded.");
    let grew = growth(first.ecc_corrected, last.ecc_corrected);
    if growth(first.ecc_uncorrected, last.ecc_uncorrected) > 0 {
        let seen = format!("{seen} Uncorrected errors occurred during the test.");
        Finding::new("ecc", Verdict::Critical, seen, REPLACE)
    } else if uncorrected > 0 {
        Finding::new("ecc", Verdict::Critical, seen, RESET)
    } else if grew > 0 {
        let advice = "Test again. If the number keeps growing, have the GPU replaced.";
        Finding::new(
            "ecc",
            Verdict::Warning,
            format!("{seen} {grew} corrected errors occurred during the test."),
            advice,
        )
    } else if corrected > 0 {
        Finding::new("ecc", Verdict::Information, seen, "")
    } else {
        Finding::pass("ecc", seen)
    }
}

fn remapping(last: &GpuFacts) -> Finding {
    let (Some(pending), Some(failed)) = (last.remapping_pending, last.remapping_failed) else {
        return not_reported("remapping");
    };
    let rows = growth(None, last.rows_remapped_corrected) + growth(None, last.rows_remapped_uncorrected);
    if failed {
        let seen = "A broken memory row could not be remapped: no spare rows are left.";
        Finding::new("remapping", Verdict::Critical, seen, REPLACE)
    } else if pending {
        Finding::new("remapping", Verdict::Warning, "A memory row is remapped at the next reset.", RESET)
    } else if rows > 0 {
        Finding::new("remapping", Verdict::Information, format!("{rows} memory rows were remapped."), "")
    } else {
        Finding::pass("remapping", "No memory row was remapped.")
    }
}

fn retired_pages(last: &GpuFacts) -> Finding {
    let Some(pages) = last.retired_pages else { return not_reported("retired_pages") };
    if last.retirement_pending == Some(true) {
        let seen = format!("{pages} memory pages are retired, and more at the next reset.");
        Finding::new("retired_pages", Verdict::Warning, seen, RESET)
    } else if pages >= 60 {
        let seen = format!("{pages} memory pages are retired; the limit is 64.");
        Finding::new("retired_pages", Verdict::Critical, seen, REPLACE)
    } else if pages > 0 {
        Finding::new("retired_pages", Verdict::Information, format!("{pages} memory pages are retired."), "")
    } else {
        Finding::pass("retired_pages", "No memory page is retired.")
    }
}

fn xids(first: &GpuFacts, last: &GpuFacts) -> Finding {
    let Some(xids) = &last.xids else {
        let advice = "Ask your administrator to look for lines with “NVRM: Xid” in the kernel's log.";
        return Finding::new("xid", Verdict::NotTested, "The kernel's log cannot be read by this user.", advice);
    };
    let Some(worst) = xids.iter().max_by_key(|xid| xid.meaning().0) else {
        return Finding::pass("xid", "No critical error (XID) in the kernel's log.");
    };
    let (verdict, meaning) = worst.meaning();
    let during = xids.len().saturating_sub(first.xids.as_ref().map_or(0, Vec::len));
    let when = if during > 0 { format!(" {during} occurred during the test.") } else { String::new() };
    let seen =
        format!("{} errors (XID) in the kernel's log; the worst is {}: {meaning}.{when}", xids.len(), worst.code);
    let advice = match verdict {
        Verdict::Critical => RESET,
        Verdict::Warning => "Look the code up in NVIDIA's list of XID errors.",
        _ => "",
    };
    Finding::new("xid", verdict, seen, advice)
}

fn pcie(last: &GpuFacts) -> Finding {
    let (Some(width), Some(width_max)) = (last.pcie_width, last.pcie_width_max) else { return not_reported("pcie") };
    let generation = match (last.pcie_generation, last.pcie_generation_max) {
        (Some(now), Some(max)) => format!("generation {now} of {max}, "),
        _ => String::new(),
    };
    let seen = format!("PCIe {generation}{width} of {width_max} lanes.");
    let is_slower = last.pcie_generation.zip(last.pcie_generation_max).is_some_and(|(now, max)| now < max);
    if width < width_max {
        let advice = "Switch the machine off, and seat the card and its riser again. Some slots have fewer lanes than \
                      the card: compare with the machine's manual.";
        Finding::new("pcie", Verdict::Warning, seen, advice)
    } else if is_slower {
        let advice = "A GPU without load lowers the generation. If the bandwidth to the host is low, check the slot \
                      and the firmware's settings.";
        Finding::new("pcie", Verdict::Information, seen, advice)
    } else {
        Finding::pass("pcie", seen)
    }
}

fn nvlinks(first: &GpuFacts, last: &GpuFacts, most_of_peers: Option<u32>) -> Finding {
    let Some(links) = last.nvlinks.filter(|links| links.active > 0 || most_of_peers > Some(0)) else {
        return Finding::not_tested("nvlink", "This GPU has no active NVLink.");
    };
    let errors = links.errors.map_or_else(|| "errors are not counted".to_owned(), |count| format!("{count} errors"));
    let seen = format!("{} of {} NVLinks are active; {errors}.", links.active, links.all);
    let grew = growth(first.nvlinks.and_then(|links| links.errors), links.errors);
    if most_of_peers.is_some_and(|most| links.active < most) {
        let advice = "Other GPUs of this model have more active links. Look at `nvidia-smi nvlink --status`, and at the \
                      fabric manager where there are switches.";
        Finding::new("nvlink", Verdict::Critical, seen, advice)
    } else if grew > 0 {
        let advice = "Test again. If errors keep growing, have the link checked: bridge, board or cable.";
        Finding::new("nvlink", Verdict::Warning, format!("{seen} {grew} occurred during the test."), advice)
    } else if links.errors.is_some_and(|count| count > 0) {
        Finding::new("nvlink", Verdict::Information, seen, "")
    } else {
        Finding::pass("nvlink", seen)
    }
}

fn throttling(first: &GpuFacts, last: &GpuFacts) -> Finding {
    let Some(reasons) = &last.slowed_by else { return not_reported("throttling") };
    let mut all: Vec<Slowdown> = first.slowed_by.iter().flatten().copied().collect();
    all.extend(reasons.iter().filter(|reason| !first.slowed_by.iter().flatten().any(|known| known == *reason)));
    let words = |all: &[Slowdown]| all.iter().map(|reason| reason.words()).collect::<Vec<_>>().join(", ");
    let serious: Vec<Slowdown> = all.iter().copied().filter(|reason| *reason != Slowdown::PowerCap).collect();
    if serious.contains(&Slowdown::Heat) {
        let advice = "Check the fans, the filters and the temperature of the room.";
        Finding::new("throttling", Verdict::Warning, format!("The GPU is slowed down: {}.", words(&serious)), advice)
    } else if !serious.is_empty() {
        let advice = "Check the power supply, its cables and the machine's power settings.";
        Finding::new("throttling", Verdict::Warning, format!("The GPU is slowed down: {}.", words(&serious)), advice)
    } else if !all.is_empty() {
        let seen = "The GPU is at its power limit, which is normal under load.";
        Finding::new("throttling", Verdict::Information, seen, "")
    } else {
        Finding::pass("throttling", "Nothing slows the GPU down.")
    }
}

fn clocks(last: &GpuFacts) -> Finding {
    match (last.clock_mhz, last.clock_max_mhz) {
        (Some(now), Some(max)) => {
            Finding::pass("clocks", format!("{now} MHz now, {max} MHz at most. A GPU without load lowers its clock."))
        }
        _ => not_reported("clocks"),
    }
}

fn temperature(last: &GpuFacts) -> Finding {
    let Some(now) = last.temperature_celsius else { return not_reported("temperature") };
    let advice = "Check the fans, the filters and the temperature of the room.";
    match last.slowdown_celsius {
        Some(limit) if now >= limit => {
            let seen = format!("{now} °C; the hardware slows down from {limit} °C on.");
            Finding::new("temperature", Verdict::Critical, seen, advice)
        }
        Some(limit) if now + 5 >= limit => {
            let seen = format!("{now} °C; the hardware slows down from {limit} °C on.");
            Finding::new("temperature", Verdict::Warning, seen, advice)
        }
        Some(limit) => Finding::pass("temperature", format!("{now} °C; the hardware slows down from {limit} °C on.")),
        None if now >= 90 => Finding::new("temperature", Verdict::Warning, format!("{now} °C."), advice),
        None => Finding::pass("temperature", format!("{now} °C.")),
    }
}

fn power_limit(last: &GpuFacts) -> Finding {
    let Some(limit) = last.power_limit_milliwatts else { return not_reported("power_limit") };
    let watts = |milliwatts: u32| milliwatts / 1000;
    match last.power_limit_default_milliwatts {
        Some(default) if u64::from(limit) * 10 < u64::from(default) * 9 => {
            let seen = format!("The power limit is {} W; the default is {} W.", watts(limit), watts(default));
            let advice = "If this is not intended, reset it: `nvidia-smi --power-limit`.";
            Finding::new("power_limit", Verdict::Information, seen, advice)
        }
        _ => Finding::pass("power_limit", format!("The power limit is {} W.", watts(limit))),
    }
}

fn programs(first: &GpuFacts) -> Finding {
    match first.programs {
        None => not_reported("programs"),
        Some(0) => Finding::pass("programs", "No other program used the GPU when the test began."),
        Some(count) => {
            let seen = format!("{count} other programs used the GPU when the test began. Rates may be too low.");
            Finding::new("programs", Verdict::Warning, seen, "End these programs and test again.")
        }
    }
}
