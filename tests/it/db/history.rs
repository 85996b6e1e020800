//! A database that has lived: every table filled, opened again by the same program, and all
//! of it read back; and a copy of it.

use lyceum::{
    db::{
        Config, Db, Error,
        admit::{AdmissionMode, Verdict},
        directory::{Group, Person},
        gpus::{Point, Span},
        idempotency::IdempotentRequest,
        images::{ImageDigest, ImageRow},
        jobs::{DeleteOutcome, JobChange, JobFilter},
        limits::GroupFlags,
        logins::Login,
        quotas::Level,
        registry_credentials::RegistryCredentials,
        runs,
        sessions::Filter,
        tokens::Token,
    },
    model::{
        Announcement, AnnouncementId, Clock, GroupName, LoginId, Role, Timestamp, TokenId, UserId, Username, Window,
        announcement,
        files::FolderSize,
        gpus::WithheldGpu,
        hold::Pause,
        quota::{Change, Field, Kind},
    },
};

use super::{
    BY, NOTED, START, add_user, asking, each, ended_job, mode, new_session, number, on_both, running, set_limits,
    tables, whole::assert_whole,
};

/// Writes at least one row into every table.
async fn fill(db: &Db) -> UserId {
    let user = add_user(db, "a").await;
    let login = Login {
        id: LoginId::new(),
        user,
        created_at: START,
        last_seen_at: START,
        expires_at: START,
        address: "::1".to_owned(),
    };
    db.add_login(&login, "login", &NOTED).await.unwrap();
    let token = Token {
        id: TokenId::new(),
        user,
        name: "token".to_owned(),
        scopes: Vec::new(),
        created_at: START,
        expires_at: START,
        last_used_at: None,
    };
    let once = IdempotentRequest { user, key: "key", request_hash: "hash" };
    db.add_token(&token, "token", Some(once), &NOTED).await.unwrap();
    set_limits(db, Level::User(user), &each([(Field::Gpus, Some(2))]), GroupFlags::default()).await;
    let name = Username::parse("of_a_directory").unwrap();
    let groups = [Group { subject: "cn=lab".to_owned(), name: "lab".to_owned() }];
    let person = Person {
        source: "ldap",
        subject: "entryUUID=1",
        name: &name,
        display_name: "",
        mail: None,
        uid_number: None,
        unix_name: None,
        role: Some(Role::User),
        groups: &groups,
    };
    db.arrive(&person, START).await.unwrap();
    let group = db.add_group(&GroupName::parse("vision").unwrap(), None, BY).await.unwrap();
    db.set_member(group, user, true, BY).await.unwrap();
    db.set_manager(group, user, true, BY).await.unwrap();
    // Members' sessions count in it from their admission on.
    let total = [Change::new(Kind::Total, Field::Sessions, Some(9))];
    set_limits(db, Level::Group(group), &total, GroupFlags::default()).await;
    add_user(db, "invited").await;
    db.invite(group, "invited", false, BY).await.unwrap();
    db.set_setting("name", "value").await.unwrap();
    let points = [Point {
        uuid: "GPU-0".to_owned(),
        at: START,
        readings: 1,
        utilisation: 5.0,
        memory_bytes: 1.0,
        milliwatts: 1.0,
        celsius: Some(40),
    }];
    db.add_gpu_points(&points).await.unwrap();
    let announcement = Announcement {
        id: AnnouncementId::new(),
        level: announcement::Level::Info,
        text: "text".to_owned(),
        window: Window { from: START, to: None },
        on_login: false,
        groups: Vec::new(),
        changed_by: "a".to_owned(),
        changed_at: START,
    };
    db.add_announcement(&announcement, None, &NOTED).await.unwrap();
    db.dismiss_announcement(announcement.id, user).await.unwrap();
    let run = super::runs::run(user, "run");
    db.add_run(&run, None, &NOTED).await.unwrap();
    db.keep_digest(run.id, 1, "{}").await.unwrap();
    db.add_audit(START, "a", "test", "b", "c").await.unwrap();
    let refused = new_session(user, 9);
    let clock = Clock::manual(START);
    db.admit(&asking(user), AdmissionMode::Insert(&refused), &clock, |_| Verdict::Refuse(Vec::new())).await.unwrap();
    db.set_storage(user, Some(&FolderSize::default()), START).await.unwrap();
    running(db, user).await;
    super::sweeps::added(db, user, "lr").await;
    super::notifications::told(db, user).await;
    let pause = Pause { of_everybody: true, by: "a".to_owned(), note: String::new(), at: START };
    db.pause_queue(None, Some(&pause), &NOTED).await.unwrap();
    super::holds::following(db, user, ended_job(db, user, "train").await).await;
    let workload = db.list_sessions(Filter { limit: 1, ..Filter::default() }).await.unwrap()[0].id;
    db.keep_hardware(workload, &lyceum::model::hardware::Hardware::default()).await.unwrap();
    db.add_dataset(&super::datasets::dataset(user, "a", "pictures"), "{}", None, &NOTED).await.unwrap();
    let model = super::models::model(user, "a", "shapes");
    db.add_model(&model, "{}", None, &NOTED).await.unwrap();
    db.add_model_test(&super::models::test(model.id, user)).await.unwrap();
    fill_later_tables(db, user).await;
    user
}

/// Fills the tables that came later: tags of jobs, images, invitations into accounts, and tests of GPUs.
async fn fill_later_tables(db: &Db, user: UserId) {
    let mine = JobFilter { owner: Some(user), limit: 1, ..JobFilter::default() };
    let job = db.list_jobs(mine).await.unwrap().remove(0);
    let tagged = JobChange { tags: Some(vec!["vision".to_owned()]), ..JobChange::default() };
    assert!(db.change_job(job.id, &tagged).await.unwrap());
    let image = ImageRow {
        name: "pytorch".to_owned(),
        title: "PyTorch".to_owned(),
        reference: "nvcr.io/nvidia/pytorch:26.10".to_owned(),
        groups: Vec::new(),
        owner: Some(user),
        added_by: "root".to_owned(),
        added_at: START,
    };
    db.add_image(&image, &NOTED).await.unwrap();
    db.add_environment(&super::environments::row("pytorch", 0), &NOTED).await.unwrap();
    db.add_profile(&super::profiles::row("1-gpu", 10), &NOTED).await.unwrap();
    assert!(db.add_webhook(&super::events::webhook("a"), 1, &NOTED).await.unwrap());
    let own = RegistryCredentials {
        registry: "nvcr.io".to_owned(),
        user_name: "$oauthtoken".to_owned(),
        password: "sealed".to_owned(),
        saved_at: START,
    };
    db.set_registry_credentials(user, &own, &NOTED).await.unwrap();
    let (name, reference) = (image.name, image.reference);
    let digest = ImageDigest { name, reference, digest: "sha256:00".to_owned(), pulled_at: START };
    db.set_image_digest(&digest).await.unwrap();
    super::site::invite_into_account(db, "newcomer").await;
    let withheld = WithheldGpu { uuid: "GPU-1".to_owned(), reason: "x".to_owned(), by: "a".to_owned(), at: START };
    db.withhold_gpu(&withheld, &NOTED).await.unwrap();
    db.add_diagnostics(&super::diagnostics::run(user, "a", START), &NOTED).await.unwrap();
    db.add_preset(&super::presets::preset(user, "small"), 9, &NOTED).await.unwrap();
    db.set_list_columns(user, "jobs", "size").await.unwrap();
    let (deleted, removed) = (ended_job(db, user, "deleted").await.job, super::runs::run(user, "removed"));
    assert_eq!(db.delete_job(deleted, BY).await.unwrap(), DeleteOutcome::Done);
    db.add_run(&removed, None, &NOTED).await.unwrap();
    assert!(db.remove_run(removed.id, &NOTED).await.unwrap());
}

/// Everything, through the functions that read it.
async fn everything(db: &Db, user: UserId) -> String {
    format!(
        "{:#?}",
        (
            db.list_users().await.unwrap(),
            db.belongings(user).await.unwrap(),
            db.list_logins(user).await.unwrap(),
            db.list_tokens(user, None, 10).await.unwrap(),
            (
                db.find_idempotent(user, "key").await.unwrap(),
                db.registry_credentials(user).await.unwrap(),
                db.list_columns(user, "jobs").await.unwrap(),
                db.presets(user, true).await.unwrap(),
            ),
            db.limits_of(user).await.unwrap(),
            db.setting("name").await.unwrap(),
            (db.current_announcements(START).await.unwrap(), db.announcement_dismissals(START).await.unwrap()),
            db.list_audit(10).await.unwrap(),
            (
                db.list_sessions(Filter { limit: 10, ..Filter::default() }).await.unwrap(),
                db.list_jobs(JobFilter { limit: 10, ..JobFilter::default() }).await.unwrap(),
                db.list_runs(&runs::Filter {
                    reader: None,
                    owner: None,
                    find: "",
                    with_helpers: false,
                    before: None,
                    limit: 10
                })
                .await
                .unwrap(),
            ),
            (
                db.refusals(user, 10).await.unwrap(),
                db.storage_of(user).await.unwrap(),
                db.open_intervals().await.unwrap(),
                db.gpu_points(Span::Hour, Timestamp(0), Timestamp(i64::MAX)).await.unwrap(),
                db.trash_of(user, 10).await.unwrap(),
            ),
        )
    )
}

async fn counts(db: &Db) -> Vec<(String, i64)> {
    let mut names: Vec<String> = tables(db).await.into_iter().collect();
    names.sort();
    let mut counts = Vec::new();
    for name in names {
        let count = number(db, &format!("SELECT COUNT(*) FROM {name}")).await;
        counts.push((name, count));
    }
    counts
}

#[tokio::test]
async fn opening_again_changes_nothing() {
    on_both(async |house| {
        let user = fill(&house.db).await;
        let (before, rows) = (everything(&house.db, user).await, counts(&house.db).await);
        assert!(rows.len() >= 9, "{rows:?}");
        assert!(rows.iter().all(|(_, count)| *count > 0), "every table has a row: {rows:?}");
        house.db.close().await;

        let again = Db::open(&house.config, house.directory.path()).await.unwrap();
        assert_eq!(everything(&again, user).await, before);
        assert_eq!(counts(&again).await, rows);
        assert_whole(&again).await;
    })
    .await;
}

#[tokio::test]
async fn a_copy_holds_everything_and_is_private() {
    on_both(async |house| {
        let user = fill(&house.db).await;
        let file = house.directory.path().join("copy");
        let copied = house.db.copy_to(&file).await;
        if !house.is_sqlite() {
            assert!(matches!(copied, Err(Error::NotAFile)), "{copied:?}");
            assert!(!file.exists());
            return;
        }
        copied.unwrap();
        assert_eq!(mode(&file), 0o600);
        assert!(matches!(house.db.copy_to(&file).await, Err(Error::Copy(..))), "it never overwrites");
        let config = Config { url: format!("sqlite://{}", file.display()), ..Config::default() };
        let copy = Db::open(&config, house.directory.path()).await.unwrap();
        assert_eq!(everything(&copy, user).await, everything(&house.db, user).await);
    })
    .await;
}
