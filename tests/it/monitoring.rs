//! What Prometheus scrapes, and the rules and the dashboard of `contrib/monitoring`: promtool reads and tests the
//! rules, every name in them is one that the portal writes, and a real Prometheus scrapes a portal with them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use lyceum::model::{GroupName, Loops, Role};
use serde_json::json;

use crate::{
    checks::proxies::free_ports,
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
const PROMETHEUS: &str = "/usr/bin/prometheus";

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

/// Ends a process with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The shipped configuration, with another address, in a real Prometheus: it scrapes the portal and evaluates the rules.
#[tokio::test]
async fn prometheus_scrapes_the_portal_and_evaluates_the_rules() {
    if !needs::met("prometheus (Debian's package prometheus)", Path::new(PROMETHEUS).exists()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (portal, _) = populated(folder.path(), "scraped").await;
    portal.add_user("boss", Role::Admin).await;
    let boss = portal.sign_in("boss").await;
    let request = json!({ "name": "prometheus", "scopes": ["metrics"] });
    let made: serde_json::Value = boss.post("/api/v1/tokens", &request).await.json().await.unwrap();
    let secret = folder.path().join("token");
    fs::write(&secret, made["secret"].as_str().unwrap()).unwrap();

    let shipped = fs::read_to_string(Path::new(FOLDER).join("prometheus.yml")).unwrap();
    let mut config = format!("global:\n  evaluation_interval: 1s\n{shipped}");
    let target = portal.url.strip_prefix("http://").unwrap();
    for (theirs, ours) in [
        ("scheme: https", "scheme: http"),
        ("scrape_interval: 30s", "scrape_interval: 1s"),
        ("/etc/prometheus/lyceum-token", secret.to_str().unwrap()),
        ("portal.example.org", target),
    ] {
        assert!(config.contains(theirs), "{theirs}");
        config = config.replace(theirs, ours);
    }
    fs::write(folder.path().join("prometheus.yml"), config).unwrap();
    fs::copy(Path::new(FOLDER).join("lyceum-rules.yml"), folder.path().join("lyceum-rules.yml")).unwrap();
    let [port, ..] = free_ports();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let _prometheus = Running(
        Command::new(PROMETHEUS)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(folder.path())
            .stderr(log)
            .spawn()
            .unwrap(),
    );

    // What one query finds: a value, or nothing yet.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let find = async |query: &str| {
        let url = format!("http://127.0.0.1:{port}/api/v1/query");
        let answer = client.get(url).query(&[("query", query)]).send().await.ok()?;
        let answer: serde_json::Value = answer.json().await.ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    for (query, expected) in [
        ("up{job=\"lyceum\"}", 1.0),
        ("lyceum_gpus{state=\"down\"}", 1.0),
        ("lyceum:gpu_utilisation:mean", 0.5),
        ("lyceum:gpu_allocated:ratio", 0.0),
        // It fires when the GPU has been down for as long as the rule says.
        ("ALERTS{alertname=\"LyceumGpuDown\",alertstate=\"pending\",severity=\"critical\"}", 1.0),
    ] {
        assert_eq!(Some(eventually(query, async || find(query).await).await), Some(expected), "{query}");
    }
    assert_eq!(find("ALERTS{alertname=\"LyceumDown\"}").await, None);
    assert_eq!(find("scrape_samples_post_metric_relabeling").await.map(|samples| samples > 50.0), Some(true));
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
