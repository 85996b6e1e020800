//! Values of JSON as programs write them rather than as a format wants them: a number as a
//! text, a truth as a number, `null` for nothing. An odd value costs the one thing that it
//! belongs to, and never the document.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// A scalar of any type. Lists and objects are passed over.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loose {
    #[default]
    Null,
    Bool(bool),
    Whole(i64),
    Float(f64),
    Text(String),
}

/// What identifies an image or a category.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    Number(i64),
    Text(Box<str>),
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(to),
            Self::Text(text) => text.fmt(to),
        }
    }
}

impl Loose {
    /// An identifier: 3, 3.0 and "3" are the same.
    pub fn id(&self) -> Option<Id> {
        match self {
            Self::Null => None,
            Self::Bool(value) => Some(Id::Number((*value).into())),
            Self::Whole(value) => Some(Id::Number(*value)),
            Self::Float(value) => whole(*value).map(Id::Number),
            Self::Text(text) => {
                let number = text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
                Some(number.map_or_else(|| Id::Text(text.as_str().into()), Id::Number))
            }
        }
    }

    /// A number; NaN where there is none.
    pub fn number(&self) -> f64 {
        match self {
            Self::Null | Self::Bool(_) => f64::NAN,
            #[expect(clippy::cast_precision_loss, reason = "no picture is so large")]
            Self::Whole(value) => *value as f64,
            Self::Float(value) => *value,
            Self::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
        }
    }

    /// A positive whole number below 2^32.
    pub fn size(&self) -> Option<u32> {
        whole(self.number()).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
    }

    /// Whether it says yes.
    pub fn flag(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Text(text) => matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes"),
            other => other.number() != 0.0,
        }
    }

    /// Its text, on one line.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.replace(['\n', '\r'], " ")),
            Self::Bool(value) => Some(value.to_string()),
            Self::Whole(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
        }
    }
}

fn whole(value: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and small, as looked at here")]
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Loose;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Loose, E> {
        Ok(Loose::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Loose, E> {
        Ok(Loose::Whole(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Loose, E> {
        #[expect(clippy::cast_precision_loss, reason = "numbers of that size are no sizes of ours")]
        Ok(i64::try_from(value).map_or(Loose::Float(value as f64), Loose::Whole))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Loose, E> {
        Ok(Loose::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Loose, E> {
        Ok(Loose::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_none<E>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Loose, D::Error> {
        from.deserialize_any(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Loose, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Loose::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Loose, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Loose::Null)
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

/// Numbers of a list, NaN for what is none; nothing where there is no list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(pub Option<Vec<f64>>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Nested::deserialize(from).map(|nested| match nested {
            Nested::List(items) => Self(Some(items.iter().map(Nested::number).collect())),
            _ => Self(None),
        })
    }
}

/// Lists in lists, as outlines are written, and the objects of run-length masks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Nested {
    #[default]
    Nothing,
    Value(Loose),
    List(Vec<Nested>),
    Object(Vec<(String, Nested)>),
}

impl Nested {
    pub fn number(&self) -> f64 {
        if let Self::Value(value) = self { value.number() } else { f64::NAN }
    }

    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn items(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { &[] }
    }

    pub fn text(&self) -> Option<String> {
        if let Self::Value(value) = self { value.text() } else { None }
    }
}

struct AnyNested;

impl<'de> Visitor<'de> for AnyNested {
    type Value = Nested;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Nested, E> {
        Ok(Nested::Value(Loose::Bool(value)))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Nested, E> {
        Any.visit_i64(value).map(Nested::Value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Nested, E> {
        Any.visit_u64(value).map(Nested::Value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Nested, E> {
        Ok(Nested::Value(Loose::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Nested, E> {
        Ok(Nested::Value(Loose::Text(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Nested, E> {
        Ok(Nested::Nothing)
    }

    fn visit_none<E>(self) -> Result<Nested, E> {
        Ok(Nested::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Nested, D::Error> {
        from.deserialize_any(Self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Nested, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            found.push(item);
        }
        Ok(Nested::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Nested, A::Error> {
        let mut found = Vec::new();
        while let Some((key, value)) = entries.next_entry::<String, Nested>()? {
            found.push((key, value));
        }
        Ok(Nested::Object(found))
    }
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyNested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loose(json: &str) -> Loose {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn values_of_every_type_are_what_they_mean() {
        for same in ["100", "100.0", "\"100\"", "1e2"] {
            assert_eq!(loose(same).id(), Some(Id::Number(100)), "{same}");
            assert_eq!(loose(same).size(), Some(100), "{same}");
        }
        assert_eq!(loose("\"007\"").id(), Some(Id::Text("007".into())));
        assert_eq!(
            (loose("null").id(), loose("-1").size(), loose("0.5").size(), loose("[1]").size()),
            (None, None, None, None)
        );
        assert!((loose("18446744073709551615").number() / 18_446_744_073_709_551_615.0 - 1.0).abs() < 1e-9);
        assert!(loose("true").flag() && loose("\"1\"").flag() && loose("1.0").flag());
        assert!(!(loose("false").flag() || loose("null").flag() || loose("\"0\"").flag() || loose("0").flag()));
        assert_eq!(serde_json::from_str::<Numbers>("[1, \"2\", null, [3]]").unwrap().0.unwrap()[..2], [1.0, 2.0]);
        assert_eq!(serde_json::from_str::<Numbers>("\"no\"").unwrap().0, None);
    }
}
