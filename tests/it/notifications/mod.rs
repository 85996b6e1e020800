//! Notifications over real sockets: a mail server that speaks SMTP, with and without TLS, and a server that
//! takes posts. What happened is told once, what does not arrive is tried again and given up in the end, and
//! nothing goes where the site has not allowed it.

pub mod servers;

use std::{io::Write, sync::Arc};

use lyceum::{
    db::{audit::Entry, sessions::Ending},
    model::{
        EndReason, Loops, Role, UserId,
        alert::AlertMemory,
        notification::{Delivery, Event, Notification, NotificationSettings, Way, Webhook},
        quota::Reason,
        run::{ReadProgress, UnreadAttempt},
    },
    notifications::{Config, Error, Notifications, Tls, WishesRequest},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ServerConfig, pki_types::PrivateKeyDer};

use self::servers::{Hook, MailServer};
use crate::{
    db::{begun, exited, new_attempt, new_session, sessions::reason, waiting},
    portal::TestPortal,
};

/// A portal, its notifications by themselves, and one person.
struct Scene {
    portal: TestPortal,
    told: Arc<Notifications>,
    user: UserId,
}

/// A round in which nothing failed, with no job and no message.
async fn round(told: &Notifications) {
    let loops = Loops::default();
    let round = loops.begin("notifications", None);
    told.round(&round).await.unwrap();
    round.end(&Ok::<_, String>(()));
    assert!(loops.list()[0].1.skipped.is_empty(), "{loops:?}");
}

impl Scene {
    async fn new(config: Config) -> Self {
        let portal = TestPortal::start().await;
        let user = portal.add_user("ada", Role::User).await;
        let (sessions, runs) = (portal.portal.sessions.clone(), portal.portal.runs.clone());
        let told = Notifications::new(sessions, runs, config, [3; 32], "https://portal.example.org".to_owned());
        Self { portal, told, user }
    }

    async fn wish(&self, request: WishesRequest) {
        let user = self.portal.db().find_user(self.user).await.unwrap().unwrap().user;
        self.told.change(&user, request).await.unwrap();
    }

    /// A job of this name that has ended by this exit code.
    async fn ended(&self, name: &str, code: i64) {
        let new = new_attempt(self.user, name, None);
        begun(self.portal.db(), &new).await;
        let ending = Ending { exit_code: Some(code), ..exited(self.portal.clock.now()) };
        assert!(self.portal.db().end_session(new.id, &ending).await.unwrap());
    }

    /// A job of this name that runs, with a run that has grown.
    async fn running(&self, name: &str) -> lyceum::model::Run {
        let (db, now) = (self.portal.db(), self.portal.clock.now());
        let new = new_attempt(self.user, name, None);
        let job = begun(db, &new).await.job;
        assert!(db.begin_start(new.id, now).await.unwrap());
        assert!(db.mark_running(new.id, now, now.plus_seconds(86_400)).await.unwrap());
        let unread = UnreadAttempt { job, owner: self.user, session: new.id, directory: "/home/ada/runs".to_owned() };
        db.read_attempt(&unread, "/home/ada/runs", now).await.unwrap();
        let run = db.run_of_job(job).await.unwrap().unwrap();
        let reading =
            ReadProgress { points: 7, curves: 1, read_at: Some(now), grown_at: Some(now), ..run.reading.clone() };
        db.note_reading(run.id, &reading, now).await.unwrap();
        run
    }

    async fn round(&self) {
        round(&self.told).await;
    }

    async fn latest(&self) -> Vec<Notification> {
        self.portal.db().latest_notifications(self.user, 100).await.unwrap()
    }

    async fn states(&self) -> Vec<Delivery> {
        self.latest().await.iter().map(|one| one.state).collect()
    }
}

fn by_mail(port: u16) -> Config {
    Config {
        smtp: format!("127.0.0.1:{port}"),
        smtp_tls: Tls::None,
        mail_from: "Lyceum <lyceum@example.org>".to_owned(),
        ..Config::default()
    }
}

fn by_hook(hook: &Hook) -> Config {
    Config {
        webhook_hosts: vec![format!("127.0.0.1:{}", hook.port), format!("localhost:{}", hook.port)],
        webhook_networks: vec!["127.0.0.0/8".to_owned()],
        ..Config::default()
    }
}

fn wishes(mail: bool, hook: Option<String>) -> WishesRequest {
    WishesRequest {
        events: vec![Event::Finished, Event::Failed, Event::NotFinite, Event::Stalled],
        mail: mail.then(|| "ada@example.org".to_owned()),
        webhook: hook,
        stalled_after_seconds: None,
    }
}

#[tokio::test]
async fn an_end_is_told_once_by_each_way() {
    let (mails, hook) = (MailServer::start(None).await, Hook::start().await);
    let hooks = by_hook(&hook);
    let config =
        Config { webhook_hosts: hooks.webhook_hosts, webhook_networks: hooks.webhook_networks, ..by_mail(mails.port) };
    let scene = Scene::new(config).await;
    scene.ended("before", 1).await;
    scene.round().await;
    scene.wish(wishes(true, Some(hook.url()))).await;
    scene.ended("réseau\r\nBcc: all@example.org", 3).await;
    scene.round().await;
    scene.round().await;
    scene.portal.clock.advance(3600);
    scene.round().await;
    let (got, posts) = (mails.mails(), hook.posts());
    assert_eq!((got.len(), posts.len()), (1, 1), "{got:?}");

    let mail = &got[0];
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("<lyceum@example.org>", &["<ada@example.org>".to_owned()][..])
    );
    let (head, body) = mail.text.split_once("\n\n").unwrap();
    assert!(!head.to_lowercase().contains("\nbcc:"), "{head}");
    assert!(head.contains("\nTo: ada@example.org") || head.starts_with("To: ada@example.org"), "{head}");
    assert!(body.contains("https://portal.example.org/jobs/"), "{body}");
    assert_eq!(scene.states().await, [Delivery::Sent, Delivery::Sent]);

    let post = &posts[0];
    let told: Value = serde_json::from_slice(&post.body).unwrap();
    assert_eq!(told["event"], "failed", "{told}");
    assert_eq!(told["title"], "Job ‘réseau  Bcc: all@example.org’ failed", "{told}");
    assert_eq!(told["text"], "It ended with exit code 3.", "{told}");
    assert_eq!(told["job"]["attempt"], 1, "{told}");
    let header = |name: &str| post.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("lyceum-delivery"), told["id"].as_str().unwrap());
    let signature = header("lyceum-signature");
    let (time, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let user = scene.portal.db().find_user(scene.user).await.unwrap().unwrap().user;
    let secret = scene.told.overview(&user).await.unwrap().secret.unwrap();
    assert_eq!(mac, signed(&secret, &[format!("{time}.").as_bytes(), &post.body].concat()), "as anybody can check it");
    let kept = scene.portal.db().notification_wishes(scene.user).await.unwrap().unwrap().webhook.unwrap();
    let Webhook { url, salt } = kept;
    assert_eq!(url, hook.url());
    assert!(!secret.contains(&salt), "the database does not hold it");
}

/// As a receiver would, with a program of its own.
pub fn signed(secret: &str, text: &[u8]) -> String {
    let mut openssl = std::process::Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", secret])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    openssl.stdin.take().unwrap().write_all(text).unwrap();
    let output = openssl.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn administrators_are_sent_each_fault_and_its_end() {
    let mails = MailServer::start(None).await;
    let scene = Scene::new(by_mail(mails.port)).await;
    let db = scene.portal.db();
    let admin = scene.portal.add_user("gina", Role::Admin).await;
    let health = |mail: &str| WishesRequest {
        events: vec![Event::Health],
        mail: Some(mail.to_owned()),
        webhook: None,
        stalled_after_seconds: None,
    };
    let of = async |id| db.find_user(id).await.unwrap().unwrap().user;
    scene.told.change(&of(admin).await, health("gina@example.org")).await.unwrap();
    // Others may not ask for it, and who was an administrator is told nothing.
    let refused = scene.told.change(&of(scene.user).await, health("ada@example.org")).await.unwrap_err();
    let Error::Invalid(faults) = refused else { panic!("{refused:?}") };
    assert_eq!((faults[0].field.as_str(), faults[0].code.as_str()), ("events", "not_allowed"));
    let was = NotificationSettings {
        events: vec![Event::Health],
        mail: Some("ada@example.org".to_owned()),
        ..Default::default()
    };
    let entry = Entry {
        at: scene.portal.clock.now(),
        actor: "ada",
        action: "notifications.change",
        subject: "ada",
        detail: "",
    };
    db.set_notification_wishes(scene.user, &was, &entry).await.unwrap();

    let portal = &scene.portal.portal;
    // The portal's own service delivers nothing here: messages are counted in the database, and sent by the scene's.
    let loops = portal.surroundings.loops.clone();
    let fails = |outcome: Result<(), &str>| loops.begin("curves", None).end(&outcome);
    let mut memory = AlertMemory::default();
    let mut look = async |seconds: i64| {
        scene.portal.clock.advance(seconds);
        lyceum::web::alert(portal, &mut memory).await.unwrap();
        db.open_alerts().await.unwrap().into_iter().map(|alert| alert.name).collect::<Vec<_>>()
    };
    fails(Err("no such column"));
    let curves = "loop curves".to_owned();
    assert!(!look(0).await.contains(&curves), "it may have recovered at the next check");
    assert!(look(121).await.contains(&curves));
    assert!(look(60).await.contains(&curves));
    fails(Ok(()));
    assert!(look(60).await.contains(&curves), "it may fail again");
    assert!(!look(301).await.contains(&curves));
    scene.round().await;
    let mut of_curves: Vec<_> = mails.mails().into_iter().filter(|mail| mail.text.contains("loop curves")).collect();
    assert_eq!(of_curves.len(), 2, "{of_curves:?}");
    // Sent at once, they arrive in any order.
    of_curves.sort_by_key(|mail| mail.text.contains("OK again"));
    assert!(of_curves.iter().all(|mail| mail.to == ["<gina@example.org>"]), "{of_curves:?}");
    assert!(of_curves[0].text.contains("The last run failed: no such column"), "{of_curves:?}");
    assert!(of_curves[0].text.contains("https://portal.example.org/admin/health"), "{of_curves:?}");
    assert!(of_curves[1].text.contains("OK again"), "{of_curves:?}");
    assert!(scene.latest().await.is_empty(), "ada is no administrator");
}

#[tokio::test]
async fn what_does_not_arrive_is_tried_again() {
    let mails = MailServer::start(None).await;
    let scene = Scene::new(by_mail(mails.port)).await;
    scene.wish(wishes(true, None)).await;
    mails.answer("451 later");
    scene.ended("one", 0).await;
    scene.round().await;
    let waiting = scene.latest().await.remove(0);
    assert_eq!((waiting.state, waiting.attempts, waiting.way), (Delivery::Waiting, 1, Way::Mail), "{waiting:?}");
    assert!(waiting.error.unwrap().contains("451"));
    scene.round().await;
    assert_eq!(mails.mails().len(), 0, "not before its time");
    scene.portal.clock.advance(15);
    scene.round().await;
    assert_eq!((mails.mails().len(), scene.states().await), (1, vec![Delivery::Sent]));

    // Refused for good, by the server's own word.
    mails.answer("550 no such mailbox");
    scene.ended("two", 0).await;
    scene.round().await;
    let refused = scene.latest().await.remove(0);
    assert_eq!((refused.state, refused.attempts), (Delivery::Failed, 1), "{refused:?}");

    // Nobody listens any more: it is tried so many times, ever more rarely, and given up.
    let nobody = Scene::new(by_mail(1)).await;
    nobody.wish(wishes(true, None)).await;
    nobody.ended("three", 0).await;
    for _ in 0..12 {
        nobody.round().await;
        nobody.portal.clock.advance(6 * 3600);
    }
    let given_up = nobody.latest().await.remove(0);
    assert_eq!((given_up.state, given_up.attempts), (Delivery::Failed, 8), "{given_up:?}");
}

#[tokio::test]
async fn a_webhook_is_not_led_elsewhere() {
    let hook = Hook::start().await;
    let scene = Scene::new(by_hook(&hook)).await;
    scene.wish(wishes(false, Some(hook.url()))).await;
    for (status, state) in [(302, Delivery::Failed), (404, Delivery::Failed), (503, Delivery::Waiting)] {
        hook.answer(status);
        scene.ended("one", 0).await;
        scene.round().await;
        let latest = scene.latest().await.remove(0);
        assert_eq!(latest.state, state, "{status}");
        assert_eq!(latest.error.unwrap(), format!("The webhook returned status {status}."));
    }
    assert!(hook.posts().iter().all(|post| post.path == "/hook"), "no redirect is followed");
    assert_eq!(hook.posts().len(), 3);
}

#[tokio::test]
async fn webhook_ssrf() {
    let hook = Hook::start().await;
    let allowed = by_hook(&hook);
    // The host is allowed, and lies where this portal does not call: the loopback, by number and by name.
    for url in [hook.url(), hook.url().replace("127.0.0.1", "localhost"), hook.url().replace("http:", "https:")] {
        let scene = Scene::new(Config { webhook_networks: Vec::new(), ..allowed.clone() }).await;
        scene.wish(wishes(false, Some(url.clone()))).await;
        scene.ended("one", 0).await;
        scene.round().await;
        let latest = scene.latest().await.remove(0);
        assert_eq!(latest.state, Delivery::Failed, "{url}");
        assert_eq!(latest.error.unwrap(), "The webhook's host has an address that this portal may not call.", "{url}");
    }
    assert_eq!(hook.posts().len(), 0);
    // A host that was taken off the list since is called no more.
    let scene = Scene::new(allowed.clone()).await;
    scene.wish(wishes(false, Some(hook.url()))).await;
    scene.ended("one", 0).await;
    let (sessions, runs) = (scene.portal.portal.sessions.clone(), scene.portal.portal.runs.clone());
    let narrowed = Config { webhook_hosts: vec!["hooks.example.org".to_owned()], ..allowed };
    let told = Notifications::new(sessions, runs, narrowed, [3; 32], String::new());
    round(&told).await;
    let latest = scene.latest().await.remove(0);
    assert!(latest.state == Delivery::Failed && latest.error.unwrap().contains("hooks.example.org"));
    assert_eq!(hook.posts().len(), 0);
}

/// A certificate for the loopback and the authority that signed it, in a file.
fn authority() -> (ServerConfig, tempfile::NamedTempFile) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(root.pem().as_bytes()).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&own, &issuer).unwrap();
    let private = PrivateKeyDer::try_from(own.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], private);
    (config.unwrap(), file)
}

#[tokio::test]
async fn mail_goes_over_tls_or_not_at_all() {
    let (tls, own) = authority();
    let (_, other) = authority();
    let secure = MailServer::start(Some(tls)).await;
    let plain = MailServer::start(None).await;
    for (server, ca, arrives) in [(&secure, &own, true), (&secure, &other, false), (&plain, &own, false)] {
        let before = server.mails().len();
        let config = Config { smtp_tls: Tls::Starttls, smtp_ca_file: ca.path().to_owned(), ..by_mail(server.port) };
        let scene = Scene::new(config).await;
        scene.wish(wishes(true, None)).await;
        scene.ended("one", 0).await;
        scene.round().await;
        let latest = scene.latest().await.remove(0);
        assert_eq!(latest.state == Delivery::Sent, arrives, "{latest:?}");
        assert_eq!(server.mails().len() - before, usize::from(arrives));
    }
    assert!(secure.mails().iter().all(|mail| mail.by_tls));
    assert!(!plain.said().iter().any(|line| line.to_ascii_uppercase().starts_with("MAIL")), "{:?}", plain.said());
}

#[tokio::test]
async fn values_that_are_no_numbers_and_stalls_are_told() {
    let mails = MailServer::start(None).await;
    let scene = Scene::new(by_mail(mails.port)).await;
    scene.wish(WishesRequest { stalled_after_seconds: Some(120), ..wishes(true, None) }).await;
    let run = scene.running("train").await;
    let digest = |nonfinite: Value| {
        json!({ "params": {}, "metrics": { "train/loss": { "run": ".", "tag": "train/loss", "last": null, "min": [0.5, 1],
            "max": [0.7, 2], "line": { "from": 0, "to": 9, "values": [] }, "nonfinite": nonfinite } } })
        .to_string()
    };
    scene.portal.db().keep_digest(run.id, 1, &digest(Value::Null)).await.unwrap();
    scene.round().await;
    assert_eq!(mails.mails().len(), 0, "all is well");
    scene.portal.db().keep_digest(run.id, 2, &digest(json!(7))).await.unwrap();
    scene.round().await;
    scene.round().await;
    let told = scene.latest().await;
    assert_eq!((told.len(), mails.mails().len()), (1, 1), "{told:?}");
    assert_eq!(told[0].message.text, "Its curve train/loss is not a finite number at step 7.");

    scene.portal.clock.advance(119);
    scene.round().await;
    assert_eq!(mails.mails().len(), 1);
    scene.portal.clock.advance(1);
    scene.round().await;
    scene.portal.clock.advance(600);
    scene.round().await;
    let told = scene.latest().await;
    assert_eq!((told.len(), mails.mails().len()), (2, 2), "{told:?}");
    assert_eq!(told[0].message.title, "Job ‘train’ may be stuck");
    assert_eq!(told[0].message.text, "It runs, but its curves have not grown for 2 min.");
}

#[tokio::test]
async fn who_wishes_nothing_hears_nothing() {
    let mails = MailServer::start(None).await;
    let scene = Scene::new(by_mail(mails.port)).await;
    scene.ended("unheard", 1).await;
    scene.round().await;
    scene.wish(WishesRequest { events: vec![Event::Failed], ..wishes(true, None) }).await;
    scene.portal.clock.advance(1);
    scene.ended("good", 0).await;
    let new = new_attempt(scene.user, "cancelled", None);
    begun(scene.portal.db(), &new).await;
    let reason = EndReason::StoppedByOwner;
    let own = Ending { reason, exit_code: None, signal: Some(15), ..exited(scene.portal.clock.now()) };
    assert!(scene.portal.db().end_session(new.id, &own).await.unwrap());
    scene.round().await;
    assert_eq!((scene.latest().await, mails.mails()), (Vec::new(), Vec::new()));
    // Whoever asks for it afterwards hears of what happens from then on.
    scene.wish(wishes(true, None)).await;
    scene.round().await;
    assert_eq!(mails.mails(), []);
}

#[tokio::test]
async fn what_was_under_way_at_the_end_of_the_portal_is_not_told_twice() {
    let mails = MailServer::start(None).await;
    let scene = Scene::new(by_mail(mails.port)).await;
    scene.wish(wishes(true, None)).await;
    let user = scene.portal.db().find_user(scene.user).await.unwrap().unwrap().user;
    scene.told.try_out(&user).await.unwrap();
    let one = scene.latest().await.remove(0);
    assert!(scene.portal.db().claim_notification(one.id).await.unwrap());
    // As after a death at this very moment.
    scene.portal.db().give_up_sending().await.unwrap();
    scene.portal.clock.advance(3600);
    scene.round().await;
    assert_eq!((scene.states().await, mails.mails()), (vec![Delivery::Unknown], Vec::new()));
}

#[tokio::test]
async fn wishes_over_the_api_and_the_page() {
    let portal = TestPortal::start().await;
    portal.add_user("ada", Role::User).await;
    let ada = portal.sign_in("ada").await;
    let get = async || -> Value { ada.get("/api/v1/me/notifications").await.json().await.unwrap() };
    let first = get().await;
    assert_eq!(
        (&first["events"], &first["mail"]),
        (&json!(["finished", "failed", "not_finite", "stalled"]), &Value::Null),
        "{first}"
    );
    assert_eq!((&first["mail_offered"], &first["webhook_hosts"]), (&json!(true), &json!(["hooks.example.org"])));
    let put = async |body: Value| ada.request("PUT", "/api/v1/me/notifications").json(&body).send().await.unwrap();
    for (body, field) in [
        (json!({ "events": ["test"] }), "events"),
        (json!({ "mail": "ada" }), "mail"),
        (json!({ "mail": "ada@example.org\r\nBcc: x@y.z" }), "mail"),
        (json!({ "webhook": "https://169.254.169.254/latest" }), "webhook"),
        (json!({ "webhook": "http://localhost:22/" }), "webhook"),
        (json!({ "stalled_after_seconds": 1 }), "stalled_after_seconds"),
        (json!({ "colour": 1 }), "colour"),
    ] {
        let answer = put(body.clone()).await;
        assert_eq!(answer.status(), 422, "{body}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["errors"][0]["field"], field, "{body}: {problem}");
    }
    assert_eq!(ada.post("/api/v1/me/notifications/test", &Value::Null).await.status(), 409);
    let wished = json!({ "events": ["failed"], "mail": "ada@example.org", "webhook": "https://hooks.example.org/x" });
    let answer: Value = put(wished.clone()).await.json().await.unwrap();
    let secret = answer["webhook_secret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 64, "{answer}");
    let again: Value = put(wished).await.json().await.unwrap();
    assert_eq!(again["webhook_secret"], secret, "it stays with its address");
    let found = get().await;
    assert_eq!((&found["events"], &found["webhook_secret"]), (&json!(["failed"]), &Value::Null), "{found}");
    assert_eq!(ada.post("/api/v1/me/notifications/test", &Value::Null).await.status(), 204);
    let listed = get().await;
    let ways: Vec<&Value> = listed["latest"].as_array().unwrap().iter().map(|one| &one["way"]).collect();
    assert!(ways.len() == 2 && listed["latest"][0]["state"] == "waiting", "{listed}");
    let rows = portal.db().list_audit(20).await.unwrap();
    let row = rows.iter().find(|row| row.action == "notifications.change").unwrap();
    assert_eq!(row.detail, "failed: ada@example.org, https://hooks.example.org/x");

    let page = ada.get("/settings").await.text().await.unwrap();
    assert!(page.contains(&secret) && page.contains("ada@example.org") && page.contains("Test of your notifications"));
    let form = [("events", "finished"), ("mail", "nobody"), ("webhook", ""), ("stalled_minutes", "5")];
    let answer = ada.post_form("/settings/notifications", &form).await;
    assert_eq!(answer.status(), 422);
    let page = answer.text().await.unwrap();
    assert!(
        page.contains("value=\"nobody\"") && page.contains("id=\"mail-error\""),
        "what was typed stays, with its fault"
    );
    let form = [("events", "finished"), ("mail", "ada@example.org"), ("webhook", ""), ("stalled_minutes", "5")];
    assert_eq!(ada.post_form("/settings/notifications", &form).await.status(), 303);
    let found = get().await;
    assert_eq!((&found["events"], &found["stalled_after_seconds"]), (&json!(["finished"]), &json!(300)), "{found}");
    assert_eq!(found["webhook"], Value::Null);
}

/// Why something waits is shown where it is looked at. It is no event: however often it changes, no message leaves.
#[tokio::test]
async fn reasons_that_change_are_not_told() {
    let server = MailServer::start(None).await;
    let scene = Scene::new(by_mail(server.port)).await;
    scene.wish(wishes(true, None)).await;
    let (db, session, job) = (scene.portal.db(), new_session(scene.user, 0), new_attempt(scene.user, "waits", None));
    waiting(db, &session).await;
    waiting(db, &job).await;
    for round in 0..50 {
        let reason = Reason { hint: format!("{round} of 50 GPUs are free."), ..reason("All GPUs are in use.") };
        let noted = db.note_reasons(&[(session.id, vec![reason.clone()]), (job.id, vec![reason])]).await.unwrap();
        assert_eq!(noted.len(), 2, "it is another one each time");
        scene.round().await;
    }
    assert_eq!((scene.latest().await, server.mails()), (Vec::new(), Vec::new()));
    assert_eq!(scene.told.unseen(scene.user).await.unwrap().1, 0);
    // Its end is notified once.
    assert!(db.end_session(job.id, &Ending { exit_code: Some(1), ..exited(scene.portal.clock.now()) }).await.unwrap());
    for _ in 0..3 {
        scene.round().await;
    }
    assert_eq!(scene.states().await, [Delivery::Sent]);
}
