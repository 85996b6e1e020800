//! The start form of a session, as the gallery draws it: filled in, and sent back with errors.

use lyceum::{
    model::{Resources, SlurmChoices, SlurmOptions, size::GIB, slurm::Choice},
    web::{page::Nav, views::*},
};

use super::gallery::{Word, layout, meters};

fn slurm_fields(word: &Word) -> SlurmFields {
    let one_of = |names: &[&str]| Choice::OneOf(names.iter().map(|name| word(name)).collect());
    let choices = SlurmChoices {
        partition: one_of(&["cpu", "gpu"]),
        account: one_of(&["lab-vision"]),
        qos: one_of(&["normal", "long"]),
        constraint: one_of(&["a100", "nvlink"]),
        ..SlurmChoices::default()
    };
    let chosen = SlurmOptions { partition: Some(word("gpu")), ..SlurmOptions::default() };
    SlurmFields::new(Some(&choices), &chosen)
}

pub fn new_session(word: &Word) -> NewSession {
    let app = |name: &str, title: &str, description: &str| AppTile {
        name: name.to_owned(),
        title: title.to_owned(),
        description: description.to_owned(),
        uses_environment: name == "jupyter" || name == "tensorboard",
        wants_log_directory: name == "tensorboard",
        by_site: false,
        own_size: ["tensorboard", "terminal"].contains(&name).then(|| Resources {
            memory_bytes: if name == "terminal" { GIB } else { 2 * GIB },
            ..Resources::default()
        }),
    };
    let by_site = AppTile { by_site: true, ..app("code", &word("VS Code"), &word("an editor in the browser")) };
    let size = |name: &str, title: &str, gpus, cpus, memory, fit, note: &str| SizeTile {
        name: name.to_owned(),
        title: word(title),
        resources: Resources { gpus, gpu_model: None, cpus, memory_bytes: memory * GIB },
        fit,
        note: word(note),
    };
    NewSession {
        layout: layout(word).at(Nav::Sessions),
        apps: vec![
            app("jupyter", "JupyterLab", "notebooks, files, terminals"),
            app("tensorboard", "TensorBoard", "curves of a folder of logs"),
            app("terminal", "Terminal", "a shell in the browser"),
            by_site,
        ],
        sizes: vec![
            size("cpu", "CPU only", 0, 2, 8, Fit::Now, "31 cores free now"),
            size("1-gpu", "1 GPU", 1, 8, 48, Fit::Now, "4 GPUs free now"),
            size("2-gpu", "2 GPUs", 2, 16, 96, Fit::Waits, "waits: 1 of 4 GPUs is free"),
            size("8-gpu", "8 GPUs", 8, 64, 384, Fit::Never, "your limit is 4 GPUs (default)"),
        ],
        custom: Some(Sliders {
            gpus: Slider { least: 0, left: 1, most: 4 },
            cpus: Slider { least: 1, left: 6, most: 32 },
            memory: Slider { least: GIB, left: 48 * GIB, most: 192 * GIB },
        }),
        gpu_models: vec![word("NVIDIA A100"), word("NVIDIA H100")],
        groups: vec![word("vision"), word("speech")],
        environments: vec![
            EnvironmentChoice { name: word("default"), title: word("Python 3.11 · Keras 3.15 · JAX"), ready: true },
            EnvironmentChoice { name: word("torch"), title: word("Python 3.12 · PyTorch 2.15"), ready: false },
        ],
        own_environments: vec![word("~/envs/torch"), word("/scratch/alice/conda")],
        images: vec![
            ImageChoice { name: word("pytorch-26.10"), label: word("pytorch-26.10 · PyTorch"), works: true },
            ImageChoice { name: word("old"), label: word("old · could not be pulled"), works: false },
        ],
        modules: Some(vec![
            (word("cuda"), word("cuda/11.8 cuda/12.4"), word("CUDA toolkit")),
            (word("gcc"), word("gcc/13.2"), word("GNU compilers")),
        ]),
        durations: NewSession::durations(28_800, 28_800),
        meters: meters(word),
        slurm_fields: slurm_fields(word),
        usual_size: "1-gpu".to_owned(),
        form: NewSessionForm {
            csrf_token: word("5a1f0c"),
            idempotency_key: word("0199-key"),
            app: "jupyter".to_owned(),
            profile: "1-gpu".to_owned(),
            gpus: "1".to_owned(),
            cpus: "8".to_owned(),
            memory: "48 GiB".to_owned(),
            environment: word("default"),
            duration: "28800".to_owned(),
            group: word("vision"),
            slurm: SlurmOptions { partition: Some(word("gpu")), ..SlurmOptions::default() },
            ..NewSessionForm::default()
        },
        errors: Vec::new(),
        verdict: Some(AdmissionPreview { fit: Fit::Now, text: word("After it you have 1 GPU left.") }),
        copy_of: None,
        presets: presets(word),
        base_url: "https://portal.example.org".to_owned(),
    }
}

/// Presets of one's own and of a group.
pub fn presets(word: &Word) -> PresetForm {
    let row = |id: &str, group: Option<&str>| PresetRow {
        id: id.to_owned(),
        is_job: false,
        name: word("two GPUs"),
        group: group.map(word),
        group_id: group.map(|_| "0199a0b2-0000-7000-8000-000000000002".to_owned()).unwrap_or_default(),
        may_change: true,
    };
    PresetForm {
        rows: vec![
            row("0199a0b2-0000-7000-8000-000000000011", None),
            row("0199a0b2-0000-7000-8000-000000000012", Some("vision")),
        ],
        chosen: "0199a0b2-0000-7000-8000-000000000011".to_owned(),
        groups: vec![("0199a0b2-0000-7000-8000-000000000002".to_owned(), word("vision"))],
        name: String::new(),
    }
}

pub fn wrong(word: &Word) -> NewSession {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    let page = new_session(word);
    NewSession {
        errors: vec![
            error("working_directory", "There is no directory /scratch/alice/nope."),
            error(
                "own_environment",
                "/home/alice/envs/x lacks ipykernel: type `/home/alice/envs/x/bin/python -m pip install ipykernel` in \
                 a terminal",
            ),
            error("preset_name", "there is already a preset of a session with this name"),
            error("log_directory", "TensorBoard needs a folder of logs."),
            error("partition", "`old` is not available to you; you can choose `cpu`, `gpu`"),
            error("image", "there is no image with this name that you may use"),
            error("name", "A name is one line of at most 64 characters."),
            error("gpus", "You may have at most 4 GPUs at once (default); this asks for 9."),
            error("memory", "“4 potatoes” is not a size; write 4 GiB or 512 MiB."),
            error("", "You have 20 sessions waiting, as many as you may."),
        ],
        form: NewSessionForm {
            app: "tensorboard".to_owned(),
            profile: "custom".to_owned(),
            gpus: word("9"),
            memory: word("4 potatoes"),
            name: word("my session"),
            working_directory: word("/scratch/alice/nope"),
            log_directory: word("~/runs"),
            own_environment: word("~/envs/x"),
            ..page.form
        },
        verdict: Some(AdmissionPreview {
            fit: Fit::Never,
            text: word("You may have at most 4 GPUs at once (default)."),
        }),
        copy_of: Some(word("resnet-nb")),
        ..page
    }
}
