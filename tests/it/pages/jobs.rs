//! The pages of jobs: the list, filled and empty, the form with and without faults, and one job
//! that runs and one that failed.

use lyceum::{
    db::trash::{TrashSize, Trashed, TrashedId},
    model::{EndReason, Job, JobId, RunId, Session, SessionState, job::Attempt, job::Visibility},
    runs::{Extent, JobProgress, LoggedMetric, SmallLine},
    web::{markdown::Markdown, page::Nav, views::*},
};

use super::{
    gallery::{NOW, Word, layout, meters},
    session_form::new_session,
    sessions::{out_of_memory, queued, running, session},
};

fn job(word: &Word, name: &str, attempt: i64, latest: Session) -> Job {
    let id = JobId::new();
    Job {
        id,
        owner: latest.owner,
        owner_name: word("alice"),
        name: word(name),
        notes: word("# Baseline"),
        tags: vec![word("vision"), word("imagenet")],
        starred: attempt == 2,
        visibility: Visibility::Group,
        created_at: NOW.plus_seconds(-30_000),
        attempt,
        retries_left: 2,
        is_helper: attempt == 3,
        latest: Session { job: Some(Attempt { job: id, number: attempt }), app: "job".to_owned(), ..latest },
    }
}

fn exited(word: &Word, code: i64) -> Session {
    Session {
        ready_at: Some(NOW.plus_seconds(-9000)),
        ended_at: Some(NOW.plus_seconds(-600)),
        end_reason: Some(EndReason::Exited),
        exit_code: Some(code),
        detail: Some(word("the program ended (exit code 1): ValueError: shapes (32, 10) and (32, 12) do not match")),
        ..session(word, "preprocess", SessionState::Ended)
    }
}

pub fn list(word: &Word) -> JobsPage {
    let rows = [
        job(word, "resnet50, lr 0.1", 2, running(word)),
        job(word, "resnet50, lr 0.3", 1, queued(word)),
        job(word, "preprocess", 1, exited(word, 1)),
        job(word, "mnist", 1, exited(word, 0)),
        job(word, "bert-large", 3, out_of_memory(word)),
    ];
    JobsPage {
        layout: layout(word).at(Nav::Jobs),
        pauses: vec![word("root paused the job queue: a new disk")],
        is_paused: false,
        all_is_paused: true,
        search: JobSearch {
            find: word("res"),
            tag: word("vision"),
            group: word("speech"),
            helpers: true,
            all: true,
            ..JobSearch::default()
        },
        rows: rows.into_iter().map(|job| JobRow::new(job, true, NOW).with_progress(Some(progress(word)))).collect(),
        groups: vec![word("vision"), word("speech")],
        try_key: None,
        has_queue: true,
        most_running: Some(500),
        frame: ListFrame {
            notice: Some("Cancelling 2 jobs.".to_owned()),
            error: Some("Some jobs were not changed, because their state does not allow it.".to_owned()),
            ..frame()
        },
        trash: trash(word),
    }
}

/// What was deleted, some of it just now.
pub fn trash(word: &Word) -> TrashPanel {
    let one =
        |what, name: &'static str, ago: i64| Trashed { what, name: word(name), deleted_at: NOW.plus_seconds(-ago) };
    let items =
        [one(TrashedId::Job(JobId::new()), "resnet50, lr 0.1", 5), one(TrashedId::Run(RunId::new()), "baseline", 7200)];
    let just = (NOW.plus_seconds(-5).0, NOW.0);
    TrashPanel::new(&items, TrashSize { jobs: 70, runs: 1 }, Some(just), NOW)
}

fn frame() -> ListFrame {
    let columns = [
        ("gpus", "GPUs"),
        ("size", "Size"),
        ("progress", "Progress"),
        ("metric", "Last value"),
        ("created", "Submitted"),
        ("started", "Started"),
        ("duration", "Duration"),
        ("outcome", "Outcome"),
    ];
    super::frame("jobs", &["name", "gpus", "created", "started"], &columns)
}

fn progress(word: &Word) -> JobProgress {
    JobProgress {
        extent: Some(Extent { unit: "step", done: 504, total: Some(1200) }),
        metrics: vec![LoggedMetric {
            name: word("val/accuracy"),
            last: 0.9123,
            line: SmallLine { from: 0, to: 500, values: vec![Some(0.2), Some(0.7), None, Some(0.9)] },
        }],
    }
}

pub fn empty(word: &Word) -> JobsPage {
    JobsPage {
        pauses: Vec::new(),
        search: JobSearch::default(),
        rows: Vec::new(),
        try_key: Some(word("key")),
        frame: ListFrame { next_href: None, is_without_choice: true, ..frame() },
        ..list(word)
    }
}

pub fn new(word: &Word) -> NewJob {
    let like = new_session(word);
    NewJob {
        layout: layout(word).at(Nav::Jobs),
        sizes: like.sizes,
        custom: like.custom,
        gpu_models: like.gpu_models,
        groups: like.groups,
        environments: like.environments,
        own_environments: like.own_environments,
        images: like.images,
        modules: like.modules,
        durations: NewSession::durations(172_800, 172_800),
        meters: meters(word),
        slurm_fields: like.slurm_fields,
        form: NewSessionForm { duration: "172800".to_owned(), ..like.form },
        work: WorkForm {
            command: word("python train.py --epochs 10"),
            script: word("#!/bin/bash\n"),
            notes: word("A *baseline* without augmentation."),
            slurm: Some(SlurmForm { sbatch: true, nodes: "2".to_owned(), tasks_per_node: word("4") }),
            ..WorkForm::default()
        },
        errors: Vec::new(),
        verdict: like.verdict,
        copy_of: None,
        presets: like.presets,
        base_url: like.base_url,
    }
}

pub fn new_wrong(word: &Word) -> NewJob {
    let wrong = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    NewJob {
        work: WorkForm {
            is_script: true,
            script: word("#!/bin/bash\npython train.py --data $DATA\n"),
            variables: word("DATA"),
            after: word("0190a1b2"),
            tags: word("paper, vision!"),
            several: SeveralForm { parameters: word("lr: 0.1"), trials: word("many"), ..SeveralForm::default() },
            live: vec![(JobId::new().to_string(), word("preprocess"))],
            ..WorkForm::default()
        },
        errors: vec![
            wrong("script", "must have at most 64 KiB: put the rest into a file and run it"),
            wrong("variables", "`DATA` is not of the form `NAME=value`"),
            wrong("parameters", "`lr: 0.1` is not of the form `name = values`"),
            wrong("tags", "each tag must have 1 to 32 letters, digits, spaces and - _ . : / +"),
            wrong("trials", "must be a whole number"),
            wrong("after", "`0190a1b2` is not the ID of a job"),
            wrong("working_directory", "/scratch/alise does not exist: create it first, or choose another"),
        ],
        copy_of: Some((JobId::new().to_string(), word("resnet50, lr 0.1"))),
        ..new(word)
    }
}

pub fn show(word: &Word, latest: Session) -> ShowJob {
    let is_live = latest.state.is_live();
    let job = job(word, "resnet50, lr 0.1", 2, latest);
    let (class, state) = session_badge(&job.latest);
    let around = SentenceContext { now: NOW, is_own: true, ..SentenceContext::default() };
    let line = |attempt, seconds: i64, state, lasted: Option<&str>, text: &str| TimelineLine {
        at: Moment::clock(NOW.plus_seconds(seconds), NOW),
        attempt,
        state,
        lasted: lasted.map(str::to_owned),
        text: word(text),
    };
    let facts = ShowSession::facts(&job.latest, "Job");
    ShowJob {
        layout: layout(word).at(Nav::Jobs),
        tab: JobTab::Overview,
        logged: LoggedOverview::new(progress(word), is_live, Some(9000)),
        system: facts.clone(),
        id: job.id.to_string(),
        class,
        word: state,
        sentence: sentence(&job.latest, &around),
        starred: true,
        tags: job.tags.clone(),
        is_helper: true,
        attempt: 2,
        earlier: vec![1],
        several: true,
        caveats: Vec::new(),
        ask: is_live.then(|| (word("oscar"), Moment::ago(NOW.plus_seconds(-600), NOW))),
        idle_gpus: is_live.then(|| super::gallery::IDLE.to_owned()),
        program_notes: if is_live {
            vec![word("2 GPUs allocated; JAX sees only CPUs: choose an environment with CUDA")]
        } else {
            Vec::new()
        },
        advice: (!is_live).then(|| super::gallery::ADVICE.to_owned()),
        is_own: true,
        is_live,
        terminal: is_live.then(|| format!("/s/{}/", JobId::new())),
        may_cancel: is_live,
        may_resume: !is_live,
        may_delete: !is_live,
        timeline: vec![
            line(2, -24_000, "running", None, "Program started"),
            line(2, -24_010, "starting", Some("10 s"), "Submitted to the scheduler"),
            line(2, -24_011, "queued", Some("1 s"), "Requested"),
            line(1, -26_000, "ended", None, "Stopped by its owner"),
            line(1, -30_000, "running", Some("1 h 6 min"), "Program started"),
        ],
        log: Some(word("epoch 1/90: loss 6.21, accuracy 0.01\nepoch 2/90: loss 5.43, accuracy 0.04\n")),
        is_script: true,
        program: word("#!/bin/bash\nset -e\npython train.py --lr 0.1\n"),
        variables: vec![(word("SEED"), word("7"))],
        facts,
        sweep: Some((JobId::new().to_string(), word("learning rate"))),
        follows: vec![
            FollowedJob { id: JobId::new().to_string(), name: Some(word("preprocess")), words: "succeeded" },
            FollowedJob { id: JobId::new().to_string(), name: None, words: "was deleted" },
        ],
        moments: ShowSession::moments(&job.latest, NOW),
        notes: Markdown::new(&word(
            "The **baseline**; see [the paper](https://example.org/resnet).\n\n- lr 0.1\n- 90 epochs",
        )),
        typed: JobForm {
            name: job.name.clone(),
            notes: word("The **baseline**"),
            tags: word("vision, imagenet"),
            visibility: "group".to_owned(),
        },
        errors: Vec::new(),
        name: job.name,
        owner: job.owner_name,
    }
}

pub fn show_failed(word: &Word) -> ShowJob {
    show(word, exited(word, 1))
}

/// The other parts of the page of a job that runs.
pub fn tabs(word: &Word) -> [(&'static str, ShowJob); 4] {
    let parts = [
        ("job-metrics", JobTab::Metrics),
        ("job-log", JobTab::Log),
        ("job-system", JobTab::System),
        ("job-config", JobTab::Config),
    ];
    parts.map(|(name, tab)| (name, ShowJob { tab, ..show(word, running(word)) }))
}

/// What the home page shows of them.
pub fn live(word: &Word) -> Vec<JobRow> {
    vec![
        JobRow::new(job(word, "resnet50, lr 0.1", 2, running(word)), true, NOW),
        JobRow::new(job(word, "resnet50, lr 0.3", 1, queued(word)), true, NOW),
    ]
}
