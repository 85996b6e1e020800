//! `lyceum storage benchmark`: submits a test of the storage of a folder or a dataset, waits for its verdict if that is
//! asked for, and prints what was found and measured, or the API's JSON.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{
    api::{Api, DATASETS, Result},
    diagnose::{Waiting, ending, finding_lines, settled, word},
    line,
    output::Output,
    table::{columns, harmless},
};

/// `lyceum storage …`
#[derive(Args, Debug)]
pub struct StorageArguments {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: StorageCommand,
}

#[derive(Subcommand, Debug)]
pub enum StorageCommand {
    /// Test how fast a folder is and how fast a training reads a dataset, as a job of yours
    Benchmark(Benchmark),
}

/// `lyceum storage benchmark`
#[derive(Args, Debug)]
pub struct Benchmark {
    /// The folder to test, from / or ~ on. At most a tenth of its free space is written, and removed
    #[arg(long, required_unless_present = "dataset")]
    directory: Option<String>,
    /// A dataset to read as a training does, by name or id
    #[arg(long)]
    dataset: Option<String>,
    /// Size of the large file, such as 4GiB. Default: 1 GiB, or less where there is little space
    #[arg(long, value_parser = super::resources::size)]
    size: Option<i64>,
    /// Number of cores, which is also the number of workers that read the dataset
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    cpus: Option<i64>,
    /// A software environment that can train; by default the default environment
    #[arg(long)]
    environment: Option<String>,
    /// The group that it is charged to
    #[arg(long)]
    group: Option<String>,
    #[command(flatten)]
    waiting: Waiting,
}

pub(super) async fn run(api: &Api, arguments: &StorageArguments, out: &mut (dyn Write + Send)) -> Result<()> {
    let StorageCommand::Benchmark(asked) = &arguments.command;
    let mut body = Map::new();
    let texts = [("directory", &asked.directory), ("environment", &asked.environment), ("group", &asked.group)];
    for (name, given) in texts {
        body.extend(given.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    if let Some(text) = &asked.dataset {
        body.insert("dataset".to_owned(), json!(api.id(DATASETS, text).await?));
    }
    for (name, given) in [("size_bytes", asked.size), ("cpus", asked.cpus)] {
        body.extend(given.map(|number| (name.to_owned(), json!(number))));
    }
    let submitted = api.post("/diagnostics/storage", &Value::Object(body)).await?;
    let json = arguments.output.is_json();
    let Some(test) = settled(api, submitted, &asked.waiting, json, out).await? else { return Ok(()) };
    if json {
        line(out, &test.to_string())?;
    } else {
        write!(out, "{}", measured(&test))?;
    }
    ending(&test)
}

/// The file system, the rates beside the earlier test, and what was found.
fn measured(test: &Value) -> String {
    const RATES: [(&str, &str); 6] = [
        ("write_mb_s", "write, MB/s"),
        ("read_mb_s", "read, MB/s"),
        ("create_per_s", "create, files/s"),
        ("stat_per_s", "look up, files/s"),
        ("read_files_per_s", "read, files/s"),
        ("images_per_second", "dataset, images/s"),
    ];
    let storage = &test["storage"];
    if storage["measurement"].is_null() {
        return String::new();
    }
    let number = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    let mut rows = vec![["RATE", "THIS TEST", "EARLIER TEST"].map(str::to_owned).to_vec()];
    for (field, name) in RATES {
        let earlier = &storage["past"][0]["measurement"][field];
        rows.push(vec![name.to_owned(), number(&storage["measurement"][field]), number(earlier)]);
    }
    let file_system = &storage["file_system"];
    let shown = |field: &str| harmless(file_system[field].as_str().unwrap_or("-"));
    let mut lines = vec![format!("file system: {} on {} ({})", shown("type"), shown("mount_point"), shown("source"))];
    lines.extend(finding_lines("", &test["general"], true));
    lines.push(format!("verdict: {}\n", word(&test["verdict"])));
    columns(&rows) + &lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_beside_the_earlier_test() {
        let rate = |write: f64| json!({ "write_mb_s": write, "read_mb_s": null });
        let finding = json!({ "check": "storage_read", "verdict": "not_tested", "seen": "From memory.", "advice": "" });
        let test = json!({
            "verdict": "pass",
            "general": [finding],
            "storage": {
                "file_system": { "type": "nfs4", "mount_point": "/ho\u{1b}me", "source": "server:/home" },
                "measurement": rate(412.34),
                "past": [{ "measurement": rate(400.0) }],
            },
        });
        let printed = measured(&test);
        assert!(printed.contains("write, MB/s") && printed.contains("412.3") && printed.contains("400.0"), "{printed}");
        assert!(!printed.contains('\u{1b}') && printed.contains("storage_read: From memory."), "{printed}");
        assert!(printed.ends_with("verdict: pass\n"), "{printed}");
        assert_eq!(measured(&json!({ "storage": { "measurement": null } })), "");
    }
}
