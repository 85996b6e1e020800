//! The address of the table of results: which runs, which rows and columns, in which order, what is picked. The page
//! and the API read the same parameters, and the page's links are addresses with one thing changed. Lists are
//! a parameter a member, as a form with boxes sends them.

use std::str::FromStr;

use url::form_urlencoded::{self, Serializer};
use utoipa::IntoParams;

use crate::{
    model::RunId,
    runs::{LONGEST_FILTER, MetricValue, Order, RunSelection, TableQuery},
    web::http::error::{Error, Result},
};

/// How many rows a page has where nobody says, and at most.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 500;

/// So many runs and columns may be named, and so many picked.
const MAX_NAMED: usize = 100;
pub const MAX_PICKED: usize = 50;

/// What the API's document says of the parameters; [`Address`] reads them.
#[expect(dead_code, reason = "it is a description")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ResultsParameters {
    /// Filter of the rows, for example `lr < 0.01 and (optimizer = adam or not name ~ test)`. A column is given by its
    /// label or the end of its label. `last(…)`, `best(…)`, `min(…)` and `max(…)` select a value of a metric.
    /// `param(…)` and `metric(…)` select the kind. Operators: `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (contains), `!~`.
    /// `none` means no value. A single word is a part of the name.
    r#where: Option<String>,
    /// The value that is shown for each metric: `best`, `last`, or `at` (with `step`).
    value: Option<String>,
    /// With `value=at`: the value at the last step up to this one. At most 200 runs.
    step: Option<i64>,
    /// At most two sort keys: `name`, `owner`, `created`, `points`, or a hyperparameter or metric such as `lr` and
    /// `val/loss`, by its name as in filters or its key (`p:lr`, `m:val/loss`). A leading minus sorts in descending order.
    sort: Option<Vec<String>>,
    /// Keys or names of the columns to show. Default: hyperparameters that differ, and the main metrics.
    column: Option<Vec<String>>,
    /// Without `column`: also show hyperparameters that are the same in all runs.
    same: Option<bool>,
    /// Key or name of a hyperparameter. The runs are grouped by its values.
    group: Option<String>,
    /// The baseline: the run that the others are compared with.
    base: Option<String>,
    /// Only these runs.
    run: Option<Vec<String>>,
    /// Only runs of this user. Operators can pass `*` for all users.
    owner: Option<String>,
    /// Also runs of helper jobs, which the portal submits for their owners, such as predictions.
    helpers: Option<bool>,
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// What an address says.
#[derive(Clone, Debug)]
pub struct Address {
    pub of: RunSelection,
    pub asked: TableQuery,
    /// Runs whose curves are drawn below the table; of the page alone.
    pub picked: Vec<RunId>,
    /// What has just been done; of the page alone.
    pub done: Option<String>,
    /// The run that was just removed.
    pub removed: Option<RunId>,
}

impl Default for Address {
    fn default() -> Self {
        let asked = TableQuery {
            filter: String::new(),
            which: MetricValue::Best,
            order: Vec::new(),
            columns: None,
            with_same: false,
            group: None,
            base: None,
            limit: DEFAULT_ROWS,
            after: None,
        };
        Self { of: RunSelection::default(), asked, picked: Vec::new(), done: None, removed: None }
    }
}

impl Address {
    /// Reads a query. `is_page`: parameters of the page alone are known too.
    pub fn read(query: &str, is_page: bool) -> Result<Self> {
        let mut this = Self::default();
        let (mut value, mut step) = (String::new(), None);
        let mut seen = Vec::new();
        for (name, text) in form_urlencoded::parse(query.as_bytes()) {
            let is_list = matches!(&*name, "sort" | "column" | "run" | "pick");
            if !is_list && seen.contains(&name) {
                return Err(Error::field(short(&name), "duplicate_field", "Duplicate query parameter."));
            }
            seen.push(name.clone());
            // A field of a form that was left empty says nothing.
            if text.is_empty() {
                continue;
            }
            let asked = &mut this.asked;
            match &*name {
                "where" => asked.filter = bounded("where", &text, LONGEST_FILTER)?,
                "value" => value = text.into_owned(),
                "step" => step = Some(number::<i64>("step", &text)?),
                "sort" => {
                    let (descending, key) = text.strip_prefix('-').map_or((false, &*text), |key| (true, key));
                    asked.order.push(Order { key: bounded("sort", key, 1000)?, descending });
                }
                "column" => asked.columns.get_or_insert_default().push(bounded("column", &text, 1000)?),
                "same" => asked.with_same = flag("same", &text)?,
                "group" => asked.group = Some(bounded("group", &text, 1000)?),
                "base" => asked.base = Some(id("base", &text)?),
                "run" => this.of.runs.get_or_insert_default().push(id("run", &text)?),
                "owner" => this.of.owner = Some(text.into_owned()),
                "helpers" => this.of.with_helpers = flag("helpers", &text)?,
                "limit" => asked.limit = number("limit", &text)?,
                "cursor" => asked.after = Some(id("cursor", &text)?),
                "pick" if is_page => this.picked.push(id("pick", &text)?),
                "done" if is_page => this.done = Some(text.into_owned()),
                "removed" if is_page => this.removed = Some(id("removed", &text)?),
                _ => return Err(Error::field(short(&name), "unknown_field", "Unknown parameter.")),
            }
        }
        this.asked.which = match (value.as_str(), step) {
            ("" | "best", _) => MetricValue::Best,
            ("last", _) => MetricValue::Last,
            ("at", Some(step)) => MetricValue::At(step),
            ("at", None) => return Err(Error::field("step", "missing_field", "A step is required.")),
            _ => return Err(Error::field("value", "invalid_value", "Must be one of best, last, at.")),
        };
        let counts = [
            ("limit", this.asked.limit, MAX_ROWS),
            ("sort", this.asked.order.len(), 2),
            ("column", this.asked.columns.as_ref().map_or(0, Vec::len), MAX_NAMED),
            ("run", this.of.runs.as_ref().map_or(0, Vec::len), MAX_NAMED),
            ("pick", this.picked.len(), MAX_PICKED),
        ];
        if let Some((name, _, most)) = counts.into_iter().find(|(_, count, most)| most < count) {
            return Err(Error::field(name, "too_many", format!("At most {most} are allowed.")));
        }
        if this.asked.limit == 0 {
            return Err(Error::field("limit", "out_of_range", "Must be between 1 and 500."));
        }
        Ok(this)
    }

    /// The address of the page.
    pub fn href(&self) -> String {
        let asked = &self.asked;
        let mut query = Serializer::new(String::new());
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                query.append_pair(name, text);
            }
        };
        put("where", &asked.filter);
        match asked.which {
            MetricValue::Best => {}
            MetricValue::Last => put("value", "last"),
            MetricValue::At(step) => {
                put("value", "at");
                put("step", &step.to_string());
            }
        }
        asked.order.iter().for_each(|order| put("sort", &order.word()));
        asked.columns.iter().flatten().for_each(|key| put("column", key));
        put("same", if asked.with_same { "true" } else { "" });
        put("group", asked.group.as_deref().unwrap_or_default());
        put("base", &asked.base.map(|id| id.to_string()).unwrap_or_default());
        self.of.runs.iter().flatten().for_each(|id| put("run", &id.to_string()));
        put("owner", self.of.owner.as_deref().unwrap_or_default());
        put("helpers", if self.of.with_helpers { "true" } else { "" });
        if asked.limit != DEFAULT_ROWS {
            put("limit", &asked.limit.to_string());
        }
        put("cursor", &asked.after.map(|id| id.to_string()).unwrap_or_default());
        self.picked.iter().for_each(|id| put("pick", &id.to_string()));
        let query = query.finish();
        if query.is_empty() { "/runs".to_owned() } else { format!("/runs?{query}") }
    }

    /// The same with something changed; it begins at the first row again.
    pub fn with(&self, change: impl FnOnce(&mut TableQuery)) -> Self {
        let mut other = Self { done: None, removed: None, ..self.clone() };
        other.asked.after = None;
        change(&mut other.asked);
        other
    }
}

fn bounded(field: &str, text: &str, most: usize) -> Result<String> {
    if most < text.chars().count() {
        return Err(Error::field(field, "too_long", format!("Longer than {most} characters.")));
    }
    Ok(text.to_owned())
}

fn id(field: &str, text: &str) -> Result<RunId> {
    text.parse().map_err(|_err| Error::field(field, "invalid_value", "This is not the id of a run."))
}

fn number<T: FromStr>(field: &str, text: &str) -> Result<T> {
    text.trim().parse().map_err(|_err| Error::field(field, "invalid_value", "Must be a whole number."))
}

fn flag(field: &str, text: &str) -> Result<bool> {
    text.parse().map_err(|_err| Error::field(field, "invalid_value", "Must be true or false."))
}

/// The beginning of a name that somebody else made.
fn short(name: &str) -> String {
    name.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_again_what_it_was_read_from() {
        let id = RunId::new();
        for query in [
            String::new(),
            "where=lr+%3C+0.01&value=last&sort=-m%3Aval%2Floss&sort=name".to_owned(),
            format!("value=at&step=-5&column=p%3Alr&column=m%3Aa%2Cb&same=true&group=p%3Alr&base={id}"),
            format!("run={id}&owner=*&helpers=true&limit=7&cursor={id}&pick={id}"),
        ] {
            let address = Address::read(&query, true).unwrap();
            assert_eq!(address.href().trim_start_matches("/runs").trim_start_matches('?'), query);
        }
        let empty = Address::read("where=&value=&step=&group=", true).unwrap();
        assert_eq!(empty.href(), "/runs");
    }

    #[test]
    fn faults_name_their_parameter() {
        for (query, field) in [
            ("value=mean", "value"),
            ("value=at", "step"),
            ("step=x", "step"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("sort=a&sort=b&sort=c", "sort"),
            ("base=7", "base"),
            ("same=1", "same"),
            ("where=a&where=b", "where"),
            ("pick=x", "pick"),
            ("colour=red", "colour"),
        ] {
            assert_eq!(Address::read(query, true).unwrap_err().field_errors()[0].field, field, "{query}");
        }
        let id = RunId::new();
        assert_eq!(Address::read(&format!("pick={id}"), false).unwrap_err().field_errors()[0].code, "unknown_field");
    }
}
