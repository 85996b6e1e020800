//! The list of software environments, with each state and origin, and its forms.

use lyceum::{
    environments::SUGGESTIONS,
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

pub fn environments(word: &Word) -> EnvironmentsPage {
    let row = |name: &str, title: &str, class, state| EnvironmentRow {
        name: name.to_owned(),
        title: word(title),
        class,
        word: state,
        progress: None,
        failure: None,
        note: None,
        python: None,
        frameworks: Vec::new(),
        from: word("chief"),
        groups: vec![(word("vision"), true), (word("speech"), false)],
        position: 30,
        form: Some(EnvironmentForm {
            name: name.to_owned(),
            title: word(title),
            packages: word("torch==2.9.*\ntorchvision"),
            groups: word("vision, speech"),
            position: "30".to_owned(),
            errors: Vec::new(),
        }),
        has_log: true,
    };
    let ready = |name: &str, title: &str, frameworks: &[(&str, bool)]| EnvironmentRow {
        python: Some("3.11.2".to_owned()),
        frameworks: frameworks.iter().map(|(name, gpus)| (word(name), *gpus)).collect(),
        ..row(name, title, "done", "Ready")
    };
    let what = "The package index does not have torch==99. Available: 2.8.0, 2.9.0, 2.9.1.";
    EnvironmentsPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some("The environment was added. It can be selected as soon as it is built.".to_owned()),
        error: None,
        rows: vec![
            EnvironmentRow {
                from: "portal".to_owned(),
                groups: Vec::new(),
                form: None,
                note: Some(word("JAX computes on CPUs: the driver supports CUDA 11.4, JAX needs CUDA 12.")),
                ..ready("default", "Keras on JAX, scikit-learn, TensorBoard", &[("JAX", false)])
            },
            EnvironmentRow {
                from: "configuration file".to_owned(),
                groups: Vec::new(),
                form: None,
                has_log: false,
                ..ready("site-torch", "site-torch", &[("PyTorch", true), ("TensorFlow", true)])
            },
            EnvironmentRow {
                progress: Some((
                    42,
                    word("installed 17 of 41 packages: nvidia-cudnn-cu12"),
                    Moment { at: NOW.plus_seconds(-95), show: Show::Since, now: NOW },
                )),
                ..row("pytorch", "PyTorch", "starting", "Building")
            },
            EnvironmentRow {
                failure: Some((word(what), word("Correct the list of packages."))),
                ..row("a-name-of-thirty-two.characters_", "An old project, for the paper", "failed", "Failed")
            },
        ],
        suggestions: SUGGESTIONS.iter().collect(),
        form: EnvironmentForm::default(),
    }
}

/// A form for a new environment that was refused.
pub fn environments_wrong(word: &Word) -> EnvironmentsPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    EnvironmentsPage {
        notice: None,
        form: EnvironmentForm {
            name: word("pytorch"),
            title: word("x"),
            packages: word("-r /etc/passwd"),
            groups: word("vision, speech"),
            position: word("first"),
            errors: vec![
                error("name", "There is already an environment `pytorch`."),
                error("title", "Enter at most 80 characters."),
                error("packages", "`-r /etc/passwd` is not a package, such as `torch` or `torch==2.9.*`."),
                error("groups", "must have at most 50 groups"),
                error("position", "Enter a whole number."),
            ],
        },
        suggestions: Vec::new(),
        ..environments(word)
    }
}

/// A form that changes an environment and was refused.
pub fn environments_unchanged(word: &Word) -> EnvironmentsPage {
    let mut form = environments_wrong(word).form;
    form.errors.retain(|error| error.field != "name");
    let mut page = environments(word);
    page.notice = None;
    page.error = Some(word("Sessions or jobs that have not ended use the environment `pytorch`."));
    page.rows[2].form = Some(form);
    page
}
