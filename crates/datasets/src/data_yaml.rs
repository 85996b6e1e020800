//! What Ultralytics calls `data.yaml`: names of classes, the images of each split, and the shape
//! of keypoints. YAML itself is read by a library; values are taken in the ways that people
//! write them, as lists, numbered, or on one line.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::text;

/// The highest number of a class.
const MAX_CLASSES: usize = 65_536;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DataYaml {
    pub names: Names,
    pub nc: Texts,
    pub kpt_shape: Texts,
    pub path: Texts,
    pub train: Texts,
    #[serde(alias = "valid", alias = "validation")]
    pub val: Texts,
    pub test: Texts,
}

impl DataYaml {
    /// Reads the document, or says what is wrong and where.
    pub fn parse(content: &str) -> Result<Self, String> {
        // Of a key that is there twice the last counts, as with PyYAML.
        let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
        serde_saphyr::from_str_with_options(content, options)
            .map_err(|error| format!("not valid YAML: {}", text::short(&error.to_string())))
    }

    /// Numbers of one keypoint object behind its box: `[points, 2 or 3]`.
    pub fn keypoints(&self) -> Option<(usize, usize)> {
        match self.kpt_shape.0.as_slice() {
            [points, each] => Some((points.parse().ok()?, each.parse().ok().filter(|each| matches!(each, 2 | 3))?)),
            _ => None,
        }
    }
}

/// The names of classes in their order; nothing where there is no such field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Names(pub Option<Vec<String>>);

/// One text or several; nothing for `null`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts(pub Vec<String>);

/// A scalar as it is written, whatever type it looks like.
struct Written(Option<String>);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<String>::deserialize(from).map(Self)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of names, or numbers with names")
    }

    fn visit_unit<E>(self) -> Result<Names, E> {
        Ok(Names(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
        let mut names = Vec::new();
        while let Some(Written(name)) = items.next_element()? {
            names.push(name.unwrap_or_else(|| names.len().to_string()));
        }
        Ok(Names(Some(names)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Names, A::Error> {
        let mut found: BTreeMap<usize, String> = BTreeMap::new();
        while let Some((Written(key), Written(name))) = entries.next_entry()? {
            let key = key.unwrap_or_default();
            let number: usize = key
                .trim()
                .parse()
                .map_err(|_not_a_number| A::Error::custom(format!("`names`: {key} is not the number of a class")))?;
            if number >= MAX_CLASSES {
                return Err(A::Error::custom(format!("`names`: {number} is too high for the number of a class")));
            }
            found.insert(number, name.unwrap_or_else(|| number.to_string()));
        }
        let count = found.keys().last().map_or(0, |last| last + 1);
        // A number without a name is named by its number.
        Ok(Names(Some((0..count).map(|number| found.remove(&number).unwrap_or_else(|| number.to_string())).collect())))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Self(names) = from.deserialize_any(NamesVisitor)?;
        let plain = |name: String| name.replace(['\n', '\r'], " ").trim().to_owned();
        Ok(Self(names.map(|names| names.into_iter().map(plain).collect())))
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a text or a list of texts")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Texts, E> {
        Ok(Texts(vec![value.to_string()]))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Texts, E> {
        Ok(Texts(vec![value.to_string()]))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Texts, E> {
        Ok(Texts(vec![value.to_string()]))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Texts, E> {
        Ok(Texts(vec![value.to_string()]))
    }

    fn visit_str<E>(self, value: &str) -> Result<Texts, E> {
        Ok(Texts(Some(value.to_owned()).filter(|value| !value.is_empty()).into_iter().collect()))
    }

    fn visit_unit<E>(self) -> Result<Texts, E> {
        Ok(Texts::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
        let mut found = Vec::new();
        while let Some(Written(text)) = items.next_element()? {
            found.extend(text);
        }
        Ok(Texts(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Texts, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Texts::default())
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(content: &str) -> Vec<String> {
        DataYaml::parse(content).unwrap_or_else(|error| panic!("{content}: {error}")).names.0.unwrap_or_default()
    }

    #[test]
    fn names_in_every_way_that_people_write_them() {
        for same in [
            "names: [cup, plate]\n",
            "nc: 2\nnames: ['cup', \"plate\"]\n",
            "names:\n- cup\n- plate\npath: x\n",
            "names: [x]\nnc: 2\nnames: [cup, plate]\n",
            "names:\n    - cup\n    - plate\n",
            "names:\n  1: plate\n  0: cup\n",
            "names: {0: cup, 1: plate}\n",
            "names: { '0': cup, \"1\": plate }\n",
            "names:  # two classes\n  0: cup\n  1: plate\n",
            "names:\n  0: cup  # with handle\n  1: plate\n",
            "names:\n  # crockery\n  0: cup\n\n  1: plate\n",
            "'names':\n  0: cup\n  1: plate\n",
            "{\"names\": [\"cup\", \"plate\"], \"nc\": 2}\n",
            "names: [\n  'cup',\n  'plate'\n]\n",
            "\u{feff}names:\r\n  0: cup\r\n  1: plate\r\n",
            "%YAML 1.2\n---\nnames: &n [cup, plate]\nother: *n\n",
            "---\nnames: !!seq [cup, plate]\nx: !!python/object:a.B {names: [z]}\n",
            "train: a\ntrain2: b\nnames: [\"cup\", \"pl\\u0061te\"]\nroboflow:\n  names: [wrong]\n",
        ] {
            assert_eq!(names(same), ["cup", "plate"], "{same}");
        }
        assert_eq!(names("names: ['cup, small', 'it''s', \"a: b\", '#5']\n"), ["cup, small", "it's", "a: b", "#5"]);
        assert_eq!(names("names: [0, 1, yes, no, 007, 1.50, ~]\n"), ["0", "1", "yes", "no", "007", "1.50", "6"]);
        assert_eq!(names("names: {0: a, 2: c}\n"), ["a", "1", "c"]);
        for wrong in
            ["names: cup\n", "names: {x: cup}\n", "names: {99999999: cup}\n", "names: [cup\n", "names: {-1: a}\n"]
        {
            assert!(DataYaml::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(DataYaml::parse("nc: 2\n").unwrap().names, Names(None));
    }

    #[test]
    fn splits_and_keypoints() {
        let found = DataYaml::parse(
            "path: ../datasets/coco\ntrain: [a, b.txt]\nval: images/val # 10\ntest:\nkpt_shape: [17, 3]\nflip_idx: [0, 2]\n",
        )
        .unwrap();
        assert_eq!(
            (found.train.0, found.val.0),
            (vec!["a".to_owned(), "b.txt".to_owned()], vec!["images/val".to_owned()])
        );
        assert_eq!((found.test.0.len(), found.path.0[0].as_str()), (0, "../datasets/coco"));
        let keypoints = |text: &str| DataYaml::parse(text).unwrap().keypoints();
        assert_eq!(keypoints("kpt_shape: [17, 3]\n"), Some((17, 3)));
        assert_eq!(
            (keypoints("kpt_shape: 3\n"), keypoints("kpt_shape: [4, 7]\n"), keypoints("a: 1\n")),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9:\\-\\[\\]{}'\"#&*!|> \n,]{0,120}") {
            let _ = DataYaml::parse(&text);
            let _ = DataYaml::parse(&format!("names:\n{text}"));
        }
    }
}
