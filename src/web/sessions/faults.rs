//! Where the faults of a request and the reasons of a rejection are shown on the forms of sessions and jobs: the field
//! that each belongs to.

use crate::{
    model::quota::{Code, Field, Holder},
    web::{
        http::error::Error,
        views::{FieldError, NewSessionForm},
    },
};

/// What is wrong, each beside its field of the form.
pub(in crate::web) fn faults_beside_fields(error: &Error, form: &NewSessionForm) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = error
        .field_errors()
        .iter()
        .map(|error| FieldError { field: form_field(&error.field, form).to_owned(), message: error.message.clone() })
        .collect();
    errors.extend(error.reasons().iter().map(|reason| FieldError {
        field: field_of_reason(&reason.code, &form.profile).to_owned(),
        message: reason.hint.clone(),
    }));
    if errors.is_empty() {
        errors.push(FieldError { field: String::new(), message: error.detail().to_owned() });
    }
    errors
}

/// The form's name of an API field.
fn form_field<'a>(field: &'a str, form: &NewSessionForm) -> &'a str {
    match field {
        "environment" if !form.own_environment.is_empty() => "own_environment",
        "duration_seconds" | "time_limit_seconds" => "duration",
        "options.log_directory" => "log_directory",
        "resources.memory_bytes" => "memory",
        variable if variable.starts_with("variables.") => "variables",
        other => other.strip_prefix("resources.").or_else(|| other.strip_prefix("slurm.")).unwrap_or(other),
    }
}

/// Beside which field a reason belongs: the size tiles unless sliders were used.
fn field_of_reason(code: &Code, profile: &str) -> &'static str {
    let custom = profile.is_empty() || profile == "custom";
    let (Code::Limit { field, .. } | Code::Capacity(field)) = code else { return "" };
    match field {
        _ if matches!(code, Code::Limit { holder: Holder::Group, .. }) => "group",
        Field::MaxSessionSeconds | Field::MaxJobSeconds => "duration",
        Field::Gpus | Field::Cpus | Field::MemoryBytes if !custom => "profile",
        Field::Gpus => "gpus",
        Field::Cpus => "cpus",
        Field::MemoryBytes => "memory",
        _ => "",
    }
}
