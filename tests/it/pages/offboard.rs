//! The page that guides through an offboarding, filled: everything ahead, and a hand-over of which a part failed.

use lyceum::{
    model::user::State,
    web::{
        page::Nav,
        views::{FieldError, HandOverForm, HandOverOutcome, HandOverRow, OffboardPage, StepRow},
    },
};

use super::gallery::{Word, layout};

/// Of an active account.
pub fn ahead(word: &Word) -> OffboardPage {
    let step = |what, name: &str| StepRow { what, name: word(name), error: None };
    OffboardPage {
        layout: layout(word).at(Nav::Administration),
        name: "carol".to_owned(),
        state: State::Active,
        is_oneself: false,
        notice: None,
        error: None,
        ahead: vec![
            step("Disable the account", "carol"),
            step("Revoke the token", "nightly builds"),
            step("Stop the sweep", "learning rates"),
            step("Cancel the job", "resnet50 · batch 256"),
            step("Stop the session", "JupyterLab"),
            step("Remove as manager of the group", "vision"),
            step("Remove from the group", "course"),
        ],
        more_ahead: 12,
        failed: Vec::new(),
        live: 4,
        made: vec![("Jobs", 412), ("Sweeps", 9), ("Runs", 398), ("Datasets", 6), ("Models", 31)],
        form: HandOverForm::default(),
        outcome: None,
        folders: vec![word("/home/carol"), word("/data/shared")],
        groups: vec![word("vision"), word("gpu-users")],
        presets: 2,
    }
}

/// After a check, of which a part failed.
pub fn checked(word: &Word) -> OffboardPage {
    let row = |kind, name: &str, directory: &str, error: Option<&str>| HandOverRow {
        kind,
        name: word(name),
        directory: word(directory),
        error: error.map(word),
    };
    let unreadable = "`dan` finds no files in /home/carol/datasets/signs. Copy them, and name the folders.";
    let wrong = FieldError { field: "to_folder".to_owned(), message: "Must be an absolute path below `/`.".to_owned() };
    OffboardPage {
        state: State::Disabled,
        notice: Some("Access ended. Work that was running is being stopped.".to_owned()),
        ahead: Vec::new(),
        more_ahead: 0,
        failed: vec![StepRow {
            what: "Stop the session",
            name: word("JupyterLab"),
            error: Some(word("The node does not respond.")),
        }],
        live: 0,
        form: HandOverForm {
            to: word("dan"),
            from_folder: word("/home/carol"),
            to_folder: word("home/dan"),
            errors: vec![wrong],
        },
        outcome: Some(HandOverOutcome {
            is_check: true,
            to: word("dan"),
            counts: ["412 jobs", "9 sweeps", "398 runs", "1 dataset or model"].map(str::to_owned).to_vec(),
            failed: 1,
            rows: vec![
                row("Dataset", "signs", "/home/carol/datasets/signs", Some(unreadable)),
                row("Model", "resnet50-signs", "/data/shared/carol/lyceum/jobs/resnet50-signs", None),
            ],
            more_rows: 35,
        }),
        groups: Vec::new(),
        presets: 0,
        ..ahead(word)
    }
}
