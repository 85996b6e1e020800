//! The order of the list of jobs, for the page and the API alike. The database sorts by its own columns; how far a program
//! is stands in what it logs, so that order has the running jobs alone, which are few enough to be sorted here.

use std::cmp::Reverse;

use crate::{
    db::{
        jobs::{JobFilter, SORT_COLUMNS},
        ordering::SortColumn,
    },
    model::{Job, JobId, SessionState},
    web::{
        Portal,
        http::{
            error::Result,
            sorting::{Position, Sorting},
        },
    },
};

/// The share of its steps or epochs that a running job has done.
const PROGRESS: &str = "progress";

/// The columns that jobs are sorted by.
pub(super) const COLUMNS: [SortColumn; 7] = {
    let [created, name, state, started, duration, gpus] = SORT_COLUMNS;
    [created, name, state, SortColumn::number(PROGRESS, ""), started, duration, gpus]
};

/// The most jobs that are sorted by progress: the newest running ones.
pub(super) const MAX_RUNNING: i64 = 500;

/// Returns whether a list in this order has the running jobs alone.
pub(super) fn is_of_running(sorting: &Sorting) -> bool {
    sorting.name() == PROGRESS
}

/// Lists jobs, each with the value that the list is sorted by. Order and position of the filter are set here.
pub(super) async fn listed(
    portal: &Portal,
    filter: JobFilter<'_>,
    sorting: &Sorting,
    position: &Position<JobId>,
) -> Result<Vec<(Job, String)>> {
    if !is_of_running(sorting) {
        let filter = JobFilter { sort: sorting.sort(position), before: position.before, ..filter };
        return Ok(portal.jobs.list_sorted(filter).await?);
    }
    if filter.state.is_some_and(|state| state != SessionState::Running) {
        return Ok(Vec::new());
    }
    let running = JobFilter { state: Some(SessionState::Running), limit: MAX_RUNNING, ..filter };
    let jobs = portal.jobs.list(running).await?;
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let progress = portal.runs.progress_of_jobs(&ids).await?;
    let share = |id: JobId| progress.get(&id)?.extent?.share();
    let sorted = jobs.into_iter().map(|job| (per_mille(share(job.id)), job)).collect();
    let after = sorting.sort(position).and_then(|sort| sort.after?.parse().ok()).zip(position.before);
    let most = usize::try_from(filter.limit).unwrap_or(0);
    let page = page(sorted, |job: &Job| job.id, sorting.is_descending(), after);
    Ok(page.into_iter().take(most).map(|(share, job)| (job, share.to_string())).collect())
}

/// A job that logs no progress stands below one that is at its beginning.
#[expect(clippy::cast_possible_truncation, reason = "a share is from 0 to 1")]
fn per_mille(share: Option<f64>) -> i64 {
    share.map_or(-1, |share| (share * 1000.0).floor() as i64)
}

/// Sorts rows by their value and then by their id, and returns those behind a position.
fn page<T, I: Ord + Copy>(
    mut rows: Vec<(i64, T)>,
    id: impl Fn(&T) -> I,
    is_descending: bool,
    after: Option<(i64, I)>,
) -> Vec<(i64, T)> {
    let place = |(value, row): &(i64, T)| (*value, id(row));
    if is_descending {
        rows.sort_by_key(|row| Reverse(place(row)));
        rows.retain(|row| after.is_none_or(|after| place(row) < after));
    } else {
        rows.sort_by_key(place);
        rows.retain(|row| after.is_none_or(|after| after < place(row)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_progress_follow_one_another() {
        assert_eq!([None, Some(0.0), Some(0.4567), Some(1.0)].map(per_mille), [-1, 0, 456, 1000]);
        let rows = || vec![(-1, 'a'), (500, 'b'), (-1, 'c'), (20, 'd'), (500, 'e')];
        let of = |is_descending, after| -> String {
            page(rows(), |row| *row, is_descending, after).into_iter().map(|(_, row)| row).collect()
        };
        assert_eq!(of(true, None), "ebdca");
        assert_eq!(of(true, Some((500, 'b'))), "dca");
        assert_eq!(of(false, None), "acdbe");
        // The row before is gone: the page goes on where it was.
        assert_eq!(of(false, Some((-1, 'b'))), "cdbe");
    }
}
