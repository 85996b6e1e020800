//! What the lists of jobs and of runs show of the trash: *Undo* for what was just deleted, and everything that can still be
//! restored.

use super::Moment;
use crate::{
    db::trash::{TrashSize, Trashed, TrashedId},
    model::Timestamp,
};

/// The panel shows so many.
const MAX_ROWS: usize = 50;

/// One's trash.
#[derive(Clone, Debug, Default)]
pub struct TrashPanel {
    pub rows: Vec<TrashRow>,
    /// “3 jobs and 1 run”; empty without any.
    pub words: String,
    /// There are so many more than the rows.
    pub more: i64,
    /// The jobs that were just deleted.
    pub undo: Vec<String>,
}

/// One job or run.
#[derive(Clone, Debug)]
pub struct TrashRow {
    pub is_job: bool,
    pub id: String,
    pub name: String,
    pub deleted: Moment,
}

impl TrashPanel {
    #[must_use]
    pub fn new(items: &[Trashed], size: TrashSize, just: Option<(i64, i64)>, now: Timestamp) -> Self {
        let is_just = |one: &Trashed| just.is_some_and(|(from, to)| (from..=to).contains(&one.deleted_at.0));
        let job = |one: &Trashed| match one.what {
            TrashedId::Job(id) => Some(id.to_string()),
            TrashedId::Run(_) => None,
        };
        let undo = items.iter().filter(|one| is_just(one)).filter_map(job).collect();
        let rows = items.iter().take(MAX_ROWS).map(|one| TrashRow {
            is_job: matches!(one.what, TrashedId::Job(_)),
            id: match one.what {
                TrashedId::Job(id) => id.to_string(),
                TrashedId::Run(id) => id.to_string(),
            },
            name: one.name.clone(),
            deleted: Moment::ago(one.deleted_at, now),
        });
        let rows: Vec<TrashRow> = rows.collect();
        let more = size.jobs + size.runs - i64::try_from(rows.len()).unwrap_or(i64::MAX);
        Self { rows, words: words(size), more: more.max(0), undo }
    }
}

fn words(size: TrashSize) -> String {
    let things = |count: i64, noun: &str| match count {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    };
    let both: Vec<String> = [things(size.jobs, "job"), things(size.runs, "run")].into_iter().flatten().collect();
    both.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{JobId, RunId};

    #[test]
    fn undo_is_of_the_last_action_alone() {
        let job = |at| Trashed { what: TrashedId::Job(JobId::new()), name: String::new(), deleted_at: Timestamp(at) };
        let run = Trashed { what: TrashedId::Run(RunId::new()), name: String::new(), deleted_at: Timestamp(12) };
        let items = [job(12), job(10), job(9), job(13), run];
        let size = TrashSize { jobs: 70, runs: 1 };
        let panel = TrashPanel::new(&items, size, Some((10, 12)), Timestamp(20));
        assert_eq!(
            panel.undo,
            [&items[0], &items[1]].map(|one| match one.what {
                TrashedId::Job(id) => id.to_string(),
                TrashedId::Run(id) => id.to_string(),
            })
        );
        assert_eq!((panel.words.as_str(), panel.more), ("70 jobs and 1 run", 66));
        assert_eq!(TrashPanel::new(&items, size, None, Timestamp(20)).undo, [""; 0]);
        assert_eq!(words(TrashSize::default()), "");
    }
}
