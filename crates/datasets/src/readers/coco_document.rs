//! One of COCO's documents, streamed: what it says of images, categories and annotations, with
//! numbers in place of identifiers. Values are taken in any type that means something, and what
//! cannot be used is counted by its reason.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, BufReader, Read},
    marker::PhantomData,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::super::{
    json::Sane,
    loose::{Id, Loose, Nested, Numbers},
    regions::{self, Placed, Region, Writer},
    store, text,
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Image {
    id: Loose,
    file_name: Loose,
    width: Loose,
    height: Loose,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Category {
    id: Loose,
    name: Loose,
}

/// An annotation, with its region where one is wanted.
#[derive(Default, Deserialize)]
#[serde(default, bound = "S: Default + Deserialize<'de>")]
struct Annotation<S> {
    image_id: Loose,
    category_id: Loose,
    bbox: Numbers,
    iscrowd: Loose,
    segmentation: S,
}

/// A value that is passed over without being kept.
#[derive(Default)]
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self)
    }
}

/// What an annotation says of its region.
trait Outline: Default {
    fn nested(self) -> Option<Nested>;
}

impl Outline for Skipped {
    fn nested(self) -> Option<Nested> {
        None
    }
}

impl Outline for Nested {
    fn nested(self) -> Option<Nested> {
        Some(self)
    }
}

/// An annotation before its image and category are known.
pub struct Marked {
    pub image: u32,
    pub category: u32,
    pub is_crowd: bool,
    pub place: Place,
}

/// Where it is: there are a million annotations, and each keeps only what is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// x, y, width and height; not a number where they are not four numbers.
    Rectangle([f64; 4]),
    NoRectangle,
    Region(Placed),
    /// It was counted and not kept.
    NoRegion,
}

/// Images and annotations of one document.
#[derive(Default)]
pub struct Document<'a> {
    pub images: Vec<(String, Option<(u32, u32)>)>,
    pub places: HashMap<Id, u32>,
    /// For each place, which of `images` it is; an annotation may name it before.
    pub known: Vec<Option<u32>>,
    pub categories: Vec<(Id, String)>,
    pub category_places: HashMap<Id, u32>,
    pub marked: Vec<Marked>,
    pub faults: BTreeMap<String, usize>,
    has_images: bool,
    writer: Option<&'a mut Writer>,
    /// Why a region could not be kept.
    pub failed: Option<io::Error>,
}

impl Document<'_> {
    fn place(&mut self, id: Id) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(id).or_insert(next);
        if place == next {
            self.known.push(None);
        }
        place
    }

    fn fault(&mut self, text: impl Into<String>) {
        *self.faults.entry(text.into()).or_default() += 1;
    }

    fn image(&mut self, image: &Image) {
        let Some(name) = image.file_name.text().filter(|name| !name.is_empty()) else {
            return self.fault("an image has no file_name");
        };
        let at = u32::try_from(self.images.len()).unwrap_or(u32::MAX);
        self.images.push((name, image.width.size().zip(image.height.size())));
        let Some(id) = image.id.id() else { return self.fault("an image has no id") };
        let place = self.place(id) as usize;
        if self.known[place].is_some() {
            self.fault("two images have the same id; annotations belong to the first");
        } else {
            self.known[place] = Some(at);
        }
    }

    fn category(&mut self, category: &Category) {
        match category.id.id() {
            Some(id) => {
                let name = category.name.text().filter(|name| !name.is_empty()).unwrap_or_else(|| id.to_string());
                self.categories.push((id, name));
            }
            None => self.fault("a category has no id"),
        }
    }

    fn annotation<S: Outline>(&mut self, found: Annotation<S>) {
        let Some(image) = found.image_id.id() else { return self.fault("an annotation has no image_id") };
        let image = self.place(image);
        let next = u32::try_from(self.category_places.len()).unwrap_or(u32::MAX);
        let category = found.category_id.id().unwrap_or(Id::Text("null".into()));
        let category = *self.category_places.entry(category).or_insert(next);
        let is_crowd = found.iscrowd.flag();
        let place = match (found.segmentation.nested(), found.bbox.0.as_deref()) {
            (Some(nested), _) => match regions::of_coco(&nested) {
                Ok(Some(region)) => self.write(&region).map_or(Place::NoRegion, Place::Region),
                Ok(None) => return self.fault("an annotation has no segmentation"),
                Err(reason) => return self.fault(format!("an annotation is not used: {reason}")),
            },
            (None, None | Some([])) => Place::NoRectangle,
            (None, Some(numbers)) => Place::Rectangle(numbers.try_into().unwrap_or([f64::NAN; 4])),
        };
        self.marked.push(Marked { image, category, is_crowd, place });
    }

    fn write(&mut self, region: &Region) -> Option<Placed> {
        match self.writer.as_mut()?.put(regions::UNKNOWN, region) {
            Ok(placed) => Some(placed),
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }
}

/// Reads the parts of a document.
struct Parts<'a, 'b, S>(&'a mut Document<'b>, PhantomData<S>);

impl<'de, S: Outline + Deserialize<'de>> DeserializeSeed<'de> for Parts<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, S: Outline + Deserialize<'de>> Visitor<'de> for Parts<'_, '_, S> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object with images, annotations and categories")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let to = self.0;
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "images" => {
                    to.has_images = true;
                    entries.next_value_seed(Each(&mut |image| to.image(&image)))?;
                }
                "categories" => entries.next_value_seed(Each(&mut |category| to.category(&category)))?,
                "annotations" => entries.next_value_seed(Each(&mut |one: Annotation<S>| to.annotation(one)))?,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Hands each element of a list on.
struct Each<'a, T>(&'a mut dyn FnMut(T));

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Each<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<'_, T> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Option<T>>()? {
            item.into_iter().for_each(&mut *self.0);
        }
        Ok(())
    }
}

/// Reads one document, or returns why it is not a COCO document. Regions go to the writer, if there is one.
pub fn parse<'a>(reader: &mut dyn Read, writer: Option<&'a mut Writer>) -> Result<Document<'a>, String> {
    let failed = |error: io::Error| format!("cannot read it: {error}");
    let mut start = Vec::new();
    reader.take(3).read_to_end(&mut start).map_err(failed)?;
    if matches!(start.as_slice(), [0xFF, 0xFE, _] | [0xFE, 0xFF, _]) {
        // UTF-16 is seldom and not long.
        reader.take(store::MAX_FILE_SIZE).read_to_end(&mut start).map_err(failed)?;
        let whole = text::decode(&start)?;
        return parse_from(whole.as_bytes(), writer);
    }
    let start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&start);
    parse_from(start.chain(reader), writer)
}

fn parse_from(from: impl Read, writer: Option<&mut Writer>) -> Result<Document<'_>, String> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 * 1024, Sane::new(from)));
    let with_regions = writer.is_some();
    let mut document = Document { writer, ..Document::default() };
    let read = if with_regions {
        Parts::<Nested>(&mut document, PhantomData).deserialize(&mut json)
    } else {
        Parts::<Skipped>(&mut document, PhantomData).deserialize(&mut json)
    };
    read.and_then(|()| json.end())
        .map_err(|error| format!("not a COCO document: {}", text::short(&error.to_string())))?;
    if document.has_images { Ok(document) } else { Err("not a COCO document: it has no `images`".to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> Result<Document<'static>, String> {
        parse(&mut text.as_bytes(), None)
    }

    #[test]
    fn values_of_any_type_and_parts_in_any_order() {
        let found = document(
            r#"{"annotations": [
                {"image_id": "5", "category_id": 1.0, "bbox": ["1", 2, 3.5, 4], "iscrowd": null, "area": NaN},
                {"image_id": 5, "category_id": "1", "bbox": [NaN, 1, 2, 3], "iscrowd": false}, null, {"category_id": 1}],
                "info": {"year": Infinity}, "categories": [{"id": true, "name": 7}],
                "images": [{"id": 5.0, "file_name": "a.png", "width": "100", "height": 50.0}, {"id": 6}]}"#,
        )
        .unwrap();
        assert_eq!(found.images, [("a.png".to_owned(), Some((100, 50)))]);
        let [one, other] = &found.marked[..] else { panic!("two annotations") };
        assert_eq!(
            (one.place, one.image, one.category),
            (Place::Rectangle([1.0, 2.0, 3.5, 4.0]), other.image, other.category)
        );
        assert!(matches!(other.place, Place::Rectangle([x, ..]) if x.is_nan()));
        assert_eq!(found.known, [Some(0)]);
        assert_eq!(found.categories, [(Id::Number(1), "7".to_owned())]);
        let faults: Vec<&str> = found.faults.keys().map(String::as_str).collect();
        assert_eq!(faults, ["an annotation has no image_id", "an image has no file_name"]);
    }

    #[test]
    fn what_is_no_document_says_why() {
        for wrong in ["", "[]", "{}", "{\"images\": 3}", "{\"images\": []", "{\"images\": []} x", "<html>"] {
            assert!(document(wrong).is_err_and(|reason| reason.starts_with("not a COCO document")), "{wrong}");
        }
        assert!(document("\u{feff}{\"images\": []}").is_ok());
        let wide: Vec<u8> = "\u{feff}{\"images\": []}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(parse(&mut wide.as_slice(), None).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}:,\"a-zI0-9.\\- ]{0,80}") {
            let _ = parse(&mut bytes.as_slice(), None);
            let _ = document(&format!("{{\"images\": [{text}], \"annotations\": {text}}}"));
        }
    }
}
