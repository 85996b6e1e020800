//! The list of container images, with each state.

use lyceum::{
    images::SUGGESTIONS,
    web::{page::Nav, views::*},
};

use super::gallery::{NOW, Word, layout};

pub fn images(word: &Word) -> ImagesPage {
    let row = |name: &str, class, state| ImageRow {
        name: word(name),
        title: word("PyTorch 26.10"),
        reference: word("nvcr.io/nvidia/pytorch:26.10"),
        class,
        word: state,
        progress: None,
        failure: None,
        digest: None,
        size: None,
        pulled: None,
        groups: String::new(),
        private_to: None,
        may_change: true,
        is_read_only: false,
        inside: Vec::new(),
    };
    let progress = |percent, text: &str| Some(PullProgress { percent, text: word(text) });
    let failure = "The registry nvcr.io does not have nvidia/pytorch:26.11 (404). Check name and tag.";
    ImagesPage {
        layout: layout(word).at(Nav::Images),
        notice: Some("The image is being pulled.".to_owned()),
        rows: vec![
            ImageRow {
                digest: Some((word("0123456789ab"), word("sha256:0123456789abcdef"))),
                size: Some("21 GiB".to_owned()),
                pulled: Some(Moment::ago(NOW.plus_seconds(-7200), NOW)),
                is_read_only: true,
                inside: vec![("Requires", word("cuda>=12.8")), ("Entrypoint", word("/opt/nvidia/entrypoint.sh"))],
                ..row("pytorch-26.10", "running", "Ready")
            },
            ImageRow { progress: progress(Some(43), "4 GiB of 9.3 GiB"), ..row("jax", "starting", "Pulling") },
            ImageRow { progress: progress(None, "asking the registry"), ..row("tf", "starting", "Pulling") },
            ImageRow { failure: Some(word(failure)), groups: word("vision, speech"), ..row("old", "failed", "Failed") },
            ImageRow { private_to: Some(word("ada")), ..row("new", "ended", "Not pulled yet") },
            ImageRow { may_change: false, ..row("site", "ended", "Not pulled yet") },
        ],
        may_add: true,
        suggestions: SUGGESTIONS.iter().collect(),
        storage: Some(StorageView {
            total: "43 GiB of 200 GiB".to_owned(),
            rows: vec![
                StorageRow {
                    name: word("pytorch-26.10"),
                    size: "21 GiB".to_owned(),
                    used: Moment::ago(NOW.plus_seconds(-7200), NOW),
                    need: "sessions or jobs",
                },
                StorageRow {
                    name: "12 downloaded layers".to_owned(),
                    size: "9.3 GiB".to_owned(),
                    used: Moment::ago(NOW.plus_seconds(-86_400), NOW),
                    need: "nothing, but they make the next pull faster",
                },
            ],
        }),
        unused_days: String::new(),
        form: ImageForm::default(),
        errors: Vec::new(),
    }
}

pub fn images_wrong(word: &Word) -> ImagesPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    ImagesPage {
        notice: None,
        rows: Vec::new(),
        form: ImageForm {
            name: word("PyTorch"),
            title: word("PyTorch"),
            reference: word("busybox"),
            groups: word("nobody"),
            is_private: true,
        },
        errors: vec![
            error("name", "must have 1 to 64 characters of a-z"),
            error("reference", "is not among the allowed repositories: nvcr.io/nvidia/*"),
            error("groups", "there is no group `nobody`"),
        ],
        ..images(word)
    }
}
