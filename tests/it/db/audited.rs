//! Every change that is audited, with its row or not at all: where the row cannot be written,
//! nothing of the change is there either, on both databases; where it can, it names the deed.

use lyceum::{
    db::{
        Db, Error,
        account_invitations::AccountInvitation,
        admit::{AdmissionMode, Cause, NewSession, Verdict},
        audit::ACTIONS,
        directory::{ArrivalOutcome, Group, Person},
        hand_over::Between,
        images::ImageRow,
        jobs::DeleteOutcome,
        limits::{Author, LevelChange},
        logins::Login,
        people::UserChange,
        quotas::Level,
        registry_credentials::RegistryCredentials,
        tokens::Token,
        trash::Expired,
        users::{NewUser, SignIn},
    },
    model::{
        Announcement, AnnouncementId, Clock, Dataset, EndReason, GroupId, GroupName, JobId, LoginId, Maintenance,
        Model, Preset, Role, Run, RunId, SessionId, SweepId, SweepState, TokenId, UserId, Username, Window,
        announcement,
        gpus::WithheldGpu,
        hold::Pause,
        job::Attempt,
        moves::Moves,
        notification::NotificationSettings,
        quota::{Field, Period},
        user::ExpiryChange,
    },
};
use sqlx::{AssertSqlSafe, query_scalar};

use super::{
    BY, House, NOTED, START, add_user, asking, begun, each, ended_job, execute, new_attempt, new_session, on_both,
    running, tables,
};

/// They tell of no change in the database, so that there is nothing to be one with.
const ALONE: [&str; 9] = [
    "sign_in.failed",
    "node.drain",
    "node.resume",
    "packages.reset",
    "queue.cancel",
    "image.clean",
    "image.pull",
    "server.insecure_http",
    "slurm.limits",
];

/// What each deed needs, so that they can be done in any order.
struct Scene<'a> {
    db: &'a Db,
    /// Has a token and a login, is in `vision` and manages it.
    ada: UserId,
    /// Nobody has ever used it.
    unused: UserId,
    disabled: UserId,
    /// Their account ends now.
    expiring: UserId,
    of_directory: UserId,
    /// Groups of a directory: one that it has, and one that is gone.
    of_directorys: [GroupId; 2],
    token: TokenId,
    login: LoginId,
    vision: GroupId,
    empty: GroupId,
    sessions: [SessionId; 3],
    /// Of jobs that live.
    attempts: [SessionId; 2],
    /// Of jobs that have ended.
    ended: [Attempt; 2],
    /// Of one that may be tried again.
    retried: Attempt,
    /// One that runs, one that is paused, another that runs, one that has ended.
    sweeps: [SweepId; 4],
    announcements: [Announcement; 2],
    runs: [Run; 2],
    /// Two of Ada's, and what belongs to the disabled account, which has ended jobs too.
    datasets: [Dataset; 2],
    models: [Model; 2],
    /// What Ada deleted.
    trashed: (JobId, RunId),
}

/// Somebody whose account has ended.
async fn expiring(db: &Db) -> UserId {
    let user = add_user(db, "expiring").await;
    let end = UserChange { expires_at: ExpiryChange::At(START.plus_seconds(1)), ..UserChange::default() };
    db.change_user(user, &end, BY).await.unwrap();
    user
}

/// Adds what can be chosen for sessions: an environment, a profile and a preset.
async fn add_choices(db: &Db, owner: UserId, name: &str) {
    db.add_environment(&super::environments::row(name, 0), &NOTED).await.unwrap();
    db.add_profile(&super::profiles::row(name, 0), &NOTED).await.unwrap();
    assert!(db.add_webhook(&super::events::webhook(name), 99, &NOTED).await.unwrap());
    db.add_preset(&super::presets::preset(owner, name), 99, &NOTED).await.unwrap();
}

/// Adds two datasets and two models, each in a directory of its own.
async fn add_products(db: &Db, owner: UserId) -> ([Dataset; 2], [Model; 2]) {
    let datasets = ["one", "two"].map(|name| dataset(owner, name));
    let models = ["one", "two"].map(|name| {
        let directory = format!("/home/a/models/{name}");
        Model { directory, ..super::models::model(owner, "ada", name) }
    });
    for (dataset, model) in datasets.iter().zip(&models) {
        db.add_dataset(dataset, "{}", None, &NOTED).await.unwrap();
        db.add_model(model, "{}", None, &NOTED).await.unwrap();
    }
    (datasets, models)
}

fn dataset(owner: UserId, name: &str) -> Dataset {
    let directory = format!("/home/a/datasets/{name}");
    Dataset { directory, ..super::datasets::dataset(owner, "ada", name) }
}

impl<'a> Scene<'a> {
    async fn new(db: &'a Db) -> Self {
        let chief = NewUser {
            name: &Username::parse("chief").unwrap(),
            display_name: "",
            unix_name: None,
            role: Role::Admin,
            sign_in: SignIn::Password("$hash"),
        };
        db.add_user(chief, BY).await.unwrap();
        let (ada, unused) = (add_user(db, "ada").await, add_user(db, "unused").await);
        let disabled = add_user(db, "disabled").await;
        add_user(db, "to_be_linked").await;
        let expiring = expiring(db).await;
        db.set_disabled(disabled, true, BY).await.unwrap();
        let person = Person {
            source: "ldap",
            subject: "entryUUID=1",
            name: &Username::parse("carol").unwrap(),
            display_name: "",
            mail: None,
            uid_number: None,
            unix_name: None,
            role: None,
            groups: &["going", "gone"].map(|name| Group { subject: format!("cn={name}"), name: name.to_owned() }),
        };
        let ArrivalOutcome::Known(of_directory) = db.arrive(&person, START).await.unwrap() else {
            panic!("she is new")
        };
        let directorys = async |name| db.find_quota_group(name).await.unwrap().unwrap().id;
        let of_directorys = [directorys("going").await, directorys("gone").await];
        db.group_gone(of_directorys[1], START).await.unwrap();
        let (token, login) = (token(ada), login(ada));
        db.add_token(&token, "a token", None, &NOTED).await.unwrap();
        db.add_login(&login, "a login", &NOTED).await.unwrap();
        let group = async |name| db.add_group(&GroupName::parse(name).unwrap(), None, BY).await.unwrap();
        let (vision, empty) = (group("vision").await, group("empty").await);
        db.set_member(vision, ada, true, BY).await.unwrap();
        db.set_manager(vision, ada, true, BY).await.unwrap();
        for name in ["asked_to_be_withdrawn", "asked_to_accept", "asked_to_decline"] {
            add_user(db, name).await;
            db.invite(vision, name, false, BY).await.unwrap();
        }
        let leaving = add_user(db, "leaving").await;
        db.set_member(vision, leaving, true, BY).await.unwrap();
        let sessions = [running(db, ada).await, running(db, ada).await, running(db, ada).await];
        let live = [new_attempt(ada, "one", None), new_attempt(ada, "two", None)];
        for attempt in &live {
            begun(db, attempt).await;
        }
        let attempts = live.map(|attempt| attempt.id);
        let ended = [ended_job(db, ada, "resumed").await, ended_job(db, ada, "deleted").await];
        let retried = super::holds::failed_job(db, ada, "retried").await;
        let sweeps = super::sweeps::of_every_kind(db, ada).await;
        let held = Pause { of_everybody: false, by: "unused".to_owned(), note: String::new(), at: START };
        db.pause_queue(Some(unused), Some(&held), &NOTED).await.unwrap();
        let announcements = [announcement("one"), announcement("two")];
        db.add_announcement(&announcements[0], None, &NOTED).await.unwrap();
        db.add_announcement(&announcements[1], None, &NOTED).await.unwrap();
        db.add_image(&image("one"), &NOTED).await.unwrap();
        db.set_registry_credentials(ada, &at_registry("nvcr.io"), &NOTED).await.unwrap();
        add_choices(db, ada, "one").await;
        add_choices(db, ada, "two").await;
        db.withhold_gpu(&withheld("GPU-1"), &NOTED).await.unwrap();
        let runs = [super::runs::run(ada, "one"), super::runs::run(ada, "two")];
        db.add_run(&runs[0], None, &NOTED).await.unwrap();
        db.add_run(&runs[1], None, &NOTED).await.unwrap();
        let trashed = (ended_job(db, ada, "in the trash").await.job, super::runs::run(ada, "in the trash"));
        let theirs = super::runs::run(disabled, "theirs");
        assert_eq!(db.delete_job(trashed.0, BY).await.unwrap(), DeleteOutcome::Done);
        for run in [&trashed.1, &theirs] {
            db.add_run(run, None, &NOTED).await.unwrap();
            assert!(db.remove_run(run.id, &NOTED).await.unwrap());
        }
        let (token, login) = (token.id, login.id);
        let (datasets, models) = add_products(db, ada).await;
        ended_job(db, disabled, "theirs").await;
        Self {
            datasets,
            models,
            trashed: (trashed.0, trashed.1.id),
            db,
            ada,
            unused,
            disabled,
            expiring,
            of_directory,
            of_directorys,
            token,
            login,
            vision,
            empty,
            sessions,
            attempts,
            ended,
            retried,
            sweeps,
            announcements,
            runs,
        }
    }

    /// Does what an action is the name of; the id of a session and moments are all that differ
    /// from time to time.
    #[expect(clippy::too_many_lines, reason = "a line for each action")]
    async fn perform(&self, action: &str) -> Result<(), Error> {
        let Self { db, ada, unused, vision, empty, .. } = *self;
        let change = UserChange::default();
        let name = |text: &str| GroupName::parse(text).unwrap();
        let (soon, later) = (START.plus_seconds(1), START.plus_seconds(7200));
        let called = async |name| db.find_user_by_name(name).await.unwrap().unwrap().user.id;
        match action {
            "sign_in" => db.add_login(&login(ada), "fresh", &named(action)).await,
            "sign_out" => db.remove_login(self.login, &named(action)).await,
            "sign_out.everywhere" | "user.sign_out" => db.remove_logins_of(ada, &named(action)).await,
            "password.change" => db.set_password(ada, "$other", None, &named(action)).await,
            "token.rotate" => db.rotate_token(ada, self.token, "another", None, &named(action)).await.map(drop),
            "token.make" => db.add_token(&token(ada), "fresh", None, &named(action)).await,
            "token.revoke" => db.remove_token(ada, self.token, &named(action)).await.map(drop),
            "session.start" => {
                let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
                let (new, clock) = (new_session(ada, 0), Clock::manual(START));
                db.admit(&asking(ada), AdmissionMode::Insert(&new), &clock, admit).await.map(drop)
            }
            "session.ask" => db.ask_owner(self.sessions[0], "chief", "Are they needed?", soon).await.map(drop),
            "session.extend" => {
                let (period, clock) = (Period::default(), Clock::manual(soon));
                db.extend_session(self.sessions[0], &period, &clock, "ada", |_, _| Ok(3600)).await.map(drop)
            }
            "session.stop" => {
                let (id, reason) = (self.sessions[1], EndReason::StoppedByOwner);
                db.begin_stop(id, reason, soon, "Stop", Some("ada")).await.map(drop)
            }
            "session.admin_stop" => {
                let (id, reason) = (self.sessions[2], EndReason::StoppedByAdmin);
                db.begin_stop(id, reason, soon, "Stop", Some("chief")).await.map(drop)
            }
            of if ["dataset.", "model.", "user.hand_over"].iter().any(|kind| of.starts_with(kind)) => {
                self.perform_on_products(of).await
            }
            job if ["job.", "queue.", "sweep.", "run.restore", "trash."].iter().any(|of| job.starts_with(of)) => {
                self.perform_on_jobs(job).await
            }
            "quota.change" => {
                let change = LevelChange::new(Level::Group(vision), each([(Field::Gpus, Some(1))]).to_vec());
                db.change_limits(&[change], &Author::administrator("chief", soon)).await.map(drop)
            }
            "access.lost" => db.leave(self.of_directory, "it is not in the directory", soon).await.map(drop),
            "user.add" => {
                let name = &Username::parse("zoe").unwrap();
                let new =
                    NewUser { name, display_name: "", unix_name: None, role: Role::User, sign_in: SignIn::NotYet };
                db.add_user(new, BY).await.map(drop)
            }
            "user.display_name" => {
                db.change_user(ada, &UserChange { display_name: Some("Ada"), ..change }, BY).await.map(drop)
            }
            "user.role" => {
                db.change_user(ada, &UserChange { role: Some(Role::Operator), ..change }, BY).await.map(drop)
            }
            "user.disable" => db.set_disabled(ada, true, BY).await.map(drop),
            "user.enable" => db.set_disabled(self.disabled, false, BY).await.map(drop),
            "user.expiry" => {
                let expires_at = ExpiryChange::At(soon.plus_seconds(60));
                db.change_user(ada, &UserChange { expires_at, ..change }, BY).await.map(drop)
            }
            "user.dormant" => db.make_dormant(unused, later, later).await.map(drop),
            "user.expire" => db.expire_account(self.expiring, soon.plus_seconds(60)).await.map(drop),
            "user.password_link" => {
                let link = AccountInvitation { hash: "fresh".to_owned(), expires_at: later };
                let user = db.find_user(ada).await.unwrap().unwrap().user;
                db.invite_account(&user, &link, BY).await
            }
            "user.password" => {
                db.change_user(ada, &UserChange { password_hash: Some("$new"), ..change }, BY).await.map(drop)
            }
            "user.link" => db.link_user(&Username::parse("to_be_linked").unwrap(), "ldap", BY).await.map(drop),
            "user.remove" => db.remove_user(unused, BY).await.map(drop),
            "group.add" => db.add_group(&name("speech"), None, BY).await.map(drop),
            "group.rename" => db.rename_group(vision, &name("sight"), BY).await.map(drop),
            "group.remove" => db.remove_group(empty, BY).await.map(drop),
            "group.member_add" => db.set_member(vision, self.disabled, true, BY).await.map(drop),
            "group.member_remove" => db.set_member(vision, ada, false, BY).await.map(drop),
            "group.invite" => db.invite(vision, "to_be_linked", false, BY).await.map(drop),
            "group.invitation_withdraw" => {
                db.withdraw_invitation(vision, "asked_to_be_withdrawn", false, BY).await.map(drop)
            }
            "group.invitation_accept" => {
                db.answer_invitation(vision, called("asked_to_accept").await, true, BY).await.map(drop)
            }
            "group.invitation_decline" => {
                db.answer_invitation(vision, called("asked_to_decline").await, false, BY).await.map(drop)
            }
            "group.leave" => db.leave_group(vision, called("leaving").await, BY).await.map(drop),
            "group.manager_add" => db.set_manager(vision, self.disabled, true, BY).await.map(drop),
            "group.manager_remove" => db.set_manager(vision, ada, false, BY).await.map(drop),
            "group.gone" => db.group_gone(self.of_directorys[0], soon).await.map(drop),
            "group.back" => db.group_back(self.of_directorys[1], soon).await.map(drop),
            "diagnostics.start" => {
                db.add_diagnostics(&super::diagnostics::run(ada, "ada", START), &named(action)).await
            }
            "gpu.hold" => db.withhold_gpu(&withheld("GPU-2"), &named(action)).await,
            "gpu.release" => db.release_gpu("GPU-1", &named(action)).await.map(drop),
            "image.add" => db.add_image(&image("three"), &named(action)).await,
            "registry_credentials.set" => {
                db.set_registry_credentials(ada, &at_registry("quay.io"), &named(action)).await
            }
            "registry_credentials.remove" => {
                db.remove_registry_credentials(ada, "nvcr.io", &named(action)).await.map(drop)
            }
            "preset.add" => db.add_preset(&super::presets::preset(ada, "another"), 99, &named(action)).await.map(drop),
            "preset.change" => {
                let before = db.presets(ada, false).await.unwrap().remove(0);
                let after = Preset { name: "renamed".to_owned(), ..before.clone() };
                db.change_preset(&before, &after, 99, &named(action)).await.map(drop)
            }
            "preset.remove" => {
                let presets = db.presets(ada, false).await.unwrap();
                db.remove_preset(presets.last().unwrap().id, &named(action)).await.map(drop)
            }
            "environment.add" => db.add_environment(&super::environments::row("three", 0), &named(action)).await,
            "environment.change" => {
                let changed = super::environments::row("one", 1);
                db.change_environment(&changed, &named(action)).await.map(drop)
            }
            "environment.remove" => db.remove_environment("two", &named(action)).await.map(drop),
            "webhook.add" => db.add_webhook(&super::events::webhook("new"), 99, &named(action)).await.map(drop),
            "webhook.change" => {
                let changed = db.webhooks().await.unwrap().remove(0);
                db.change_webhook(&changed, &named(action)).await.map(drop)
            }
            "webhook.remove" => {
                let last = db.webhooks().await.unwrap().pop().unwrap();
                db.remove_webhook(last.id, &named(action)).await.map(drop)
            }
            "profile.add" => db.add_profile(&super::profiles::row("three", 0), &named(action)).await,
            "profile.change" => {
                let changed = super::profiles::row("one", 1);
                db.change_profile(&changed, &named(action)).await.map(drop)
            }
            "profile.remove" => db.remove_profile("two", &named(action)).await.map(drop),
            "image.remove" => db.remove_image("one", &named(action)).await.map(drop),
            "announcement.make" => db.add_announcement(&announcement("three"), None, &named(action)).await,
            "announcement.change" => {
                let before = &self.announcements[0];
                let after = Announcement { text: "another".to_owned(), ..before.clone() };
                db.change_announcement(before, &after, &named(action)).await.map(drop)
            }
            "announcement.remove" => db.remove_announcement(self.announcements[1].id, &named(action)).await.map(drop),
            "run.add" => db.add_run(&super::runs::run(ada, "three"), None, &named(action)).await,
            "run.change" => {
                let after = Run { name: "another".to_owned(), ..self.runs[0].clone() };
                db.change_run(&after, &named(action)).await.map(drop)
            }
            "run.remove" => db.remove_run(self.runs[1].id, &named(action)).await.map(drop),
            "notifications.change" => {
                db.set_notification_wishes(ada, &NotificationSettings::default(), &named(action)).await
            }
            "maintenance.on" | "maintenance.change" | "maintenance.off" => {
                let before = db.maintenance().await?;
                let set = Maintenance {
                    message: action.to_owned(),
                    window: Window { from: START, to: None },
                    drain_at: None,
                    admins_may_start: true,
                };
                let after = (action != "maintenance.off").then_some(&set);
                db.set_maintenance(before.as_ref(), after, &named(action)).await.map(drop)
            }
            "database.backup" => db.note_backup(BY).await,
            "audit.prune" => db.prune_audit(later, 3, later).await.map(drop),
            other => panic!("{other} is audited: say here what it does"),
        }
    }

    /// The same, of what jobs make, and of its way to another owner.
    async fn perform_on_products(&self, action: &str) -> Result<(), Error> {
        let Self { db, ada, disabled, .. } = *self;
        let user = async |id| db.find_user(id).await.unwrap().unwrap().user;
        let (ada, disabled, moves) = (user(ada).await, user(disabled).await, Moves::default());
        let to_ada = Between { from: &disabled, to: &ada, moves: &moves, by: BY };
        let from_ada = Between { from: &ada, to: &disabled, ..to_ada };
        match action {
            "dataset.make" => {
                let new = dataset(ada.id, "three");
                db.add_dataset(&new, "{}", None, &named(action)).await
            }
            "dataset.hand_over" => db.hand_over_dataset(&self.datasets[0], from_ada).await.map(drop),
            "dataset.remove" => db.remove_dataset(self.datasets[1].id, &named(action)).await.map(drop),
            "model.train" | "model.import" => {
                let new = super::models::model(ada.id, "ada", action);
                db.add_model(&new, "{}", None, &named(action)).await
            }
            "model.measure" => db.set_model_precisions(self.models[0].id, JobId::new(), &named(action)).await.map(drop),
            "model.hand_over" => db.hand_over_model(&self.models[0], from_ada).await.map(drop),
            "model.remove" => db.remove_model(self.models[1].id, &named(action)).await.map(drop),
            "user.hand_over" => db.hand_over_work(to_ada).await.map(drop),
            other => panic!("{other} is audited: say here what it does"),
        }
    }

    /// The same, of what is done to jobs.
    async fn perform_on_jobs(&self, action: &str) -> Result<(), Error> {
        let Self { db, ada, unused, .. } = *self;
        let soon = START.plus_seconds(1);
        match action {
            "job.submit" => begin(db, &new_attempt(ada, "another", None)).await,
            "job.resume" => begin(db, &new_attempt(ada, "resumed", Some(self.ended[0]))).await,
            "job.retry" => {
                let mut new = new_attempt(ada, "retried", Some(self.retried));
                new.job.as_mut().unwrap().cause = Cause::Retried(START);
                begin(db, &new).await
            }
            "queue.pause" => {
                let pause = Pause { of_everybody: false, by: "ada".to_owned(), note: String::new(), at: START };
                db.pause_queue(Some(ada), Some(&pause), &named(action)).await.map(drop)
            }
            "queue.resume" => db.pause_queue(Some(unused), None, &named(action)).await.map(drop),
            "sweep.submit" => {
                let (new, plan) = super::sweeps::sweep(ada, "another");
                db.add_sweep(&new, &plan, None, &named(action)).await
            }
            "sweep.pause" | "sweep.resume" | "sweep.stop" => {
                use SweepState::{Paused, Running, Stopping};
                let (at, from, to) = match action {
                    "sweep.pause" => (0, Running, Paused),
                    "sweep.resume" => (1, Paused, Running),
                    _ => (2, Running, Stopping),
                };
                db.set_sweep_state(self.sweeps[at], &[from], (to, ""), Some(&named(action))).await.map(drop)
            }
            "sweep.delete" => db.remove_sweep(self.sweeps[3], &named(action)).await.map(drop),
            "job.cancel" => {
                let (id, reason) = (self.attempts[0], EndReason::StoppedByOwner);
                db.begin_stop(id, reason, soon, "Stop", Some("ada")).await.map(drop)
            }
            "job.admin_cancel" => {
                let (id, reason) = (self.attempts[1], EndReason::StoppedByAdmin);
                db.begin_stop(id, reason, soon, "Stop", Some("chief")).await.map(drop)
            }
            "job.delete" => db.delete_job(self.ended[1].job, BY).await.map(drop),
            "job.restore" => db.restore_job(self.trashed.0, ada, BY).await.map(drop),
            "run.restore" => db.restore_run(self.trashed.1, ada, BY).await.map(drop),
            "trash.empty" => db.empty_trash(Expired::Of(self.disabled, BY), 9).await.map(drop),
            other => panic!("{other} is audited: say here what it does"),
        }
    }
}

async fn begin(db: &Db, new: &NewSession) -> Result<(), Error> {
    let admit = |_: &_| Verdict::Admit { gpus: Vec::new() };
    db.admit(&asking(new.owner), AdmissionMode::Insert(new), &Clock::manual(START), admit).await.map(drop)
}

/// What a deed is called whose caller says what is written.
fn named(action: &str) -> lyceum::db::audit::Entry<'_> {
    lyceum::db::audit::Entry { action, ..NOTED }
}

fn login(user: UserId) -> Login {
    let (id, address) = (LoginId::new(), "::1".to_owned());
    Login { id, user, created_at: START, last_seen_at: START, expires_at: START.plus_seconds(60), address }
}

fn token(user: UserId) -> Token {
    let (id, name) = (TokenId::new(), "token".to_owned());
    let expires_at = START.plus_seconds(60);
    Token { id, user, name, scopes: Vec::new(), created_at: START, expires_at, last_used_at: None }
}

fn at_registry(registry: &str) -> RegistryCredentials {
    let (user_name, password) = ("$oauthtoken".to_owned(), "sealed".to_owned());
    RegistryCredentials { registry: registry.to_owned(), user_name, password, saved_at: START }
}

fn withheld(uuid: &str) -> WithheldGpu {
    WithheldGpu { uuid: uuid.to_owned(), reason: "errors".to_owned(), by: "chief".to_owned(), at: START }
}

fn image(name: &str) -> ImageRow {
    ImageRow {
        name: name.to_owned(),
        title: String::new(),
        reference: "nvcr.io/nvidia/fake:1".to_owned(),
        groups: vec!["vision".to_owned()],
        owner: None,
        added_by: "chief".to_owned(),
        added_at: START,
    }
}

fn announcement(text: &str) -> Announcement {
    Announcement {
        id: AnnouncementId::new(),
        level: announcement::Level::Info,
        text: text.to_owned(),
        window: Window { from: START, to: None },
        on_login: false,
        groups: Vec::new(),
        changed_by: "chief".to_owned(),
        changed_at: START,
    }
}

/// From now on no row can be written, as on a disk that is full.
async fn fill_up(house: &House) {
    if house.is_sqlite() {
        execute(&house.db, "CREATE TRIGGER a_full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END").await;
    } else {
        let function = "CREATE FUNCTION a_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'full'; END $$";
        execute(&house.db, function).await;
        let trigger = "CREATE TRIGGER a_full BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION a_full()";
        execute(&house.db, trigger).await;
    }
}

async fn make_room(house: &House) {
    let on = if house.is_sqlite() { "" } else { "ON audit" };
    execute(&house.db, &format!("DROP TRIGGER a_full {on}")).await;
}

/// Every row of every table, as text.
async fn everything(db: &Db) -> Vec<(String, String)> {
    let mut names: Vec<String> = tables(db).await.into_iter().collect();
    names.sort();
    let mut rows = Vec::new();
    for name in names {
        let all = match db {
            Db::Sqlite { read, .. } => {
                let columns = format!("SELECT group_concat(name) FROM pragma_table_info('{name}')");
                let columns: String = query_scalar(AssertSqlSafe(columns)).fetch_one(read).await.unwrap();
                let all = format!("SELECT json_group_array(json_array({columns})) FROM {name}");
                query_scalar(AssertSqlSafe(all)).fetch_one(read).await.unwrap()
            }
            Db::Postgres { read, .. } => {
                let all = format!("SELECT COALESCE(json_agg(t ORDER BY t::text)::text, '') FROM {name} t");
                query_scalar(AssertSqlSafe(all)).fetch_one(read).await.unwrap()
            }
        };
        rows.push((name, all));
    }
    rows
}

async fn all_but_audit(db: &Db) -> Vec<(String, String)> {
    everything(db).await.into_iter().filter(|(table, _)| table != "audit").collect()
}

#[tokio::test]
async fn a_change_whose_row_cannot_be_written_does_not_happen() {
    let test = on_both(async |house| {
        let scene = Scene::new(&house.db).await;
        let deeds = || ACTIONS.iter().filter(|action| !ALONE.contains(action));
        let before = everything(&house.db).await;
        fill_up(house).await;
        for action in deeds() {
            let done = scene.perform(action).await;
            assert!(matches!(done, Err(Error::Query(_))), "{action}: {done:?}");
            assert_eq!(everything(&house.db).await, before, "{action} left something behind");
        }
        make_room(house).await;
        for action in deeds() {
            let known = house.db.list_audit(1).await.unwrap()[0].number;
            let before = all_but_audit(&house.db).await;
            scene.perform(action).await.unwrap();
            let rows = house.db.audit_after(known, 10).await.unwrap();
            let told: Vec<&str> = rows.iter().map(|row| row.action.as_str()).collect();
            assert_eq!(told, [*action]);
            assert_ne!(all_but_audit(&house.db).await, before, "{action} changed nothing");
        }
    });
    Box::pin(test).await;
}
