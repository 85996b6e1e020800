//! `lyceum gpu diagnose`: submits a test of GPUs, waits for its verdict if that is asked for, and prints the verdict on
//! each GPU as a table or the API's JSON. A critical verdict is a failure of the command, so that scripts can stop there.
//! Tests of storage are waited for in the same way.

use std::{io::Write, time::Duration};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    POLL_INTERVAL,
    api::{Api, Error, Result},
    duration, line, print_status,
    table::{columns, harmless},
};

/// How much is tested.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TestLevel {
    /// What the driver reports, without load
    Quick,
    /// Also transfers, collectives, matmul rates, repeatable results and memory, under load for a minute or two
    Medium,
    /// Also what the node has installed: DCGM, nvbandwidth and nccl-tests, in up to an hour
    Long,
}

/// `lyceum gpu diagnose`
#[derive(Args, Debug)]
pub struct Diagnose {
    #[arg(long, value_enum, default_value = "medium")]
    level: TestLevel,
    /// Number of GPUs
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(i64).range(1..))]
    gpus: i64,
    /// The model of GPU, as the cluster page spells it
    #[arg(long)]
    gpu_model: Option<String>,
    /// A software environment with JAX; by default the default environment
    #[arg(long)]
    environment: Option<String>,
    /// The group that it is charged to
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

pub(super) async fn run(api: &Api, asked: &Diagnose, json: bool, out: &mut (dyn Write + Send)) -> Result<()> {
    let mut body = Map::new();
    body.insert("gpus".to_owned(), json!(asked.gpus));
    body.insert(
        "level".to_owned(),
        json!(match asked.level {
            TestLevel::Quick => "quick",
            TestLevel::Medium => "medium",
            TestLevel::Long => "long",
        }),
    );
    for (name, given) in [("gpu_model", &asked.gpu_model), ("environment", &asked.environment), ("group", &asked.group)]
    {
        body.extend(given.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    let submitted = api.post("/diagnostics", &Value::Object(body)).await?;
    let Some(test) = settled(api, submitted, &asked.waiting, json, out).await? else { return Ok(()) };
    if json {
        line(out, &test.to_string())?;
    } else {
        write!(out, "{}", verdicts(&test))?;
    }
    ending(&test)
}

/// Fails for a test that did not finish, and for a critical verdict.
pub(super) fn ending(test: &Value) -> Result<()> {
    match (test["state"].as_str(), test["verdict"].as_str()) {
        (Some("finished"), Some("critical")) => Err(Error::Ended("the verdict is critical".to_owned())),
        (Some("finished"), _) => Ok(()),
        (state, _) => {
            let detail = harmless(test["detail"].as_str().unwrap_or_default());
            Err(Error::Ended(format!("the test {}: {detail}", state.unwrap_or("failed"))))
        }
    }
}

/// Whether to wait for a verdict, and how long.
#[derive(Args, Debug)]
pub(super) struct Waiting {
    /// Wait for the verdict; the exit status is 1 if it is critical
    #[arg(long)]
    wait: bool,
    /// Stop waiting after this time, such as 30m, with the exit status 124; the test goes on
    #[arg(long, value_parser = duration, requires = "wait")]
    timeout: Option<i64>,
}

/// Returns a test that has ended; `None`, after a line about it, if nobody waits.
pub(super) async fn settled(
    api: &Api,
    mut test: Value,
    waiting: &Waiting,
    json: bool,
    out: &mut (dyn Write + Send),
) -> Result<Option<Value>> {
    let id = test["id"].as_str().unwrap_or_default().to_owned();
    if !waiting.wait {
        let submitted = if json {
            test.to_string()
        } else {
            let address = api.absolute(&format!("/diagnostics/{id}"))?;
            format!("the test {} was submitted; see {address}", harmless(&id))
        };
        line(out, &submitted)?;
        return Ok(None);
    }
    print_status(format_args!("the test {} runs", harmless(&id)));
    let begin = Instant::now();
    while test["state"] == "running" {
        if waiting.timeout.is_some_and(|seconds| begin.elapsed() >= Duration::from_secs(seconds.unsigned_abs())) {
            return Err(Error::TimedOut("stopped waiting; the test continues".to_owned()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        match api.get(&format!("/diagnostics/{id}"), &[]).await {
            Ok(latest) => test = latest,
            // A portal that is restarted meanwhile has ended nothing.
            Err(error) if error.may_pass() => print_status(format_args!("no response: {error}")),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(test))
}

/// A line for each GPU, then what was found and what to do.
fn verdicts(found: &Value) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or("-"));
    let rate = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    let empty = Vec::new();
    let gpus = found["verdicts"].as_array().unwrap_or(&empty);
    let head = ["GPU", "MODEL", "VERDICT", "FP32 TFLOP/S", "BF16 TFLOP/S", "H2D GB/S", "D2H GB/S", "UUID"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in gpus {
        let measured = &one["measurement"];
        rows.push(vec![
            label(&one["gpu"]),
            text(&one["gpu"]["model"]),
            word(&one["verdict"]),
            rate(&measured["float32_tflops"]),
            rate(&measured["bfloat16_tflops"]),
            rate(&measured["to_device_gb_s"]),
            rate(&measured["to_host_gb_s"]),
            text(&one["gpu"]["uuid"]),
        ]);
    }
    let table = if gpus.is_empty() { String::new() } else { columns(&rows) };
    let mut lines: Vec<String> = gpus
        .iter()
        .flat_map(|one| finding_lines(&format!("GPU {}: ", label(&one["gpu"])), &one["findings"], false))
        .collect();
    lines.extend(finding_lines("", &found["general"], false));
    lines.push(format!("verdict: {}\n", word(&found["verdict"])));
    table + &lines.join("\n")
}

/// Returns a line for each finding, including those that passed if `with_passed` is set.
pub(super) fn finding_lines(whose: &str, findings: &Value, with_passed: bool) -> Vec<String> {
    let text = |value: &Value| harmless(value.as_str().unwrap_or("-"));
    let wanted = findings.as_array().into_iter().flatten().filter(|one| with_passed || one["verdict"] != "pass");
    let line = |finding: &Value| {
        let [check, seen, advice] = ["check", "seen", "advice"].map(|field| text(&finding[field]));
        format!("{whose}{}: {check}: {seen} {advice}", word(&finding["verdict"])).trim_end().to_owned()
    };
    wanted.map(line).collect()
}

/// A word of the API for people.
pub(super) fn word(value: &Value) -> String {
    harmless(value.as_str().unwrap_or("-")).replace('_', " ")
}

fn label(gpu: &Value) -> String {
    let index = gpu["index"].as_i64().unwrap_or_default();
    gpu["slice"].as_i64().map_or_else(|| index.to_string(), |slice| format!("{index}:{slice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_say_what_to_do() {
        let finding = |verdict: &str, advice: &str| json!({ "check": "ecc", "verdict": verdict, "seen": "3 errors.", "advice": advice });
        let test = json!({
            "verdict": "critical",
            "general": [finding("pass", "")],
            "verdicts": [{
                "gpu": { "index": 2, "uuid": "GPU-a", "model": "H\u{1b}100" },
                "verdict": "critical",
                "findings": [finding("critical", "Replace it."), finding("pass", "")],
                "measurement": { "float32_tflops": 51.27 },
            }],
        });
        let printed = verdicts(&test);
        let lines: Vec<&str> = printed.lines().collect();
        assert!(lines[0].starts_with("GPU  MODEL") && !printed.contains('\u{1b}'), "{printed}");
        assert!(lines[1].contains("critical") && lines[1].contains("51.3"), "{printed}");
        assert_eq!(lines[2..], ["GPU 2: critical: ecc: 3 errors. Replace it.", "verdict: critical"]);
    }
}
