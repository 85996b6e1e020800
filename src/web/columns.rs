//! The columns of lists that a user chose: which columns each list has, which are usual, and the form that keeps a choice.
//! The name of a row and its state are always shown. The choice is the user's own, on every browser.

use std::sync::Arc;

use axum::{extract::State, response::Redirect};

use super::{
    Portal,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Form},
    },
    views::{ColumnLabel, ShownColumns},
};

/// A list with columns to choose from.
#[derive(Debug)]
pub(super) struct ListColumns {
    /// The name of the list, which is its path without the slash.
    pub(super) list: &'static str,
    /// The name and the label of each column, and whether it is usually shown.
    columns: &'static [(&'static str, &'static str, bool)],
}

pub(super) const JOBS: ListColumns = ListColumns {
    list: "jobs",
    columns: &[
        ("gpus", "GPUs", true),
        ("size", "Size", false),
        ("progress", "Progress", true),
        ("metric", "Last value", true),
        ("created", "Submitted", false),
        ("started", "Started", true),
        ("duration", "Duration", true),
        ("outcome", "Outcome", true),
    ],
};
pub(super) const SESSIONS: ListColumns = ListColumns {
    list: "sessions",
    columns: &[
        ("program", "Program", true),
        ("gpus", "GPUs", false),
        ("size", "Size", true),
        ("created", "Requested", false),
        ("started", "Started", true),
        ("duration", "Duration", true),
    ],
};
pub(super) const SWEEPS: ListColumns = ListColumns {
    list: "sweeps",
    columns: &[("kind", "Kind", true), ("tasks", "Tasks", true), ("created", "Created", true)],
};
pub(super) const DATASETS: ListColumns = ListColumns {
    list: "datasets",
    columns: &[
        ("kind", "Kind", true),
        ("images", "Images", true),
        ("classes", "Classes", true),
        ("broken", "Not used", true),
        ("created", "Created", true),
    ],
};
pub(super) const MODELS: ListColumns = ListColumns {
    list: "models",
    columns: &[
        ("network", "Network", true),
        ("best", "Best", true),
        ("checkpoints", "Checkpoints", true),
        ("created", "Created", true),
    ],
};

const LISTS: [&ListColumns; 5] = [&JOBS, &SESSIONS, &SWEEPS, &DATASETS, &MODELS];

impl ListColumns {
    /// Returns the columns that a user sees.
    pub(super) async fn shown(&self, portal: &Portal, user: &CurrentUser) -> Result<ShownColumns> {
        Ok(self.of(portal.db.list_columns(user.id(), self.list).await?.as_deref()))
    }

    /// Reads a stored choice; `None` shows the usual columns. A column that is no more is left out.
    fn of(&self, chosen: Option<&str>) -> ShownColumns {
        let is_shown =
            |name: &str, is_usual| chosen.map_or(is_usual, |chosen| chosen.split('.').any(|one| one == name));
        let label = |(name, label, is_usual): &(&'static str, &'static str, bool)| ColumnLabel {
            name,
            label,
            is_shown: is_shown(name, *is_usual),
        };
        ShownColumns { list: self.list, columns: self.columns.iter().map(label).collect() }
    }
}

/// `POST /settings/columns`: the columns of one list; `reset` shows the usual ones again.
pub(super) async fn choose(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let Some(list) = LISTS.into_iter().find(|list| list.list == form.get("list")) else {
        return Err(Error::field("list", "invalid_value", "Must be jobs, sessions, sweeps, datasets or models."));
    };
    if form.get("do") == "reset" {
        portal.db.reset_list_columns(user.id(), list.list).await?;
    } else {
        let asked: Vec<&str> = form.all("column").collect();
        let chosen = list.columns.iter().map(|(name, ..)| *name).filter(|name| asked.contains(name));
        portal.db.set_list_columns(user.id(), list.list, &chosen.collect::<Vec<_>>().join(".")).await?;
    }
    Ok(Redirect::to(&way_back(form.get("back"), &format!("/{}", list.list))))
}

/// Returns the address of a list that a form came from, if it is one of `list`.
pub(super) fn way_back(asked: &str, list: &str) -> String {
    let query = asked.strip_prefix(list).filter(|query| query.is_empty() || query.starts_with('?'));
    let is_ours = query.is_some() && asked.bytes().all(|byte| byte.is_ascii_graphic());
    if is_ours { asked.to_owned() } else { list.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_what_is_shown() {
        let shown = |chosen: Option<&str>| {
            let columns = JOBS.of(chosen);
            ["gpus", "size", "outcome"].map(|name| columns.shows(name))
        };
        assert_eq!(shown(None), [true, false, true], "the usual columns");
        assert_eq!(shown(Some("size.gone")), [false, true, false]);
        assert_eq!(shown(Some("")), [false; 3], "none is a choice");
    }

    #[test]
    fn a_form_leads_back_to_its_list_alone() {
        for (asked, back) in [
            ("/jobs", "/jobs"),
            ("/jobs?find=x&sort=-name", "/jobs?find=x&sort=-name"),
            ("/jobsx", "/jobs"),
            ("//elsewhere.org", "/jobs"),
            ("/jobs?\r\nSet-Cookie: x", "/jobs"),
            ("", "/jobs"),
        ] {
            assert_eq!(way_back(asked, "/jobs"), back, "{asked:?}");
        }
    }
}
