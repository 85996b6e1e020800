//! Operations: their names in the verb-noun form, the descriptions of their parameters, the errors that all of their
//! kind can return, and binary bodies.

use serde_json::{Value, json};

use super::{Described, Glossary, has_description, object};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const PREFIX: &str = "/api/v1";
const PROBLEM: &str = "application/problem+json";
/// Last parts of an address that are verbs.
const VERBS: [&str; 14] = [
    "build", "cancel", "clone", "dismiss", "extend", "finish", "keep", "offboard", "pause", "preview", "pull",
    "restore", "resume", "stop",
];
/// Changes that `If-Match` can be sent with.
const CONDITIONAL: [&str; 8] = [
    "update_announcement",
    "update_maintenance",
    "update_user",
    "update_group",
    "change_cluster_quota",
    "change_default_quota",
    "change_group_quota",
    "change_user_quota",
];
/// Collections whose items have UUIDs.
const UUIDS: [&str; 9] =
    ["announcements", "datasets", "diagnostics", "jobs", "models", "runs", "sessions", "sweeps", "tokens"];

pub(super) fn complete(document: &mut Value, glossary: &mut Glossary) {
    for (path, item) in object(document, "paths") {
        for method in METHODS {
            if let Some(operation) = item.get_mut(method) {
                complete_one(operation, method, path.strip_prefix(PREFIX).unwrap_or(path), glossary);
            }
        }
    }
}

fn complete_one(operation: &mut Value, method: &str, path: &str, glossary: &mut Glossary) {
    let address = format!("{method} {path}");
    let name = match glossary.words.operations.get(&address).cloned() {
        Some(name) => {
            glossary.mark("operations", &address);
            name
        }
        None => name(method, path),
    };
    operation["operationId"] = json!(name);
    if !has_description(operation) {
        glossary.faults.push(format!("{address}: the operation has no description"));
    }
    for tag in operation["tags"].as_array().cloned().unwrap_or_default() {
        glossary.mark("tags", tag.as_str().unwrap_or_default());
    }
    let is_conditional = CONDITIONAL.contains(&name.as_str());
    if is_conditional {
        let parameters = parameters_of(operation);
        parameters.push(json!({
            "name": "If-Match", "in": "header", "required": false, "schema": { "type": "string" },
            "description": "The `ETag` that the resource had when you read it. If it has changed since, nothing is done.",
        }));
    }
    let mut has_query = false;
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        has_query |= parameter["in"] == "query";
        complete_parameter(parameter, path, &name, glossary);
    }
    // `security(())` of a handler: whoever asks.
    let is_public = operation["security"].as_array().is_some_and(|all| all.iter().any(|one| *one == json!({})));
    let has_body = operation.get("requestBody").is_some();
    let responses = object(operation, "responses");
    let common = [
        ("400", true),
        ("401", !is_public),
        ("403", !is_public),
        ("404", path.contains('{')),
        ("412", is_conditional),
        ("413", has_body),
        ("422", has_query || has_body),
        ("default", true),
    ];
    for (status, _) in common.iter().filter(|(_, applies)| *applies) {
        responses.entry(*status).or_insert_with(|| json!({}));
    }
    for (status, response) in responses {
        if !has_description(response) {
            response["description"] = json!(meaning(status));
        }
        if status.starts_with(['4', '5']) || status == "default" {
            response["content"] = json!({ PROBLEM: { "schema": { "$ref": "#/components/schemas/Problem" } } });
        }
        for (kind, body) in response.get_mut("content").and_then(Value::as_object_mut).into_iter().flatten() {
            mark_binary(kind, body);
        }
    }
    let content = operation.get_mut("requestBody").and_then(|body| body.get_mut("content"));
    for (kind, body) in content.and_then(Value::as_object_mut).into_iter().flatten() {
        mark_binary(kind, body);
    }
}

fn complete_parameter(parameter: &mut Value, path: &str, operation: &str, glossary: &mut Glossary) {
    let name = parameter["name"].as_str().unwrap_or_default().to_owned();
    let key = format!("{operation}.{name}");
    if !has_description(parameter) {
        let text = glossary.describe(Described::Parameter, &key, &name).or_else(|| item_of(path, &name));
        match text {
            Some(text) => parameter["description"] = json!(text),
            None => glossary.faults.push(format!("{key}: the parameter has no description")),
        }
    }
    let is_in_path = parameter["in"] == "path";
    let schema = &mut parameter["schema"];
    if let Some(values) = glossary.words.parameter_enums.get(&key).cloned() {
        glossary.mark("parameter_enums", &key);
        schema["enum"] = json!(values);
    }
    if is_in_path && name == "id" && UUIDS.contains(&collection_before(path, "id").unwrap_or_default()) {
        schema["format"] = json!("uuid");
    }
}

fn parameters_of(operation: &mut Value) -> &mut Vec<Value> {
    if !operation["parameters"].is_array() {
        operation["parameters"] = json!([]);
    }
    operation["parameters"].as_array_mut().expect("it is a list")
}

/// The collection that a path parameter selects from.
fn collection_before<'a>(path: &'a str, parameter: &str) -> Option<&'a str> {
    let before = path.split(&format!("/{{{parameter}}}")).next().filter(|before| before.len() < path.len())?;
    before.rsplit('/').next()
}

/// Describes an id by the noun of its collection.
fn item_of(path: &str, parameter: &str) -> Option<String> {
    let collection = collection_before(path, parameter)?;
    (parameter == "id").then(|| format!("Id of the {}.", singular(collection).replace('-', " ")))
}

/// Bytes are not an array of numbers.
fn mark_binary(kind: &str, body: &mut Value) {
    let is_text = kind.starts_with("text/") || kind.ends_with("json");
    if !is_text {
        body["schema"] = json!({ "type": "string", "format": "binary" });
    }
}

/// What a status means, where the operation does not say it.
fn meaning(status: &str) -> &'static str {
    match status {
        "200" => "The result",
        "201" => "Created",
        "202" => "Accepted: it will be done",
        "204" => "Done",
        "206" => "A part of the content",
        "304" => "Not changed",
        "400" => "The request is malformed",
        "401" => "Not signed in, or the token is not valid",
        "403" => "Not allowed for this user or this token",
        "404" => "Not found, or not visible to you",
        "409" => "Conflicts with the current state",
        "412" => "Changed by another request in the meantime",
        "413" => "The body is too large",
        "416" => "There is no such part",
        "422" => "A field or parameter has an invalid value",
        "429" => "Too many requests; `Retry-After` says when to try again",
        "503" => "A required service is unavailable; `Retry-After` says when to try again",
        _ => "Any other error",
    }
}

/// The name of an operation: a verb, and the nouns of its address.
fn name(method: &str, path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_item = parts.last().is_some_and(|last| last.starts_with('{'));
    let mut nouns: Vec<&str> = parts.into_iter().filter(|part| !part.starts_with('{')).collect();
    let last = nouns.last().copied().unwrap_or_default();
    let (verb, is_list) = match method {
        "post" if VERBS.contains(&last) => (nouns.pop().unwrap_or_default(), false),
        "get" if !is_item && last.ends_with('s') => ("list", true),
        "get" => ("get", false),
        "post" => ("create", false),
        "put" => ("set", false),
        "patch" => ("update", false),
        _ => ("delete", false),
    };
    let count = nouns.len();
    let nouns = nouns.into_iter().enumerate().map(|(place, noun)| match noun {
        "me" if count > 1 => "my".to_owned(),
        noun if is_list && place + 1 == count => noun.to_owned(),
        noun => singular(noun),
    });
    let words: Vec<String> = std::iter::once(verb.to_owned()).chain(nouns).collect();
    words.join("_").replace(['-', '.'], "_")
}

fn singular(noun: &str) -> String {
    match noun.strip_suffix('s') {
        Some(stem) if !noun.ends_with("ss") && !noun.ends_with("us") => stem.to_owned(),
        _ => noun.to_owned(),
    }
}
