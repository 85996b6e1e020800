//! Parts of a model's page: the models around it, and the layers that it is made of; and
//! `/models/previews/{id}`, which shows those layers before a training, with some of its pictures.

use askama::Template;

use crate::{
    model::{Model, size::human_size},
    models::{Layer, Layers, Lineage},
    web::page::{Layout, filters},
};

/// The most layers that are shown; the API has them all.
const MAX_LAYERS: usize = 300;

/// The models around one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineageRows {
    /// The first of all first.
    pub ancestors: Vec<Relative>,
    /// The latest first.
    pub children: Vec<Relative>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative {
    pub href: String,
    pub name: String,
    /// The snapshot that was gone on from.
    pub snapshot: String,
}

impl LineageRows {
    pub fn new(found: Lineage) -> Self {
        let row = |(one, snapshot): (Model, String)| Relative {
            href: format!("/models/{}", one.id),
            name: one.name,
            snapshot,
        };
        let child = |one: Model| {
            let snapshot = one.parent.clone().map(|(_, file)| file).unwrap_or_default();
            row((one, snapshot))
        };
        Self {
            ancestors: found.ancestors.into_iter().map(row).collect(),
            children: found.children.into_iter().map(child).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ancestors.is_empty() && self.children.is_empty()
    }
}

/// `/models/previews/{id}`
#[derive(Debug, Template)]
#[template(path = "models/preview.html")]
pub struct PreviewPage {
    pub layout: Layout,
    pub job: String,
    /// The address of what the page follows.
    pub api: String,
    /// `waiting`, `ready`, `failed`.
    pub state: &'static str,
    pub detail: String,
    pub pairs: Vec<PreviewPair>,
    pub layers: Option<LayerTable>,
}

/// A picture as it is and as the network will see it, by their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewPair {
    pub name: String,
    pub original: String,
    pub augmented: String,
}

/// What a network is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerTable {
    pub rows: Vec<LayerLine>,
    /// How many there are in all.
    pub count: usize,
    pub parameters: String,
    /// Multiply-accumulates for one picture.
    pub macs: String,
    /// What a training step takes.
    pub memory: String,
    pub batch_size: u64,
    /// Probable mistakes.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerLine {
    pub name: String,
    pub kind: String,
    pub shape: String,
    pub parameters: String,
    pub macs: String,
}

impl LayerTable {
    pub fn new(found: &Layers) -> Self {
        let line = |layer: &Layer| LayerLine {
            name: layer.name.clone(),
            kind: layer.kind.clone(),
            shape: shape(&layer.shape),
            parameters: grouped(layer.parameters),
            macs: grouped(layer.macs),
        };
        Self {
            rows: found.layers.iter().take(MAX_LAYERS).map(line).collect(),
            count: found.layers.len(),
            parameters: grouped(found.parameters.total),
            macs: grouped(found.macs),
            memory: human_size(i64::try_from(found.memory.total).unwrap_or(i64::MAX)),
            batch_size: found.batch_size,
            warnings: found.warnings.clone(),
        }
    }
}

/// `28 × 28 × 6`; of a layer with several outputs one behind the other.
fn shape(sides: &serde_json::Value) -> String {
    let Some(sides) = sides.as_array() else { return String::new() };
    if sides.iter().any(serde_json::Value::is_array) {
        return sides.iter().map(shape).collect::<Vec<_>>().join(", ");
    }
    let side = |side: &serde_json::Value| side.as_u64().map_or_else(|| "?".to_owned(), |side| side.to_string());
    sides.iter().map(side).collect::<Vec<_>>().join(" × ")
}

/// `1 234 567`, with narrow spaces that do not break.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shapes_and_numbers() {
        assert_eq!(shape(&json!([28, 28, 6])), "28 × 28 × 6");
        assert_eq!(shape(&json!([[1, 2], [null]])), "1 × 2, ?");
        assert_eq!(shape(&json!("x")), "");
        let spaced = |number| grouped(number).replace('\u{202f}', " ");
        assert_eq!(
            (spaced(7), spaced(999), spaced(61_706), spaced(1_234_567)),
            ("7".into(), "999".into(), "61 706".into(), "1 234 567".into())
        );
    }
}
