//! The form that starts a session: what can be chosen, what is left, and the way from the
//! form's fields to the request that the API would get. A fault comes back beside its field
//! with everything that was typed.

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::super::{
    Portal,
    cluster::choices::choices,
    http::{
        error::{Error, Result},
        extract::{CurrentUser, Form, Query},
    },
    page::{Nav, Page},
    presets::pages as presets,
    sessions::cards,
    views::{
        AdmissionPreview, AppTile, EnvironmentChoice, FieldError, Fit, ImageChoice, NewSession, NewSessionForm,
        SizeTile, Slider, Sliders, SlurmFields,
    },
};
use crate::{
    admission::QuotaStatus,
    apps::AppKind,
    db::{admit, quotas::BillingGroups},
    environments::{State as Building, cpu_only, modules::Module},
    model::{
        Resources, Session, SessionId, SlurmOptions,
        job::Shape,
        modules as module_names,
        preset::PresetKind,
        quota::{Class, Decision, Field, Limit, Request},
        size::{GIB, exact_size, parse_size},
    },
    presets::SavedRequest,
    sessions::{Options, Profile, StartRequest},
};

pub(in crate::web) use super::faults::faults_beside_fields;

/// `?preset=` a saved request, `?from=` an earlier session, `?app=` a program, `?log_directory=` its folder; the rest is
/// what [`Offered`] names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prefill {
    preset: Option<String>,
    from: Option<String>,
    memory: Option<String>,
    app: Option<String>,
    log_directory: Option<String>,
    partition: Option<String>,
    gpus: Option<String>,
    gpu_model: Option<String>,
    cpus: Option<String>,
    duration: Option<String>,
}

/// `/sessions/new`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(prefill): Query<Prefill>,
) -> Result<Response> {
    let standing = portal.sessions.standing(user.id()).await?;
    let mut form = defaults(&portal, &user, &standing, Class::Session);
    let (mut copy_of, mut preset, mut errors) = (None, String::new(), Vec::new());
    if let Some(text) = &prefill.preset {
        let (found, saved) = presets::asked(&portal, &user, PresetKind::Session, text).await?;
        if let SavedRequest::Session(request) = saved {
            presets::fill(&mut form, &request);
            if request.profile.is_none() && request.resources.is_none() && is_light(&portal, &form.app) {
                OWN_SIZE.clone_into(&mut form.profile);
            }
            let several = !request.options.log_directories.is_empty();
            // What the preset names may no longer exist.
            if let Err(error) = portal.sessions.rehearse(user.actor(), request).await.map_err(Error::from) {
                errors = faults_beside_fields(&error, &form);
            }
            if several {
                let message = "The preset has several named log directories, which this form cannot show. Start it \
                               from the home page to use them.";
                errors.push(FieldError { field: "log_directory".to_owned(), message: message.to_owned() });
            }
        }
        preset = found.id.to_string();
    }
    if let Some(id) = prefill.from.as_deref().and_then(|id| id.parse::<SessionId>().ok()) {
        let session = portal.sessions.find(user.actor(), id).await?;
        fill(&mut form, &portal, &user, &session);
        copy_of = Some(session.name);
    }
    let offered = |name: &String| portal.sessions.apps_for(user.actor()).any(|app| app.name == *name);
    if let Some(app) = prefill.app.filter(offered) {
        form.app = app;
        if is_light(&portal, &form.app) {
            OWN_SIZE.clone_into(&mut form.profile);
        }
    }
    if let Some(directory) = prefill.log_directory {
        form.log_directory = directory;
    }
    let Prefill { memory, partition, gpus, gpu_model, cpus, duration, .. } = prefill;
    Offered { partition, gpus, gpu_model, cpus, memory, duration }.fill(&mut form);
    let mut view = view(&portal, &user, &headers, &standing, form, errors).await?;
    view.copy_of = copy_of;
    view.presets.chosen = preset;
    if let Ok(request) = request(&view.form) {
        view.verdict = verdict(&portal, &user, request).await;
    }
    Ok(Page(view).into_response())
}

/// What a link to a form names: a place on the cluster and a size.
pub(in crate::web) struct Offered {
    pub partition: Option<String>,
    pub gpus: Option<String>,
    pub gpu_model: Option<String>,
    pub cpus: Option<String>,
    pub memory: Option<String>,
    pub duration: Option<String>,
}

impl Offered {
    pub(in crate::web) fn fill(self, form: &mut NewSessionForm) {
        let is_number = |text: &String| text.parse::<i64>().is_ok();
        let sizes = [
            (self.gpus.filter(is_number), &mut form.gpus),
            (self.gpu_model, &mut form.gpu_model),
            (self.cpus.filter(is_number), &mut form.cpus),
            (self.memory.filter(|memory| parse_size(memory).is_some()), &mut form.memory),
        ];
        for (value, field) in sizes {
            if let Some(value) = value {
                "custom".clone_into(&mut form.profile);
                *field = value;
            }
        }
        if let Some(duration) = self.duration.filter(is_number) {
            form.duration = duration;
        }
        if let Some(partition) = self.partition.filter(|partition| !partition.is_empty()) {
            form.slurm.partition = Some(partition);
        }
    }
}

/// `POST /sessions`
pub async fn start(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    fields: Form,
) -> Result<Response> {
    let form = read(&fields);
    let started = match request(&form) {
        Ok(request) => {
            let key = Some(form.idempotency_key.as_str()).filter(|key| !key.is_empty());
            portal.sessions.start(user.actor(), request, key).await.map_err(Error::from)
        }
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match started {
        Ok(session) if form.opens => {
            return Ok(Redirect::to(&portal.open_url(&headers, session.id)).into_response());
        }
        Ok(session) => return Ok(Redirect::to(&format!("/sessions/{}", session.id)).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let errors = faults_beside_fields(&error, &form);
    let standing = portal.sessions.standing(user.id()).await?;
    let form = NewSessionForm { idempotency_key: new_key(), ..form };
    Ok(error.with_page(Page(view(&portal, &user, &headers, &standing, form, errors).await?)).into_response())
}

/// `POST /sessions/presets`
pub async fn save_preset(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    fields: Form,
) -> Result<Response> {
    let form = read(&fields);
    let saved = match request(&form) {
        Ok(request) => presets::save(&portal, &user, &fields, SavedRequest::Session(request)).await,
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match saved {
        Ok(preset) => return Ok(Redirect::to(&format!("/sessions/new?preset={}", preset.id)).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let errors = faults_beside_fields(&error, &form);
    let standing = portal.sessions.standing(user.id()).await?;
    let mut view = view(&portal, &user, &headers, &standing, form, errors).await?;
    view.presets.name = fields.get("preset_name").chars().take(200).collect();
    Ok(error.with_page(Page(view)).into_response())
}

/// The value of the size of an app that has one of its own.
const OWN_SIZE: &str = "app";

/// Whether an app has a small size of its own, without GPUs.
fn is_light(portal: &Portal, app: &str) -> bool {
    portal.sessions.apps.find(app).is_some_and(|app| app.default_resources.is_some())
}

/// The request that would start this session again.
pub(in crate::web) fn same_again(session: &Session) -> StartRequest {
    StartRequest {
        app: session.app.clone(),
        preset: None,
        name: Some(session.name.clone()),
        profile: None,
        resources: Some(session.spec.resources.clone()),
        environment: session.spec.environment.clone(),
        image: session.spec.image.clone(),
        modules: session.spec.modules.clone(),
        working_directory: session.spec.working_directory.clone(),
        duration_seconds: Some(session.spec.duration_seconds),
        usual_seconds: None,
        group: session.spec.group.clone(),
        slurm: session.spec.slurm.clone(),
        options: Options {
            log_directory: session.spec.log_directory.clone(),
            log_directories: session.spec.log_directories.clone(),
        },
    }
}

pub(in crate::web) fn defaults(
    portal: &Portal,
    user: &CurrentUser,
    standing: &QuotaStatus,
    class: Class,
) -> NewSessionForm {
    let profiles = portal.sessions.profiles_for(user.actor());
    // A notebook begins with the smallest GPU size that starts now, else the first size that does; a job with the
    // smallest size, since what it computes on is part of what was written.
    let fits = |profile: &Profile| fit(portal, standing, profile, class).0 == Fit::Now;
    let chosen = profiles
        .iter()
        .find(|profile| class != Class::Job && profile.resources.gpus > 0 && fits(profile))
        .or_else(|| profiles.iter().find(|profile| fits(profile)))
        .or(profiles.first());
    let resources = chosen.map(|profile| profile.resources.clone()).unwrap_or_default();
    let longest = longest(portal, standing, class);
    NewSessionForm {
        csrf_token: String::new(),
        idempotency_key: new_key(),
        app: "jupyter".to_owned(),
        profile: chosen.map_or_else(|| "custom".to_owned(), |profile| profile.name.clone()),
        gpus: resources.gpus.to_string(),
        cpus: resources.cpus.to_string(),
        memory: exact_size(resources.memory_bytes),
        duration: chosen.map_or(longest, |profile| profile.duration_seconds.min(longest)).to_string(),
        environment: crate::environments::DEFAULT.to_owned(),
        group: charged_by_default(&standing.billing_groups),
        opens: true,
        ..NewSessionForm::default()
    }
}

pub(in crate::web) fn fill(form: &mut NewSessionForm, portal: &Portal, user: &CurrentUser, session: &Session) {
    let spec = &session.spec;
    let offered = portal.sessions.profiles_for(user.actor());
    let known = |name: &String| offered.iter().any(|profile| profile.name == *name);
    form.app.clone_from(&session.app);
    form.name.clone_from(&session.name);
    form.profile = spec.profile.clone().filter(known).unwrap_or_else(|| "custom".to_owned());
    form.gpus = spec.resources.gpus.to_string();
    form.gpu_model = spec.resources.gpu_model.clone().unwrap_or_default();
    form.cpus = spec.resources.cpus.to_string();
    form.memory = exact_size(spec.resources.memory_bytes);
    form.duration = spec.duration_seconds.to_string();
    form.modules = spec.modules.join(" ");
    form.working_directory = spec.working_directory.clone().unwrap_or_default();
    if let Some(group) = &spec.group {
        form.group.clone_from(group);
    }
    form.slurm = spec.slurm.clone();
    form.log_directory = spec.log_directory.clone().unwrap_or_default();
    form.image = spec.image.clone().unwrap_or_default();
    if let Some(environment) = &spec.environment {
        // One of their own is named by its path.
        let is_own = environment.contains(['/', '~']);
        let field = if is_own { &mut form.own_environment } else { &mut form.environment };
        field.clone_from(environment);
    }
}

pub(in crate::web) fn read(fields: &Form) -> NewSessionForm {
    let text = |name: &str| fields.get(name).trim().to_owned();
    NewSessionForm {
        csrf_token: String::new(),
        idempotency_key: text("idempotency_key"),
        app: text("app"),
        profile: text("profile"),
        opens: !text("open").is_empty(),
        gpus: text("gpus"),
        gpu_model: text("gpu_model"),
        cpus: text("cpus"),
        memory: text("memory"),
        name: fields.get("name").to_owned(),
        environment: text("environment"),
        own_environment: text("own_environment"),
        image: text("image"),
        duration: text("duration"),
        modules: text("modules"),
        working_directory: text("working_directory"),
        log_directory: text("log_directory"),
        group: text("group"),
        slurm: SlurmOptions {
            partition: Some(text("partition")),
            account: Some(text("account")),
            qos: Some(text("qos")),
            reservation: Some(text("reservation")),
            constraint: Some(text("constraint")),
        }
        .trimmed(),
    }
}

/// The form as the API's request; what cannot be read is a fault of its field.
pub(in crate::web) fn request(form: &NewSessionForm) -> Result<StartRequest, Vec<crate::web::http::error::FieldError>> {
    let mut faults = Vec::new();
    let mut number = |field: &str, text: &str| {
        text.parse::<i64>().unwrap_or_else(|_| {
            faults.push(crate::web::http::error::FieldError::new(field, "invalid_value", "must be a whole number"));
            0
        })
    };
    let custom = form.profile.is_empty() || form.profile == "custom";
    let mut resources = None;
    if custom {
        let gpus = if form.gpus.is_empty() { 0 } else { number("resources.gpus", &form.gpus) };
        let cpus = number("resources.cpus", &form.cpus);
        resources = Some(Resources {
            gpus,
            cpus,
            gpu_model: Some(form.gpu_model.clone()).filter(|model| !model.is_empty() && 0 < gpus),
            memory_bytes: 0,
        });
    }
    let duration = if form.duration.is_empty() { None } else { Some(number("duration_seconds", &form.duration)) };
    if let Some(resources) = &mut resources {
        match parse_size(&form.memory) {
            Some(bytes) => resources.memory_bytes = bytes,
            None => faults.push(crate::web::http::error::FieldError::new(
                "resources.memory_bytes",
                "invalid_value",
                "must be a size such as 4 GiB",
            )),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Ok(StartRequest {
        app: form.app.clone(),
        preset: None,
        name: some(&form.name),
        profile: some(&form.profile).filter(|profile| !custom && profile != OWN_SIZE),
        resources,
        // The list of environments always has a choice; an image replaces it.
        environment: own_environment(form).or_else(|| some(&form.environment).filter(|_| form.image.is_empty())),
        image: some(&form.image),
        modules: module_names::of_line(&form.modules),
        working_directory: some(&form.working_directory),
        group: some(&form.group),
        duration_seconds: duration,
        usual_seconds: None,
        slurm: form.slurm.clone(),
        // A folder that was typed before another program was chosen is no fault.
        options: Options {
            log_directory: some(&form.log_directory).filter(|_| crate::apps::takes_logs(&form.app)),
            ..Options::default()
        },
    })
}

/// The path that was typed; a bare word means a folder at home.
fn own_environment(form: &NewSessionForm) -> Option<String> {
    let typed = form.own_environment.as_str();
    match typed {
        "" => None,
        _ if typed.contains(['/', '~']) => Some(typed.to_owned()),
        _ => Some(format!("~/{typed}")),
    }
}

async fn verdict(portal: &Portal, user: &CurrentUser, request: StartRequest) -> Option<AdmissionPreview> {
    let rehearsed = portal.sessions.rehearse(user.actor(), request).await.ok()?.verdict;
    Some(AdmissionPreview::from(rehearsed))
}

impl From<admit::Verdict> for AdmissionPreview {
    fn from(rehearsed: admit::Verdict) -> Self {
        let text = |reasons: &[crate::model::quota::Reason]| {
            reasons.iter().map(|reason| reason.hint.as_str()).collect::<Vec<_>>().join(" ")
        };
        match rehearsed {
            admit::Verdict::Admit { .. } => Self { fit: Fit::Now, text: String::new() },
            admit::Verdict::Wait(reasons) => Self { fit: Fit::Waits, text: text(&reasons) },
            admit::Verdict::Refuse(reasons) => Self { fit: Fit::Never, text: text(&reasons) },
        }
    }
}

async fn view(
    portal: &Portal,
    user: &CurrentUser,
    headers: &HeaderMap,
    standing: &QuotaStatus,
    form: NewSessionForm,
    errors: Vec<FieldError>,
) -> Result<NewSession> {
    let layout = portal.layout_of(&user.0, Nav::Sessions);
    let csrf_token = layout.csrf_token.clone();
    let chosen = form.duration.parse().unwrap_or(0);
    let slurm_fields = SlurmFields::new(choices(portal, user).await?.as_ref(), &form.slurm);
    let own_environments = portal.sessions.own_environments(user.actor()).await?;
    Ok(NewSession {
        layout,
        own_environments,
        apps: apps(portal, user),
        sizes: sizes(portal, user, standing, Class::Session),
        custom: Some(sliders(portal, standing)),
        gpu_models: gpu_models(portal),
        groups: standing.billing_groups.groups.iter().map(|group| group.name.clone()).collect(),
        environments: environments(portal, user),
        images: images(portal, user),
        modules: modules(portal),
        durations: NewSession::durations(longest(portal, standing, Class::Session), chosen),
        meters: cards::meters(standing),
        slurm_fields,
        usual_size: defaults(portal, user, standing, Class::Session).profile,
        form: NewSessionForm { csrf_token, ..form },
        errors,
        verdict: None,
        copy_of: None,
        presets: presets::choices(portal, user, PresetKind::Session).await?,
        base_url: portal.portal_origin(headers),
    })
}

/// The images that this person may choose.
pub(in crate::web) fn images(portal: &Portal, user: &CurrentUser) -> Vec<ImageChoice> {
    if !portal.sessions.can_use_images() {
        return Vec::new();
    }
    portal.sessions.usable_images(user.actor()).iter().map(ImageChoice::from).collect()
}

/// As the inventory spells them.
pub(in crate::web) fn gpu_models(portal: &Portal) -> Vec<String> {
    let mut models: Vec<String> =
        portal.sessions.admission.stock.inventory().gpus.iter().map(|gpu| gpu.model.clone()).collect();
    models.sort();
    models.dedup();
    models
}

fn apps(portal: &Portal, user: &CurrentUser) -> Vec<AppTile> {
    let tile = |app: &crate::apps::App| AppTile {
        name: app.name.clone(),
        title: app.title.clone(),
        description: app.description.clone(),
        uses_environment: app.takes_environment(),
        own_size: app.default_resources.clone(),
        wants_log_directory: app.takes_logs(),
        by_site: matches!(app.kind, AppKind::Site(_)),
    };
    portal.sessions.apps_for(user.actor()).map(tile).collect()
}

pub(in crate::web) fn modules(portal: &Portal) -> Option<Vec<(String, String, String)>> {
    let known = portal.sessions.environments.modules();
    known.init()?;
    let row = |module: &Module| (module.name.clone(), module.versions.join(" "), module.description.clone());
    Some(known.list().iter().map(row).collect())
}

pub(in crate::web) fn sizes(
    portal: &Portal,
    user: &CurrentUser,
    standing: &QuotaStatus,
    class: Class,
) -> Vec<SizeTile> {
    let profiles = portal.sessions.profiles_for(user.actor());
    profiles
        .iter()
        .map(|profile| {
            let (fit, note) = fit(portal, standing, profile, class);
            SizeTile {
                name: profile.name.clone(),
                title: profile.title.clone(),
                resources: profile.resources.clone(),
                fit,
                note,
            }
        })
        .collect()
}

/// Whether a size would start, by the same rules that decide, and a few words about it.
fn fit(portal: &Portal, standing: &QuotaStatus, profile: &Profile, class: Class) -> (Fit, String) {
    let resources = &profile.resources;
    let class = if class == Class::Job { class } else { Class::of(resources.is_light(), false) };
    let request = Request { resources: resources.clone(), duration_seconds: 60, class };
    let first = |reasons: Vec<crate::model::quota::Reason>| reasons.into_iter().next().map(|reason| reason.hint);
    let reserved = || portal.sessions.scheduler.reserved(resources, profile.duration_seconds, &Shape::default());
    match standing.decide(&request) {
        Decision::Admit if let Some((reason, _)) = reserved() => (Fit::Waits, reason.hint),
        Decision::Admit if 0 < resources.gpus => {
            let free = standing.capacity.gpus - standing.in_use.gpus;
            (Fit::Now, format!("{free} {} free now", if free == 1 { "GPU" } else { "GPUs" }))
        }
        Decision::Admit => {
            let free = free_cores(standing);
            (Fit::Now, format!("{free} {} free now", if free == 1 { "core" } else { "cores" }))
        }
        Decision::Wait(reasons) => (Fit::Waits, first(reasons).unwrap_or_default()),
        Decision::Refuse(reasons) => (Fit::Never, first(reasons).unwrap_or_default()),
    }
}

/// As the rule counts that decides: what is light takes no core from anybody.
fn free_cores(standing: &QuotaStatus) -> i64 {
    standing.capacity.cpus - (standing.in_use.cpus - standing.in_use.light_cpus)
}

pub(in crate::web) fn sliders(portal: &Portal, standing: &QuotaStatus) -> Sliders {
    let largest = portal.sessions.scheduler.largest();
    let slider = |field, least: i64, (machine, largest): (i64, i64), used: i64, machine_used: i64| {
        let limit = standing.limits.of(&field).limit;
        let most = limit.cap(machine.min(largest)).max(least);
        let left = match limit {
            Limit::Unlimited => machine - machine_used,
            Limit::AtMost(limit) => (limit - used).min(machine - machine_used),
        };
        Slider { least, left: left.clamp(0, most), most }
    };
    let (usage, in_use, capacity) = (&standing.usage, &standing.in_use, &standing.capacity);
    let cores_in_use = capacity.cpus - free_cores(standing);
    let gpus = (capacity.gpus, largest.gpus);
    let cpus = (capacity.cpus, largest.cpus);
    let memory = (capacity.memory_bytes, largest.memory_bytes);
    Sliders {
        gpus: slider(Field::Gpus, 0, gpus, usage.gpus, in_use.gpus),
        cpus: slider(Field::Cpus, 1, cpus, cards::cores_held(standing), cores_in_use),
        memory: slider(Field::MemoryBytes, GIB / 4, memory, usage.memory_bytes, in_use.memory_bytes),
    }
}

pub(in crate::web) fn environments(portal: &Portal, user: &CurrentUser) -> Vec<EnvironmentChoice> {
    let choice = |environment: crate::environments::Environment| EnvironmentChoice {
        title: match environment.python_version {
            Some(version) if cpu_only(&environment.frameworks).is_some() => {
                format!("{} · Python {version} · CPU only", environment.title)
            }
            Some(version) => format!("{} · Python {version}", environment.title),
            None => environment.title,
        },
        name: environment.name,
        ready: matches!(environment.state, Building::Ready { .. }),
    };
    portal.sessions.environments_for(user.actor()).into_iter().map(choice).collect()
}

/// The name of the group that is charged while none is chosen.
pub(in crate::web) fn charged_by_default(billing_groups: &BillingGroups) -> String {
    let group = billing_groups.default_group();
    let found = billing_groups.groups.iter().find(|one| Some(one.id) == group);
    found.map(|group| group.name.clone()).unwrap_or_default()
}

pub(in crate::web) fn longest(portal: &Portal, standing: &QuotaStatus, class: Class) -> i64 {
    // A month is longer than anybody picks from a list.
    let longest = standing.limits.of(&class.longest()).limit.cap(30 * 86_400);
    let schedulers = portal.sessions.scheduler.longest_seconds(&Resources::default());
    schedulers.map_or(longest, |schedulers| longest.min(schedulers))
}

pub(in crate::web) fn new_key() -> String {
    uuid::Uuid::now_v7().to_string()
}
