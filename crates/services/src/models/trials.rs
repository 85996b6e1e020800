//! Trainings of a sweep: one request, some fields of whose configuration are others in each task. A task is checked
//! like a training of its own before the sweep begins; its model is written together with its job.

use lyceum_model::{
    Dataset, FieldError, JobId, Model, User,
    job::JobProgram,
    sweep::{Goal, Metric, Settings},
};
use serde_json::{Value, json};

use super::{Models, NewModel, Result, directory_below, request, schema};
use crate::{jobs::JobRequest, sessions::Actor};

/// A training with the values of one task.
#[derive(Debug)]
pub struct Trial {
    name: String,
    config: Value,
    /// Of the job that trains it.
    pub request: JobRequest,
}

impl Trial {
    /// What its job runs.
    #[must_use]
    pub fn program(&self) -> JobProgram {
        JobProgram::Script(self.request.script.clone().unwrap_or_default())
    }

    /// The metric that selects the best checkpoint, as the trainer's curves call it (docs/trainer.md).
    #[must_use]
    pub fn metric(&self) -> Metric {
        let chosen = self.config["metric"].as_str().filter(|metric| *metric != "auto");
        let tag = chosen.unwrap_or_else(|| match self.config["task"].as_str().unwrap_or_default() {
            "segmentation" => "iou",
            "detection" => "map50_95",
            "regression" | "reconstruction" => "loss",
            _ => "accuracy",
        });
        let goal = if ["loss", "mae", "mse", "rmse"].contains(&tag) { Goal::Minimum } else { Goal::Maximum };
        Metric { tag: format!("events/validation: {tag}"), goal, stop_after_step: None }
    }
}

impl Models {
    /// Checks the training of one task. A fault of a value is one of `parameters.NAME`.
    pub fn trial(
        &self,
        dataset: &Dataset,
        new: &NewModel,
        name: String,
        settings: &Settings,
    ) -> Result<Trial, Vec<FieldError>> {
        let asked = request::check(dataset, with_values(new, name, settings)).map_err(|faults| {
            let of_parameter = |fault: FieldError| {
                let name = fault.field.strip_prefix("config.").filter(|name| settings.values.contains_key(*name));
                let field = name.map_or_else(|| fault.field.clone(), |name| format!("parameters.{name}"));
                FieldError { field, ..fault }
            };
            faults.into_iter().map(of_parameter).collect::<Vec<_>>()
        })?;
        let (request, name, config) = self.job_request(asked);
        Ok(Trial { name, config, request })
    }

    /// The model of a task and its configuration, to be written with the job that trains it.
    pub async fn trial_model(
        &self,
        owner: &User,
        dataset: &Dataset,
        trial: Trial,
        job: JobId,
        log_directory: &str,
    ) -> Result<(Model, String)> {
        let home = self.home(owner).await?;
        let parent = self.parent(Actor { user: owner }, &trial.config).await?;
        let model = Model {
            job: Some(job),
            directory: directory_below(&home, log_directory),
            parent,
            ..self.untrained(owner, dataset, trial.name, &trial.config)
        };
        Ok((model, trial.config.to_string()))
    }
}

/// The request as one task has it. A repetition differs by its seed, or it would give the same again.
fn with_values(new: &NewModel, name: String, settings: &Settings) -> NewModel {
    let mut new = NewModel { name, ..new.clone() };
    if new.config.is_null() {
        new.config = json!({});
    }
    // What is no object is a fault for the check.
    let Some(config) = new.config.as_object_mut() else { return new };
    for (path, text) in &settings.values {
        schema::put(config, path, schema::read(path, text));
    }
    if settings.repeat > 0 && !settings.values.contains_key("seed") {
        let usual = schema::rule("seed").and_then(|rule| rule["default"].as_i64()).unwrap_or_default();
        let seed = config.get("seed").and_then(Value::as_i64).unwrap_or(usual);
        config.insert("seed".to_owned(), json!(seed.saturating_add(settings.repeat)));
    }
    new
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(values: &[(&str, &str)], repeat: i64) -> Settings {
        let values: BTreeMap<_, _> =
            values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings { index: 0, repeat, values }
    }

    fn new(config: &Value) -> NewModel {
        serde_json::from_value(json!({"name": "a", "dataset": lyceum_model::DatasetId::new(), "config": config}))
            .unwrap()
    }

    #[test]
    fn values_take_their_place_in_the_configuration() {
        let values =
            [("learning_rate.base", "0.01"), ("network.name", "lenet"), ("batch_size", "32"), ("devices", "all")];
        let base = json!({"learning_rate": {"policy": "step"}, "batch_size": 8});
        let of_task = with_values(&new(&base), "a #3".to_owned(), &settings(&values, 0));
        let expected = json!({"learning_rate": {"policy": "step", "base": 0.01}, "network": {"name": "lenet"},
            "batch_size": 32, "devices": "all"});
        assert_eq!((of_task.name.as_str(), of_task.config), ("a #3", expected));
        let nothing = with_values(&new(&Value::Null), "a".to_owned(), &settings(&[("epochs", "many")], 0));
        assert_eq!(nothing.config, json!({"epochs": "many"}), "left for the check");
    }

    #[test]
    fn repetitions_have_seeds_of_their_own() {
        let seed = |config: Value, values: &[(&str, &str)], repeat| {
            with_values(&new(&config), "a".to_owned(), &settings(values, repeat)).config["seed"].clone()
        };
        assert_eq!(seed(json!({"seed": 7}), &[], 0), json!(7));
        assert_eq!(seed(json!({"seed": 7}), &[], 2), json!(9));
        assert_ne!(seed(json!({}), &[], 1), seed(json!({}), &[], 2));
        assert_eq!(seed(json!({}), &[("seed", "3")], 2), json!(3), "chosen");
    }
}
