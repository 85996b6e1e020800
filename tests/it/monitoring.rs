//! What Prometheus scrapes, and the rules and the dashboard of `contrib/monitoring`: promtool reads and tests the
//! rules, and every name in them is one that the portal writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use lyceum::model::{GroupName, Loops, Role};
use serde_json::json;

use crate::{
    db::{
        copies::{ID, copy},
        new_session, waiting,
    },
    gpus::driver,
    needs,
    portal::{Caller, TestPortal},
    wait::eventually,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/monitoring");
const PROMTOOL: &str = "/usr/bin/promtool";

#[test]
fn promtool_accepts_and_tests_the_rules() {
    if !needs::met("promtool (Debian's package prometheus)", Path::new(PROMTOOL).exists()) {
        return;
    }
    for words in [
        &["check", "rules", "lyceum-rules.yml"][..],
        &["test", "rules", "lyceum-rules-test.yml"],
        &["check", "config", "--syntax-only", "prometheus.yml"],
    ] {
        let ran = Command::new(PROMTOOL).args(words).current_dir(FOLDER).output().unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said));
    }
}

async fn scrape(caller: &Caller) -> String {
    let answer = caller.get("/metrics").await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// The names of samples that a text can have, by its `TYPE` lines.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let samples = types.flat_map(|(name, kind)| match kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).into(),
        _ => vec![name.to_owned()],
    });
    samples.collect()
}

/// The samples without labels' braces: name, labels and value.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

/// A portal with two GPUs, one of which is lost, a group, and a session that waits.
async fn populated(folder: &Path, name: &str) -> (TestPortal, String) {
    let state = folder.join("state");
    fs::write(&state, "gpu 0 50 1024 61 250\nenergy 0 7200\necc 0 3 1\nxid 0 48\ngpu 1 0 0 30 50\nlost 1\n").unwrap();
    let library = driver(folder, name, &format!("-DGPUS=2 -DSTATE=\"{}\"", state.display()));
    let portal = TestPortal::start_with_gpus(&library).await;
    let ada = portal.add_user("ada", Role::User).await;
    portal.db().add_group(&GroupName::parse("vision").unwrap(), None, portal.by()).await.unwrap();
    waiting(portal.db(), &new_session(ada, 0)).await;
    let text = eventually("both GPUs were asked about", async || {
        portal.portal.cluster.look(&|_| {}, &Loops::default().begin("gpus", None)).await.unwrap();
        let text = scrape(&portal.anybody()).await;
        let is_down = value(&text, "lyceum_gpus{state=\"down\"}") == Some(1.0);
        // The second answer counts the first.
        (is_down && text.contains("lyceum_gpu_xid{") && text.contains("lyceum_http_requests_total{")).then_some(text)
    })
    .await;
    (portal, text)
}

#[tokio::test]
async fn every_name_in_the_rules_and_the_dashboard_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (_portal, text) = populated(folder.path(), "names").await;
    let written = names(&text);
    let mut seen = 0;
    for file in ["lyceum-rules.yml", "lyceum-rules-test.yml", "lyceum-dashboard.json"] {
        let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
        for name in words(&text, "lyceum_") {
            assert!(written.contains(name), "{file} mentions {name}, which is not among {written:?}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    // A rule that the dashboard shows has to be recorded.
    let rules = fs::read_to_string(Path::new(FOLDER).join("lyceum-rules.yml")).unwrap();
    let dashboard = fs::read_to_string(Path::new(FOLDER).join("lyceum-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    for name in words(&dashboard.to_string(), "lyceum:") {
        assert!(rules.contains(&format!("record: {name}")), "{name}");
    }
}

/// The names of metrics in a text that begin like this.
fn words<'a>(text: &'a str, beginning: &str) -> Vec<&'a str> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    parts.filter(|word| word.starts_with(beginning)).collect()
}

#[tokio::test]
async fn numbers_of_gpus_and_of_the_queue() {
    let folder = tempfile::tempdir().unwrap();
    let (_portal, text) = populated(folder.path(), "metrics").await;
    let gpu = r#"{gpu="0",model="NVIDIA A100-SXM4-40GB"}"#;
    for (sample, expected) in BTreeMap::from([
        (format!("lyceum_gpu_utilisation_ratios{gpu}"), 0.5),
        (format!("lyceum_gpu_memory_used_bytes{gpu}"), f64::from(1 << 30)),
        (format!("lyceum_gpu_power_watts{gpu}"), 250.0),
        (format!("lyceum_gpu_energy_joules_total{gpu}"), 7200.0),
        (format!("lyceum_gpu_ecc_uncorrected{gpu}"), 1.0),
        (format!("lyceum_gpu_xid{gpu}"), 48.0),
        ("lyceum_gpus{state=\"free\"}".to_owned(), 1.0),
        ("lyceum_queue_length{kind=\"session\"}".to_owned(), 1.0),
        ("lyceum_queue_length{kind=\"job\"}".to_owned(), 0.0),
        ("lyceum_capacity{resource=\"gpus\"}".to_owned(), 2.0),
        ("lyceum_scheduler_up".to_owned(), 1.0),
        ("lyceum_group_allocated{group=\"vision\",resource=\"gpus\"}".to_owned(), 0.0),
        ("lyceum_start_wait_seconds_count{kind=\"job\"}".to_owned(), 0.0),
    ]) {
        assert_eq!(value(&text, &sample), Some(expected), "{sample}: {text}");
    }
    assert!(text.contains("lyceum_workloads{kind=\"session\",app=\"terminal\",state=\"queued\"} 1"), "{text}");
    assert!(!text.contains("ada"), "{text}");
}

/// A token that can read the numbers can do nothing else.
#[tokio::test]
async fn a_token_for_prometheus() {
    let portal = TestPortal::start().await;
    portal.add_user("boss", Role::Admin).await;
    let boss = portal.sign_in("boss").await;
    let token = portal.token(&boss, &["metrics"]).await;
    assert!(scrape(&token).await.ends_with("# EOF\n"));
    assert_eq!(token.get("/api/v1/sessions").await.status(), 403);
    assert_eq!(token.post("/api/v1/sessions", &json!({ "app": "jupyter" })).await.status(), 403);
}

/// A thousand sessions are counted by the database, and none of them is a line of the answer.
#[tokio::test]
async fn a_thousand_sessions_are_counted_quickly() {
    let portal = TestPortal::start().await;
    let ada = portal.add_user("ada", Role::User).await;
    waiting(portal.db(), &new_session(ada, 0)).await;
    copy(portal.db(), "sessions", &format!("owner = '{ada}'"), 999, &[("id", ID)]).await;
    let caller = portal.anybody();
    let (mut best, mut text) = (Duration::MAX, String::new());
    for _ in 0..10 {
        let begun = Instant::now();
        text = scrape(&caller).await;
        best = best.min(begun.elapsed());
    }
    eprintln!("/metrics at 1000 sessions: {} bytes, {best:?}", text.len());
    assert_eq!(value(&text, "lyceum_queue_length{kind=\"session\"}"), Some(1000.0), "{text}");
    assert!(text.len() < 50_000, "{}", text.len());
    // 20 ms in a release build; the tests' own build does not optimise.
    assert!(best < Duration::from_millis(400), "{best:?}");
}
