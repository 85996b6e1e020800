//! A session in every state that a page shows: as people have them, with each word that comes
//! from outside turned into what the gallery shows in its place.

use lyceum::model::{
    EndReason, Gpu, Resources, Session, SessionId, SessionState, UserId,
    quota::{Code, Field, Holder, Reason, Source},
    session::{IdleQuestion, Placement, SessionSpec},
    size::GIB,
};

use super::gallery::{NOW, Word};

/// A session that has just been asked for.
pub fn session(word: &Word, name: &str, state: SessionState) -> Session {
    Session {
        id: SessionId::new(),
        owner: UserId::new(),
        owner_name: word("alice"),
        job: None,
        app: "jupyter".to_owned(),
        name: word(name),
        state,
        spec: SessionSpec {
            resources: Resources { gpus: 2, gpu_model: None, cpus: 16, memory_bytes: 96 * GIB },
            profile: Some(word("2-gpu")),
            environment: Some(word("default")),
            working_directory: Some(word("/home/alice/vision")),
            duration_seconds: 28_800,
            log_directory: None,
            log_directories: std::collections::BTreeMap::new(),
            group: None,
            modules: Vec::new(),
            image: None,
            slurm: lyceum::model::SlurmOptions::default(),
        },
        spec_is_whole: true,
        reasons: Vec::new(),
        gpus: Vec::new(),
        image_digest: None,
        cluster: "local".to_owned(),
        placement: None,
        extensions: 0,
        created_at: NOW.plus_seconds(-24_480),
        admitted_at: None,
        started_at: None,
        ready_at: None,
        expires_at: None,
        opened_at: None,
        last_activity_at: None,
        keep_until: None,
        asked: None,
        unknown_since: None,
        suspended_since: None,
        stop_reason: None,
        stopping_at: None,
        ended_at: None,
        end_reason: None,
        exit_code: None,
        signal: None,
        detail: None,
    }
}

pub fn placed(word: &Word, mut session: Session) -> Session {
    let gpu = |index| Gpu { index, uuid: word(&format!("GPU-5f1c-{index}")), model: word("A100"), slice: None };
    session.gpus = vec![gpu(0), gpu(1)];
    session.admitted_at = Some(NOW.plus_seconds(-24_479));
    session.started_at = Some(NOW.plus_seconds(-24_478));
    session.placement = Some(Placement {
        node: word("node003"),
        pid: 4711,
        start_ticks: 1,
        boot_id: "b".to_owned(),
        uid: 1001,
        unix_name: word("alice"),
        run_directory: "/run/lyceum/x".to_owned(),
        limits: "sampled".to_owned(),
        link: None,
    });
    session
}

pub fn running(word: &Word) -> Session {
    let mut session = placed(word, session(word, "resnet-nb", SessionState::Running));
    session.ready_at = Some(NOW.plus_seconds(-24_470));
    session.expires_at = Some(NOW.plus_seconds(4320));
    session.last_activity_at = Some(NOW.plus_seconds(-20));
    session
}

/// Somebody asks whether its GPUs are still needed.
pub fn asked(word: &Word) -> Session {
    let mut session = running(word);
    session.id = SessionId::new();
    session.asked = Some(IdleQuestion { at: NOW.plus_seconds(-600), by: word("oscar") });
    session
}

pub fn idle(word: &Word) -> Session {
    let mut session = running(word);
    session.id = SessionId::new();
    session.name = word("eda");
    session.expires_at = Some(NOW.plus_seconds(6 * 3600));
    session.last_activity_at = Some(NOW.plus_seconds(-40 * 60));
    session.gpus.clear();
    session.spec.resources = Resources { gpus: 0, gpu_model: None, cpus: 14, memory_bytes: 64 * GIB };
    session
}

pub fn queued(word: &Word) -> Session {
    let mut session = session(word, "vit-sweep", SessionState::Queued);
    let hint = word("Your limit is 4 GPUs and 3 are in use; this asks for 2. Stop ‘resnet-nb’ (2 GPUs) or ask for 1.");
    session.reasons = vec![Reason {
        code: Code::limit(&Field::Gpus, Holder::User),
        source: Source::read(&word("default")),
        used: 3,
        requested: 2,
        limit: 4,
        over_by: 1,
        hint,
    }];
    session
}

pub fn waits_for_environment(word: &Word) -> Session {
    let mut session = queued(word);
    session.reasons[0].hint = word("The environment ‘default’ is still being built: 42 of 118 packages.");
    session
}

pub fn starting(word: &Word) -> Session {
    let mut session = placed(word, session(word, "board", SessionState::Starting));
    session.started_at = Some(NOW.plus_seconds(-3));
    session.app = String::from("tensorboard");
    session.spec.log_directory = Some(word("/home/alice/runs"));
    session
}

pub fn unknown(word: &Word) -> Session {
    let mut session = running(word);
    session.id = SessionId::new();
    session.name = word("gan-nb");
    session.unknown_since = Some(NOW.plus_seconds(-180));
    session
}

pub fn stopping(word: &Word) -> Session {
    let mut session = running(word);
    session.id = SessionId::new();
    session.name = word("old-run");
    session.state = SessionState::Stopping;
    session.stop_reason = Some(EndReason::StoppedByOwner);
    session.stopping_at = Some(NOW.plus_seconds(-4));
    session
}

pub fn ended(word: &Word, name: &str, reason: EndReason, ago: i64) -> Session {
    let mut session = placed(word, session(word, name, SessionState::Ended));
    session.gpus.clear();
    session.spec.resources = Resources { gpus: 0, gpu_model: None, cpus: 2, memory_bytes: 2 * GIB };
    session.started_at = Some(NOW.plus_seconds(-ago - 2460));
    session.ready_at = session.started_at;
    session.ended_at = Some(NOW.plus_seconds(-ago));
    session.last_activity_at = Some(NOW.plus_seconds(-ago - 2000));
    session.end_reason = Some(reason);
    session
}

pub fn out_of_memory(word: &Word) -> Session {
    ended(word, "tokenizer", EndReason::OutOfMemory, 9 * 60)
}
