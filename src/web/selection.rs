//! Actions on several rows of a list at once: what the forms around the lists send, how many rows were changed, and what
//! the list says of it afterwards. A row whose state does not allow it is counted and left as it is. Those of jobs are in
//! `jobs::list`.

use std::{str::FromStr, sync::Arc};

use axum::{extract::State, response::Redirect};

use super::{
    Portal,
    columns::way_back,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Form},
        href::href,
    },
    views::ListFrame,
};
use crate::model::{DatasetId, ModelId, SessionId, SweepId};

/// At most so many rows are changed at once.
const MAX_SELECTED: usize = 500;

/// How many rows were changed, and how many were not.
#[derive(Default)]
pub(super) struct Tally {
    done: u32,
    failed: u32,
}

impl Tally {
    /// Counts the outcome of one row. Somebody else may have been faster, and not every state allows every action; any other
    /// error ends the action.
    pub(super) fn count(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) if error.is_about_state() => self.failed += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Leads back to the list that the form came from. `deleted`: between which moments some were deleted that can be
    /// restored.
    pub(super) fn redirect(&self, form: &Form, list: &str, deed: &str, deleted: &str) -> Redirect {
        let done = format!("{deed}-{}", self.done);
        let failed = if self.failed == 0 { "" } else { "yes" };
        Redirect::to(&href(
            &way_back(form.get("back"), list),
            [("done", done.as_str()), ("failed", failed), ("deleted", deleted)],
        ))
    }
}

/// Returns which of the deeds is asked for.
pub(super) fn deed<'a>(form: &'a Form, deeds: &[&str]) -> Result<&'a str> {
    let asked = form.get("do");
    if deeds.contains(&asked) {
        return Ok(asked);
    }
    Err(Error::field("do", "invalid_value", format!("Must be one of {}.", deeds.join(", "))))
}

/// Returns the ids of the selected rows.
pub(super) fn ids<I: FromStr>(form: &Form) -> Vec<I> {
    form.all("item").take(MAX_SELECTED).filter_map(|id| id.parse().ok()).collect()
}

/// Adds what an action did to the page that follows it.
pub(super) fn told(frame: ListFrame, done: &str, failed: &str, noun: &str) -> ListFrame {
    let error =
        (!failed.is_empty()).then(|| format!("Some {noun}s were not changed, because their state does not allow it."));
    let is_without_choice = error.is_none() && done.ends_with("-0");
    ListFrame { notice: notice(done, noun), is_without_choice, error, ..frame }
}

fn notice(done: &str, noun: &str) -> Option<String> {
    let (deed, count) = done.split_once('-')?;
    let count: u32 = count.parse().ok().filter(|count| *count > 0)?;
    let things = if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    Some(match deed {
        "cancel" => format!("Cancelling {things}."),
        "stop" => format!("Stopping {things}."),
        "delete" => format!("{things} deleted."),
        "remove" => format!("{things} removed. The files are kept."),
        "restore" => format!("{things} restored."),
        "star" => format!("{things} starred."),
        "tag" => format!("{things} tagged."),
        _ => return None,
    })
}

/// `POST /sessions/selection`
pub(super) async fn sessions(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let deed = deed(&form, &["stop"])?;
    let mut tally = Tally::default();
    for id in ids::<SessionId>(&form) {
        tally.count(portal.sessions.stop(user.actor(), id).await.map(drop).map_err(Error::from))?;
    }
    Ok(tally.redirect(&form, "/sessions", deed, ""))
}

/// `POST /sweeps/selection`
pub(super) async fn sweeps(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let deed = deed(&form, &["stop", "delete"])?;
    let mut tally = Tally::default();
    for id in ids::<SweepId>(&form) {
        let outcome = match deed {
            "stop" => portal.sweeps.stop(user.actor(), id).await.map(drop),
            _ => portal.sweeps.delete(user.actor(), id).await,
        };
        tally.count(outcome.map_err(Error::from))?;
    }
    Ok(tally.redirect(&form, "/sweeps", deed, ""))
}

/// `POST /datasets/selection`: the files are kept.
pub(super) async fn datasets(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let deed = deed(&form, &["remove"])?;
    let mut tally = Tally::default();
    for id in ids::<DatasetId>(&form) {
        tally.count(portal.datasets.remove(user.actor(), id, false).await.map_err(Error::from))?;
    }
    Ok(tally.redirect(&form, "/datasets", deed, ""))
}

/// `POST /models/selection`: the files are kept.
pub(super) async fn models(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Redirect> {
    let deed = deed(&form, &["remove"])?;
    let mut tally = Tally::default();
    for id in ids::<ModelId>(&form) {
        tally.count(portal.models.remove(user.actor(), id, false).await.map_err(Error::from))?;
    }
    Ok(tally.redirect(&form, "/models", deed, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_with_its_number() {
        for (done, words) in [
            ("cancel-1", Some("Cancelling 1 job.")),
            ("delete-3", Some("3 jobs deleted.")),
            ("delete-x", None),
            ("delete-0", None),
            ("burn-1", None),
            ("", None),
        ] {
            assert_eq!(notice(done, "job").as_deref(), words);
        }
        let told = told(ListFrame::default(), "", "yes", "sweep");
        assert_eq!(told.error.as_deref(), Some("Some sweeps were not changed, because their state does not allow it."));
    }

    #[test]
    fn nothing_selected_is_not_a_success() {
        let nothing = told(ListFrame::default(), "delete-0", "", "job");
        assert!(nothing.is_without_choice && nothing.notice.is_none() && nothing.error.is_none());
        let failed = told(ListFrame::default(), "delete-0", "yes", "job");
        assert!(!failed.is_without_choice && failed.notice.is_none() && failed.error.is_some());
        assert!(!told(ListFrame::default(), "delete-10", "", "job").is_without_choice);
    }

    #[test]
    fn a_fault_of_the_form_ends_the_action() {
        let mut tally = Tally::default();
        tally.count(Ok(())).unwrap();
        tally.count(Err(Error::not_found())).unwrap();
        tally.count(Err(Error::conflict("It is being built."))).unwrap();
        assert_eq!((tally.done, tally.failed), (1, 2));
        assert!(tally.count(Err(Error::field("tag", "invalid_value", "Too long."))).is_err());
    }
}
