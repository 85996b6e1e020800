//! Tests of storage: what the Python program `diagnostics.storage` measured of a folder and of the way in which a
//! training reads a dataset, and the verdict on it. A rate has no limit of its own: it is compared with earlier tests of
//! the same file system, and with the training whose images come from there. What came from memory proves nothing.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Finding, Judgement, MIN_PAST_RUNS, PartState, Verdict, judge::sentence, median};
use crate::ids::DatasetId;

/// Of the JSON document.
pub const STORAGE_VERSION: u32 = 1;
/// Below this share of the median of earlier tests, a storage is slow.
const MIN_SHARE: f64 = 0.7;
/// Storage that is faster than a training by less than this factor may limit it.
const MIN_HEADROOM: f64 = 1.5;
/// The least and the most that a test may write (bytes).
pub const MIN_STORAGE_SIZE: i64 = 16 << 20;
pub const MAX_STORAGE_SIZE: i64 = 64 << 30;

/// What a test of storage is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSubject {
    /// The folder that is written into; empty if only a dataset is read.
    pub directory: String,
    /// The dataset that is read. It may be gone.
    pub dataset: Option<DatasetId>,
    pub dataset_name: String,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsFileSystem)]
#[serde(default)]
pub struct FileSystem {
    /// Identifies the file system among tests. Local file systems of different nodes have different ids.
    pub id: String,
    /// Such as `ext4`, `nfs4` or `lustre`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The device, or the server and its folder.
    pub source: String,
    pub mount_point: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space in bytes that was free before the test.
    pub free_bytes: u64,
}

impl FileSystem {
    /// Whether all nodes see the same one under this source.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        const SHARED: [&str; 11] =
            ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "glusterfs", "virtiofs"];
        SHARED.contains(&self.kind.as_str()) || self.kind.starts_with("fuse.")
    }

    /// Whether its files are in the memory of the node.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }
}

/// What a test measured of a storage, for comparisons with other tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsStorageMeasurement)]
#[serde(default)]
pub struct StorageMeasurement {
    /// Sequential writing with fsync, in MB/s; null if not measured.
    pub write_mb_s: Option<f64>,
    /// Sequential reading, in MB/s; null if it came from memory or was not measured.
    pub read_mb_s: Option<f64>,
    /// Small files created per second; null if not measured.
    pub create_per_s: Option<f64>,
    /// Small files whose attributes were read per second; null if not measured.
    pub stat_per_s: Option<f64>,
    /// Small files read per second; null if they came from memory or were not measured.
    pub read_files_per_s: Option<f64>,
    /// Images of the dataset read per second with the best number of workers; null if they came from memory or were not
    /// measured.
    pub images_per_second: Option<f64>,
}

/// What a test found of a storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageVerdict {
    pub file_system: FileSystem,
    pub measurement: StorageMeasurement,
    /// The training that the reading of the dataset was compared with; null if none is known.
    pub training: Option<TrainingRate>,
}

/// How fast a training of a dataset was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DiagnosticsTrainingRate)]
pub struct TrainingRate {
    /// Name of the model.
    pub model: String,
    /// Images per second over all devices.
    pub images_per_second: f64,
}

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StorageReport {
    pub version: u32,
    pub node: String,
    /// Why nothing was measured.
    pub fault: String,
    pub file_system: Option<FileSystem>,
    pub sequential: Sequential,
    pub files: SmallFiles,
    pub dataset: DatasetReading,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// The kernel forgot the files before they were read.
    Dropped,
    /// It did not: they came from memory.
    Kept,
    /// The file system does not say.
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Sequential {
    pub state: PartState,
    pub reason: String,
    pub bytes: u64,
    pub cache: Cache,
    pub write_mb_s: f64,
    pub read_mb_s: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SmallFiles {
    pub state: PartState,
    pub reason: String,
    pub count: u64,
    pub cache: Cache,
    pub create_per_s: f64,
    pub stat_per_s: f64,
    pub read_per_s: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DatasetReading {
    pub state: PartState,
    pub reason: String,
    pub cache: Cache,
    pub file_system: Option<FileSystem>,
    pub rows: Vec<ReadingRow>,
}

/// One pass over a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ReadingRow {
    pub workers: u32,
    pub images: u64,
    pub images_per_second: f64,
    /// Decoded pixels, in MB/s.
    pub mb_s: f64,
}

impl StorageReport {
    /// Returns the numbers that can be compared. Those that came from memory cannot.
    #[must_use]
    pub fn measurement(&self) -> StorageMeasurement {
        let is_memory = self.file_system.as_ref().is_some_and(FileSystem::is_memory);
        let counts =
            |state: PartState, number: f64| Some(number).filter(|n| state == PartState::Measured && n.is_finite());
        let read = |state, cache, number| counts(state, number).filter(|_| cache != Cache::Kept && !is_memory);
        let (large, small, dataset) = (&self.sequential, &self.files, &self.dataset);
        StorageMeasurement {
            write_mb_s: counts(large.state, large.write_mb_s),
            read_mb_s: read(large.state, large.cache, large.read_mb_s),
            create_per_s: counts(small.state, small.create_per_s),
            stat_per_s: counts(small.state, small.stat_per_s),
            read_files_per_s: read(small.state, small.cache, small.read_per_s),
            images_per_second: dataset.best().and_then(|row| read(dataset.state, dataset.cache, row.images_per_second)),
        }
    }
}

impl DatasetReading {
    /// Returns the fastest pass.
    #[must_use]
    pub fn best(&self) -> Option<&ReadingRow> {
        self.rows.iter().max_by(|one, other| one.images_per_second.total_cmp(&other.images_per_second))
    }
}

/// Judges a test of storage that measured something. `past` are earlier tests of the same file system.
#[must_use]
pub fn judge_storage(
    report: &StorageReport,
    file_system: FileSystem,
    past: &[StorageMeasurement],
    training: Option<TrainingRate>,
) -> Judgement {
    let own = report.measurement();
    let usual = |number: fn(&StorageMeasurement) -> Option<f64>| {
        let numbers: Vec<f64> = past.iter().filter_map(number).collect();
        if numbers.len() < MIN_PAST_RUNS { None } else { median(&numbers) }
    };
    let (large, small) = (&report.sequential, &report.files);
    let mut findings = Vec::new();
    if large.state == PartState::Measured {
        let write = Rate::new("Writing", "MB/s", large.write_mb_s, usual(|one| one.write_mb_s));
        findings.push(judged("storage_write", &[write], Cache::Dropped, false));
        let read = Rate::new("Reading", "MB/s", large.read_mb_s, usual(|one| one.read_mb_s));
        findings.push(judged("storage_read", &[read], large.cache, file_system.is_memory()));
    } else {
        let why = sentence(&large.reason);
        findings.extend(["storage_write", "storage_read"].map(|name| Finding::not_tested(name, why.clone())));
    }
    if small.state == PartState::Measured {
        let rates = [
            Rate::new("Creating", "files/s", small.create_per_s, usual(|one| one.create_per_s)),
            Rate::new("Looking up", "files/s", small.stat_per_s, None),
        ];
        findings.push(judged("small_files", &rates, Cache::Dropped, false));
        let read = Rate::new("Reading", "files/s", small.read_per_s, usual(|one| one.read_files_per_s));
        findings.push(judged("small_files_read", &[read], small.cache, file_system.is_memory()));
    } else {
        let why = sentence(&small.reason);
        findings.extend(["small_files", "small_files_read"].map(|name| Finding::not_tested(name, why.clone())));
    }
    findings.push(reading(&report.dataset, &file_system, training.as_ref()));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let made = findings.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::NotTested);
    Judgement {
        verdict: made.max().unwrap_or(Verdict::NotTested),
        general: findings,
        gpus: Vec::new(),
        storage: Some(StorageVerdict { file_system, measurement: own, training }),
    }
}

struct Rate {
    name: &'static str,
    unit: &'static str,
    own: f64,
    usual: Option<f64>,
}

impl Rate {
    const fn new(name: &'static str, unit: &'static str, own: f64, usual: Option<f64>) -> Self {
        Self { name, unit, own, usual }
    }

    fn told(&self) -> String {
        let Self { name, unit, own, .. } = self;
        format!("{name}: {own:.0} {unit}")
    }
}

fn judged(check: &str, rates: &[Rate], cache: Cache, is_memory: bool) -> Finding {
    let told: Vec<String> = rates.iter().map(Rate::told).collect();
    let told = told.join("; ");
    if is_memory || cache == Cache::Kept {
        return Finding::not_tested(check, format!("{told}. {}", from_memory(is_memory)));
    }
    let slow = rates.iter().find_map(|rate| {
        let usual = rate.usual.filter(|usual| rate.own < usual * MIN_SHARE)?;
        let percent = 100.0 * (1.0 - rate.own / usual);
        Some(format!("{}, {percent:.0} % below the median of earlier tests ({usual:.0}).", rate.told()))
    });
    if let Some(slow) = slow {
        let advice = "Other load on the storage lowers this rate. Test again at another time; if it stays low, ask your \
                      administrator.";
        return Finding::new(check, Verdict::Warning, slow, advice);
    }
    match cache {
        Cache::Unknown => {
            let seen = format!("{told}. The file system does not say whether this came from memory.");
            Finding::new(check, Verdict::Information, seen, "")
        }
        _ => Finding::pass(check, format!("{told}.")),
    }
}

fn from_memory(is_memory: bool) -> &'static str {
    if is_memory {
        "This file system is in the memory of the node."
    } else {
        "This came from memory: the page cache could not be dropped."
    }
}

/// Whether the storage is fast enough for a training on the dataset.
fn reading(part: &DatasetReading, place: &FileSystem, training: Option<&TrainingRate>) -> Finding {
    let check = "dataset_reading";
    let best = part.best().filter(|_| part.state == PartState::Measured);
    let Some(best) = best else {
        let why = if part.reason.is_empty() { "The dataset was not read" } else { &part.reason };
        return Finding::not_tested(check, sentence(why));
    };
    let is_memory = part.file_system.as_ref().unwrap_or(place).is_memory();
    let workers = if best.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", best.workers) };
    let own = best.images_per_second;
    let told = format!("{own:.0} images/s ({:.0} MB/s of pixels) with {workers}", best.mb_s);
    if is_memory || part.cache == Cache::Kept {
        return Finding::not_tested(check, format!("{told}. {}", from_memory(is_memory)));
    }
    let Some(TrainingRate { model, images_per_second: needed }) = training else {
        let seen = format!("{told}. There is no training on this dataset to compare with.");
        return Finding::new(check, Verdict::Information, seen, "");
    };
    let advice = "Build the dataset with resized images, keep it on faster storage, or request more cores for the \
                  training.";
    if own < *needed {
        let seen = format!("{told}: too slow for the training of ‘{model}’, which had {needed:.0} images/s.");
        Finding::new(check, Verdict::Warning, seen, advice)
    } else if own < needed * MIN_HEADROOM {
        let seen = format!(
            "{told}: little more than the training of ‘{model}’ had ({needed:.0} images/s), which it may limit."
        );
        Finding::new(check, Verdict::Information, seen, advice)
    } else {
        Finding::pass(check, format!("{told}; the training of ‘{model}’ had {needed:.0} images/s."))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document() -> Value {
        json!({
            "version": 1, "node": "node1", "fault": "",
            "file_system": { "type": "nfs4", "source": "server:/home", "mount_point": "/home", "size_bytes": 9, "free_bytes": 5 },
            "sequential": { "state": "measured", "bytes": 1_u64 << 30, "cache": "dropped", "write_mb_s": 400.0, "read_mb_s": 900.0 },
            "files": { "state": "measured", "count": 1000, "cache": "dropped", "create_per_s": 300.0, "stat_per_s": 9000.0,
                "read_per_s": 700.0 },
            "dataset": { "state": "measured", "cache": "dropped", "rows": [
                { "workers": 1, "images": 900, "images_per_second": 450.0, "mb_s": 60.0 },
                { "workers": 4, "images": 900, "images_per_second": 1000.0, "mb_s": 130.0 }] },
        })
    }

    fn judged_with(change: impl Fn(&mut Value), past: &[StorageMeasurement], training: Option<f64>) -> Judgement {
        let mut document = document();
        change(&mut document);
        let report: StorageReport = serde_json::from_value(document).unwrap();
        let training = training.map(|rate| TrainingRate { model: "resnet".to_owned(), images_per_second: rate });
        judge_storage(&report, report.file_system.clone().unwrap(), past, training)
    }

    fn check(judged: &Judgement, name: &str) -> (Verdict, String) {
        let found =
            judged.general.iter().find(|finding| finding.check == name).unwrap_or_else(|| panic!("{judged:#?}"));
        (found.verdict, found.seen.clone())
    }

    #[test]
    fn reading_is_compared_with_the_training() {
        let at = |needed| check(&judged_with(|_| {}, &[], needed), "dataset_reading");
        let told = "1000 images/s (130 MB/s of pixels) with 4 workers";
        assert_eq!(at(None).0, Verdict::Information);
        assert_eq!(at(Some(600.0)), (Verdict::Pass, format!("{told}; the training of ‘resnet’ had 600 images/s.")));
        assert_eq!(at(Some(900.0)).0, Verdict::Information);
        let slow = format!("{told}: too slow for the training of ‘resnet’, which had 1001 images/s.");
        assert_eq!(at(Some(1001.0)), (Verdict::Warning, slow));
        assert_eq!(judged_with(|_| {}, &[], Some(1001.0)).verdict, Verdict::Warning);
        assert_eq!(judged_with(|_| {}, &[], Some(10.0)).verdict, Verdict::Pass);
    }

    #[test]
    fn what_came_from_memory_proves_nothing() {
        let kept = |document: &mut Value| {
            for part in ["sequential", "files", "dataset"] {
                document[part]["cache"] = json!("kept");
            }
        };
        let found = judged_with(kept, &[], Some(2000.0));
        for name in ["storage_read", "small_files_read", "dataset_reading"] {
            let (verdict, seen) = check(&found, name);
            assert!(
                verdict == Verdict::NotTested && seen.ends_with("the page cache could not be dropped."),
                "{name}: {seen}"
            );
        }
        assert_eq!(found.verdict, Verdict::Pass, "writing was measured");
        let measured = found.storage.unwrap().measurement;
        assert_eq!((measured.read_mb_s, measured.images_per_second, measured.write_mb_s), (None, None, Some(400.0)));
        let memory = |document: &mut Value| document["file_system"]["type"] = json!("tmpfs");
        assert_eq!(check(&judged_with(memory, &[], None), "storage_read").0, Verdict::NotTested);
        let unknown = |document: &mut Value| document["sequential"]["cache"] = json!("something new");
        let (verdict, seen) = check(&judged_with(unknown, &[], None), "storage_read");
        assert!(verdict == Verdict::Information && seen.contains("does not say"), "{seen}");
    }

    #[test]
    fn a_storage_is_compared_with_its_past() {
        let past = |rate: f64, runs: usize| {
            vec![StorageMeasurement { read_mb_s: Some(rate), ..StorageMeasurement::default() }; runs]
        };
        assert_eq!(check(&judged_with(|_| {}, &past(1500.0, 2), None), "storage_read").0, Verdict::Pass, "too few");
        let found = judged_with(|_| {}, &past(1500.0, 3), None);
        let seen = "Reading: 900 MB/s, 40 % below the median of earlier tests (1500).";
        assert_eq!(check(&found, "storage_read"), (Verdict::Warning, seen.to_owned()));
        assert_eq!(check(&judged_with(|_| {}, &past(1200.0, 3), None), "storage_read").0, Verdict::Pass);
    }

    #[test]
    fn what_was_not_measured_is_not_a_pass() {
        let none = |document: &mut Value| {
            for part in ["sequential", "files", "dataset"] {
                document[part] = json!({ "state": "not_tested", "reason": "the disk is full" });
            }
        };
        let found = judged_with(none, &[], Some(1.0));
        assert_eq!(found.verdict, Verdict::NotTested);
        assert_eq!(found.general.len(), 5);
        assert!(found.general.iter().all(|one| one.seen == "the disk is full."), "{found:#?}");
    }

    #[test]
    fn file_systems_of_servers_are_the_same_on_all_nodes() {
        let of = |kind: &str| FileSystem { kind: kind.to_owned(), ..FileSystem::default() };
        assert!(["nfs4", "lustre", "fuse.sshfs", "ceph"].iter().all(|kind| of(kind).is_shared()));
        assert!(["ext4", "xfs", "tmpfs", "overlay"].iter().all(|kind| !of(kind).is_shared()));
    }
}
