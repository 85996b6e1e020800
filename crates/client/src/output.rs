//! What commands print, in the format that was asked for. Commands write sentences and tables for people, or the JSON
//! of the API, one document a line; here that JSON becomes YAML, CSV or names. CSV has a line for each item of a list.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The responses of the API
    Json,
    /// The responses of the API as YAML
    Yaml,
    /// A line for each item, below the names of the columns
    Csv,
    /// The id or name of each item, and nothing else
    Name,
}

/// The options of every command that prints.
#[derive(Args, Clone, Debug, Default)]
pub struct Output {
    /// Print the responses of the API as JSON, the same as `--output json`
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results in this format instead of text
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub output: Option<Format>,
    /// Use this context of `lyceum login`
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

impl Output {
    /// Whether commands write JSON: for programs, or to be converted.
    pub(super) fn is_json(&self) -> bool {
        self.json || self.output.is_some()
    }

    pub(super) fn format(&self) -> Option<Format> {
        self.output.or(self.json.then_some(Format::Json))
    }
}

/// A writer that converts lines of JSON. What is not JSON, such as a log, passes unchanged.
pub(super) struct Converter<'a> {
    format: Option<Format>,
    out: &'a mut (dyn Write + Send),
    line: Vec<u8>,
    /// The columns of CSV that were printed last.
    columns: Vec<String>,
    documents: usize,
}

impl<'a> Converter<'a> {
    pub(super) fn new(format: Option<Format>, out: &'a mut (dyn Write + Send)) -> Self {
        Self { format, out, line: Vec::new(), columns: Vec::new(), documents: 0 }
    }

    /// Converts what was written after the last line break.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.convert()?;
        }
        self.out.flush()
    }

    fn convert(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let value: Option<Value> = serde_json::from_slice(&line).ok();
        match (self.format, value) {
            (Some(Format::Yaml), Some(value)) => self.yaml(&value),
            (Some(Format::Csv), Some(value)) => self.csv(&value),
            (Some(Format::Name), Some(value)) => self.names(&value),
            _ => self.out.write_all(&line),
        }
    }

    fn yaml(&mut self, value: &Value) -> io::Result<()> {
        let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
        if self.documents > 0 {
            self.out.write_all(b"---\n")?;
        }
        self.documents += 1;
        self.out.write_all(text.as_bytes())?;
        if text.ends_with('\n') { Ok(()) } else { self.out.write_all(b"\n") }
    }

    fn names(&mut self, value: &Value) -> io::Result<()> {
        for item in items(value) {
            let name = ["id", "name", "user", "uuid", "tag"].iter().find_map(|key| item[*key].as_str());
            if let Some(name) = name {
                writeln!(self.out, "{}", super::table::harmless(name))?;
            }
        }
        Ok(())
    }

    /// The columns are those of all items of a document, in their order. They are printed again when they change.
    fn csv(&mut self, value: &Value) -> io::Result<()> {
        let rows: Vec<Map<String, Value>> = items(value).iter().map(flat).collect();
        let mut columns: Vec<String> = Vec::new();
        for key in rows.iter().flat_map(Map::keys) {
            if !columns.contains(key) {
                columns.push(key.clone());
            }
        }
        let mut writer = csv::Writer::from_writer(&mut *self.out);
        if columns != self.columns {
            writer.write_record(&columns)?;
        }
        for row in &rows {
            writer.write_record(columns.iter().map(|column| cell(row.get(column))))?;
        }
        writer.flush()?;
        drop(writer);
        self.columns = columns;
        Ok(())
    }
}

impl Write for Converter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.format, None | Some(Format::Json)) {
            return self.out.write(bytes);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.convert()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The items of a list, or the one that was answered.
fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        Value::Object(object) => match object.get("items") {
            Some(Value::Array(items)) => items.clone(),
            _ => vec![value.clone()],
        },
        _ => vec![value.clone()],
    }
}

/// The fields of an item, those of objects in it as `resources.gpus`.
fn flat(item: &Value) -> Map<String, Value> {
    let mut row = Map::new();
    let Some(object) = item.as_object() else {
        row.insert("value".to_owned(), item.clone());
        return row;
    };
    for (key, value) in object {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                row.extend(flat(value).into_iter().map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            _ => drop(row.insert(key.clone(), value.clone())),
        }
    }
    row
}

fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => return other.to_string(),
    };
    // A spreadsheet runs what begins like a formula, and names are other people's.
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(format: Format, lines: &str) -> String {
        let mut out: Vec<u8> = Vec::new();
        let mut converter = Converter::new(Some(format), &mut out);
        // In pieces, as `writeln!` writes.
        for piece in lines.as_bytes().chunks(7) {
            converter.write_all(piece).unwrap();
        }
        converter.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    const LIST: &str = r#"{"items":[{"id":"a1","name":"x, y","size":{"gpus":2},"tags":["p"],"end":null},
{"id":"b2","name":"=1+1","size":{"gpus":0},"extra":true}]}"#;

    #[test]
    fn a_list_is_a_table_or_names() {
        let list = LIST.replace('\n', "") + "\n";
        let csv = converted(Format::Csv, &list);
        assert_eq!(csv, "end,id,name,size.gpus,tags,extra\n,a1,\"x, y\",2,\"[\"\"p\"\"]\",\n,b2,'=1+1,0,,true\n");
        assert_eq!(converted(Format::Name, &list), "a1\nb2\n");
        assert_eq!(converted(Format::Json, &list), list);
    }

    #[test]
    fn yaml_is_read_back_as_the_same() {
        let list = LIST.replace('\n', "") + "\n";
        let back: Value = serde_saphyr::from_str(&converted(Format::Yaml, &list)).unwrap();
        assert_eq!(back, serde_json::from_str::<Value>(&list).unwrap());
        let hostile = "{\"a\":\"yes: no # x\",\"b\":\"1e3\",\"c\":\"\\u001b[31m\\n- y\"}\n";
        let back: Value = serde_saphyr::from_str(&converted(Format::Yaml, hostile)).unwrap();
        assert_eq!(back, serde_json::from_str::<Value>(hostile).unwrap());
        assert!(converted(Format::Yaml, "{\"a\":1}\n{\"a\":2}\n").contains("---\n"));
    }

    #[test]
    fn several_documents_have_one_head() {
        let two = "{\"id\":\"a\",\"state\":\"running\"}\n{\"id\":\"b\",\"state\":\"ended\"}";
        assert_eq!(converted(Format::Csv, two), "id,state\na,running\nb,ended\n");
        assert_eq!(converted(Format::Name, two), "a\nb\n");
        assert_eq!(converted(Format::Csv, "no JSON\n"), "no JSON\n", "a log passes");
    }
}
