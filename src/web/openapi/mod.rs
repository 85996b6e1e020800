//! The OpenAPI document, made from the routes and completed here: what the code cannot say about itself, and what is
//! alike for all operations. `words.toml` holds names and descriptions, `schemas` makes the schemas say what answers
//! contain. A word that nothing uses, or a part without a word, is a fault that a test reports.

mod operations;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The content of `words.toml`: keys are names, `Schema.property`, `operation.parameter` or `method /path`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    properties: BTreeMap<String, String>,
    schema_properties: BTreeMap<String, String>,
    schemas: BTreeMap<String, String>,
    parameters: BTreeMap<String, String>,
    operation_parameters: BTreeMap<String, String>,
    enums: BTreeMap<String, Vec<String>>,
    parameter_enums: BTreeMap<String, Vec<String>>,
    omitted: BTreeMap<String, Vec<String>>,
    types: BTreeMap<String, Vec<String>>,
    tags: BTreeMap<String, String>,
    operations: BTreeMap<String, String>,
}

/// The words, those that were used, and what had none.
struct Glossary {
    words: Words,
    used: BTreeSet<String>,
    faults: Vec<String>,
}

impl Glossary {
    fn new() -> Self {
        let words = toml::from_str(include_str!("words.toml")).expect("words.toml fits its type");
        Self { words, used: BTreeSet::new(), faults: Vec::new() }
    }

    /// Marks an entry of a table as used.
    fn mark(&mut self, table: &str, key: &str) {
        self.used.insert(format!("{table}: {key}"));
    }

    /// What the two of them say, the particular one before the general one.
    fn describe(&mut self, kind: Described, particular: &str, general: &str) -> Option<String> {
        let words = &self.words;
        let (name, table, other_name, other) = match kind {
            Described::Property => ("schema_properties", &words.schema_properties, "properties", &words.properties),
            Described::Parameter => {
                ("operation_parameters", &words.operation_parameters, "parameters", &words.parameters)
            }
        };
        let (table, key, text) = match (table.get(particular), other.get(general)) {
            (Some(text), _) => (name, particular, text.clone()),
            (None, Some(text)) => (other_name, general, text.clone()),
            (None, None) => return None,
        };
        self.mark(table, key);
        Some(text)
    }

    /// The entries that nothing used.
    fn unused(&self) -> Vec<String> {
        let words = &self.words;
        let texts = [
            ("properties", &words.properties),
            ("schema_properties", &words.schema_properties),
            ("schemas", &words.schemas),
            ("parameters", &words.parameters),
            ("operation_parameters", &words.operation_parameters),
            ("tags", &words.tags),
            ("operations", &words.operations),
        ];
        let lists = [
            ("enums", &words.enums),
            ("parameter_enums", &words.parameter_enums),
            ("omitted", &words.omitted),
            ("types", &words.types),
        ];
        let texts = texts.into_iter().flat_map(|(table, map)| map.keys().map(move |key| format!("{table}: {key}")));
        let lists = lists.into_iter().flat_map(|(table, map)| map.keys().map(move |key| format!("{table}: {key}")));
        let unused = texts.chain(lists).filter(|entry| !self.used.contains(entry));
        unused.map(|entry| format!("words.toml, {entry}: nothing uses it")).collect()
    }
}

#[derive(Clone, Copy)]
enum Described {
    Property,
    Parameter,
}

/// Completes a document made from the routes, and returns what is missing in it: nothing, as a test makes sure.
pub(super) fn complete(document: &mut Value, version: &str, quota_fields: &[String]) -> Vec<String> {
    let mut glossary = Glossary::new();
    schemas::complete(document, &mut glossary, quota_fields);
    operations::complete(document, &mut glossary);

    document["info"] = json!({
        "title": "Lyceum",
        "version": version,
        "description": "Everything that the portal's pages do is also available in this API. Errors are problem \
                        documents (RFC 9457).",
        "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
    });
    document["servers"] = json!([{ "url": "/", "description": "This portal" }]);
    let tags: Vec<Value> =
        glossary.words.tags.iter().map(|(name, text)| json!({ "name": name, "description": text })).collect();
    document["tags"] = Value::Array(tags);
    document["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "A token, from *Settings* or `POST /tokens`." },
        "login": {
            "type": "apiKey", "in": "cookie", "name": "lyceum_login",
            "description": "A browser's login. Changes require proof of origin.",
        },
    });
    document["security"] = json!([{ "token": [] }, { "login": [] }]);
    let mut faults = glossary.unused();
    faults.append(&mut glossary.faults);
    faults
}

/// The object at a key, made where there is none.
fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value[key].is_object() {
        value[key] = json!({});
    }
    value[key].as_object_mut().expect("it is an object")
}

fn has_description(value: &Value) -> bool {
    value["description"].as_str().is_some_and(|text| !text.trim().is_empty())
}
