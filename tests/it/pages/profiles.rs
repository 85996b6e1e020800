//! The list of profiles, with each origin, and its forms.

use lyceum::web::{page::Nav, views::*};

use super::gallery::{Word, layout};

fn form(word: &Word, name: &str) -> ProfileForm {
    ProfileForm {
        name: name.to_owned(),
        title: word("2 GPUs for training"),
        gpus: "2".to_owned(),
        gpu_model: word("A100-SXM4-80GB"),
        cpus: "16".to_owned(),
        memory: "96 GiB".to_owned(),
        duration: "2d".to_owned(),
        groups: word("vision, speech"),
        position: "30".to_owned(),
        errors: Vec::new(),
    }
}

fn row(word: &Word, name: &str, title: &str) -> ProfileRow {
    ProfileRow {
        name: name.to_owned(),
        title: word(title),
        size: word("2\u{a0}×\u{a0}A100-SXM4-80GB · 16\u{a0}cores · 96\u{a0}GiB"),
        lasts: "2 d".to_owned(),
        groups: vec![(word("vision"), true), (word("speech"), false)],
        position: 30,
        free: 3,
        objection: None,
        from: word("chief"),
        form: Some(form(word, name)),
    }
}

pub fn profiles(word: &Word) -> ProfilesPage {
    let from_file = |name: &str, title: &str, position| ProfileRow {
        size: "8\u{a0}cores · 32\u{a0}GiB".to_owned(),
        groups: Vec::new(),
        from: "configuration file".to_owned(),
        form: None,
        position,
        ..row(word, name, title)
    };
    ProfilesPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some("The profile was added.".to_owned()),
        error: None,
        rows: vec![
            from_file("cpu", "cpu", 10),
            ProfileRow { free: 0, ..from_file("1-gpu", "1 GPU", 20) },
            row(word, "training", "2 GPUs for training"),
            ProfileRow {
                objection: Some("The largest node has 8 GPUs.".to_owned()),
                position: 1_000_000,
                ..row(word, "a-name-of-thirty-two.characters_", "16 GPUs")
            },
        ],
        are_shipped: false,
        suggestions: vec![(row(word, "4-gpu", "4 GPUs"), form(word, "4-gpu"))],
        form: ProfileForm::default(),
    }
}

/// The sizes that were calculated, and a form for a new one that was refused.
pub fn profiles_wrong(word: &Word) -> ProfilesPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    let errors = [
        error("name", "There is already a profile `training`."),
        error("title", "Enter at most 60 characters."),
        error("gpus", "Enter a whole number."),
        error("gpu_model", "must be omitted for a size without GPUs"),
        error("cpus", "must be 1 or more"),
        error("memory", "Enter a size such as 48 GiB."),
        error("duration", "Enter a time such as 8h or 2d."),
        error("groups", "must have at most 50 groups"),
        error("position", "must be from 0 to 1000000"),
    ];
    let shipped = |name: &str, title: &str| ProfileRow {
        groups: Vec::new(),
        from: "hardware".to_owned(),
        form: None,
        position: 0,
        ..row(word, name, title)
    };
    ProfilesPage {
        notice: None,
        rows: vec![shipped("small", "Small"), shipped("whole", "Whole machine")],
        are_shipped: true,
        suggestions: Vec::new(),
        form: ProfileForm { errors: errors.to_vec(), ..form(word, "training") },
        ..profiles(word)
    }
}

/// A form that changes a profile and was refused.
pub fn profiles_unchanged(word: &Word) -> ProfilesPage {
    let refused = profiles_wrong(word).form;
    let errors: Vec<_> = refused.errors.into_iter().filter(|error| error.field != "name").collect();
    let mut page = profiles(word);
    page.notice = None;
    page.error = Some("The profile `cpu` is in the configuration file; change it there.".to_owned());
    page.rows[2].form = Some(ProfileForm { errors, ..form(word, "training") });
    page
}
