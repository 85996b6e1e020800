//! What somebody may ask for when they have a model trained: the trainer's own configuration, less
//! what the portal says itself, checked against the trainer's schema with all faults at once; and
//! the script that the job runs, which holds the configuration and can be read on the job's page.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Models, Result, environment_for, program, schema};
use lyceum_model::{Dataset, DatasetId, FieldError, Model, Resources, description::parse_name};

use crate::{jobs::JobRequest, sessions::Actor};

/// The environment that has what the trainer needs, unless another one is named.
pub(super) const ENVIRONMENT: &str = "default";
/// The longest configuration (bytes): it travels in the job's script.
const MAX_CONFIG_LENGTH: usize = 32 * 1024;
/// How long a training may take unless somebody says, or their limits or the cluster say less (seconds).
const DEFAULT_TIME: i64 = 8 * 3600;
/// What the portal says itself.
const RESERVED: [&str; 3] = ["name", "output", "data"];

/// A training to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewModel)]
pub struct NewModel {
    pub name: String,
    /// The dataset. It must be visible to you, and your account must be able to read its directory.
    #[schema(value_type = String, format = "uuid")]
    pub dataset: DatasetId,
    /// The trainer's configuration (docs/trainer.md) without `name`, `output` and `data`. `task` is the kind of the
    /// dataset, or `reconstruction`, or for a dataset for classification `regression`.
    #[serde(default)]
    #[schema(value_type = Object, required = false)]
    pub config: Value,
    /// A custom network in Python that defines `network(x, classes)`, and optionally its loss and metrics, at most 16 KiB.
    /// Replaces `config.network`.
    #[serde(default)]
    pub program: Option<String>,
    /// The environment. It must contain Keras and a backend. Default: `default`.
    #[serde(default)]
    pub environment: Option<String>,
    /// The group that is charged. You must be a member.
    #[serde(default)]
    pub group: Option<String>,
    #[serde(default)]
    pub resources: Option<Resources>,
    #[serde(default)]
    pub profile: Option<String>,
    /// Number of nodes of a cluster, each with the given resources. Their devices share a batch, and
    /// the backend must be `jax`. Default: 1.
    #[serde(default)]
    pub nodes: Option<i64>,
    #[serde(default)]
    pub time_limit_seconds: Option<i64>,
}

/// The tasks that a kind of dataset has what it takes for, its own first.
pub fn tasks(kind: &str) -> &'static [&'static str] {
    match kind {
        "segmentation" => &["segmentation", "reconstruction"],
        "detection" => &["detection", "reconstruction"],
        _ => &["classification", "regression", "reconstruction"],
    }
}

/// The networks for a task, the trainer's usual one first.
pub fn networks(task: &str) -> Vec<&'static str> {
    if task == "reconstruction" {
        return vec!["autoencoder", "u-net"];
    }
    let of_task = |name: &&str| match task {
        "segmentation" => *name == "u-net",
        "detection" => *name == "centres",
        _ => !matches!(*name, "u-net" | "centres" | "autoencoder"),
    };
    schema::words("network.name").into_iter().filter(of_task).collect()
}

/// A request without faults.
#[derive(Debug)]
pub(super) struct Checked {
    pub name: String,
    /// The whole configuration.
    pub config: Value,
    /// Python that lies beside it.
    pub program: Option<String>,
    /// Of the job.
    pub size: JobRequest,
}

pub(super) fn check(dataset: &Dataset, new: NewModel) -> Result<Checked, Vec<FieldError>> {
    let mut faults = Vec::new();
    let name = parse_name(&new.name).map_err(|fault| faults.push(fault)).unwrap_or_default();
    let mut config = if new.config.is_null() { json!({}) } else { new.config };
    if let Some(fields) = config.as_object_mut() {
        for ours in RESERVED.iter().filter(|ours| fields.contains_key(**ours)) {
            faults.push(FieldError::new(
                format!("config.{ours}"),
                "unknown_field",
                "The portal sets this field. Remove it.",
            ));
        }
        fields.insert("name".to_owned(), json!(name));
        fields.insert("output".to_owned(), json!("."));
        fields.entry("task").or_insert_with(|| json!(dataset.kind));
        fields.insert("data".to_owned(), json!({"kind": "dataset", "path": dataset.directory}));
    }
    faults.extend(schema::faults(&config, "config"));
    let program =
        new.program.and_then(|text| program::check(&text, &mut config).map_err(|fault| faults.push(fault)).ok());
    let task = config["task"].as_str().unwrap_or(&dataset.kind).to_owned();
    if !tasks(&dataset.kind).contains(&task.as_str()) && faults.is_empty() {
        let message =
            format!("For a dataset for {}, must be one of {}.", dataset.kind, tasks(&dataset.kind).join(", "));
        faults.push(FieldError::new("config.task", "invalid_value", message));
    }
    let named = config["network"]["name"].as_str();
    if named.is_some_and(|name| !networks(&task).contains(&name)) && faults.is_empty() {
        let message = format!("For {task}, must be one of {}.", networks(&task).join(", "));
        faults.push(FieldError::new("config.network.name", "invalid_value", message));
    }
    let usual = Resources { cpus: 2, memory_bytes: 4 << 30, ..Resources::default() };
    let sized = new.resources.is_some() || new.profile.is_some();
    let resources = if sized { new.resources } else { Some(usual) };
    if faults.is_empty() {
        let gpus = resources.as_ref().map_or(0, |resources| resources.gpus);
        faults.extend(share(&mut config, new.nodes.unwrap_or(1), gpus));
    }
    if config.to_string().len() > MAX_CONFIG_LENGTH {
        faults.push(FieldError::new("config", "too_long", "Longer than 32 KiB."));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let size = JobRequest {
        environment: Some(new.environment.unwrap_or_else(|| ENVIRONMENT.to_owned())),
        group: new.group,
        resources,
        nodes: new.nodes,
        profile: new.profile,
        time_limit_seconds: new.time_limit_seconds,
        usual_seconds: Some(DEFAULT_TIME),
        ..JobRequest::default()
    };
    Ok(Checked { name, config, program, size })
}

/// Over how many devices the trainer shares a batch: all that it gets, where the configuration does not say.
fn share(config: &mut Value, nodes: i64, gpus: i64) -> Option<FieldError> {
    let fields = config.as_object_mut().filter(|_| nodes > 1 || gpus > 1)?;
    let is_said = fields.contains_key("devices");
    if nodes > 1 || !is_said {
        match fields.get("backend").and_then(Value::as_str).unwrap_or("auto") {
            "auto" => fields.insert("backend".to_owned(), json!("jax")),
            "jax" => None,
            other => {
                let message = format!("Training on several GPUs or nodes needs the jax backend, not {other}.");
                return Some(FieldError::new("config.backend", "conflict", message));
            }
        };
    }
    let devices = fields.entry("devices").or_insert_with(|| json!("all"));
    let each = devices.as_i64().unwrap_or(gpus.max(1));
    let all = each.saturating_mul(nodes);
    // What is wrong with these numbers alone is told where they are checked.
    let usual = schema::rule("batch_size").and_then(|rule| rule["default"].as_i64()).unwrap_or(1);
    let batch = fields.get("batch_size").and_then(Value::as_i64).unwrap_or(usual);
    (all > 0 && batch % all != 0).then(|| {
        let message = format!("Must be a multiple of {all}, the number of devices that share a batch.");
        FieldError::new("config.batch_size", "uneven", message)
    })
}

impl Models {
    /// What a model's training was asked for with, so that another one can be asked for like it; on a dataset.
    pub async fn asked_for(&self, actor: Actor<'_>, model: &Model, dataset: DatasetId) -> Result<NewModel> {
        let mut config = self.config(model).await?;
        let program = self.program(actor.user, model, &config).await?;
        if let Some(fields) = config.as_object_mut() {
            fields.retain(|field, _| !RESERVED.contains(&field.as_str()));
        }
        if let (Some(_), Some(network)) = (&program, config["network"].as_object_mut()) {
            network.remove("file");
        }
        let job = match model.job {
            Some(job) => self.db.find_job(job).await?,
            None => None,
        };
        let alike = NewModel {
            name: model.name.clone(),
            dataset,
            config,
            program,
            environment: None,
            group: None,
            resources: None,
            profile: None,
            nodes: None,
            time_limit_seconds: None,
        };
        let Some(job) = job else { return Ok(alike) };
        let shape = self.jobs.task(&job).await?.shape;
        let spec = job.latest.spec;
        Ok(NewModel {
            environment: environment_for(model.owner == actor.user.id, spec.environment),
            group: spec.group,
            profile: spec.profile,
            nodes: Some(shape.nodes).filter(|nodes| *nodes > 1),
            time_limit_seconds: Some(spec.duration_seconds),
            resources: Some(shape.share(spec.resources)),
            ..alike
        })
    }
}

/// What is trained, in a word.
pub(super) fn network(config: &Value) -> String {
    let network = &config["network"];
    match (network["name"].as_str(), network["pretrained"].as_str(), network["file"].as_str()) {
        (Some(name), ..) => name.to_owned(),
        (_, Some(_), _) => "fine-tuned".to_owned(),
        (_, _, Some(_)) => "custom".to_owned(),
        _ => networks(config["task"].as_str().unwrap_or_default()).first().copied().unwrap_or_default().to_owned(),
    }
}

/// How both scripts begin: what is asked for lies in the job's directory of logs.
fn beginning(about: &str, asked: &Checked) -> String {
    let config = serde_json::to_string_pretty(&asked.config).expect("a value is plain data");
    let program = asked.program.as_deref().map(program::written).unwrap_or_default();
    // A line that is the end mark alone cannot be in it: strings have no line breaks in JSON.
    format!(
        "#!/bin/sh
# {about}
# A custom network runs again only if no other user can write to it (docs/trainer.md).
umask g-w,o-w
mkdir -p \"$LYCEUM_LOG_DIRECTORY\" && cd \"$LYCEUM_LOG_DIRECTORY\" || exit 4
cat > config.json <<'END_OF_CONFIG'
{config}
END_OF_CONFIG
{program}"
    )
}

/// The script that looks before a training. Each answer appears whole or not at all.
pub(super) fn preview_script(asked: &Checked) -> String {
    beginning("Previews the images and layers of a training (docs/trainer.md).", asked)
        + "python -m trainer preview config.json --output preview > preview.new || exit $?
mv preview.new preview.json
python -m trainer describe config.json > layers.new || exit $?
mv layers.new layers.json
"
}

/// Starts the trainer, and says how it is asked to end.
const ALONE: &str = "python -m trainer train config.json &
trap 'kill -TERM $!' TERM INT
";
/// The same on all nodes of a job. `srun` ends with its tasks, which hear for themselves.
const TOGETHER: &str = r#"MASTER_ADDR=$(hostname)
MASTER_PORT=$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
export MASTER_ADDR MASTER_PORT
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" \
    sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python -m trainer train config.json' &
trap : TERM INT
"#;

/// The script of the job. Started again, it goes on at its last snapshot.
pub(super) fn script(asked: &Checked) -> String {
    let is_alone = asked.size.nodes.is_none_or(|nodes| nodes < 2);
    beginning("Trains a model (docs/trainer.md) and exports a bundle of its best checkpoint.", asked)
        + "# On SIGTERM, the trainer writes a checkpoint before it exits.\n"
        + if is_alone { ALONE } else { TOGETHER }
        + "wait $!
code=$?
if [ $code -gt 128 ] && kill -0 $! 2>/dev/null; then wait $!; code=$?; fi
[ $code -eq 0 ] || exit $code
best=$(python -c 'import json; print(json.load(open(\"checkpoints/index.json\"))[\"best\"])')
exec python -m trainer export \"checkpoints/$best\" --output bundle
"
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::{DatasetState, Timestamp, UserId, job::Visibility};

    fn dataset(kind: &str) -> Dataset {
        Dataset {
            id: DatasetId::new(),
            owner: UserId::new(),
            owner_name: "ada".to_owned(),
            name: "shapes".to_owned(),
            kind: kind.to_owned(),
            source: "generated".to_owned(),
            directory: "/home/ada/it's \"here\"\n\u{202e}".to_owned(),
            state: DatasetState::Ready,
            detail: String::new(),
            job: None,
            visibility: Visibility::Private,
            notes: String::new(),
            manifest_sha256: String::new(),
            pictures: 1,
            broken: 0,
            classes: 2,
            created_at: Timestamp(0),
            changed_at: Timestamp(0),
        }
    }

    fn new(config: &Value) -> NewModel {
        let request = json!({"name": "shapes", "dataset": DatasetId::new(), "config": config});
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn all_faults_at_once_and_none_of_the_portals_own_fields() {
        let asked = NewModel {
            name: " ".to_owned(),
            ..new(&json!({"epochs": 0, "output": "/etc", "optimizer": {"name": "x"}}))
        };
        let fields: Vec<String> =
            check(&dataset("classification"), asked).unwrap_err().into_iter().map(|f| f.field).collect();
        assert_eq!(fields, ["name", "config.output", "config.epochs", "config.optimizer.name"]);
        let asked = new(&json!({"network": {"name": "u-net"}}));
        assert_eq!(check(&dataset("detection"), asked).unwrap_err()[0].field, "config.network.name");
        let asked = new(&json!({"task": "regression"}));
        assert_eq!(check(&dataset("detection"), asked).unwrap_err()[0].field, "config.task");
        assert_eq!(check(&dataset("detection"), new(&json!(3))).unwrap_err()[0].field, "config");
    }

    #[test]
    fn the_usual_network_and_size() {
        for (kind, usual) in [("classification", "lenet"), ("segmentation", "u-net"), ("detection", "centres")] {
            let Checked { config, size, .. } = check(&dataset(kind), new(&Value::Null)).unwrap();
            assert_eq!(network(&config), usual);
            assert_eq!(config["task"], kind);
            assert_eq!((size.environment.as_deref(), size.resources.unwrap().cpus), (Some("default"), 2));
        }
    }

    /// Labels can be numbers, and any image can be its own truth.
    #[test]
    fn other_tasks_of_a_dataset() {
        for (kind, task, usual) in [
            ("classification", "regression", "lenet"),
            ("classification", "reconstruction", "autoencoder"),
            ("segmentation", "reconstruction", "autoencoder"),
        ] {
            let Checked { config, .. } = check(&dataset(kind), new(&json!({"task": task}))).unwrap();
            assert_eq!((&config["task"], network(&config).as_str()), (&json!(task), usual));
        }
        let asked = new(&json!({"task": "reconstruction", "network": {"name": "lenet"}}));
        let fault = check(&dataset("classification"), asked).unwrap_err().remove(0);
        assert!(fault.field == "config.network.name" && fault.message.contains("autoencoder"), "{fault:?}");
    }

    /// Several GPUs are all used, and what cannot be shared out is told before anything runs.
    #[test]
    fn devices_share_a_batch() {
        let asked = |config: Value, gpus: i64, nodes: Option<i64>| {
            let resources = Some(Resources { cpus: 2, memory_bytes: 1 << 30, gpus, ..Resources::default() });
            let checked = check(&dataset("classification"), NewModel { resources, nodes, ..new(&config) });
            checked.map(|asked| (asked.config["devices"].clone(), asked.config["backend"].clone()))
        };
        assert_eq!(asked(json!({}), 1, None).unwrap(), (Value::Null, Value::Null));
        assert_eq!(asked(json!({}), 2, None).unwrap(), (json!("all"), json!("jax")));
        assert_eq!(asked(json!({"devices": 1, "backend": "torch"}), 2, None).unwrap(), (json!(1), json!("torch")));
        assert_eq!(asked(json!({"devices": 1}), 0, Some(2)).unwrap(), (json!(1), json!("jax")));
        let told = |config, gpus, nodes| asked(config, gpus, nodes).unwrap_err().remove(0);
        assert_eq!(told(json!({"backend": "torch"}), 2, None).field, "config.backend");
        assert_eq!(told(json!({"backend": "torch", "devices": 1}), 0, Some(2)).field, "config.backend");
        assert!(told(json!({"batch_size": 20}), 2, Some(4)).message.contains("multiple of 8"));
        assert_eq!(told(json!({}), 3, None).field, "config.batch_size", "the usual 64");
    }

    #[test]
    fn on_several_nodes_srun_starts_it() {
        let asked = |nodes| check(&dataset("classification"), NewModel { nodes, ..new(&Value::Null) }).unwrap();
        for (nodes, is_spread) in [(None, false), (Some(1), false), (Some(2), true)] {
            assert_eq!(script(&asked(nodes)).contains("srun --kill-on-bad-exit=1"), is_spread);
            assert!(!preview_script(&asked(nodes)).contains("srun"));
        }
    }

    #[test]
    fn a_network_of_ones_own_takes_the_place_of_a_name() {
        let program = Some("def network(x, classes):\r\n    return x".to_owned());
        let asked = check(&dataset("classification"), NewModel { program, ..new(&Value::Null) }).unwrap();
        assert_eq!(
            (network(&asked.config).as_str(), &asked.config["network"]["file"]),
            ("custom", &json!("network.py"))
        );
        assert!(
            script(&asked).contains("<<'END_OF_NETWORK'\ndef network(x, classes):\n    return x\nEND_OF_NETWORK\n")
        );

        let both = NewModel { program: Some("x".to_owned()), ..new(&json!({"network": {"name": "lenet"}})) };
        assert_eq!(check(&dataset("classification"), both).unwrap_err()[0].field, "program");
    }

    /// Whatever the mask of a person's files: the trainer runs a network again only then.
    #[test]
    fn nobody_else_may_change_what_a_script_writes() {
        use std::os::unix::fs::PermissionsExt as _;

        let asked = NewModel { program: Some("x".to_owned()), ..new(&json!({})) };
        let asked = check(&dataset("classification"), asked).unwrap();
        let home = tempfile::tempdir().unwrap();
        let logs = home.path().join("runs/x");
        let script = format!("umask 000\n{}", beginning("Writes.", &asked));
        let done = std::process::Command::new("sh").args(["-c", &script]).env("LYCEUM_LOG_DIRECTORY", &logs).status();
        assert!(done.unwrap().success());
        for path in [logs.clone(), logs.join("network.py"), logs.join("config.json")] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o022, 0, "{}", path.display());
        }
    }

    /// Whatever a directory is called, the script is the same but for one line of JSON.
    #[test]
    fn a_script_holds_the_configuration_and_nothing_else_of_it() {
        let asked = check(&dataset("classification"), new(&json!({"epochs": 2}))).unwrap();
        for text in [script(&asked), preview_script(&asked)] {
            let (before, rest) = text.split_once("<<'END_OF_CONFIG'\n").unwrap();
            let (inside, after) = rest.split_once("\nEND_OF_CONFIG\n").unwrap();
            assert_eq!(serde_json::from_str::<Value>(inside).unwrap(), asked.config);
            assert!(!before.contains("here") && !after.contains("here") && !after.contains("END_OF_CONFIG"));
        }
    }
}
