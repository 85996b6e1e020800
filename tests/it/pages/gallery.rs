//! Every page, filled: once with what people really have, once with what somebody hostile
//! would put into every word that a user, a directory or a program chooses.

use askama::Template;
use lyceum::{
    model::{
        EndReason, GpuInventory, Role, Session, SessionId, Timestamp,
        ending::{Cause, Deadline},
        quota,
        size::GIB,
    },
    protocol::{Package, Sample},
    web::{
        page::{Layout, Nav, Theme, Viewer},
        views::*,
    },
};

use super::sessions::*;

/// A moment at which the pages are drawn: close to the reader's, so that times look natural.
pub const NOW: Timestamp = Timestamp(1_795_185_000_000);

/// Turns each word that comes from outside into what the gallery shows in its place.
pub type Word = dyn Fn(&str) -> String;

/// All pages by name.
#[expect(clippy::too_many_lines, reason = "one list names every page")]
pub fn pages(word: &Word) -> Vec<(&'static str, String)> {
    let draw = |page: &dyn askama::DynTemplate| page.dyn_render().unwrap();
    let mut pages = vec![
        ("login", draw(&login(word))),
        ("welcome", draw(&welcome(word))),
        ("login-wrong", draw(&login_wrong(word))),
        ("login-by-proxy", draw(&login_by_proxy(word))),
        ("login-by-proxy-refused", draw(&login_by_proxy_refused(word))),
        ("home", draw(&home(word))),
        ("home-empty", draw(&home_empty(word))),
        ("notices", with_notices(&draw(&home_empty(word)), word)),
        ("home-building", draw(&home_building(word))),
        ("sessions", draw(&super::session_list::list(word))),
        ("sessions-empty", draw(&super::session_list::empty(word))),
        ("search", draw(&super::session_list::search(word))),
        ("tensorboard", draw(&super::session_list::board(word))),
        ("new", draw(&super::session_form::new_session(word))),
        ("new-wrong", draw(&super::session_form::wrong(word))),
        ("jobs", draw(&super::jobs::list(word))),
        ("jobs-empty", draw(&super::jobs::empty(word))),
        ("sweeps", draw(&super::sweeps::list(word))),
        ("sweeps-empty", draw(&super::sweeps::empty(word))),
        ("sweep", draw(&super::sweeps::show(word))),
        ("job-new", draw(&super::jobs::new(word))),
        ("job-new-wrong", draw(&super::jobs::new_wrong(word))),
        ("job", draw(&super::jobs::show(word, running(word)))),
        ("job-failed", draw(&super::jobs::show_failed(word))),
        ("cluster", draw(&super::cluster::cluster(word))),
        ("cluster-counted", draw(&super::cluster::counted(word))),
        ("cluster-none", draw(&super::cluster::none(word))),
        ("cluster-nodes", draw(&super::machines::machines(word))),
        ("cluster-node", draw(&super::machines::node(word))),
        ("cluster-nodes-hidden", draw(&super::machines::hidden(word))),
        ("diagnostics", draw(&super::diagnostics::list(word))),
        ("diagnostics-wrong", draw(&super::diagnostics::wrong(word))),
        ("diagnostics-running", draw(&super::diagnostics::running(word))),
        ("diagnostics-failed", draw(&super::diagnostics::failed(word))),
        ("diagnostics-critical", draw(&super::diagnostics::show(word))),
        ("diagnostics-cluster", draw(&super::diagnostics::on_cluster(word))),
        ("diagnostics-storage", draw(&super::diagnostics::storage(word))),
        ("diagnostics-storage-running", draw(&super::diagnostics::storage_running(word))),
        ("diagnostics-storage-failed", draw(&super::diagnostics::storage_failed(word))),
        ("datasets", draw(&super::datasets::list(word))),
        ("datasets-empty", draw(&super::datasets::empty(word))),
        ("dataset-new", draw(&super::datasets::new(word))),
        ("dataset-preview", draw(&super::datasets::previewed(word))),
        ("dataset-wrong", draw(&super::datasets::wrong(word))),
        ("dataset", draw(&super::datasets::show(word))),
        ("dataset-building", draw(&super::datasets::building(word))),
        ("dataset-failed", draw(&super::datasets::failed(word))),
        ("files", draw(&super::files::folder(word))),
        ("files-empty", draw(&super::files::empty(word))),
        ("files-item", draw(&super::files::item(word))),
        ("files-text", draw(&super::files::text(word))),
        ("files-table", draw(&super::files::table(word))),
        ("files-notebook", draw(&super::files::notebook(word))),
        ("files-picture", draw(&super::files::picture(word))),
        ("files-selected", draw(&super::files::selected(word))),
        ("files-delete", draw(&super::files::deleted(word))),
        ("usage", draw(&super::usage::own(word))),
        ("usage-empty", draw(&super::usage::own_empty(word))),
        ("usage-compare", draw(&super::usage::compare(word))),
        ("usage-compare-empty", draw(&super::usage::compare_empty(word))),
        ("settings", draw(&settings(word))),
        ("settings-token", draw(&settings_token(word))),
        ("packages", draw(&packages(word))),
        ("packages-away", draw(&packages_away(word))),
        ("users", draw(&super::people::users(word))),
        ("users-wrong", draw(&super::people::users_wrong(word))),
        ("users-import", draw(&super::people::import(word))),
        ("users-import-wrong", draw(&super::people::import_wrong(word))),
        ("users-imported", draw(&super::people::imported(word))),
        ("user", draw(&super::people::user(word))),
        ("user-directory", draw(&super::people::user_directory(word))),
        ("user-service", draw(&super::people::user_service(word))),
        ("user-offboard", draw(&super::offboard::ahead(word))),
        ("user-offboard-checked", draw(&super::offboard::checked(word))),
        ("groups", draw(&super::people::groups(word))),
        ("group", draw(&super::people::group(word))),
        ("group-directory", draw(&super::people::group_directory(word))),
        ("quotas", draw(&super::quotas::table(word))),
        ("quotas-empty", draw(&super::quotas::nobody(word))),
        ("quota-groups", draw(&super::quotas::groups(word))),
        ("limits-user", draw(&super::quotas::user(word))),
        ("limits-stale", draw(&super::quotas::stale(word))),
        ("limits-group", draw(&super::quotas::group(word))),
        ("limits-manager", draw(&super::quotas::of_manager(word))),
        ("limits-slurm", draw(&super::quotas::in_slurm(word))),
        ("limits-selection", draw(&super::quotas::selection(word))),
        ("limits-preview", draw(&super::quotas::preview(word))),
        ("audit", draw(&super::audit::audit(word))),
        ("audit-wrong", draw(&super::audit::audit_wrong(word))),
        ("announcements", draw(&super::announcements::announcements(word))),
        ("announcements-wrong", draw(&super::announcements::announcements_wrong(word))),
        ("announcement", draw(&super::announcements::announcement(word))),
        ("maintenance", draw(&super::announcements::maintenance(word))),
        ("maintenance-on", draw(&super::announcements::maintenance_on(word))),
        ("health", draw(&super::announcements::health(word))),
        ("environments", draw(&super::environments::environments(word))),
        ("environments-wrong", draw(&super::environments::environments_wrong(word))),
        ("environments-unchanged", draw(&super::environments::environments_unchanged(word))),
        ("webhooks", draw(&super::webhooks::webhooks(word))),
        ("webhooks-wrong", draw(&super::webhooks::webhooks_wrong(word))),
        ("webhooks-none", draw(&super::webhooks::webhooks_none(word))),
        ("profiles", draw(&super::profiles::profiles(word))),
        ("profiles-wrong", draw(&super::profiles::profiles_wrong(word))),
        ("profiles-unchanged", draw(&super::profiles::profiles_unchanged(word))),
        ("images", draw(&super::images::images(word))),
        ("images-wrong", draw(&super::images::images_wrong(word))),
        ("runs", draw(&super::runs::runs(word))),
        ("runs-wrong", draw(&super::runs::runs_wrong(word))),
        ("run", draw(&super::runs::run(word))),
        ("run-empty", draw(&super::runs::run_empty(word))),
        ("runs-compare", draw(&super::runs::compared(word))),
        ("runs-compare-empty", draw(&super::runs::compared_none(word))),
        ("error", draw(&error(word))),
        ("api", draw(&api(word))),
        ("terminal", draw(&terminal(word))),
    ];
    pages.extend(super::jobs::tabs(word).iter().map(|(name, page)| (*name, draw(page))));
    for (name, session) in
        [("show-running", running(word)), ("show-starting", starting(word)), ("show-oom", out_of_memory(word))]
    {
        pages.push((name, draw(&show(word, &session))));
    }
    let waiting = WaitingPage::new(
        portal(word),
        Card::new(&starting(word), &context(word)),
        ShowSession::steps(&starting(word), None),
    );
    let queued =
        WaitingPage::new(bare(word), Card::new(&queued(word), &context(word)), ShowSession::steps(&queued(word), None));
    pages.push(("waiting", draw(&waiting)));
    pages.push(("waiting-queued", draw(&queued)));
    pages.push(("ended", draw(&Ended::new(portal(word), Card::new(&out_of_memory(word), &context(word))))));
    let explanation = explain("over-quota").unwrap();
    pages.push(("problem", draw(&Problem { layout: layout(word), kind: "over-quota".to_owned(), explanation })));
    pages.extend(super::models::pages(word));
    pages.extend(super::queue::pages(word));
    pages
}

/// A card alone, as live updates fetch it.
pub fn card(word: &Word) -> String {
    Card::new(&running(word), &context(word)).render().unwrap()
}

/// A page that has fetched what there is to know.
fn with_notices(page: &str, word: &Word) -> String {
    let place = page.find("id=\"notices\"").unwrap();
    let inside = place + page[place..].find('>').unwrap() + 1;
    let told = super::told::notices(word);
    // A browser puts the messages into their corner.
    let (strip, toasts) = told.split_at(told.find("<div role=\"group\" class=\"note toast").unwrap());
    let page = format!("{}{strip}{}", &page[..inside], &page[inside..]);
    let corner = page.find("id=\"toasts\"").unwrap();
    let inside = corner + page[corner..].find('>').unwrap() + 1;
    format!("{}{toasts}{}", &page[..inside], &page[inside..])
}

pub fn layout(word: &Word) -> Layout {
    Layout {
        viewer: Some(Viewer {
            name: word("alice"),
            display_name: word("Alice Åström"),
            role: Role::Admin,
            manages_groups: false,
        }),
        csrf_token: word("5a1f0c"),
        ..Layout::default()
    }
}

fn bare(word: &Word) -> Layout {
    Layout { viewer: None, ..layout(word) }
}

/// The frame of a page that the apps' origin serves.
fn portal(word: &Word) -> Layout {
    Layout { portal: "https://portal.example.org".to_owned(), ..bare(word) }
}

fn login(word: &Word) -> Login {
    Login {
        layout: Layout { viewer: None, ..layout(word) },
        username: String::new(),
        error: None,
        notice: None,
        next: word("/sessions/new"),
        plain_http: false,
        first_password_file: Some(word("/var/lib/lyceum/private/first-password")),
        by_proxy: None,
        leave: None,
    }
}

fn welcome(word: &Word) -> Welcome {
    let message = "This code is not valid: it was used, has expired, or is incomplete.";
    let error = lyceum::model::FieldError::new("code", "invalid_value", message);
    Welcome { layout: bare(word), code: word("4NfWmVnXbQ"), error: Some(error) }
}

fn login_by_proxy(word: &Word) -> Login {
    Login {
        notice: Some("You have signed out.".to_owned()),
        first_password_file: None,
        by_proxy: Some(word("alice")),
        // The site's own setting, checked at the start.
        leave: Some("/oauth2/sign_out".to_owned()),
        ..login(word)
    }
}

fn login_by_proxy_refused(word: &Word) -> Login {
    let error = "You are signed in to your organisation as alice. This account is not allowed to use this portal. Ask \
                 an administrator.";
    Login { notice: None, error: Some(error.to_owned()), ..login_by_proxy(word) }
}

fn login_wrong(word: &Word) -> Login {
    Login {
        username: word("alice"),
        error: Some("The user name or password is wrong.".to_owned()),
        plain_http: true,
        first_password_file: None,
        layout: Layout { theme: Theme::Light, announcements: super::announcements::strip(word, false), ..bare(word) },
        ..login(word)
    }
}

fn home(word: &Word) -> Home {
    let context = context(word);
    let cards = |sessions: Vec<Session>| sessions.iter().map(|session| Card::new(session, &context)).collect();
    let mut exited = ended(word, "preprocess", EndReason::Exited, 47 * 60);
    exited.exit_code = Some(1);
    exited.app = String::from("terminal");
    Home {
        layout: Layout { announcements: super::announcements::strip(word, true), ..layout(word).at(Nav::Home) },
        notice: Some(word("Stopping ‘old-run’.")),
        invitations: vec![super::people::invitation(word, "vision", "alice")],
        meters: meters(word),
        elsewhere: Some(word("Includes 2 jobs submitted in a shell: 1 GPU, 4 cores and 8 GiB.")),
        spaces: vec![
            (space(word, "Home", 640), "/files".to_owned()),
            (space(word, "isilon", 960), "/files?path=/mnt".to_owned()),
        ],
        silent: vec![word("scratch")],
        storage: StorageNote::new(96 * GIB, 100 * GIB, &quota::Source::read(&word("group vision"))),
        single_user: None,
        environment: None,
        terminal: Some("0190a1b2".to_owned()),
        presets: super::session_form::presets(word)
            .rows
            .into_iter()
            .map(|row| PresetStart { row, idempotency_key: "0199a0b2".to_owned() })
            .collect(),
        live: cards(vec![
            running(word),
            asked(word),
            idle(word),
            queued(word),
            starting(word),
            unknown(word),
            stopping(word),
        ]),
        more_live: more("/", "sessions", 107),
        jobs: super::jobs::live(word),
        has_more_jobs: true,
        ended: cards(vec![out_of_memory(word), exited, ended(word, "board", EndReason::Idle, 26 * 3600)]),
    }
}

fn space(word: &Word, name: &str, used: i64) -> Meter {
    Meter { label: word(name), used: used * GIB, limit: Some(1000 * GIB), unit: Unit::Bytes, ..Meter::default() }
}

/// A page in the middle of a list.
pub fn more(path: &str, list: &str, total: usize) -> More {
    let next = Some((total / 2, format!("{path}?{list}=x#{list}")));
    More { total, first_href: Some(format!("{path}#{list}")), next }
}

fn home_empty(word: &Word) -> Home {
    Home {
        layout: layout(word).at(Nav::Home),
        notice: None,
        invitations: Vec::new(),
        single_user: Some(word("alice")),
        terminal: None,
        presets: Vec::new(),
        live: Vec::new(),
        more_live: More::default(),
        jobs: Vec::new(),
        has_more_jobs: false,
        ended: Vec::new(),
        meters: vec![Meter { used: 0, asked: 0, ..meters(word).remove(0) }],
        elsewhere: None,
        spaces: Vec::new(),
        silent: Vec::new(),
        storage: None,
        environment: Some(EnvironmentBanner::Failed {
            name: word("default"),
            message: word("Python has no venv module."),
            command: Some(word("apt-get install python3-venv")),
        }),
    }
}

fn home_building(word: &Word) -> Home {
    Home {
        layout: Layout { insecure_http: true, ..layout(word).at(Nav::Home) },
        notice: None,
        environment: Some(EnvironmentBanner::Building {
            name: word("default"),
            step: word("Installing 42 of 118 packages: jaxlib"),
            percent: Some(36),
            started: Moment { at: NOW.plus_seconds(-40), show: Show::Since, now: NOW },
        }),
        live: vec![Card::new(&waits_for_environment(word), &context(word))],
        more_live: More { total: 1, ..More::default() },
        ended: Vec::new(),
        ..home(word)
    }
}

pub fn meters(word: &Word) -> Vec<Meter> {
    let meter = |field, label: &str, used, asked, limit, unit| Meter {
        field,
        label: label.to_owned(),
        used,
        asked,
        limit,
        unit,
        source: word("default"),
    };
    vec![
        meter("gpus", "GPUs", 2, 1, Some(4), Unit::Count),
        meter("cpus", "cores", 30, 0, Some(32), Unit::Count),
        meter("memory_bytes", "memory", 144 * GIB, 16 * GIB, Some(192 * GIB), Unit::Bytes),
        meter("sessions", "sessions", 4, 0, None, Unit::Count),
    ]
}

pub fn settings(word: &Word) -> Settings {
    let ago = |seconds: i64| Moment::ago(NOW.plus_seconds(-seconds), NOW);
    let token = |name: &str, scopes: &[&str], expires: i64| TokenRow {
        id: "0199a0b2-0000-7000-8000-000000000001".to_owned(),
        name: word(name),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        created: ago(20 * 86_400),
        last_used: (expires != 0).then(|| ago(240)),
        expires: Some(Moment::clock(NOW.plus_seconds(expires), NOW)),
        is_expired: expires < 0,
    };
    let scope = |name: &str, description: &str| ScopeChoice {
        name: name.to_owned(),
        description: description.to_owned(),
        chosen: false,
    };
    Settings {
        layout: layout(word).at(Nav::Settings),
        notice: None,
        errors: Vec::new(),
        has_local_password: true,
        tokens: vec![
            token("nightly-training", &["sessions:read", "sessions:write"], 10 * 86_400),
            token("laptop", &[], 0),
            token("old", &["sessions:connect"], -86_400),
        ],
        more_tokens: more("/settings", "tokens", 103),
        scopes: vec![
            scope("sessions:read", "see sessions and their logs"),
            scope("sessions:write", "start, extend and stop sessions"),
            scope("sessions:connect", "use what runs in them, terminals too"),
        ],
        token_name: String::new(),
        new_token: None,
        logins: 3,
        told: super::told::told(word),
        presets: PresetList {
            rows: super::session_form::presets(word).rows,
            groups: super::session_form::presets(word).groups,
        },
        registries: Some(RegistriesForm {
            rows: vec![RegistryRow { registry: word("nvcr.io"), user: word("$oauthtoken"), saved: ago(3600) }],
            may_add: true,
            registry: String::new(),
            user: String::new(),
        }),
        invitations: vec![super::people::invitation(word, "speech", "bob")],
        groups: [("vision", "local", true), ("students-2030", "ldap", false)]
            .map(|(name, source, may_leave)| OwnGroup {
                id: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
                name: word(name),
                source: source_word(source),
                may_leave,
            })
            .into(),
        more_groups: more("/settings", "groups", 500),
    }
}

fn settings_token(word: &Word) -> Settings {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: message.to_owned() };
    Settings {
        layout: Layout { theme: Theme::Dark, ..layout(word).at(Nav::Settings) },
        notice: Some("The token is made.".to_owned()),
        new_token: Some(NewToken {
            name: word("nightly"),
            secret: word("lyc_5Qm2v8Zr1XyT0bHq7KdWn3JcAeUf9LgPsRi4Mo6E"),
        }),
        tokens: Vec::new(),
        more_tokens: More::default(),
        token_name: word("bad\nname"),
        errors: vec![
            error("token_name", "A name is one line."),
            error("registry", "must be the host of a registry, such as nvcr.io"),
            error("current_password", "This is not your current password."),
        ],
        logins: 1,
        ..settings(word)
    }
}

fn packages(word: &Word) -> Packages {
    let package = |name: &str, version: &str, instead_of: Option<&str>| Package {
        name: word(name),
        version: word(version),
        instead_of: instead_of.map(word),
    };
    let current = OverlayPanel {
        name: "default-0123456789ab".to_owned(),
        environment: word("default"),
        python_version: "3.11.2".to_owned(),
        is_current: true,
        size: "1.2 GiB".to_owned(),
        count: 131,
        packages: vec![
            package("einops", "0.8.1", None),
            package("numpy", "1.26.4", Some("2.3.1")),
            package("pytorch_lightning_bolts_with_a_long_name", "2.5.0.post0", None),
        ],
        used_by: vec![("0199a0b2-0000-7000-8000-000000000001".to_owned(), word("resnet-nb"))],
    };
    let old = OverlayPanel {
        name: "default-ba9876543210".to_owned(),
        python_version: "3.9.2".to_owned(),
        is_current: false,
        size: "more than 3 GiB".to_owned(),
        count: 0,
        packages: Vec::new(),
        used_by: Vec::new(),
        ..current.clone()
    };
    Packages {
        layout: layout(word).at(Nav::Settings),
        notice: Some("The packages were removed.".to_owned()),
        trouble: None,
        overlays: vec![current, old],
    }
}

fn packages_away(word: &Word) -> Packages {
    let trouble = Some(word("the home directory does not respond"));
    Packages { notice: None, trouble, overlays: Vec::new(), ..packages(word) }
}

fn error(word: &Word) -> ErrorPage {
    ErrorPage {
        layout: layout(word),
        status: 404,
        title: word("Not found"),
        detail: word("There is no session of that name, or it is not yours."),
        kind: "not-found".to_owned(),
        request_id: word("0199a0b2-7c1e-7000-8000-3f2a"),
        ways: vec![
            ErrorLink { href: "/".to_owned(), label: word("Your sessions") },
            ErrorLink { href: "/login".to_owned(), label: word("Sign in as somebody else") },
        ],
    }
}

fn api(word: &Word) -> ApiDocs {
    ApiDocs {
        layout: layout(word).at(Nav::ApiDocs),
        document: "/api/v1/openapi.json".to_owned(),
        base_url: word("https://portal.example.org"),
    }
}

fn terminal(word: &Word) -> TerminalPage {
    TerminalPage {
        layout: portal(word),
        back: format!("/jobs/{}", SessionId::new()),
        what: "job",
        name: word("preprocess"),
        place: word("alice@node003"),
    }
}

fn show(word: &Word, session: &Session) -> ShowSession {
    let context = context(word);
    let happened = |seconds: i64, text: &str| HistoryEntry {
        at: Moment::clock(NOW.plus_seconds(-seconds), NOW),
        text: word(text),
    };
    ShowSession {
        layout: layout(word),
        notice: None,
        card: Card::new(session, &context),
        steps: ShowSession::steps(session, Some(&word("waiting for the app to respond"))),
        notes: notes(&[word(
            "The environment ‘default’ was updated. Your own packages are now on top of the new version (six)",
        )]),
        facts: ShowSession::facts(session, &context.app_title),
        moments: ShowSession::moments(session, NOW),
        history: vec![
            happened(24_480, "asked for by alice"),
            happened(24_478, "admitted, and placed on node003 with GPU 0 and 1"),
            happened(24_470, "running"),
            happened(600, "extended by 8 h by alice"),
        ],
        log: Some(plain_log(&word(
            "\u{1b}[32m[I 09:12:44 LabApp]\u{1b}[0m JupyterLab 4.6 is running at http+unix://app.sock/s/0199/\n[W \
             09:12:45] Kernel 3f2a is slow to answer\n[I 09:13:02] Saving file at /resnet.ipynb\n",
        ))),
        caveats: ShowSession::caveats(session, &GpuInventory { driver: true, ..GpuInventory::default() }),
        advice: (!session.state.is_live()).then(|| ADVICE.to_owned()),
        is_live: session.state.is_live(),
        is_own: true,
    }
}

pub const ADVICE: &str = "For the next start, 1 GPU instead of 2, 3 cores instead of 16 would suffice. A smaller \
                          request usually starts sooner.";
pub const IDLE: &str = "2 GPUs have been idle for 1 h 20 min, which has cost 2.6 GPU hours. Stop the session if it \
                        does not need them, or check that its environment has CUDA.";

pub fn context(word: &Word) -> CardContext {
    CardContext {
        around: SentenceContext {
            now: NOW,
            idle: Some(Deadline::new(
                Cause::Unused,
                NOW.plus_seconds(-40 * 60),
                7200,
                quota::Source::read(&word("group vision")),
            )),
            step: Some(word("waiting for the app to respond")),
            most_memory_bytes: Some(192 * GIB),
            is_own: true,
            estimated_start: Some(NOW.plus_seconds(50 * 60)),
            ..SentenceContext::default()
        },
        app_title: word("JupyterLab"),
        open_url: "https://apps.example.org/s/0199a0b2/".to_owned(),
        extend_seconds: Some(28_800),
        visible_on_node: false,
        gpus_are_counted: false,
        sample: Some(Sample { memory_bytes: 58 * GIB, cpus: 11.4, processes: 31 }),
        idle_gpus: None,
        csrf_token: word("5a1f0c"),
    }
}
