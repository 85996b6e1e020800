//! Lists in the order of a column, on both databases: the pages of a list show every row once, in the order in which one
//! long page shows them, whatever the values are; and the columns that users chose.

use lyceum::{
    db::{
        Db,
        datasets::{self, DatasetFilter},
        jobs::{self, JobFilter},
        models::{self, ModelFilter},
        ordering::{SortBy, SortColumn},
        sessions::{self, Filter},
        sweeps::{self, SweepFilter},
    },
    model::{JobId, SessionId, SessionState, Timestamp, UserId},
};

use super::{NOTED, add_user, begun, execute, new_attempt, new_session, on_both, waiting};

/// Names that a language sorts otherwise than bytes do, and equal ones.
const NAMES: [&str; 7] = ["beta", "Alpha", "alpha", "_x", "Émile", "alpha", "run 10"];

/// A page of two rows after another one, for as long as there are some.
async fn paged<I: Copy + PartialEq + std::fmt::Debug>(
    column: &'static SortColumn,
    is_descending: bool,
    list: impl AsyncFn(SortBy<'_>, Option<I>, i64) -> Vec<(I, String)>,
) -> Vec<I> {
    let entire = list(SortBy { column, is_descending, after: None }, None, 100).await;
    let mut found: Vec<(I, String)> = Vec::new();
    loop {
        let previous = found.last().cloned();
        let after = previous.as_ref().map(|(_, value)| value.as_str());
        let next = list(SortBy { column, is_descending, after }, previous.as_ref().map(|(id, _)| *id), 2).await;
        if next.is_empty() {
            break;
        }
        found.extend(next);
    }
    assert_eq!(found, entire, "{column:?}, descending: {is_descending}");
    found.into_iter().map(|(id, _)| id).collect()
}

async fn every_way<I: Copy + PartialEq + std::fmt::Debug>(
    columns: &'static [SortColumn],
    rows: usize,
    list: impl AsyncFn(SortBy<'_>, Option<I>, i64) -> Vec<(I, String)>,
) {
    for column in columns {
        let up = paged(column, false, &list).await;
        let mut down = paged(column, true, &list).await;
        down.reverse();
        assert_eq!((up.len(), &up), (rows, &down), "{column:?}: the opposite order is the same one from its end");
    }
}

fn column(columns: &'static [SortColumn], name: &str) -> &'static SortColumn {
    columns.iter().find(|column| column.name == name).unwrap()
}

/// Jobs with these names, of which each second one has started, with as many GPUs as its name has letters.
async fn jobs_of(db: &Db, owner: UserId) -> Vec<JobId> {
    let mut made = Vec::new();
    for (at, name) in NAMES.iter().enumerate() {
        let mut new = new_attempt(owner, name, None);
        new.spec.resources.gpus = i64::try_from(name.len()).unwrap();
        let attempt = begun(db, &new).await;
        if at % 2 == 0 {
            execute(db, &format!("UPDATE sessions SET ready_at = {} WHERE id = '{}'", 1000 - at / 4, new.id)).await;
        }
        made.push(attempt.job);
    }
    made
}

#[tokio::test]
async fn jobs_are_sorted_by_each_column() {
    on_both(async |house| {
        let db = &house.db;
        let (owner, other) = (add_user(db, "a").await, add_user(db, "b").await);
        let made = jobs_of(db, owner).await;
        let of = async |filter: JobFilter<'_>| {
            let found = db.list_jobs_sorted(filter).await.unwrap();
            found.into_iter().map(|(job, value)| (job.id, value)).collect::<Vec<_>>()
        };
        let mine = JobFilter { owner: Some(owner), ..JobFilter::default() };
        every_way(&jobs::SORT_COLUMNS, 7, async |sort, before, limit| {
            of(JobFilter { sort: Some(sort), before, limit, ..mine }).await
        })
        .await;
        begun(db, &new_attempt(other, "beta", None)).await;
        // Operators, and users among what they may see.
        every_way(&jobs::SORT_COLUMNS, 8, async |sort, before, limit| {
            of(JobFilter { sort: Some(sort), before, limit, ..JobFilter::default() }).await
        })
        .await;
        execute(db, &format!("UPDATE jobs SET visibility = 'everybody' WHERE id = '{}'", made[0])).await;
        every_way(&jobs::SHARED_SORT_COLUMNS, 2, async |sort, before, limit| {
            of(JobFilter { reader: Some(other), sort: Some(sort), before, limit, ..JobFilter::default() }).await
        })
        .await;
        let live = JobFilter { live_only: true, find: "ALPHA", ..mine };
        every_way(&jobs::SORT_COLUMNS, 3, async |sort, before, limit| {
            of(JobFilter { sort: Some(sort), before, limit, ..live }).await
        })
        .await;
        let most = SortBy { column: column(&jobs::SORT_COLUMNS, "gpus"), is_descending: true, after: None };
        let found = of(JobFilter { sort: Some(most), limit: 2, ..mine }).await;
        assert_eq!(found, [(made[6], "6".to_owned()), (made[4], "6".to_owned())], "`Émile` has six bytes");
    })
    .await;
}

#[tokio::test]
async fn the_other_lists_are_sorted_by_each_column() {
    on_both(async |house| {
        let db = &house.db;
        let owner = add_user(db, "a").await;
        for (at, name) in NAMES.iter().enumerate() {
            let mut new = new_session(owner, i64::try_from(at % 3).unwrap());
            new.name = (*name).to_owned();
            new.app = ["jupyter", "terminal"][at % 2].to_owned();
            waiting(db, &new).await;
            let (sweep, plan) = super::sweeps::sweep(owner, name);
            db.add_sweep(&sweep, &plan, None, &NOTED).await.unwrap();
            let dataset = super::datasets::dataset(owner, "a", name);
            db.add_dataset(&dataset, "{}", None, &NOTED).await.unwrap();
            let model = super::models::model(owner, "a", name);
            db.add_model(&model, "{}", None, &NOTED).await.unwrap();
            execute(db, &format!("UPDATE datasets SET pictures = {} WHERE id = '{}'", at / 2, dataset.id)).await;
            execute(db, &format!("UPDATE models SET snapshots = {} WHERE id = '{}'", at / 2, model.id)).await;
        }
        for owner in [Some(owner), None] {
            every_way::<SessionId>(&sessions::SORT_COLUMNS, 7, async |sort, before, limit| {
                let filter =
                    Filter { owner, sessions_only: true, sort: Some(sort), before, limit, ..Filter::default() };
                let found = db.list_sessions_sorted(filter).await.unwrap();
                found.into_iter().map(|(one, value)| (one.id, value)).collect()
            })
            .await;
            every_way(&sweeps::SORT_COLUMNS, 7, async |sort, before, limit| {
                let filter = SweepFilter { owner, sort: Some(sort), before, limit, ..SweepFilter::default() };
                let found = db.list_sweeps(filter).await.unwrap();
                found.into_iter().map(|(one, value)| (one.id, value)).collect()
            })
            .await;
        }
        execute(db, "UPDATE sessions SET state = 'ended', ended_at = 5 + gpus").await;
        let (from, to) = (Some(Timestamp(6)), Some(Timestamp(7)));
        let ended =
            Filter { state: Some(SessionState::Ended), ended_from: from, ended_before: to, ..Filter::default() };
        for owner in [Some(owner), None] {
            every_way::<SessionId>(&sessions::ENDED_SORT_COLUMNS, 2, async |sort, before, limit| {
                let found = db.list_sessions_sorted(Filter { owner, sort: Some(sort), before, limit, ..ended }).await;
                found.unwrap().into_iter().map(|(one, value)| (one.id, value)).collect()
            })
            .await;
        }
        let viewer = owner;
        every_way(&datasets::SORT_COLUMNS, 7, async |sort, before, limit| {
            let filter = DatasetFilter { viewer, own: false, state: None, find: "", sort: Some(sort), before, limit };
            let found = db.list_datasets(filter).await.unwrap();
            found.into_iter().map(|(one, value)| (one.id, value)).collect()
        })
        .await;
        every_way(&models::SORT_COLUMNS, 7, async |sort, before, limit| {
            let (own, dataset, parent, find, sort) = (false, None, None, "", Some(sort));
            let filter = ModelFilter { viewer, own, dataset, parent, find, sort, before, limit };
            let found = db.list_models(filter).await.unwrap();
            found.into_iter().map(|(one, value)| (one.id, value)).collect()
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn chosen_columns_are_kept_for_each_user_and_list() {
    on_both(async |house| {
        let db = &house.db;
        let (a, b) = (add_user(db, "a").await, add_user(db, "b").await);
        assert_eq!(db.list_columns(a, "jobs").await.unwrap(), None);
        db.set_list_columns(a, "jobs", "size").await.unwrap();
        db.set_list_columns(a, "jobs", "size.started").await.unwrap();
        db.set_list_columns(a, "models", "").await.unwrap();
        assert_eq!(db.list_columns(a, "jobs").await.unwrap().as_deref(), Some("size.started"));
        assert_eq!(db.list_columns(a, "models").await.unwrap().as_deref(), Some(""));
        assert_eq!(db.list_columns(b, "jobs").await.unwrap(), None);
        db.reset_list_columns(a, "jobs").await.unwrap();
        assert_eq!(db.list_columns(a, "jobs").await.unwrap(), None);
        let job = begun(db, &new_attempt(a, "train", None)).await.job;
        assert_eq!(db.runs_of_jobs(&[job]).await.unwrap(), [], "nobody has read its logs");
    })
    .await;
}
