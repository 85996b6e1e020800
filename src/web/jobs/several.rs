//! The part of the form that asks for many jobs at once: an array or a sweep. What is typed
//! becomes the API's request around the one job of the rest of the form.

use std::collections::BTreeMap;

use crate::{
    jobs::JobRequest,
    model::sweep::{Goal, Metric},
    sweeps::{SweepRequest, Values},
    web::{
        http::{error::FieldError, extract::Form},
        views::SeveralForm,
    },
};

pub(in crate::web) fn read(fields: &Form) -> SeveralForm {
    let text = |name: &str| fields.get(name).trim().to_owned();
    SeveralForm {
        array: text("array"),
        parameters: text("parameters"),
        trials: text("trials"),
        repeat: text("repeat"),
        parallel: text("parallel"),
        metric: text("metric"),
        goal: text("goal"),
        stop_after_step: text("stop_after_step"),
    }
}

/// The form as the API's request; what cannot be read is a fault of its field.
pub(in crate::web) fn request(form: &SeveralForm, job: JobRequest) -> Result<SweepRequest, Vec<FieldError>> {
    let mut faults = Vec::new();
    let mut parameters = BTreeMap::new();
    for line in form.parameters.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((name, values)) = line.split_once('=') {
            parameters.insert(name.trim().to_owned(), Values::Text(values.trim().to_owned()));
        } else {
            let message = format!("`{line}` is not of the form `name = values`");
            faults.push(FieldError::new("parameters", "malformed", message));
        }
    }
    let mut number = |field: &str, text: &str| {
        let number: Result<Option<i64>, _> = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
        number.unwrap_or_else(|_err| {
            faults.push(FieldError::new(field, "invalid_value", "must be a whole number"));
            None
        })
    };
    let (trials, repeat) = (number("trials", &form.trials), number("repeat", &form.repeat));
    let parallel = number("parallel", &form.parallel);
    let stop_after_step = number("stop_after_step", &form.stop_after_step);
    if !faults.is_empty() {
        return Err(faults);
    }
    let goal = form.goal.parse().unwrap_or(Goal::Minimum);
    let metric = (!form.metric.is_empty()).then(|| Metric { tag: form.metric.clone(), goal, stop_after_step });
    let array = Some(form.array.clone()).filter(|array| !array.is_empty());
    Ok(SweepRequest { job, training: None, array, parameters, trials, seed: None, repeat, parallel, metric })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_parameters() {
        let form = |parameters: &str, trials: &str| SeveralForm {
            parameters: parameters.to_owned(),
            trials: trials.to_owned(),
            metric: "loss".to_owned(),
            ..SeveralForm::default()
        };
        let asked = request(&form("lr = 0.1, 0.01\n\nopt=adam", "7"), JobRequest::default()).unwrap();
        let written: Vec<_> = asked.parameters.into_iter().collect();
        let text = |name: &str, values: &str| (name.to_owned(), Values::Text(values.to_owned()));
        assert_eq!(written, [text("lr", "0.1, 0.01"), text("opt", "adam")]);
        assert_eq!((asked.trials, asked.array, asked.metric.unwrap().goal), (Some(7), None, Goal::Minimum));
        for (form, field) in [(form("lr", ""), "parameters"), (form("a=1", "x"), "trials")] {
            assert_eq!(request(&form, JobRequest::default()).unwrap_err()[0].field, field);
        }
    }
}
