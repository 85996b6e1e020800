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
pub const FIELDS: [&str; 33] = [
    "task",
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
    "checkpoints.every_epochs",
    "checkpoints.keep_last",
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

/// Words of the choice of networks beside their names: a program of one's own, and a model to go on from.
pub const OWN_NETWORK: &str = "own";
pub const GOES_ON: &str = "pretrained";

/// What was typed, in the API's words. What is no number stays text, and is told as a fault.
pub fn request(typed: &ModelForm, dataset: crate::model::DatasetId) -> NewModel {
    let text = |value: &str| Some(value.trim().to_owned()).filter(|value| !value.is_empty());
    let mut config = Map::new();
    let policy = typed.value("learning_rate.policy");
    for (field, value) in FIELDS.iter().zip(&typed.values) {
        let policies = of_policy(field);
        let fits = policies.is_empty() || policies.split(' ').any(|one| one == policy);
        if let Some(value) = text(value).filter(|_| fits) {
            schema::put(&mut config, field, schema::read(field, &value));
        }
    }
    // What was typed for another choice says nothing.
    let goes_on = typed.value("network.name") == GOES_ON;
    let is_own = typed.value("network.name") == OWN_NETWORK;
    if goes_on || is_own {
        remove(&mut config, "network", "name");
    }
    if goes_on {
        // Nothing at all would be the usual network.
        schema::put(&mut config, "network.pretrained", json!(typed.value("network.pretrained").trim()));
    } else {
        remove(&mut config, "network", "pretrained");
        remove(&mut config, "network", "freeze");
    }
    // What is no number is one that the service refuses.
    let whole = |value: &str| value.trim().parse().unwrap_or(-1);
    let seconds = |hours: String| {
        let hours: f64 = hours.parse().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, reason = "some hours; the service checks them")]
        let seconds = (hours.clamp(0.0, 10_000.0) * 3600.0) as i64;
        seconds
    };
    NewModel {
        name: typed.name.clone(),
        dataset,
        config: Value::Object(config),
        program: is_own.then(|| typed.program.clone()),
        environment: text(&typed.environment),
        group: text(&typed.group),
        resources: Some(Resources {
            cpus: whole(&typed.cpus),
            memory_bytes: whole(&typed.memory).clamp(-1, 1 << 20) << 30,
            gpus: whole(&typed.gpus),
            ..Resources::default()
        }),
        profile: None,
        nodes: text(&typed.nodes).map(|nodes| whole(&nodes)),
        time_limit_seconds: text(&typed.hours).map(seconds),
    }
}

/// The form that a request would have been typed into, for one like it.
pub fn typed(asked: NewModel, idempotency_key: String) -> ModelForm {
    let mut form = ModelForm::usual(idempotency_key, asked.name);
    for field in FIELDS {
        let value = field.split('.').fold(&asked.config, |value, name| &value[name]);
        // What the trainer is not told is as it is where nothing is said.
        if !value.is_null() || schema::rule(field).is_none_or(|rule| rule["default"].is_null()) {
            form.set(field, written(value));
        }
    }
    if let Some(program) = asked.program {
        form.set("network.name", OWN_NETWORK.to_owned());
        form.program = program;
    } else if asked.config["network"]["pretrained"].is_string() {
        form.set("network.name", GOES_ON.to_owned());
    }
    if let Some(size) = asked.resources {
        form.cpus = size.cpus.to_string();
        form.gpus = size.gpus.to_string();
        form.memory = (size.memory_bytes >> 30).max(1).to_string();
    }
    if let Some(seconds) = asked.time_limit_seconds {
        #[expect(clippy::cast_precision_loss, reason = "some hours")]
        let hours = seconds as f64 / 3600.0;
        form.hours = hours.to_string();
    }
    form.nodes = asked.nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
    form.environment = asked.environment.unwrap_or(form.environment);
    form.group = asked.group.unwrap_or_default();
    form
}

/// A value of a configuration as it would be typed; what is not in it stays what is usual.
fn written(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(false) | Value::Object(_) => String::new(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(written).collect::<Vec<_>>().join(", "),
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
        let typed = [("network.name", GOES_ON), ("network.pretrained", "/x.keras"), ("network.freeze", "yes")];
        assert_eq!(config(&typed), json!({"network": {"pretrained": "/x.keras", "freeze": true}}));
        let typed = [("network.name", "lenet"), ("network.pretrained", "/x.keras"), ("network.freeze", "yes")];
        assert_eq!(config(&typed), json!({"network": {"name": "lenet"}}));
        let faults = schema::faults(&config(&[("network.name", GOES_ON)]), "config");
        assert_eq!(faults[0].field, "config.network.pretrained", "none was named");
        let typed = [("network.name", OWN_NETWORK), ("program", "def")];
        assert_eq!(config(&typed), json!({"network": {}}), "the program says it");
    }

    /// One like another asks for the same.
    #[test]
    fn what_was_asked_for_is_typed_again() {
        let program = || Some("def network(x, classes):\n    return x\n".to_owned());
        for (network, program) in [
            (json!({"name": "small-cnn"}), None),
            (json!({"pretrained": "/home/ada/x.keras", "freeze": true}), None),
            (json!({}), program()),
        ] {
            let asked = NewModel {
                name: "shapes".to_owned(),
                dataset: crate::model::DatasetId::new(),
                config: json!({"network": network, "epochs": 7, "batch_size": 16, "seed": 3,
                    "optimizer": {"name": "sgd", "weight_decay": 0.01},
                    "learning_rate": {"base": 0.01, "policy": "multistep", "steps": [30, 60], "warm_up": 0},
                    "augmentation": {"flip_horizontal": true, "shift": 0.1}, "precision": "mixed_bfloat16"}),
                program,
                environment: Some("default".to_owned()),
                group: Some("vision".to_owned()),
                resources: Some(Resources { cpus: 4, memory_bytes: 8 << 30, gpus: 1, ..Resources::default() }),
                profile: None,
                nodes: Some(2),
                time_limit_seconds: Some(5400),
            };
            let again = request(&typed(asked.clone(), "key".to_owned()), asked.dataset);
            for (field, value) in asked.config.as_object().unwrap() {
                for (name, value) in value.as_object().into_iter().flatten() {
                    assert_eq!(&again.config[field][name], value, "{field}.{name}");
                }
                assert!(value.is_object() || &again.config[field] == value, "{field}");
            }
            assert_eq!(
                (again.program, again.resources, again.nodes, again.time_limit_seconds, again.group),
                (asked.program, asked.resources, asked.nodes, asked.time_limit_seconds, asked.group)
            );
        }
    }
}
