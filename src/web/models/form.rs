//! The form of a training. Its fields are called as the trainer's configuration calls them
//! (`learning_rate.base`), and what they may hold comes from the trainer's schema, so that a field is
//! one line here and nowhere else.

use serde_json::{Map, Value, json};

use crate::{
    model::Resources,
    models::{NewModel, schema},
    web::views::ModelForm,
};

/// The fields of the configuration that the form has.
pub const FIELDS: [&str; 30] = [
    "network.name",
    "network.pretrained",
    "network.freeze",
    "epochs",
    "batch_size",
    "seed",
    "optimizer.name",
    "optimizer.weight_decay",
    "learning_rate.base",
    "learning_rate.policy",
    "learning_rate.gamma",
    "learning_rate.step",
    "learning_rate.steps",
    "learning_rate.power",
    "learning_rate.start",
    "learning_rate.peak",
    "learning_rate.end",
    "learning_rate.warm_up",
    "augmentation.flip_horizontal",
    "augmentation.flip_vertical",
    "augmentation.shift",
    "augmentation.rotate",
    "augmentation.zoom",
    "augmentation.brightness",
    "augmentation.contrast",
    "augmentation.noise",
    "class_weights",
    "early_stopping.patience",
    "precision",
    "backend",
];

/// What belongs to a policy of the learning rate, besides `base` and `warm_up`.
pub fn of_policy(field: &str) -> &'static str {
    match field {
        "learning_rate.gamma" => "step multistep exp inv sigmoid",
        "learning_rate.step" => "step sigmoid",
        "learning_rate.steps" => "multistep",
        "learning_rate.power" => "inv poly",
        "learning_rate.start" | "learning_rate.peak" => "one-cycle",
        "learning_rate.end" => "cosine one-cycle",
        _ => "",
    }
}

/// What was typed, in the API's words. What is no number stays text, and is told as a fault.
pub fn request(typed: &ModelForm, dataset: crate::model::DatasetId) -> NewModel {
    let text = |value: &str| Some(value.trim().to_owned()).filter(|value| !value.is_empty());
    let mut config = Map::new();
    let policy = typed.value("learning_rate.policy");
    for (field, value) in FIELDS.iter().zip(&typed.values) {
        let policies = of_policy(field);
        let fits = policies.is_empty() || policies.split(' ').any(|one| one == policy);
        if let Some(value) = text(value).filter(|_| fits) {
            put(&mut config, field, read(field, &value));
        }
    }
    // A model to go on from brings its own network.
    if typed.value("network.pretrained").is_empty() {
        remove(&mut config, "network", "freeze");
    } else {
        remove(&mut config, "network", "name");
    }
    // What is no number is one that the service refuses.
    let whole = |value: &str| value.trim().parse().unwrap_or(-1);
    let hours: f64 = typed.hours.trim().parse().unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "some hours; the service checks them")]
    let seconds = (hours.clamp(0.0, 10_000.0) * 3600.0) as i64;
    NewModel {
        name: typed.name.clone(),
        dataset,
        config: Value::Object(config),
        environment: text(&typed.environment),
        group: text(&typed.group),
        resources: Some(Resources {
            cpus: whole(&typed.cpus),
            memory_bytes: whole(&typed.memory).clamp(-1, 1 << 20) << 30,
            gpus: whole(&typed.gpus),
            ..Resources::default()
        }),
        profile: None,
        time_limit_seconds: Some(seconds),
    }
}

/// A typed value as the schema wants it.
fn read(field: &str, value: &str) -> Value {
    let number = |text: &str| match text.trim().parse::<i64>() {
        Ok(whole) => json!(whole),
        Err(_) => text.trim().parse::<f64>().map_or_else(|_| json!(text), |number| json!(number)),
    };
    match schema::rule(field).map_or("", |rule| rule["type"].as_str().unwrap_or_default()) {
        "integer" | "number" => number(value),
        "boolean" => json!(value == "yes"),
        "array" => value.split([',', ' ']).filter(|part| !part.is_empty()).map(number).collect(),
        _ => json!(value),
    }
}

fn put(config: &mut Map<String, Value>, field: &str, value: Value) {
    match field.split_once('.') {
        None => {
            config.insert(field.to_owned(), value);
        }
        Some((outer, inner)) => {
            let place = config.entry(outer).or_insert_with(|| json!({}));
            place[inner] = value;
        }
    }
}

fn remove(config: &mut Map<String, Value>, outer: &str, inner: &str) {
    if let Some(fields) = config.get_mut(outer).and_then(Value::as_object_mut) {
        fields.remove(inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(typed: &[(&str, &str)]) -> Value {
        let get = |name: &str| typed.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value).to_owned();
        request(&ModelForm::read(get), crate::model::DatasetId::new()).config
    }

    #[test]
    fn every_field_is_one_of_the_trainers() {
        for field in FIELDS {
            assert!(schema::rule(field).is_some(), "{field}");
        }
    }

    #[test]
    fn what_is_typed_becomes_a_configuration() {
        let typed = [
            ("network.name", "lenet"),
            ("epochs", " 3 "),
            ("learning_rate.base", "0.01"),
            ("learning_rate.policy", "multistep"),
            ("learning_rate.steps", "30, 60"),
            ("learning_rate.step", "33"),
            ("augmentation.flip_horizontal", "yes"),
            ("batch_size", "many"),
        ];
        let expected = json!({"network": {"name": "lenet"}, "epochs": 3, "batch_size": "many",
            "learning_rate": {"base": 0.01, "policy": "multistep", "steps": [30, 60]},
            "augmentation": {"flip_horizontal": true}});
        assert_eq!(config(&typed), expected, "a field of another policy is left out");
        let typed = [("network.name", "lenet"), ("network.pretrained", "/x.keras"), ("network.freeze", "yes")];
        assert_eq!(config(&typed), json!({"network": {"pretrained": "/x.keras", "freeze": true}}));
    }
}
