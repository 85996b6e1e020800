//! Words that try to become markup, on every page that the running portal draws: as names of
//! sessions and people, as what an agent or a program says, and from the address itself.

use lyceum::{
    db::{
        admit::Cause,
        audit::Entry,
        directory::{Group, Person},
        jobs::JobChange,
        sessions::Ending,
        users::{NewUser, SignIn},
    },
    model::{
        Announcement, AnnouncementId, EndReason, JobId, Maintenance, Role, RunId, SessionId, SweepId, UserId, Username,
        Window, announcement,
        job::{JobProgram, Task},
        run::{ReadProgress, SkippedData},
    },
    web,
};
use reqwest::Response;
use serde_json::json;

use crate::{
    gateway::world::World,
    pages::{HOSTILE, markup},
    portal::{Caller, password},
    proxy::app::App,
};

/// Reads an answer; a page of ours must be well-formed, and inert.
async fn inert(world: &World, what: &str, answer: Response) {
    let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let (kind, policy) = (header("content-type"), header("content-security-policy"));
    assert_eq!(header("x-content-type-options"), "nosniff", "{what}");
    // There is no helper here: pages that need one say so with 503.
    assert!(answer.status() == 503 || answer.status().as_u16() < 500, "{what}: {}", answer.status());
    // Addresses of our own two origins are fine, and here they are plain ones.
    let text =
        answer.text().await.unwrap().replace(&world.apps, "https://apps").replace(&world.portal.url, "https://us");
    if !kind.starts_with("text/html") {
        return;
    }
    assert!(policy.starts_with("default-src 'self';"), "{what}: {policy}");
    if text.is_empty() {
        return;
    }
    markup::check(&text).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    for bad in ["<script>", "<img", "<svg onload", "href=\"javascript"] {
        assert!(!text.contains(bad), "{what}: {bad}");
    }
}

/// Sessions in several states, all with this word wherever words are.
async fn scene(world: &World, owner: UserId, app: &App, words: &str) -> Vec<SessionId> {
    let db = world.portal.db();
    let sessions = [
        world.session(owner, app).await,
        world.session_of("terminal", owner, app).await,
        world.queued("terminal", owner).await,
        world.queued("jupyter", owner).await,
    ];
    for id in sessions {
        // Past every check: what is in the database may come from elsewhere.
        db.rename_session(id, words).await.unwrap();
        let log = world.portal.directory.path().join("logs").join(format!("{id}.log"));
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(log, format!("{words}\n\u{1b}]0;{words}\u{7}\u{1b}[31m{words}\r{words}\n")).unwrap();
    }
    let ending = Ending {
        reason: EndReason::LaunchFailed,
        exit_code: Some(1),
        signal: None,
        at: world.portal.clock.now(),
        detail: words.to_owned(),
    };
    assert!(db.end_session(sessions[3], &ending).await.unwrap());
    sessions.to_vec()
}

/// A directory's group and somebody in it, with these words; the caller manages it. Its id.
async fn group(world: &World, owner: UserId, number: usize, words: &str) -> String {
    let db = world.portal.db();
    // PostgreSQL would refuse NUL, and so no directory's words hold it here.
    let words = words.replace('\0', "");
    let subject = format!("cn={words},{number}");
    let person = Person {
        source: "ldap",
        subject: &format!("entryUUID={number}"),
        name: &Username::parse(&format!("of_directory{number}")).unwrap(),
        display_name: &words,
        mail: None,
        uid_number: None,
        unix_name: None,
        role: Some(Role::Operator),
        groups: &[Group { subject: subject.clone(), name: words.clone() }],
    };
    db.arrive(&person, world.portal.clock.now()).await.unwrap();
    let group = db.find_groups(&words).await.unwrap().remove(0).group;
    db.set_manager(group.id, owner, true, world.portal.by()).await.unwrap();
    group.id.to_string()
}

/// A run with these words wherever a writer or its owner may put some.
async fn run(world: &World, owner: UserId, words: &str) -> RunId {
    let id = crate::runs::external(&world.portal, owner, &words.replace('\0', "")).await;
    crate::runs::store(&world.portal, id, &[(words, words, 1, 0.5), (".", words, 2, f64::NAN)]);
    let words = words.replace('\0', "");
    let skipped = SkippedData { damaged: 1, unreadable: vec![words.clone()], ..SkippedData::default() };
    let reading = ReadProgress { error: Some(words), skipped, ..ReadProgress::default() };
    world.portal.db().note_reading(id, &reading, world.portal.clock.now()).await.unwrap();
    id
}

/// A job of whoever has this session, with these words wherever words are.
async fn job(world: &World, session: SessionId, words: &str) -> JobId {
    let db = world.portal.db();
    let owner = db.find_session(session).await.unwrap().unwrap().owner;
    let mut new = crate::db::new_attempt(owner, words, None);
    let work = JobProgram::Script(words.to_owned());
    let task = Task { variables: [(words.to_owned(), words.to_owned())].into(), ..crate::db::task(work) };
    new.job.as_mut().unwrap().cause = Cause::Submitted(task.into());
    let job = crate::db::begun(db, &new).await.job;
    // It must not hold what the next words' sessions need.
    assert!(db.end_session(new.id, &crate::db::exited(world.portal.clock.now())).await.unwrap());
    let words = words.to_owned();
    let change = JobChange { notes: Some(words.clone()), tags: Some(vec![words]), ..JobChange::default() };
    assert!(db.change_job(job, &change).await.unwrap());
    job
}

/// A sweep of theirs, with these words wherever words are.
async fn sweep(world: &World, session: SessionId, words: &str) -> SweepId {
    let db = world.portal.db();
    let owner = db.find_session(session).await.unwrap().unwrap().owner;
    let (mut new, mut plan) = crate::db::sweeps::sweep(owner, words);
    words.clone_into(&mut new.note);
    words.clone_into(&mut plan.metric.as_mut().unwrap().tag);
    for task in &mut plan.tasks {
        task.values = [(words.to_owned(), words.to_owned())].into();
    }
    db.add_sweep(&new, &plan, None, &crate::db::NOTED).await.unwrap();
    new.id
}

async fn pages(world: &World, caller: &Caller, sessions: &[SessionId], (name, group): (&str, &str), words: &str) {
    let query: String = url::form_urlencoded::byte_serialize(words.as_bytes()).collect();
    let encoded = query.replace('+', "%20");
    let job = job(world, sessions[0], words).await;
    let sweep = sweep(world, sessions[0], words).await;
    for route in web::all_routes().iter().filter(|route| route.method == "GET" && !route.path.starts_with("/static/")) {
        let ids: Vec<String> = sessions.iter().map(SessionId::to_string).chain([encoded.clone()]).collect();
        let ids = if route.path.contains("/jobs/") { vec![job.to_string(), encoded.clone()] } else { ids };
        let ids = if route.path.contains("/sweeps/") { vec![sweep.to_string(), encoded.clone()] } else { ids };
        let several = if route.path.contains("{id}") { ids.as_slice() } else { &ids[..1] };
        for id in several {
            let path = route
                .path
                .replace("{id}", id)
                .replace("{name}", name)
                .replace("{group}", group)
                .replace("{uuid}", &encoded)
                .replace("{row}", "0")
                .replace("{test}", &encoded)
                .replace("{drawing}", &encoded)
                .replace("{kind}", &encoded);
            // A stream has no end.
            if path.ends_with("/events") {
                continue;
            }
            inert(world, &path, caller.visit(&path).await).await;
        }
    }
    for path in [
        format!("/{encoded}"),
        format!("/sessions/{encoded}"),
        format!("/sessions/new?app={query}&from={query}&name={query}&profile={query}&environment={query}"),
        format!("/sessions/new?from={}", sessions[0]),
        format!(
            "/jobs?find={query}&state={query}&tag={query}&group={query}&starred={query}&all={query}&done={query}&failed={query}"
        ),
        format!("/jobs?cursor={query}"),
        format!("/sweeps?cursor={query}&all={query}"),
        format!("/jobs/{encoded}"),
        format!("/jobs/new?from={job}"),
        format!("/jobs/new?from={query}"),
        format!("/jobs/new?after={query}"),
        format!("/login?next={query}&signed_out={query}"),
        format!("/?notice={query}&done={query}"),
        format!("/admin/users?find={query}&role={query}&state={query}&source={query}&sort={query}&done={query}"),
        format!("/cluster?over={query}&done={query}"),
        format!("/admin/users?find={query}&cursor={query}"),
        format!("/admin/users/{encoded}"),
        format!("/admin/users/{name}?done={query}"),
        format!("/admin/groups?find={query}&done={query}"),
        format!("/admin/groups/{encoded}"),
        format!("/admin/groups/{group}?done={query}"),
        format!("/admin/quotas?find={query}&only={query}&sort={query}&done={query}"),
        format!("/admin/quotas/users/{encoded}"),
        format!("/admin/quotas/groups?find={query}"),
        format!("/admin/quotas/default?done={query}"),
        format!("/usage?range={query}&from={query}&to={query}&app={query}&reason={query}"),
        format!("/usage?app={query}&range=7d"),
        format!("/usage?cursor={query}"),
        format!("/usage/compare?range={query}&by={query}&sort={query}"),
        format!("/usage/compare?from={query}&to={query}"),
        format!("/usage/compare?cursor={query}"),
        format!("/settings?done={query}&error={query}"),
        format!("/sessions/{}?done={query}&notice={query}", sessions[0]),
        format!("/problems/{encoded}"),
        format!("/s/{encoded}/"),
        format!("/s/{}/{encoded}", sessions[2]),
        format!("/s/{}/{encoded}", sessions[3]),
    ] {
        inert(world, &path, caller.visit(&path).await).await;
    }
    forms(world, caller, (name, group), words).await;
}

/// Every form, with the words in each of its fields.
async fn forms(world: &World, caller: &Caller, (name, group): (&str, &str), words: &str) {
    let html = caller.clone().with("accept", "text/html");
    let (rename, members) = (format!("/admin/groups/{group}/rename"), format!("/admin/groups/{group}/members"));
    let (managers, role) = (format!("/admin/groups/{group}/managers"), format!("/admin/users/{name}/role"));
    let limits =
        ["version", "each.gpus.choice", "each.gpus.value", "each.gpus.until", "each.gpus.note", "each.gpus.was"];
    let (of_person, of_group) = (format!("/admin/quotas/users/{name}"), format!("/admin/quotas/groups/{group}"));
    let fits = [("each.gpus.choice", "unlimited"), ("each.gpus.note", words)];
    inert(world, &of_person, html.post_form(&of_person, &fits).await).await;
    for (path, fields) in [
        (of_person.as_str(), &limits[..]),
        (&of_group, &limits),
        ("/admin/quotas/default", &limits),
        ("/admin/quotas/selection", &["user", "version"]),
        ("/admin/users", &["name", "display_name", "role", "password"][..]),
        ("/admin/groups", &["name"]),
        (&rename, &["name"]),
        (&members, &["name"]),
        (&managers, &["name"]),
        (&role, &["role"]),
        (
            "/sessions",
            &[
                "app",
                "name",
                "profile",
                "cpus",
                "memory",
                "gpus",
                "gpu_model",
                "environment",
                "log_directory",
                "duration",
            ][..],
        ),
        (
            "/jobs",
            &[
                "work",
                "command",
                "script",
                "variables",
                "name",
                "profile",
                "working_directory",
                "log_directory",
                "after",
                "array",
                "parameters",
                "trials",
                "metric",
            ],
        ),
        ("/jobs/queue", &["do", "whose", "note"]),
        ("/jobs/selection", &["do", "item", "tag", "back"]),
        ("/settings/columns", &["list", "column", "back"]),
        ("/settings/password", &["current_password", "new_password", "repeat_password"]),
        ("/settings/tokens", &["name", "scopes", "expires"]),
        ("/admin/announcements", &["text", "level", "from", "to"]),
        ("/admin/maintenance", &["mode", "message", "from", "to", "drain_at"]),
        ("/runs", &["directory", "name", "visibility", "group"]),
        ("/settings/theme", &["theme"]),
        ("/settings/notifications", &["events", "mail", "webhook", "stalled_minutes"]),
        ("/login", &["username", "next"]),
    ] {
        let fields: Vec<(&str, &str)> = fields.iter().map(|field| (*field, words)).collect();
        inert(world, path, html.post_form(path, &fields).await).await;
        let mut fields = fields;
        fields.extend([("app", "terminal"), ("size", "custom")]);
        inert(world, path, html.post_form(path, &fields).await).await;
    }
}

#[tokio::test]
async fn xss_corpus_of_the_running_portal() {
    let world = World::new().await;
    let app = App::start();
    for (number, words) in HOSTILE.iter().enumerate() {
        let name = format!("user{number}");
        let hash = lyceum::auth::passwords::hash(&password(&name)).await.unwrap();
        let new = NewUser {
            name: &Username::parse(&name).unwrap(),
            display_name: words,
            unix_name: None,
            role: Role::Admin,
            sign_in: SignIn::Password(&hash),
        };
        let owner = world.portal.db().add_user(new, world.portal.by()).await.unwrap();
        let sessions = scene(&world, owner, &app, words).await;
        let caller = world.portal.sign_in(&name).await;
        // As a token's name it is taken or refused.
        let made = caller.post("/api/v1/tokens", &json!({ "name": words })).await;
        assert!(matches!(made.status().as_u16(), 201 | 422), "{}", made.status());
        let group = group(&world, owner, number, words).await;
        let run = run(&world, owner, words).await;
        for path in [
            format!("/runs/{run}"),
            format!("/runs/compare?id={run}"),
            "/runs?done=x&cursor=x".to_owned(),
            format!("/api/v1/runs/{run}/metrics"),
        ] {
            inert(&world, &path, caller.visit(&path).await).await;
        }
        // Past the checks: what is in the database may come from elsewhere.
        let announcement = Announcement {
            id: AnnouncementId::new(),
            level: announcement::Level::Warning,
            text: words.replace('\0', ""),
            window: Window { from: world.portal.clock.now(), to: None },
            on_login: true,
            groups: Vec::new(),
            changed_by: words.replace('\0', ""),
            changed_at: world.portal.clock.now(),
        };
        let noted = Entry { at: announcement.changed_at, actor: "test", action: "test", subject: "test", detail: "" };
        world.portal.db().add_announcement(&announcement, None, &noted).await.unwrap();
        let set = Maintenance {
            message: words.to_string(),
            window: announcement.window,
            drain_at: Some(announcement.changed_at),
            admins_may_start: true,
        };
        let before = world.portal.db().maintenance().await.unwrap();
        assert!(world.portal.db().set_maintenance(before.as_ref(), Some(&set), &noted).await.unwrap());
        world.portal.portal.announcements.refresh().await.unwrap();
        pages(&world, &caller, &sessions, (&name, &group), words).await;
        pages(&world, &world.portal.anybody(), &sessions, (&name, &group), words).await;
    }
}
