//! What commands print, in the format that was asked for. Commands write sentences and tables for people, or the JSON
//! of the API, one document a line; here that JSON becomes YAML, CSV or names. CSV has a line for each item of a list.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::api::Error;

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
    /// Whether a list is printed in chosen columns, for which commands write JSON.
    #[arg(skip)]
    pub has_columns: bool,
}

/// The option of every command that lists.
#[derive(Args, Clone, Debug, Default)]
pub struct Columns {
    /// Print these fields of each item, in this order: as a table, or with `--output csv` as CSV
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "json")]
    columns: Vec<String>,
}

impl Output {
    /// Whether commands write JSON: for programs, or to be converted.
    pub(super) fn is_json(&self) -> bool {
        self.json || self.output.is_some() || self.has_columns
    }

    /// Whether items are printed as rows: as CSV, or in chosen columns.
    pub(super) fn is_tabular(&self) -> bool {
        self.has_columns || self.output == Some(Format::Csv)
    }

    /// Returns a writer of results into `out`, in this format and these columns.
    pub(super) fn writer<'a>(
        &mut self,
        columns: Option<&Columns>,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Converter<'a>, Error> {
        let chosen = columns.map(|asked| asked.columns.clone()).unwrap_or_default();
        self.has_columns = !chosen.is_empty();
        if self.has_columns && !matches!(self.format(), None | Some(Format::Csv)) {
            return Err(Error::Usage("--columns can only be combined with `--output csv`".to_owned()));
        }
        Ok(Converter { chosen, ..Converter::new(self.format(), out) })
    }

    pub(super) fn format(&self) -> Option<Format> {
        self.output.or(self.json.then_some(Format::Json))
    }
}

/// What says which item it is, and how it is doing: the first columns of CSV, before all others by the alphabet.
const FIRST: [&str; 12] =
    ["id", "name", "user", "group", "uuid", "tag", "month", "owner", "kind", "state", "reason", "detail"];

/// The fields of an item.
type Row = Map<String, Value>;

/// A writer that converts lines of JSON. What is not JSON, such as a log, passes unchanged.
pub(super) struct Converter<'a> {
    format: Option<Format>,
    out: &'a mut (dyn Write + Send),
    line: Vec<u8>,
    /// The columns of CSV that were printed last.
    columns: Vec<String>,
    documents: usize,
    /// The columns that were asked for; all if it is empty.
    chosen: Vec<String>,
    /// A column that was asked for and that there is not.
    fault: Option<Error>,
}

impl<'a> Converter<'a> {
    pub(super) fn new(format: Option<Format>, out: &'a mut (dyn Write + Send)) -> Self {
        Self { format, out, line: Vec::new(), columns: Vec::new(), documents: 0, chosen: Vec::new(), fault: None }
    }

    /// Converts what was written after the last line break.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        if !self.line.is_empty() && self.fault.is_none() {
            // Where a column is wrong, that is what failed.
            let _ = self.convert().map_err(|error| self.fault.get_or_insert(Error::Output(error)));
        }
        self.fault.take().map_or_else(|| Ok(self.out.flush()?), Err)
    }

    fn convert(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let value: Option<Value> = serde_json::from_slice(&line).ok();
        match (self.format, value) {
            (Some(Format::Yaml), Some(value)) => self.yaml(&value),
            (Some(Format::Csv), Some(value)) => self.csv(&value),
            (None, Some(value)) if !self.chosen.is_empty() => self.table(&value),
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

    /// A sweep has its tasks as `items`: what has an id of its own is not a list.
    fn names(&mut self, value: &Value) -> io::Result<()> {
        let named = if value["id"].is_string() { vec![value.clone()] } else { items(value) };
        for item in named {
            let name = ["id", "name", "user", "uuid", "tag"].iter().find_map(|key| item[*key].as_str());
            if let Some(name) = name {
                writeln!(self.out, "{}", super::table::harmless(name))?;
            }
        }
        Ok(())
    }

    /// Returns the fields of each item, and the columns: the requested ones, else those of all items, [`FIRST`] first.
    fn rows(&mut self, value: &Value) -> io::Result<(Vec<Row>, Vec<String>)> {
        let rows: Vec<Row> = items(value).iter().map(flat).collect();
        let mut columns: Vec<String> = Vec::new();
        for key in rows.iter().flat_map(Map::keys) {
            if !columns.contains(key) {
                columns.push(key.clone());
            }
        }
        columns.sort_by_key(|name| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
        if self.chosen.is_empty() {
            return Ok((rows, columns));
        }
        // An empty list does not show which fields its items have.
        if !rows.is_empty()
            && let Some(unknown) = self.chosen.iter().find(|name| !columns.contains(name) && !may_exist(&rows, name))
        {
            let (unknown, known) = (super::table::harmless(unknown), super::table::harmless(&columns.join(", ")));
            self.fault = Some(Error::Usage(format!("there is no column `{unknown}`; the columns are {known}")));
            return Err(io::Error::other("no such column"));
        }
        Ok((rows, self.chosen.clone()))
    }

    fn table(&mut self, value: &Value) -> io::Result<()> {
        let (rows, columns) = self.rows(value)?;
        let head = columns.iter().map(|name| name.to_uppercase()).collect();
        let text = |value: Option<&Value>| match value {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => super::table::harmless(text).replace(['\n', '\t'], " "),
            Some(other) => super::table::harmless(&other.to_string()),
        };
        let rows = rows.iter().map(|row| columns.iter().map(|name| text(row.get(name))).collect());
        self.out.write_all(super::table::columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>()).as_bytes())
    }

    /// The head is printed again when the columns change.
    fn csv(&mut self, value: &Value) -> io::Result<()> {
        let (rows, columns) = self.rows(value)?;
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
        if matches!(self.format, None | Some(Format::Json)) && self.chosen.is_empty() {
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

/// Whether this is a field of something that no item has: `slurm.partition` where `slurm` is null or empty.
fn may_exist(rows: &[Map<String, Value>], name: &str) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    name.match_indices('.').any(|(end, _)| rows.iter().any(|row| row.get(&name[..end]).is_some_and(is_empty)))
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
        assert_eq!(csv, "id,name,end,size.gpus,tags,extra\na1,\"x, y\",,2,\"[\"\"p\"\"]\",\nb2,'=1+1,,0,,true\n");
        assert_eq!(converted(Format::Name, &list), "a1\nb2\n");
        assert_eq!(converted(Format::Json, &list), list);
    }

    #[test]
    fn a_sweep_is_named_by_its_id_and_not_by_its_tasks() {
        assert_eq!(converted(Format::Name, "{\"id\":\"a1\",\"items\":[{\"index\":0,\"job\":\"b2\"}]}\n"), "a1\n");
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
    fn a_list_has_the_columns_that_were_asked_for() {
        let list = LIST.replace('\n', "") + "\n";
        let shown = |output: Option<Format>, names: &[&str], text: &str| {
            let columns = Columns { columns: names.iter().map(|name| (*name).to_owned()).collect() };
            let (mut output, mut out) = (Output { output, ..Output::default() }, Vec::new());
            let mut writer = output.writer(Some(&columns), &mut out).map_err(|error| error.to_string())?;
            let _ = writer.write_all(text.as_bytes());
            writer.finish().map_err(|error| error.to_string())?;
            Ok::<_, String>(String::from_utf8(out).unwrap())
        };
        let table = shown(None, &["name", "size.gpus", "end.at"], &list).unwrap();
        assert_eq!(table, "NAME  SIZE.GPUS  END.AT\nx, y  2          -\n=1+1  0          -\n");
        assert_eq!(shown(Some(Format::Csv), &["id", "end"], &list).unwrap(), "id,end\na1,\nb2,\n");
        let unknown = shown(None, &["id", "size.cpus"], &list).unwrap_err();
        assert_eq!(unknown, "there is no column `size.cpus`; the columns are id, name, end, size.gpus, tags, extra");
        assert_eq!(shown(None, &["id"], "{\"items\":[]}\n").unwrap(), "ID\n");
        assert!(shown(Some(Format::Yaml), &["id"], &list).unwrap_err().contains("--output csv"));
    }

    #[test]
    fn several_documents_have_one_head() {
        let two = "{\"id\":\"a\",\"state\":\"running\"}\n{\"id\":\"b\",\"state\":\"ended\"}";
        assert_eq!(converted(Format::Csv, two), "id,state\na,running\nb,ended\n");
        assert_eq!(converted(Format::Name, two), "a\nb\n");
        assert_eq!(converted(Format::Csv, "no JSON\n"), "no JSON\n", "a log passes");
    }
}
