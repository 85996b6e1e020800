//! `lyceum apply`, `diff` and `export`: a site as a file. The file is read here, YAML or JSON, and sent as JSON; what
//! the portal finds wrong is reported with the line of the file. `apply` first asks for the plan and then for exactly
//! this plan, so that what is printed is what was done.

use std::{
    fmt,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use reqwest::Method;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{
    api::{Api, Error, FieldError, Result},
    line,
    output::Output,
    table::harmless,
};

type Out<'a> = &'a mut (dyn Write + Send);

/// `lyceum apply`
#[derive(Args, Debug)]
pub struct ApplyArguments {
    #[command(flatten)]
    pub output: Output,
    /// The file, YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Also remove what the file does not list, within what it declares
    #[arg(long)]
    pub prune: bool,
    /// Print the JSON Schema of the file and change nothing
    #[arg(long, conflicts_with_all = ["file", "prune"])]
    pub schema: bool,
}

/// `lyceum diff`
#[derive(Args, Debug)]
pub struct DiffArguments {
    #[command(flatten)]
    pub output: Output,
    /// The file, YAML or JSON; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Also show the removals of `lyceum apply --prune`
    #[arg(long)]
    pub prune: bool,
    /// Exit with 1 if there are changes
    #[arg(long)]
    pub exit_code: bool,
}

/// `lyceum export`
#[derive(Args, Debug)]
pub struct ExportArguments {
    #[command(flatten)]
    pub output: Output,
}

pub(super) async fn apply(
    api: &Api,
    arguments: &ApplyArguments,
    input: &mut (dyn Read + Send),
    out: Out<'_>,
) -> Result<()> {
    let json = arguments.output.is_json();
    let Some(path) = &arguments.file else {
        let schema = schema(&api.get("/openapi.json", &[]).await?)?;
        return line(out, &if json { schema.to_string() } else { format!("{schema:#}") });
    };
    let file = File::read(path, input)?;
    let (mut answer, version) = file.ask(api, arguments.prune, None).await?;
    let has_changes = !list(&answer, "changes").is_empty();
    if !json {
        show(&answer, out)?;
        out.flush()?;
    }
    if has_changes {
        (answer, _) = file.ask(api, arguments.prune, Some(&version)).await?;
    }
    if json {
        return line(out, &answer.to_string());
    }
    if has_changes {
        line(out, &format!("{} made.", counted(list(&answer, "changes").len(), "change")))?;
    }
    let invitations = list(&answer, "invitations");
    if !invitations.is_empty() {
        line(out, "\nThese links set the first password of each new account. They are not shown again.")?;
        for one in invitations {
            let address = api.absolute(text(one, "url"))?;
            line(out, &format!("{}\t{address}\tuntil {}", harmless(text(one, "name")), text(one, "expires_at")))?;
        }
    }
    Ok(())
}

pub(super) async fn diff(
    api: &Api,
    arguments: &DiffArguments,
    input: &mut (dyn Read + Send),
    out: Out<'_>,
) -> Result<()> {
    let file = File::read(&arguments.file, input)?;
    let (plan, _) = file.ask(api, arguments.prune, None).await?;
    if arguments.output.is_json() {
        line(out, &plan.to_string())?;
    } else {
        show(&plan, out)?;
    }
    let changes = list(&plan, "changes").len();
    if arguments.exit_code && changes > 0 {
        return Err(Error::Differs(counted(changes, "change")));
    }
    Ok(())
}

/// Prints the file, as YAML unless another format is asked for.
pub(super) async fn export(api: &Api, arguments: &ExportArguments, out: Out<'_>) -> Result<()> {
    let site = api.get("/site", &[]).await?;
    if arguments.output.is_json() {
        return line(out, &site.to_string());
    }
    let yaml = serde_saphyr::to_string(&site).map_err(|error| Error::Strange(error.to_string()))?;
    Ok(write!(out, "{yaml}{}", if yaml.ends_with('\n') { "" } else { "\n" })?)
}

/// A file as it was read, with the lines of its values.
struct File {
    name: String,
    root: Node,
}

impl File {
    fn read(path: &Path, input: &mut (dyn Read + Send)) -> Result<Self> {
        let (name, content) = if path.as_os_str() == "-" {
            let mut text = String::new();
            ("standard input".to_owned(), input.read_to_string(&mut text).map(|_| text))
        } else {
            (path.display().to_string(), std::fs::read_to_string(path))
        };
        let content = content.map_err(|error| Error::Usage(format!("{name} cannot be read: {error}")))?;
        let root: Spanned<Node> = serde_saphyr::from_str(&content)
            .map_err(|error| Error::Usage(format!("{name} is not valid YAML or JSON: {error}")))?;
        if !matches!(root.value, Node::Map(_)) {
            return Err(Error::Usage(format!("{name} must be a mapping with sections such as `users` and `groups`")));
        }
        Ok(Self { name, root: root.value })
    }

    /// Asks for the plan, or for the plan of a version to be carried out. Returns the answer and the plan's version.
    async fn ask(&self, api: &Api, prune: bool, version: Option<&str>) -> Result<(Value, String)> {
        let path = format!("/site/apply?dry_run={}&prune={prune}", version.is_none());
        let headers: Vec<(&str, &str)> = version.iter().map(|version| ("if-match", *version)).collect();
        let body = self.root.json().to_string();
        let answer = match api.raw(Method::POST, &path, &headers, Some(body.into())).await {
            Ok(answer) => answer,
            Err(Error::Problem(mut problem)) => {
                for fault in &mut problem.errors {
                    self.locate(fault);
                }
                problem.errors.sort_by_key(|fault| fault.line);
                return Err(Error::Problem(problem));
            }
            Err(error) => return Err(error),
        };
        let version = answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
        let answer = answer.json().await.map_err(|error| Error::Strange(error.to_string()))?;
        Ok((answer, version))
    }

    /// Adds the line of its field to a fault.
    fn locate(&self, fault: &mut FieldError) {
        if let Some(found) = self.root.line_of(&fault.field) {
            fault.line = found;
            fault.field = format!("{}:{found}: {}", self.name, fault.field);
        }
    }
}

/// A value of the file.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    fn json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.value.json()).collect(),
            Self::Map(fields) => {
                fields.iter().map(|(key, value)| (key.value.clone(), value.value.json())).collect::<Map<_, _>>().into()
            }
        }
    }

    /// The line of a field such as `users.3.role`, or of the innermost thing that contains it. Names can have dots.
    fn line_of(&self, path: &str) -> Option<u64> {
        let inside = |name: &str| match path.strip_prefix(name) {
            Some("") => Some(""),
            Some(rest) => rest.strip_prefix('.'),
            None => None,
        };
        let (line, inner, rest) = match self {
            Self::Scalar(_) => return None,
            Self::List(items) => {
                let (number, rest) = path.split_once('.').unwrap_or((path, ""));
                let item = items.get(number.parse::<usize>().ok()?)?;
                (item.referenced.line(), item, rest)
            }
            Self::Map(fields) => {
                let named = fields.iter().filter_map(|(key, value)| Some((key, value, inside(&key.value)?)));
                let (key, value, rest) = named.max_by_key(|(key, ..)| key.value.len())?;
                (key.referenced.line(), value, rest)
            }
        };
        Some(inner.value.line_of(rest).unwrap_or(line))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> std::result::Result<Node, E> {
                let number = serde_json::Number::from_f64(value);
                number.map(|number| Node::Scalar(number.into())).ok_or_else(|| E::custom("not a finite number"))
            }

            fn visit_str<E>(self, value: &str) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(value.into()))
            }

            fn visit_unit<E>(self) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_none<E>(self) -> std::result::Result<Node, E> {
                Ok(Node::Scalar(Value::Null))
            }

            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> std::result::Result<Node, D::Error> {
                Node::deserialize(inner)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Node, A::Error> {
                let mut map: Vec<(Spanned<String>, Spanned<Node>)> = Vec::new();
                while let Some((key, value)) = fields.next_entry::<Spanned<String>, Spanned<Node>>()? {
                    if map.iter().any(|(other, _)| other.value == key.value) {
                        return Err(A::Error::custom(format_args!("`{}` stands twice", key.value)));
                    }
                    map.push((key, value));
                }
                Ok(Node::Map(map))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Prints each change of a plan, and what stays because nothing is removed without `--prune`.
fn show(plan: &Value, out: Out<'_>) -> Result<()> {
    let changes = list(plan, "changes");
    for change in changes {
        line(out, &sentence(change))?;
    }
    for change in list(plan, "unlisted") {
        line(out, &format!("  not listed, kept without --prune: {}", sentence(change)))?;
    }
    if changes.is_empty() { line(out, "No change.") } else { Ok(()) }
}

/// A change, in a line that begins with its sign.
fn sentence(change: &Value) -> String {
    let sign = match text(change, "action") {
        "add" => '+',
        "remove" => '-',
        _ => '~',
    };
    let (kind, name, detail) = (text(change, "kind"), harmless(text(change, "name")), harmless(text(change, "detail")));
    let of = match (kind, change["group"].as_str()) {
        ("quota", Some(_)) => format!("quota of group {name}"),
        ("quota", None) => format!("quota of {name}"),
        ("member" | "manager", Some(group)) => format!("{kind} {name} of group {}", harmless(group)),
        _ => format!("{kind} {name}"),
    };
    if detail.is_empty() { format!("{sign} {of}") } else { format!("{sign} {of}: {detail}") }
}

/// The JSON Schema of the file, from the portal's OpenAPI document.
fn schema(document: &Value) -> Result<Value> {
    const COMPONENTS: &str = "#/components/schemas/";
    fn collect(value: &mut Value, wanted: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    match inner {
                        Value::String(target) if key == "$ref" => {
                            if let Some(name) = target.strip_prefix(COMPONENTS).map(str::to_owned) {
                                *target = format!("#/$defs/{name}");
                                wanted.push(name);
                            }
                        }
                        inner => collect(inner, wanted),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| collect(item, wanted)),
            _ => {}
        }
    }
    let find = |name: &str| {
        let found = document.pointer(&format!("/components/schemas/{name}")).cloned();
        found.ok_or_else(|| Error::Strange("it has no schema of a site's file".to_owned()))
    };
    let mut root = find("Site")?;
    let mut wanted = Vec::new();
    collect(&mut root, &mut wanted);
    let mut definitions = Map::new();
    while let Some(name) = wanted.pop() {
        if !definitions.contains_key(&name) {
            let mut definition = find(&name)?;
            collect(&mut definition, &mut wanted);
            definitions.insert(name, definition);
        }
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "A site's file for lyceum apply".into();
    root["$defs"] = definitions.into();
    Ok(root)
}

fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn counted(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File::read(Path::new("-"), &mut text.as_bytes()).unwrap()
    }

    #[test]
    fn a_fault_has_the_line_of_its_field() {
        let yaml = "# people\nusers:\n  - name: ada\n    role: boss\n  - {name: bob, quota: {gpus: 1}}\n\
                    groups:\n  - name: vision\n    each:\n      gpus:NVIDIA A1.5: -1\n    members:\n      - ada\n      - eve\n";
        let read = file(yaml);
        for (field, line) in [
            ("users", 2),
            ("users.0", 3),
            ("users.0.role", 4),
            ("users.0.nothing", 3),
            ("users.1.quota.gpus", 5),
            ("groups.0.each.gpus:NVIDIA A1.5", 9),
            ("groups.0.members.1", 12),
        ] {
            assert_eq!(read.root.line_of(field), Some(line), "{field}");
        }
        assert_eq!(read.root.line_of("quotas.default"), None);
        let json = read.root.json();
        assert_eq!(json["groups"][0]["each"]["gpus:NVIDIA A1.5"], -1);
        assert_eq!(file(&json.to_string()).root.json(), json, "JSON is read as well");
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let read = |text: &str| File::read(Path::new("-"), &mut text.as_bytes());
        for bad in ["", "- a", "users: [", "users: []\nusers: []", "a: 1\n---\nb: 2"] {
            let error = read(bad).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("standard input")), "{bad}");
        }
        let anchored = "groups:\n  - &lab {name: a, members: [ada]}\n  - <<: *lab\n    name: b\n";
        assert_eq!(file(anchored).root.json()["groups"][1]["members"][0], "ada");
    }

    #[test]
    fn the_schema_stands_alone() {
        let document = serde_json::json!({"components": {"schemas": {
            "Site": {"properties": {"users": {"items": {"$ref": "#/components/schemas/SiteUser"}}}},
            "SiteUser": {"properties": {"of": {"$ref": "#/components/schemas/Level"}}},
            "Level": {"enum": ["info"]}, "Job": {},
        }}});
        let schema = schema(&document).unwrap();
        assert!(!schema.to_string().contains("components"), "{schema}");
        assert_eq!(
            schema["$defs"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>()).unwrap(),
            ["Level", "SiteUser"]
        );
    }
}
