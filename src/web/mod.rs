//! Pages and API: everything that speaks HTTP. This file is the map: the state that handlers share and all routes.
//! `finish` and `guard` stand around them, `extract` reads requests, `error` has the status codes, `views` draws.

mod announcements;
#[expect(unused_qualifications, reason = "written by utoipa's macro for the parameters of a list")]
mod audit;
mod catalogue;
pub mod claim;
mod cluster;
mod columns;
mod config;
mod datasets;
mod diagnostics;
mod environments;
mod event_stream;
mod events;
mod files;
pub mod gateway;
mod health;
mod health_report;
mod home;
pub mod http;
pub mod identity;
mod images;
mod jobs;
mod log;
mod login;
pub mod markdown;
mod me;
mod metrics;
mod models;
mod notices;
mod notifications;
mod offered;
mod openapi;
mod packages;
pub mod page;
mod people;
mod presets;
pub mod probe;
mod profiles;
mod quotas;
mod registry_credentials;
mod runs;
mod search;
mod selection;
mod sessions;
mod settings;
mod site;
mod sweeps;
mod ticket;
mod tokens;
mod trash;
mod usage;
pub mod views;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use axum::{Router, extract::DefaultBodyLimit, middleware::from_fn_with_state, routing::any};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::routes;

pub use config::{AppsOrigin, WebConfig};
pub use health::document_faults;
pub use health_report::{ReportContext, alert};
pub use http::error::{Error, Result};
pub use http::forwarded::ClientHeader;
pub use http::front::Front;
pub use http::request_scope::Listener;
pub use http::routes::{Api, Pages, Route};
pub use identity::Identity;
pub use metrics::Metrics;

pub use crate::auth::scopes::RequiredScopes;

use crate::{
    announcements::Announcements,
    auth::{Access, Principal, scopes},
    cluster::Cluster,
    datasets::{Config as DatasetsConfig, Datasets},
    db::{Db, audit::ChangedBy},
    diagnostics::HardwareTests,
    events::Events,
    files::Files,
    jobs::Jobs,
    model::{Clock, Timestamp},
    models::Models,
    notifications::Notifications,
    presets::Presets,
    runs::Runs,
    sessions::Sessions,
    sweeps::Sweeps,
    trash::Trash,
};
use gateway::Gateway;
use http::extract::Admin;
use page::{Layout, Nav, Theme, Viewer};

/// The largest body of a page's form or an API request, in bytes.
pub const BODY_LIMIT: usize = 1024 * 1024;

/// What all handlers share.
pub struct Portal {
    pub db: Db,
    pub clock: Clock,
    pub access: Arc<Access>,
    pub config: WebConfig,
    pub metrics: Metrics,
    pub sessions: Arc<Sessions>,
    pub jobs: Arc<Jobs>,
    pub datasets: Arc<Datasets>,
    pub sweeps: Arc<Sweeps>,
    pub models: Arc<Models>,
    pub diagnostics: Arc<HardwareTests>,
    pub cluster: Arc<Cluster>,
    pub gateway: Gateway,
    pub files: Arc<Files>,
    pub runs: Arc<Runs>,
    pub presets: Presets,
    pub trash: Trash,
    /// The Unix account that everything runs as, where the portal is not root.
    pub single_user: Option<String>,
    pub streams: http::streams::Streams,
    /// What pages and the API are answering just now.
    pub live_requests: http::live_requests::LiveRequests,
    pub announcements: Arc<Announcements>,
    pub notifications: Arc<Notifications>,
    pub events: Arc<Events>,
    /// What the health page looks at besides the services.
    pub surroundings: ReportContext,
    /// When this process began.
    pub since: Timestamp,
    /// The portal is ending: streams close.
    pub stopping: CancellationToken,
    /// The OpenAPI document, made from the routes.
    document: OnceLock<health::Document>,
}

/// What a portal is made of.
pub struct Parts {
    pub access: Arc<Access>,
    pub config: WebConfig,
    pub sessions: Arc<Sessions>,
    pub cluster: Arc<Cluster>,
    pub gateway: Gateway,
    pub files: Arc<Files>,
    pub runs: Arc<Runs>,
    pub trash: Trash,
    pub announcements: Arc<Announcements>,
    pub notifications: Arc<Notifications>,
    pub events: Arc<Events>,
    pub surroundings: ReportContext,
    pub single_user: Option<String>,
    /// Our own program, where workloads may run it.
    pub program: PathBuf,
    /// Where the driver's library is on the nodes, if not where their linker finds it.
    pub driver_library: Option<PathBuf>,
    /// Where the site keeps standard datasets.
    pub datasets: DatasetsConfig,
    pub stopping: CancellationToken,
}

impl Portal {
    pub fn new(parts: Parts) -> Self {
        let Parts {
            access,
            config,
            sessions,
            cluster,
            gateway,
            files,
            runs,
            trash,
            announcements,
            notifications,
            events,
            surroundings,
            single_user,
            program,
            driver_library,
            datasets,
            stopping,
        } = parts;
        let jobs = Jobs::new(sessions.clone());
        let datasets = Datasets::new(jobs.clone(), files.clone(), program.clone(), datasets);
        let diagnostics = HardwareTests::new(&jobs, &files, &datasets, &program, driver_library);
        let trainer = sessions.config.installed.trainer.clone();
        let models = Models::new(jobs.clone(), files.clone(), trainer, program);
        Self {
            db: sessions.db.clone(),
            clock: sessions.clock.clone(),
            access,
            config,
            presets: Presets::new(sessions.db.clone(), sessions.clock.clone()),
            metrics: Metrics::with_waits_of(&sessions),
            since: sessions.clock.now(),
            sweeps: Sweeps::new(jobs.clone(), sessions.clone(), runs.clone(), datasets.clone(), models.clone()),
            diagnostics,
            datasets,
            models,
            jobs,
            sessions,
            cluster,
            gateway,
            files,
            runs,
            trash,
            single_user,
            streams: http::streams::Streams::default(),
            live_requests: http::live_requests::LiveRequests::default(),
            announcements,
            notifications,
            events,
            surroundings,
            stopping,
            document: OnceLock::new(),
        }
    }

    /// Who changes something, for the audit log.
    pub fn changed_by<'a>(&self, admin: &'a Admin) -> ChangedBy<'a> {
        ChangedBy { actor: admin.0.user.name.as_str(), at: self.clock.now() }
    }

    /// The frame of a page for somebody.
    pub fn layout_of(&self, principal: &Arc<Principal>, nav: Nav) -> Layout {
        self.layout(&Identity::Somebody(principal.clone()), nav)
    }

    /// The frame of a page for whoever asks.
    pub fn layout(&self, identity: &Identity, nav: Nav) -> Layout {
        let somebody = identity.somebody();
        Layout {
            nav,
            viewer: somebody.map(|principal| Viewer {
                name: principal.user.name.to_string(),
                display_name: principal.user.display_name.clone(),
                role: principal.user.role,
                manages_groups: !principal.user.manages.is_empty(),
            }),
            csrf_token: somebody.map(|principal| principal.csrf_token().to_owned()).unwrap_or_default(),
            theme: somebody.map(|principal| Theme::parse(&principal.theme)).unwrap_or_default(),
            expires: somebody.and_then(|principal| {
                let now = self.clock.now();
                principal.user.expires_soon(now).map(|end| views::Moment::clock(end, now))
            }),
            announcements: announcements::banner::strip(self, somebody.map(|principal| principal.id())),
            insecure_http: self.config.insecure_http,
            portal: String::new(),
            note_on_quotas: self.config.note_on_quotas(),
            has_queue: self.sessions.scheduler.has_queue(),
            has_images: somebody.is_some_and(|principal| self.has_images(principal)),
        }
    }
}

/// The routes below `/api/v1`.
#[expect(clippy::too_many_lines, reason = "one router on one page names every route, with its scopes")]
fn api() -> Api {
    self_service_routes()
        .and(&scopes::CATALOGUE)
        .routes(routes!(profiles::list, profiles::create))
        .routes(routes!(profiles::find, profiles::change, profiles::remove))
        .routes(routes!(environments::list, environments::create))
        .routes(routes!(environments::find, environments::change, environments::remove))
        .routes(routes!(environments::retry))
        .routes(routes!(environments::log))
        .routes(routes!(catalogue::modules))
        .routes(routes!(images::list, images::add))
        .routes(routes!(images::find, images::remove))
        .routes(routes!(images::pull))
        .routes(routes!(images::suggestions))
        .routes(routes!(images::storage::find))
        .routes(routes!(images::storage::clean))
        .and(&scopes::PRESETS)
        .routes(routes!(presets::list, presets::create))
        .routes(routes!(presets::find, presets::change, presets::remove))
        .and(&scopes::ADMISSION)
        .routes(routes!(sessions::admission))
        .and(&scopes::SESSIONS)
        .routes(routes!(sessions::list, sessions::start))
        .routes(routes!(sessions::find, sessions::rename, sessions::stop))
        .routes(routes!(sessions::extend))
        .routes(routes!(sessions::keep))
        .routes(routes!(sessions::log))
        .routes(routes!(sessions::events))
        .routes(routes!(sessions::hardware::hardware))
        .and(&scopes::JOBS)
        .routes(routes!(jobs::list, jobs::submit))
        .routes(routes!(jobs::find, jobs::change, jobs::delete))
        .routes(routes!(jobs::admission))
        .routes(routes!(sweeps::queue::find))
        .routes(routes!(sweeps::queue::pause))
        .routes(routes!(sweeps::queue::resume))
        .routes(routes!(sweeps::list, sweeps::submit))
        .routes(routes!(sweeps::preview))
        .routes(routes!(sweeps::find, sweeps::delete))
        .routes(routes!(sweeps::pause))
        .routes(routes!(sweeps::resume))
        .routes(routes!(sweeps::stop))
        .routes(routes!(jobs::restore))
        .routes(routes!(trash::find, trash::empty))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::resume))
        .routes(routes!(jobs::copy))
        .routes(routes!(jobs::log))
        .routes(routes!(jobs::events))
        .routes(routes!(runs::jobs::run))
        .routes(routes!(runs::jobs::list))
        .routes(routes!(runs::jobs::find))
        .routes(routes!(jobs::hardware::find))
        .routes(routes!(datasets::list, datasets::create))
        .routes(routes!(datasets::preview))
        .routes(routes!(datasets::find, datasets::change, datasets::remove))
        .routes(routes!(datasets::cancel))
        .routes(routes!(datasets::build))
        .routes(routes!(datasets::items::list))
        .routes(routes!(datasets::items::picture))
        .routes(routes!(datasets::items::mask))
        .routes(routes!(datasets::items::mean))
        .routes(routes!(datasets::items::example))
        .merge(models::routes::api())
        .merge(diagnostics::api())
        .merge(files::routes::api())
        .and(&scopes::JOBS)
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(runs::find, runs::change, runs::remove))
        .routes(routes!(runs::restore))
        .routes(routes!(runs::results::list))
        .routes(routes!(runs::metrics::list))
        .routes(routes!(runs::metrics::find))
        .and(&scopes::CURVES)
        .routes(routes!(runs::metrics::many))
        .and(&scopes::JOBS)
        .routes(routes!(runs::events::follow))
        .and(&scopes::QUOTAS)
        .routes(routes!(quotas::defaults, quotas::change_defaults))
        .routes(routes!(quotas::table, quotas::change_several))
        .routes(routes!(quotas::of_user, quotas::change_user))
        .and(&scopes::CLUSTER)
        .routes(routes!(usage::sums))
        .and(&scopes::QUOTAS)
        .routes(routes!(quotas::all))
        .routes(routes!(quotas::cluster, quotas::change_cluster))
        .routes(routes!(quotas::of_group, quotas::change_group))
        .routes(routes!(quotas::preview))
        .and(&scopes::PEOPLE)
        .routes(routes!(people::list, people::create))
        .routes(routes!(people::find, people::change, people::remove))
        .routes(routes!(people::sign_out))
        .routes(routes!(people::offboarding::contents))
        .routes(routes!(people::tokens::list))
        .routes(routes!(people::tokens::revoke))
        .routes(routes!(people::groups::list, people::groups::create))
        .routes(routes!(people::groups::find, people::groups::rename, people::groups::remove))
        .routes(routes!(people::groups::members))
        .routes(routes!(people::groups::add_member, people::groups::remove_member))
        .routes(routes!(people::groups::add_manager, people::groups::remove_manager))
        .routes(routes!(people::groups::sessions))
        .routes(routes!(people::invitations::list, people::invitations::create))
        .routes(routes!(people::invitations::withdraw))
        // It ends sessions and jobs alike, of others: no scope is for both.
        .and(&scopes::UNSCOPED)
        .routes(routes!(people::stop::stop))
        .routes(routes!(people::offboarding::offboard))
        .routes(routes!(people::offboarding::hand_over))
        // The link, like the secret of a token, is enough to act as its owner.
        .routes(routes!(people::password_links::create))
        .routes(routes!(people::tokens::create))
        .routes(routes!(people::tokens::rotate))
        // It changes users, roles, groups, limits and announcements.
        .routes(routes!(site::export))
        .routes(routes!(site::apply))
        .routes(routes!(site::item::put_user))
        .routes(routes!(site::item::put_group))
        .and(&scopes::CLUSTER)
        .routes(routes!(cluster::api::nodes))
        .routes(routes!(cluster::node::find))
        .routes(routes!(cluster::machines::partitions))
        .routes(routes!(cluster::machines::offered))
        .routes(routes!(cluster::machines::reserved))
        .routes(routes!(cluster::choices::list))
        .and(&scopes::JOBS)
        .routes(routes!(cluster::queue::list))
        .routes(routes!(cluster::queue::cancel))
        .and(&scopes::CLUSTER)
        .routes(routes!(cluster::api::gpus))
        .routes(routes!(cluster::api::history))
        .and(&scopes::SESSIONS)
        .routes(routes!(cluster::api::ask))
        .and(&scopes::AUDIT)
        .routes(routes!(audit::list))
        .routes(routes!(events::list))
        .and(&scopes::UNSCOPED)
        .routes(routes!(events::webhooks::list, events::webhooks::create))
        .routes(routes!(events::webhooks::find, events::webhooks::change, events::webhooks::remove))
        .routes(routes!(events::webhooks::try_out))
        .and(&scopes::ANNOUNCEMENTS)
        .routes(routes!(announcements::list, announcements::create))
        .routes(routes!(announcements::find, announcements::change, announcements::remove))
        .routes(routes!(announcements::dismiss))
        .routes(routes!(announcements::maintenance::find, announcements::maintenance::change))
        .and(&scopes::HEALTH)
        .routes(routes!(health_report::report))
        .and(&scopes::PUBLIC)
        .routes(routes!(health::version))
        .routes(health::compressed(routes!(health::document)))
}

/// What is about whoever asks.
fn self_service_routes() -> Api {
    Api::within(&scopes::PUBLIC)
        .routes(routes!(login::api_log_in))
        .and(&scopes::OWN_ACCOUNT)
        .routes(routes!(me::me))
        .and(&scopes::ACCOUNT)
        .routes(routes!(login::api_log_out))
        .routes(routes!(me::change_password))
        .routes(routes!(registry_credentials::list))
        .routes(routes!(registry_credentials::save, registry_credentials::remove))
        .and(&scopes::NOTICES)
        .routes(routes!(notifications::find, notifications::change))
        .routes(routes!(notifications::try_out))
        .routes(routes!(notifications::see))
        .routes(routes!(people::invitations::own))
        .routes(routes!(people::invitations::accept, people::invitations::decline))
        .routes(routes!(packages::list))
        .routes(routes!(packages::reset))
        .and(&scopes::ACCOUNT)
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .and(&scopes::ROTATION)
        .routes(routes!(tokens::rotate))
}

/// Everything else.
fn pages() -> Pages {
    settings::pages(files::routes::pages(diagnostics::pages(jobs::routes::pages(models::routes::pages(admin_pages())))))
        .and(&scopes::ACCOUNT)
        .get("/", home::page)
        .get("/events", event_stream::stream)
        .get("/notices", notices::fragment)
        .get("/search", search::page)
        .get("/tensorboard", sessions::board::page)
        .post("/tensorboard", sessions::board::show)
        .get("/sessions", sessions::list::page)
        .get("/sessions/new", sessions::form::page)
        .post("/sessions", sessions::form::start)
        .post("/sessions/presets", sessions::form::save_preset)
        .post("/presets/{id}/start", presets::pages::start)
        .post("/sessions/selection", selection::sessions)
        .get("/sessions/{id}", sessions::show::page)
        .get("/sessions/{id}/card", sessions::show::fragment)
        .post("/sessions/{id}/stop", sessions::show::stop)
        .post("/sessions/{id}/extend", sessions::show::extend)
        .post("/sessions/{id}/keep", sessions::show::keep)
        .post("/sessions/{id}/start-again", sessions::show::start_again)
        .get("/images", images::pages::list)
        .get("/cluster", cluster::page)
        .get("/nodes/{name}", cluster::node::page)
        .post("/cluster/sessions/{id}/ask", cluster::ask)
        .get("/queue", cluster::queue::page)
        .post("/queue/{id}/cancel", cluster::queue::cancel_by_form)
        .get("/datasets", datasets::pages::list)
        .post("/datasets", datasets::pages::create)
        .post("/datasets/selection", selection::datasets)
        .get("/datasets/new", datasets::pages::new)
        .post("/datasets/preview", datasets::pages::preview)
        .get("/datasets/{id}", datasets::pages::show)
        .post("/datasets/{id}/cancel", datasets::pages::cancel)
        .post("/datasets/{id}/build", datasets::pages::build)
        .post("/datasets/{id}/change", datasets::pages::change)
        .post("/datasets/{id}/remove", datasets::pages::remove)
        .get("/runs", runs::pages::list)
        .post("/runs", runs::pages::create)
        .get("/runs/compare", runs::pages::compare)
        .post("/runs/selection", runs::pages::selection)
        .get("/runs/{id}", runs::pages::show)
        .post("/runs/{id}", runs::pages::change)
        .post("/runs/{id}/remove", runs::pages::remove)
        .post("/runs/{id}/restore", runs::pages::restore)
        .get("/usage", usage::own::page)
        .get("/usage/table", usage::own::table)
        .and(&scopes::UNSCOPED)
        .get("/usage/compare", usage::compare::page)
        .get("/usage/compare/table", usage::compare::download)
        .and(&scopes::ACCOUNT)
        .post("/settings/groups/{group}/leave", people::invitations::leave)
        .post("/invitations/{group}/accept", people::invitations::accept_by_form)
        .post("/invitations/{group}/decline", people::invitations::decline_by_form)
        .get("/announcements/strip", announcements::banner::fragment)
        .post("/announcements/{id}/dismiss", announcements::banner::dismiss)
        .get("/docs/api", health::api_page)
        .and(&scopes::METRICS)
        .get("/metrics", health::metrics)
        .and(&scopes::PUBLIC)
        .get("/login", login::page)
        .post("/login", login::log_in)
        .get("/welcome", site::welcome::page)
        .post("/welcome", site::welcome::accept)
        .post("/logout", login::log_out)
        .get("/problems/{kind}", health::problem)
        .get("/healthz", health::alive)
        .get("/readyz", health::ready)
        .get(probe::FACTS, probe::facts)
        .get(probe::ECHO, probe::echo)
        .get(probe::EVENTS, probe::portals_events)
        .add("GET", "/static/{*path}", http::assets::files())
        .add("GET", "/favicon.ico", http::assets::icon())
}

/// What administrators see and do.
fn admin_pages() -> Pages {
    let pages = audit::routes(profiles::pages::routes(people::routes(Pages::within(&scopes::UNSCOPED))));
    environments::pages::routes(events::pages::routes(images::pages::forms(pages)))
        .get("/admin/import", site::import::page)
        .post("/admin/import", site::import::import)
        .get("/admin/quotas", quotas::page)
        .get("/admin/quotas/table", quotas::download)
        .post("/admin/quotas/selection", quotas::selection::change)
        .get("/admin/quotas/users/{name}", quotas::pages::user)
        .post("/admin/quotas/users/{name}", quotas::pages::change_user)
        .get("/admin/quotas/groups", quotas::groups::list)
        .get("/admin/quotas/groups/{group}", quotas::pages::group)
        .post("/admin/quotas/groups/{group}", quotas::pages::change_group)
        .get("/admin/quotas/default", quotas::pages::defaults)
        .post("/admin/quotas/default", quotas::pages::change_defaults)
        .get("/admin/quotas/cluster", quotas::pages::cluster)
        .post("/admin/quotas/cluster", quotas::pages::change_cluster)
        .get("/admin/announcements", announcements::pages::list)
        .post("/admin/announcements", announcements::pages::create)
        .get("/admin/announcements/{id}", announcements::pages::show)
        .post("/admin/announcements/{id}", announcements::pages::change)
        .post("/admin/announcements/{id}/end", announcements::pages::end)
        .post("/admin/announcements/{id}/remove", announcements::pages::remove)
        .get("/admin/maintenance", announcements::maintenance::page)
        .post("/admin/maintenance", announcements::maintenance::order_by_form)
        .post("/admin/maintenance/off", announcements::maintenance::off_by_form)
        .get("/admin/health", health_report::page)
}

/// The portal's main listener.
pub fn router(portal: Arc<Portal>) -> Router {
    let (api, document) = api().split();
    let _ = portal.document.set(health::Document::new(&document));
    finished(api.merge(pages().into_router()), portal.clone())
        .merge(Router::new().route(APP, any(gateway::on_portal)).with_state(portal))
}

/// The way into apps, outside all layers: every request of a notebook comes here, and `gateway` does what is needed.
const APP: &str = "/s/{*rest}";

/// The apps' own listener, or their names on the portal's: the way into apps, its pages' files, and the check's routes.
pub fn apps_router(portal: Arc<Portal>) -> Router {
    Pages::within(&scopes::PUBLIC)
        .get("/", gateway::front_door)
        .get("/tensorboard", sessions::board::from_apps)
        .get(probe::FACTS, probe::facts)
        .get(probe::ECHO, probe::echo)
        .get(probe::EVENTS, probe::apps_events)
        .add("GET", "/static/{*path}", http::assets::files())
        .add("GET", "/favicon.ico", http::assets::icon())
        .into_router()
        .fallback(async || Error::not_found())
        .method_not_allowed_fallback(async || Error::method_not_allowed())
        .layer(CatchPanicLayer::custom(http::request_scope::panicked))
        .layer(from_fn_with_state((portal.clone(), Listener::Apps), http::request_scope::finish))
        .route(APP, any(gateway::on_apps))
        .with_state(portal)
}

/// Puts around routes what stands around all: identity, origins, browser sessions, errors, headers, limits, the log.
pub fn finished(routes: Router<Arc<Portal>>, portal: Arc<Portal>) -> Router {
    routes
        .fallback(async || Error::not_found())
        .method_not_allowed_fallback(async || Error::method_not_allowed())
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(identity::sessions(&portal))
        .layer(from_fn_with_state(portal.clone(), identity::cookies_that_count))
        .layer(from_fn_with_state(portal.clone(), http::guard::same_origin))
        .layer(CatchPanicLayer::custom(http::request_scope::panicked))
        .layer(from_fn_with_state((portal.clone(), Listener::Portal), http::request_scope::finish))
        .with_state(portal)
}

/// Every route there is: the tests' tables must have a row for each.
pub fn all_routes() -> Vec<Route> {
    declared().into_iter().map(|(route, _)| route).collect()
}

/// Every route with what it needs of a token that has scopes.
pub fn declared() -> Vec<(Route, &'static RequiredScopes)> {
    let app = Route { method: "ANY".to_owned(), path: APP.to_owned() };
    api().declared().into_iter().chain(pages().declared()).chain([(app, &scopes::APPS)]).collect()
}
