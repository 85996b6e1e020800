//! Hyper-parameters as objects of JSON, from where writers put them: the plug-in's records in
//! event files (`HParamsPluginData` of TensorBoard's `plugin_data.proto`), and `hparams.yaml` beside
//! them, as Lightning writes it. What is no number, word or truth is shown as its text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use super::wire::{Fields, Malformed, Value as Field};

/// What a record of the plug-in says; empty where it holds no hyper-parameters, `None` where it is
/// too large or not well-formed.
pub(super) fn of_plugin(content: &[u8]) -> Option<Vec<u8>> {
    let mut found = Map::new();
    plugin(content, &mut found).ok()?;
    written(&found)
}

/// What the text of a `hparams.yaml` says.
pub(super) fn of_yaml(text: &str) -> Option<Vec<u8>> {
    written(&yaml(text))
}

fn written(found: &Map<String, Value>) -> Option<Vec<u8>> {
    serde_json::to_vec(found).ok().filter(|object| object.len() <= super::log::MAX_HPARAM_BYTES)
}

fn plugin(content: &[u8], found: &mut Map<String, Value>) -> Result<(), Malformed> {
    for field in Fields(content) {
        // `session_start_info`
        let (3, Field::Bytes(session)) = field? else { continue };
        for field in Fields(session) {
            // `hparams`, an entry of a map.
            let (1, Field::Bytes(entry)) = field? else { continue };
            let (mut name, mut value) = (String::new(), Value::Null);
            for field in Fields(entry) {
                match field? {
                    (1, Field::Bytes(bytes)) => name = String::from_utf8_lossy(bytes).into_owned(),
                    (2, Field::Bytes(bytes)) => value = well_known(bytes)?,
                    _ => {}
                }
            }
            found.insert(name, value);
        }
    }
    Ok(())
}

/// A `google.protobuf.Value`; lists and structures are not looked into.
fn well_known(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut value = Value::Null;
    for field in Fields(bytes) {
        value = match field? {
            (2, Field::Fixed64(bytes)) => number(f64::from_le_bytes(bytes)),
            (3, Field::Bytes(text)) => Value::String(String::from_utf8_lossy(text).into_owned()),
            (4, Field::Varint(truth)) => Value::Bool(truth != 0),
            _ => continue,
        };
    }
    Ok(value)
}

/// Whole numbers as such; what is no number for JSON as its name.
fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "whole and small, as looked at here")]
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Value::Number((value as i64).into());
    }
    Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number)
}

/// The most levels of mappings that are joined.
const MAX_DEPTH: usize = 32;

/// Scalars of a document, those of deeper mappings with their keys joined by “/”, as far as `yaml.dump` of a flat or
/// nested mapping goes. Lists are left out. The fields of an object of Python are below the name that it has, whatever
/// its tag.
fn yaml(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    // Of a key that is there twice the last counts, as with PyYAML.
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    if let Ok(Node::Mapping(entries)) = serde_saphyr::from_str_with_options::<Node>(text, options) {
        gather(&entries, "", 0, &mut found);
    }
    found
}

fn gather(entries: &[(String, Node)], prefix: &str, depth: usize, found: &mut Map<String, Value>) {
    for (name, node) in entries {
        let name = format!("{prefix}{name}");
        match node {
            Node::Mapping(entries) if depth < MAX_DEPTH => gather(entries, &format!("{name}/"), depth + 1, found),
            Node::Scalar(value) => drop(found.insert(name, value.clone())),
            Node::Mapping(_) | Node::List => {}
        }
    }
}

/// A value of YAML.
#[derive(Clone, Debug)]
enum Node {
    Scalar(Value),
    Mapping(Vec<(String, Node)>),
    List,
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(number(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(Value::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Node::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry::<String, Node>()? {
            found.push(entry);
        }
        Ok(Node::Mapping(found))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_as_lightning_writes_it_is_read() {
        let text = "# by hand\nlr: 0.001\nbatch_size: 64\nname: 'a: b'\nuse_amp: true\nnone: null\n\
            optimizer:\n  kind: adam\n  betas:\n  - 0.9\n  - 0.999\n  eps: 1.0e-08\nlast: 1e-3\n\
            quoted: 'it''s'\ncity: \"M\\xFCnchen\"\nepochs: 5  # five\nflow: {a: 1, b: [2]}\n\
            opt: !!python/object:torch.optim.Adam\n  lr: 0.1\n  state: !!python/tuple [1, 2]\n";
        let expected = json!({"lr": 0.001, "batch_size": 64, "name": "a: b", "use_amp": true, "none": null,
            "optimizer/kind": "adam", "optimizer/eps": 1e-8, "last": 0.001,
            "quoted": "it's", "city": "München", "epochs": 5, "flow/a": 1, "opt/lr": 0.1});
        assert_eq!(Value::Object(yaml(text)), expected);
    }

    #[test]
    fn numbers_that_json_lacks_are_shown() {
        assert_eq!(number(f64::NAN), json!("NaN"));
        assert_eq!((number(3.0), number(0.5), number(1e300)), (json!(3), json!(0.5), json!(1e300)));
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
            let _ = of_plugin(&bytes);
            let _ = of_yaml(&text);
            let _ = of_yaml(&text.replace(' ', ": "));
        }
    }
}
