//! Environments that administrators add while the portal runs: a name and a list of packages. They are stored in the
//! database and built by the same loop as those of the configuration file. Names of the file cannot be added; if the file
//! gets a name later, the stored environment is ignored. One change is made at a time.

use std::sync::Arc;

use super::{
    Build, DEFAULT, Environment, Environments, Origin, Recipe, State, build,
    config::{is_name, is_package, with_servers},
};
use lyceum_db::{self as db, Db, audit::ChangedBy, environments::EnvironmentRow};
use lyceum_model::{FieldError, Timestamp, group, line};

/// The longest title, in characters.
const MAX_TITLE_LENGTH: usize = 80;
/// The longest requirement of a package, in bytes.
const MAX_PACKAGE_LENGTH: usize = 200;
const MAX_PACKAGES: usize = 200;
/// The largest number that the order can have.
const MAX_POSITION: i64 = 1_000_000;

/// An environment to be added, or what one is changed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewEnvironment {
    pub name: String,
    /// For people; empty: the name.
    pub title: String,
    /// Requirements as for pip: `torch==2.9.*`.
    pub packages: Vec<String>,
    /// Names of the groups that may use it; empty for everybody.
    pub groups: Vec<String>,
    /// `None`: after all others, or where it was.
    pub position: Option<i64>,
}

/// Why an environment cannot be added, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("environment not found")]
    NotFound,
    #[error("invalid environment")]
    Invalid(Vec<FieldError>),
    /// The sentence says why.
    #[error("{0}")]
    Conflict(String),
    #[error("failed to remove the files of an environment: {0}")]
    Files(String),
    #[error("failed to read the log of the environment {name}")]
    Log { name: String, source: std::io::Error },
    #[error("database error")]
    Db(#[from] db::Error),
}

type Result<T> = std::result::Result<T, Error>;

/// An environment that can be added with one click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub name: &'static str,
    pub title: &'static str,
    pub packages: &'static [&'static str],
}

/// All suggestions. Where the package index has builds with CUDA, Linux gets them.
pub const SUGGESTIONS: [Suggestion; 4] = [
    Suggestion {
        name: "pytorch",
        title: "PyTorch",
        packages: &["torch", "torchvision", "lightning", "matplotlib", "scikit-learn"],
    },
    Suggestion {
        name: "tensorflow",
        title: "TensorFlow and Keras",
        packages: &["tensorflow[and-cuda]", "matplotlib", "scikit-learn"],
    },
    Suggestion {
        name: "transformers",
        title: "PyTorch with Hugging Face",
        packages: &["torch", "transformers", "datasets", "accelerate", "peft", "evaluate"],
    },
    Suggestion {
        name: "data-science",
        title: "Tables and statistics",
        packages: &["pandas", "polars", "scikit-learn", "xgboost", "statsmodels", "matplotlib", "seaborn"],
    },
];

impl Environments {
    /// Reads what administrators added earlier. Rows whose name is in the configuration file are ignored.
    pub async fn load(&self, db: &Db) -> Result<()> {
        for row in db.environments().await? {
            if self.find(&row.name).is_some() {
                tracing::warn!(
                    name = row.name,
                    "ignoring an environment that an administrator added: its name is in the configuration file"
                );
                continue;
            }
            self.put(&row);
        }
        Ok(())
    }

    /// Adds an environment, which is then built.
    pub async fn add(&self, db: &Db, new: NewEnvironment, by: ChangedBy<'_>) -> Result<Environment> {
        let _turn = self.0.changes.lock().await;
        let new = checked(&new)?;
        self.check_builds()?;
        let taken = || {
            let message = format!("There is already an environment `{}`.", new.name);
            Error::Invalid(vec![FieldError::new("name", "taken", message)])
        };
        if new.name == DEFAULT || self.find(&new.name).is_some() {
            return Err(taken());
        }
        let last = self.0.known.borrow().last().map_or(0, |last| last.position);
        let row = new.row((last.saturating_add(10)).min(MAX_POSITION), by.actor, by.at);
        match db.add_environment(&row, &by.did("environment.add", &row.name, &told(&row))).await {
            Err(db::Error::Unique) => return Err(taken()),
            added => added?,
        }
        Ok(self.put(&row))
    }

    /// Changes an environment. If the packages change, it is rebuilt; running sessions keep the old ones.
    pub async fn change_added(&self, db: &Db, new: NewEnvironment, by: ChangedBy<'_>) -> Result<Environment> {
        let _turn = self.0.changes.lock().await;
        let (before, packages, added_by) = self.added(&new.name)?;
        let row = checked(&new)?.row(before.position, &added_by, by.at);
        let is_same = before.title == row.title && before.groups == row.groups && before.position == row.position;
        if is_same && packages == row.packages {
            return Ok(before);
        }
        if packages != row.packages {
            self.check_builds()?;
        }
        if !db.change_environment(&row, &by.did("environment.change", &row.name, &told(&row))).await? {
            return Err(Error::NotFound);
        }
        if packages == row.packages {
            // In its place, because its build reports meanwhile.
            self.0.known.send_modify(|all| {
                if let Some(one) = all.iter_mut().find(|one| one.name == row.name) {
                    one.title.clone_from(&row.title);
                    one.groups.clone_from(&row.groups);
                    one.position = row.position;
                }
                sort(all);
            });
            return self.find(&row.name).ok_or(Error::NotFound);
        }
        Ok(self.put(&row))
    }

    /// Removes an environment and what was built of it.
    ///
    /// # Errors
    ///
    /// Sessions or jobs that have not ended use it; or it is not an administrator's.
    pub async fn remove(&self, db: &Db, name: &str, by: ChangedBy<'_>) -> Result<()> {
        let turn = self.0.changes.clone().lock_owned().await;
        self.added(name)?;
        if !db.remove_environment(name, &by.did("environment.remove", name, "")).await? {
            // Another administrator was faster, or it is in use.
            if db.environments().await?.iter().all(|row| row.name != name) {
                return Err(Error::NotFound);
            }
            return Err(Error::Conflict(format!(
                "sessions or jobs that have not ended use the environment `{name}`; wait for their end, or stop them"
            )));
        }
        // First nobody can ask for it, then its build ends, then its files go.
        self.0.known.send_modify(|all| all.retain(|one| one.name != name));
        self.0.recipes.send_modify(|all| all.retain(|one| one.name != name));
        // Its own task: the files go also if whoever asked does not wait. Nobody adds it again before they are gone.
        let (all, name) = (self.clone(), name.to_owned());
        let files = tokio::spawn(async move {
            let _turn = turn;
            if let Err(error) = build::remove(&all.0.place, &name).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(name, error, "failed to remove the files of an environment");
            }
        });
        files.await.map_err(|error| Error::Files(error.to_string()))
    }

    /// Builds an environment again that has failed.
    ///
    /// # Errors
    ///
    /// There is none of this name, or its state is another.
    pub fn retry_failed(&self, name: &str) -> Result<()> {
        let found = self.find(name).ok_or(Error::NotFound)?;
        if !matches!(found.state, State::Failed { .. }) {
            return Err(Error::Conflict(format!(
                "the environment `{name}` has not failed, so there is nothing to repeat"
            )));
        }
        self.queue_failed(|environment| environment.name == name);
        Ok(())
    }

    /// Returns the last part of the log of an environment that the portal builds, at most `limit` bytes; it is empty
    /// before the first build.
    pub async fn build_log(&self, name: &str, limit: u64) -> Result<String> {
        let recipe = self.recipe(name).ok_or(Error::NotFound)?;
        match build::log_of(&self.0.place, &recipe, limit).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(|source| Error::Log { name: name.to_owned(), source }),
        }
    }

    /// An environment that administrators added, with its packages and who added it.
    fn added(&self, name: &str) -> Result<(Environment, Vec<String>, String)> {
        let found = self.find(name).ok_or(Error::NotFound)?;
        match found.origin.clone() {
            Origin::Added { packages, by } => Ok((found, packages, by)),
            Origin::File => {
                Err(Error::Conflict(format!("the environment `{name}` is in the configuration file; change it there")))
            }
            Origin::Shipped => Err(Error::Conflict(format!(
                "the environment `{name}` belongs to the portal; to replace it, list one of this name in the \
                 configuration file"
            ))),
        }
    }

    fn check_builds(&self) -> Result<()> {
        if self.0.config.build == Build::Auto {
            return Ok(());
        }
        Err(Error::Conflict(
            "the portal builds no environments, because the configuration has `environments.build = \"never\"`"
                .to_owned(),
        ))
    }

    /// Lists an environment and has it built, in place of an earlier one with its name.
    fn put(&self, new: &EnvironmentRow) -> Environment {
        let recipe = Arc::new(Recipe::listed(&new.name, &new.title, with_servers(&new.packages).into()));
        let environment = Environment {
            name: new.name.clone(),
            title: new.title.clone(),
            python_version: None,
            frameworks: Vec::new(),
            note: None,
            groups: new.groups.clone(),
            position: new.position,
            origin: Origin::Added { packages: new.packages.clone(), by: new.added_by.clone() },
            state: self.queued(),
        };
        // Before the recipe, so that its build finds what to report to.
        self.0.known.send_modify(|all| {
            all.retain(|one| one.name != new.name);
            all.push(environment.clone());
            sort(all);
        });
        self.0.recipes.send_modify(|all| match all.iter_mut().find(|one| one.name == new.name) {
            Some(one) => *one = recipe,
            None => all.push(recipe),
        });
        self.0.again.notify_one();
        environment
    }
}

/// Equal numbers stay in the order of their names, those of the file first.
fn sort(all: &mut [Environment]) {
    all.sort_by_key(|one| {
        let is_added = matches!(one.origin, Origin::Added { .. });
        (one.position, is_added, is_added.then(|| one.name.clone()))
    });
}

impl NewEnvironment {
    fn row(&self, position: i64, by: &str, at: Timestamp) -> EnvironmentRow {
        EnvironmentRow {
            name: self.name.clone(),
            title: if self.title.is_empty() { self.name.clone() } else { self.title.clone() },
            packages: self.packages.clone(),
            groups: self.groups.clone(),
            position: self.position.unwrap_or(position),
            added_by: by.to_owned(),
            added_at: at,
        }
    }
}

/// The audit log's words for an environment: its packages, and whom it is for.
fn told(row: &EnvironmentRow) -> String {
    let groups = (!row.groups.is_empty()).then(|| format!("; for {}", row.groups.join(", ")));
    format!("{}{}", row.packages.join(" "), groups.unwrap_or_default())
}

/// What was entered, without space around it, or every fault.
fn checked(new: &NewEnvironment) -> Result<NewEnvironment> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, code: &str, message: String| faults.push(FieldError::new(field, code, message));
    let name = new.name.trim().to_owned();
    if !is_name(&name) {
        let message = "Enter 1 to 32 characters of a-z, 0-9, `_`, `.` and `-`, starting with a letter or digit.";
        fault("name", "invalid_name", message.to_owned());
    }
    let packages: Vec<String> = new.packages.iter().map(|one| one.trim().to_owned()).collect();
    if packages.is_empty() || MAX_PACKAGES < packages.len() {
        fault("packages", "out_of_range", format!("List 1 to {MAX_PACKAGES} packages."));
    }
    if let Some(bad) = packages.iter().find(|one| !is_package(one) || MAX_PACKAGE_LENGTH < one.len()) {
        let shown: String = bad.chars().take(40).collect();
        let message = format!("`{}` is not a package, such as `torch` or `torch==2.9.*`.", shown.escape_debug());
        fault("packages", "invalid_value", message);
    }
    let title = line::parse("title", &new.title, MAX_TITLE_LENGTH).unwrap_or_else(|wrong| {
        faults.push(wrong);
        String::new()
    });
    let groups = group::parse_names(&new.groups).unwrap_or_else(|wrong| {
        faults.push(wrong);
        Vec::new()
    });
    if new.position.is_some_and(|position| !(0..=MAX_POSITION).contains(&position)) {
        faults.push(FieldError::new("position", "out_of_range", "must be from 0 to 1000000"));
    }
    let position = new.position;
    if faults.is_empty() {
        Ok(NewEnvironment { name, title, packages, groups, position })
    } else {
        Err(Error::Invalid(faults))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_titles_and_packages_are_checked_together() {
        let new = |name: &str, title: &str, packages: &[&str]| NewEnvironment {
            name: name.to_owned(),
            title: title.to_owned(),
            packages: packages.iter().map(|&one| one.to_owned()).collect(),
            ..NewEnvironment::default()
        };
        let good = checked(&new(" torch-2.9 ", " PyTorch ", &[" torch==2.9.* ", "torchvision"])).unwrap();
        assert_eq!(good, new("torch-2.9", "PyTorch", &["torch==2.9.*", "torchvision"]));
        for (bad, fields) in [
            (new("", "", &["torch"]), "name"),
            (new("../x", "a\nb", &[]), "name packages title"),
            (new("a", "", &["--index-url http://x"]), "packages"),
            (new("a", "", &["torch\n--index-url http://x"]), "packages"),
            (new("a", "", &["torch --index-url http://x"]), "packages"),
            (new("a", "", &["-r /etc/passwd"]), "packages"),
            (new("a", "", &[""]), "packages"),
            (new("a", "", &[&"x".repeat(201)]), "packages"),
            (new("a", "", &["x"; 201]), "packages"),
        ] {
            let Err(Error::Invalid(faults)) = checked(&bad) else { panic!("{bad:?}") };
            assert_eq!(faults.iter().map(|one| one.field.as_str()).collect::<Vec<_>>().join(" "), fields, "{bad:?}");
        }
        for suggestion in SUGGESTIONS {
            let fits = checked(&new(suggestion.name, suggestion.title, suggestion.packages));
            assert!(fits.is_ok(), "{suggestion:?}");
        }
    }
}
