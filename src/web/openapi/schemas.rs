//! Schemas: lists refer to their item, properties are described, and what only answers contain says which properties
//! are always there. The code's own annotations cannot say that an `Option` of an answer is written as null.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Described, Glossary, has_description, object};

const SCHEMA: &str = "#/components/schemas/";
/// Types that hold another one; the document has a copy of the inner schema in each.
const WRAPPERS: [(&str, &str); 2] = [("Listed_", "List"), ("NamedChange_", "ForGroup")];

pub(super) fn complete(document: &mut Value, glossary: &mut Glossary, quota_fields: &[String]) {
    refer_to_items(document);
    describe_quota_fields(document, quota_fields);
    let all = schemas(document).clone();
    for (_, schema) in schemas(document) {
        flatten(schema, &all);
    }
    let requests = used_in(document, &["parameters", "requestBody"]);
    let answers = used_in(document, &["responses"]);
    for (name, schema) in schemas(document) {
        let is_answer = answers.contains(name) && !requests.contains(name);
        let omitted = glossary.words.omitted.get(name).cloned().unwrap_or_default();
        if !omitted.is_empty() {
            glossary.mark("omitted", name);
        }
        if !has_description(schema) {
            match glossary.words.schemas.get(name).cloned() {
                Some(text) => {
                    glossary.mark("schemas", name);
                    schema["description"] = json!(text);
                }
                None => glossary.faults.push(format!("{name}: the schema has no description")),
            }
        }
        complete_object(schema, name, is_answer.then_some(&omitted), glossary);
    }
    for name in requests.union(&answers).filter(|name| document["components"]["schemas"].get(name.as_str()).is_none()) {
        glossary.faults.push(format!("{name}: there is no such schema"));
    }
    let used: BTreeSet<&String> = requests.union(&answers).collect();
    schemas(document).retain(|name, _| used.contains(name) || name == "Problem");
    open_maps(&mut document["components"]["schemas"]);
    open_maps(&mut document["paths"]);
}

/// Says of objects without declared properties that they may have any: generators take them for a map, and warn where
/// nothing is said.
fn open_maps(part: &mut Value) {
    match part {
        Value::Object(part) => {
            let types = part.get("type");
            let is_object = types.is_some_and(|types| {
                types == "object" || types.as_array().is_some_and(|types| types.contains(&json!("object")))
            });
            let declares = ["properties", "additionalProperties", "oneOf", "anyOf", "allOf"];
            if is_object && !declares.iter().any(|key| part.contains_key(*key)) {
                part.insert("additionalProperties".to_owned(), json!(true));
            }
            part.iter_mut().filter(|(key, _)| !key.starts_with("example")).for_each(|(_, value)| open_maps(value));
        }
        Value::Array(parts) => parts.iter_mut().for_each(open_maps),
        _ => {}
    }
}

fn schemas(document: &mut Value) -> &mut Map<String, Value> {
    object(&mut document["components"], "schemas")
}

/// Replaces the copy of a schema inside its list by a reference.
fn refer_to_items(document: &mut Value) {
    let all = schemas(document);
    let wrapped: Vec<(String, String, String)> = all
        .keys()
        .filter_map(|name| {
            let (prefix, suffix) = WRAPPERS.iter().find(|(prefix, _)| name.starts_with(prefix))?;
            let inner = &name[prefix.len()..];
            let suffix = if name.starts_with("NamedChange_Quota") { "ForUser" } else { suffix };
            Some((name.clone(), inner.to_owned(), format!("{inner}{suffix}")))
        })
        .collect();
    for (name, inner, new) in &wrapped {
        let Some(copy) = all.get(inner).cloned() else { continue };
        let Some(mut schema) = all.remove(name) else { continue };
        replace(&mut schema, &copy, &json!({ "$ref": format!("{SCHEMA}{inner}") }));
        all.insert(new.clone(), schema);
    }
    rename(document, &wrapped);
}

/// Replaces each part that equals `old`, apart from its description.
fn replace(value: &mut Value, old: &Value, new: &Value) {
    let bare = |value: &Value| {
        let mut value = value.clone();
        if let Some(object) = value.as_object_mut() {
            object.remove("description");
        }
        value
    };
    if value.is_object() && bare(value) == bare(old) {
        let description = value.get("description").filter(|text| Some(*text) != old.get("description")).cloned();
        *value = new.clone();
        if let Some(description) = description {
            value["description"] = description;
        }
        return;
    }
    match value {
        Value::Object(object) => object.values_mut().for_each(|part| replace(part, old, new)),
        Value::Array(parts) => parts.iter_mut().for_each(|part| replace(part, old, new)),
        _ => {}
    }
}

fn rename(value: &mut Value, names: &[(String, String, String)]) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref")
                && let Some((_, _, new)) =
                    names.iter().find(|(old, _, _)| reference.strip_prefix(SCHEMA) == Some(old.as_str()))
            {
                *reference = format!("{SCHEMA}{new}");
            }
            object.values_mut().for_each(|part| rename(part, names));
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| rename(part, names)),
        _ => {}
    }
}

/// The names of the schemas that these parts of the operations refer to, directly or not.
fn used_in(document: &Value, parts: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let items = document["paths"].as_object().into_iter().flatten();
    let operations = items.flat_map(|(_, item)| item.as_object().into_iter().flatten());
    for (_, operation) in operations {
        for part in parts {
            follow(&operation[*part], document, &mut found);
        }
    }
    found
}

fn follow(value: &Value, document: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            let name = object.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(SCHEMA));
            if let Some(name) = name
                && found.insert(name.to_owned())
            {
                follow(&document["components"]["schemas"][name], document, found);
            }
            object.values().for_each(|part| follow(part, document, found));
        }
        Value::Array(parts) => parts.iter().for_each(|part| follow(part, document, found)),
        _ => {}
    }
}

/// Makes one object of `allOf`, in a schema and in its choices: what `flatten` of serde writes is one.
fn flatten(schema: &mut Value, all: &Map<String, Value>) {
    for choice in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        flatten(choice, all);
    }
    let Some(parts) = schema.get("allOf").and_then(Value::as_array).cloned() else { return };
    let mut properties = Map::new();
    let mut required = Vec::new();
    for part in &parts {
        let name = part["$ref"].as_str().and_then(|text| text.strip_prefix(SCHEMA));
        let part = name.and_then(|name| all.get(name)).unwrap_or(part);
        // A flattened `Option`: all of its properties, or none.
        let choices = part["oneOf"].as_array();
        let is_optional = choices.is_some_and(|choices| choices.iter().any(|choice| choice["type"] == "null"));
        let chosen = choices.into_iter().flatten().find(|choice| is_optional && choice["type"] != "null");
        let object = chosen.unwrap_or(part);
        let Some(own) = object["properties"].as_object() else { return };
        properties.extend(own.clone());
        if !is_optional {
            required.extend(object["required"].as_array().cloned().unwrap_or_default());
        }
    }
    let target = schema.as_object_mut().expect("a schema is an object");
    target.remove("allOf");
    target.insert("type".to_owned(), json!("object"));
    target.insert("properties".to_owned(), Value::Object(properties));
    target.insert("required".to_owned(), Value::Array(required));
}

/// Describes the properties of an object and of the objects in it. `omitted` is there for what only answers contain.
fn complete_object(schema: &mut Value, name: &str, omitted: Option<&Vec<String>>, glossary: &mut Glossary) {
    if let Some(parts) = schema.as_object_mut() {
        for key in ["oneOf", "anyOf", "allOf"] {
            for part in parts.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                complete_object(part, name, omitted, glossary);
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(part) = parts.get_mut(key).filter(|part| part.is_object()) {
                complete_object(part, name, omitted, glossary);
            }
        }
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (key, property) in &mut *properties {
        let place = format!("{name}.{key}");
        complete_property(property, &place, key, glossary);
        complete_object(property, &place, omitted.map(|_| const { &Vec::new() }), glossary);
        if let Some(omitted) = omitted {
            // What is always written has no default, and what may be omitted is not written as null.
            if let Some(property) = property.as_object_mut() {
                property.remove("default");
            }
            if omitted.contains(key) {
                without_null(property);
            }
        }
    }
    if let Some(omitted) = omitted {
        let required: Vec<&String> = properties.keys().filter(|key| !omitted.contains(key)).collect();
        let required = json!(required);
        schema["required"] = required;
    }
    if schema["required"].as_array().is_some_and(Vec::is_empty) {
        schema.as_object_mut().expect("a schema is an object").remove("required");
    }
}

fn complete_property(property: &mut Value, place: &str, key: &str, glossary: &mut Glossary) {
    if let Some(types) = glossary.words.types.get(place).cloned() {
        glossary.mark("types", place);
        property["type"] = json!(types);
    }
    if let Some(values) = glossary.words.enums.get(place).cloned() {
        glossary.mark("enums", place);
        let choice = json!({ "type": "string", "enum": values });
        if property["type"].as_array().is_some_and(|types| types.contains(&json!("null"))) {
            let target = property.as_object_mut().expect("a property is an object");
            target.remove("type");
            target.insert("oneOf".to_owned(), json!([choice, { "type": "null" }]));
        } else {
            property["enum"] = choice["enum"].clone();
        }
    }
    if has_description(property) {
        return;
    }
    // An optional property has its description at the choice that is not null.
    let inner = property.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten();
    let inner = inner.filter_map(|choice| choice.as_object_mut()?.remove("description")).last();
    let text = inner.or_else(|| glossary.describe(Described::Property, place, key).map(Value::from));
    match text {
        Some(text) => property["description"] = text,
        None => glossary.faults.push(format!("{place}: the property has no description")),
    }
}

/// Takes null out of what a property may be.
fn without_null(property: &mut Value) {
    if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            property["type"] = only.clone();
        }
    }
    let Some(choices) = property.get_mut("oneOf").and_then(Value::as_array_mut) else { return };
    choices.retain(|choice| choice["type"] != "null");
    if let [only] = choices.as_slice() {
        let only = only.clone();
        let target = property.as_object_mut().expect("a property is an object");
        target.remove("oneOf");
        for (key, value) in only.as_object().cloned().unwrap_or_default() {
            target.entry(key).or_insert(value);
        }
    }
}

/// Names the fields of limits, which the code keeps as a map because there are as many as GPU models.
fn describe_quota_fields(document: &mut Value, fields: &[String]) {
    let amount = |text: &str| json!({ "type": ["integer", "null"], "minimum": -1, "description": text });
    let limits: Map<String, Value> = fields
        .iter()
        .map(|field| (field.clone(), amount("The limit; -1 is unlimited, null inherits it from the level above.")))
        .collect();
    let model = amount("`gpus:MODEL`: the limit for GPUs of one model.");
    // Apart, not one pattern of them all: a generator of examples finds a new name by the second alone.
    let names = |more: &[&str]| {
        let all: Vec<&str> = fields.iter().map(String::as_str).chain(more.iter().copied()).collect();
        json!({ "anyOf": [{ "type": "string", "enum": all }, { "type": "string", "pattern": "^gpus:.{1,64}$" }] })
    };
    let all = schemas(document);
    if let Some(schema) = all.get_mut("QuotaChange") {
        // The second part of `allOf` has the properties that are no fields.
        let own = schema["allOf"].as_array().into_iter().flatten().find_map(|part| part["properties"].as_object());
        let mut properties = own.cloned().unwrap_or_default();
        properties.extend(limits.clone());
        *schema = json!({
            "type": "object", "description": schema["description"], "properties": properties,
            "additionalProperties": model, "propertyNames": names(&["expires_at", "note"]),
        });
    }
    let (is_there, quota_fields) = (
        all.contains_key("GroupQuotaChange"),
        json!({
            "type": "object", "description": "Limits by field.", "properties": limits,
            "additionalProperties": model, "propertyNames": names(&[]),
        }),
    );
    if is_there {
        for key in ["each", "total"] {
            let description = all["GroupQuotaChange"]["properties"][key]["description"].clone();
            all["GroupQuotaChange"]["properties"][key] =
                json!({ "$ref": format!("{SCHEMA}QuotaFields"), "description": description });
        }
        all.insert("QuotaFields".to_owned(), quota_fields);
    }
}
