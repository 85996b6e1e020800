//! The form that submits a job: it shares sizes, software and place with the form of sessions,
//! and has a command or a script besides. A fault comes back beside its field with everything
//! that was typed.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::several;
use crate::{
    admission::QuotaStatus,
    db::jobs::JobFilter,
    jobs::JobRequest,
    model::{
        JobId,
        hold::{Needs, Prerequisite},
        preset::PresetKind,
        quota::Class,
    },
    presets::SavedRequest,
    sessions::{Options, StartRequest},
    sweeps::SweepRequest,
    web::{
        Portal,
        cluster::choices::choices,
        http::{
            error::{self, Error, Result},
            extract::{CurrentUser, Form, Query},
        },
        page::{Nav, Page},
        presets::pages as presets,
        sessions::{cards, form as sessions},
        views::{
            AdmissionPreview, EnvironmentChoice, FieldError, NewJob, NewSession, NewSessionForm, SeveralForm,
            SlurmFields, SlurmForm, WorkForm,
        },
    },
};

/// What a new script begins with.
const SCRIPT: &str = "#!/bin/bash\nset -e\n";

/// `?preset=` a saved request, `?from=` an earlier job, `?after=` one that it is to follow; the rest is what
/// [`sessions::Offered`] names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prefill {
    preset: Option<String>,
    from: Option<String>,
    after: Option<String>,
    partition: Option<String>,
    gpus: Option<String>,
    gpu_model: Option<String>,
    cpus: Option<String>,
    memory: Option<String>,
    duration: Option<String>,
}

/// `/jobs/new`
pub async fn page(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    Query(prefill): Query<Prefill>,
) -> Result<Response> {
    let standing = portal.sessions.standing(user.id()).await?;
    let mut form = sessions::defaults(&portal, &user, &standing, Class::Job);
    form.environment.clear();
    let mut work = WorkForm { script: SCRIPT.to_owned(), ..WorkForm::default() };
    let (mut copy_of, mut preset, mut errors) = (None, String::new(), Vec::new());
    if let Some(text) = &prefill.preset {
        let (found, saved) = presets::asked(&portal, &user, PresetKind::Job, text).await?;
        if let SavedRequest::Job(asked) = saved {
            presets::fill(&mut form, &shared_fields(&asked));
            work = work_of(asked.clone());
            let after = asked.after.clone().unwrap_or_default();
            let is_mixed = after.windows(2).any(|pair| pair[0].needs != pair[1].needs);
            // What the preset names may no longer exist.
            if let Err(error) = portal.jobs.rehearse(user.actor(), asked).await.map_err(Error::from) {
                errors = sessions::faults_beside_fields(&error, &form);
            }
            if is_mixed {
                let message = "The preset waits for its jobs in different ways, which this form cannot show. Submit it \
                               with `lyceum job submit --preset` to use them.";
                errors.push(FieldError { field: "after".to_owned(), message: message.to_owned() });
            }
        }
        preset = found.id.to_string();
    }
    if let Some(id) = prefill.from.as_deref().and_then(|id| id.parse::<JobId>().ok()) {
        let job = portal.jobs.find(user.actor(), id).await?;
        let like = portal.jobs.request_like(user.actor(), &job).await?;
        sessions::fill(&mut form, &portal, &user, &job.latest);
        form.name.clone_from(&job.name);
        form.log_directory = like.log_directory.clone().unwrap_or_default();
        form.slurm.clone_from(&like.slurm);
        if like.group.is_none() {
            form.group = sessions::charged_by_default(&standing.billing_groups);
        }
        work = work_of(like);
        copy_of = Some((job.id.to_string(), job.name));
    }
    if let Some(id) = prefill.after.as_deref().and_then(|id| id.parse::<JobId>().ok()) {
        work.after = portal.jobs.own(user.actor(), id).await?.id.to_string();
    }
    let Prefill { partition, gpus, gpu_model, cpus, memory, duration, .. } = prefill;
    sessions::Offered { partition, gpus, gpu_model, cpus, memory, duration }.fill(&mut form);
    let mut view = view(&portal, &user, &headers, &standing, (form, work), errors).await?;
    view.copy_of = copy_of;
    view.presets.chosen = preset;
    if let Ok(asked) =
        request(&view.form, &WorkForm { is_script: true, script: "true".to_owned(), ..WorkForm::default() })
        && let Ok(dry_run) = portal.jobs.rehearse(user.actor(), asked).await
    {
        view.verdict = Some(AdmissionPreview::from(dry_run.verdict));
    }
    Ok(Page(view).into_response())
}

/// `POST /jobs`
pub async fn submit(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    fields: Form,
) -> Result<Response> {
    let form = sessions::read(&fields);
    let work = read_work(&portal, &fields);
    let submitted = match request(&form, &work) {
        Ok(mut request) => {
            let key = Some(form.idempotency_key.as_str()).filter(|key| !key.is_empty());
            if work.several.is_asked() {
                match several::request(&work.several, request) {
                    Ok(many) => {
                        let made = portal.sweeps.submit(user.actor(), many, key).await.map_err(Error::from);
                        made.map(|sweep| format!("/sweeps/{}", sweep.id))
                    }
                    Err(faults) => Err(Error::invalid(faults)),
                }
            } else if let Some(array) = request.take_array(portal.sessions.scheduler.has_queue()) {
                let many = SweepRequest { job: request, array: Some(array), ..SweepRequest::default() };
                let made = portal.sweeps.submit(user.actor(), many, key).await.map_err(Error::from);
                made.map(|sweep| format!("/sweeps/{}", sweep.id))
            } else {
                let made = portal.jobs.submit(user.actor(), request, key).await.map_err(Error::from);
                made.map(|job| format!("/jobs/{}", job.id))
            }
        }
        Err(faults) => Err(Error::invalid(faults)),
    };
    let error = match submitted {
        Ok(address) => return Ok(Redirect::to(&address).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let mut errors = sessions::faults_beside_fields(&error, &form);
    for fault in &mut errors {
        // The form has one field for each of these.
        for whole in ["after", "parameters", "metric"] {
            if fault.field.strip_prefix(whole).is_some_and(|rest| rest.starts_with(['[', '.'])) {
                whole.clone_into(&mut fault.field);
            }
        }
    }
    let standing = portal.sessions.standing(user.id()).await?;
    let form = NewSessionForm { idempotency_key: sessions::new_key(), ..form };
    let view = view(&portal, &user, &headers, &standing, (form, work), errors).await?;
    Ok(error.with_page(Page(view)).into_response())
}

/// What the form has besides the one of sessions.
fn read_work(portal: &Portal, fields: &Form) -> WorkForm {
    WorkForm {
        is_script: fields.get("work") == "script",
        command: fields.get("command").to_owned(),
        script: fields.get("script").to_owned(),
        tags: fields.get("tags").trim().to_owned(),
        variables: fields.get("variables").to_owned(),
        notes: fields.get("notes").to_owned(),
        retries: fields.get("retries").trim().to_owned(),
        retry_wait: fields.get("retry_wait_seconds").trim().to_owned(),
        after: fields.get("after").trim().to_owned(),
        needs: fields.get("needs").to_owned(),
        several: several::read(fields),
        slurm: portal.sessions.scheduler.has_queue().then(|| SlurmForm {
            sbatch: fields.get("sbatch") == "yes",
            nodes: fields.get("nodes").trim().to_owned(),
            tasks_per_node: fields.get("tasks_per_node").trim().to_owned(),
        }),
        arguments: fields.get("arguments").trim().to_owned(),
        login_shell: fields.get("login_shell") == "yes",
        live: Vec::new(),
    }
}

/// `POST /jobs/presets`
pub async fn save_preset(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    fields: Form,
) -> Result<Response> {
    let form = sessions::read(&fields);
    let work = read_work(&portal, &fields);
    let saved = if work.several.is_asked() {
        let message = "a preset of this form stores one job; clear the fields of the array or sweep";
        Err(Error::field("array", "not_available", message))
    } else {
        match request(&form, &work) {
            Ok(request) => presets::save(&portal, &user, &fields, SavedRequest::Job(request)).await,
            Err(faults) => Err(Error::invalid(faults)),
        }
    };
    let error = match saved {
        Ok(preset) => return Ok(Redirect::to(&format!("/jobs/new?preset={}", preset.id)).into_response()),
        Err(error) if error.is_for_the_form() => error,
        Err(error) => return Err(error),
    };
    let errors = sessions::faults_beside_fields(&error, &form);
    let standing = portal.sessions.standing(user.id()).await?;
    let mut view = view(&portal, &user, &headers, &standing, (form, work), errors).await?;
    view.presets.name = fields.get("preset_name").chars().take(200).collect();
    Ok(error.with_page(Page(view)).into_response())
}

/// What a request for a job has in common with one for a session.
fn shared_fields(asked: &JobRequest) -> StartRequest {
    StartRequest {
        name: asked.name.clone(),
        profile: asked.profile.clone(),
        resources: asked.resources.clone(),
        environment: asked.environment.clone(),
        image: asked.image.clone(),
        modules: asked.modules.clone(),
        working_directory: asked.working_directory.clone(),
        group: asked.group.clone(),
        duration_seconds: asked.time_limit_seconds,
        slurm: asked.slurm.clone(),
        options: Options { log_directory: asked.log_directory.clone(), ..Options::default() },
        ..StartRequest::default()
    }
}

/// What an earlier job ran, as the form shows it.
fn work_of(like: JobRequest) -> WorkForm {
    let sbatch = like.is_slurm_script(true);
    let variables = like.variables.unwrap_or_default();
    let lines = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let argv = like.command.unwrap_or_default();
    let arguments = like.arguments.unwrap_or_default();
    let after = like.after.unwrap_or_default();
    WorkForm {
        after: after.iter().map(|one| one.job.to_string()).collect::<Vec<_>>().join(" "),
        needs: after.first().map(|one| one.needs.as_str().to_owned()).unwrap_or_default(),
        several: SeveralForm { array: like.array.unwrap_or_default(), ..SeveralForm::default() },
        is_script: like.script.is_some(),
        arguments: shlex::try_join(arguments.iter().map(String::as_str)).unwrap_or_default(),
        login_shell: like.login_shell.unwrap_or(false),
        command: shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_default(),
        script: like.script.unwrap_or_else(|| SCRIPT.to_owned()),
        variables: lines.collect::<Vec<_>>().join("\n"),
        tags: like.tags.unwrap_or_default().join(", "),
        notes: like.notes.unwrap_or_default(),
        slurm: Some(SlurmForm {
            sbatch,
            nodes: like.nodes.map(|nodes| nodes.to_string()).unwrap_or_default(),
            tasks_per_node: like.tasks_per_node.map(|tasks| tasks.to_string()).unwrap_or_default(),
        }),
        retries: like.retries.map(|retries| retries.to_string()).unwrap_or_default(),
        retry_wait: like.retry_wait_seconds.map(|wait| wait.to_string()).unwrap_or_default(),
        ..WorkForm::default()
    }
}

/// The form as the API's request; what cannot be read is a fault of its field.
fn request(form: &NewSessionForm, work: &WorkForm) -> Result<JobRequest, Vec<error::FieldError>> {
    let mut faults = Vec::new();
    let like = sessions::request(form).unwrap_or_else(|wrong| {
        faults.extend(wrong);
        StartRequest::default()
    });
    let (mut command, mut script, mut arguments) = (None, None, None);
    if work.is_script {
        script = Some(work.script.clone());
        arguments = shlex::split(&work.arguments);
        if arguments.is_none() {
            let message = "contain a quotation mark that is not closed";
            faults.push(error::FieldError::new("arguments", "malformed", message));
        }
    } else {
        let words = shlex::split(&work.command);
        if words.is_none() {
            let message = "contains a quotation mark that is not closed";
            faults.push(error::FieldError::new("command", "malformed", message));
        }
        command = words.filter(|words| !words.is_empty());
    }
    let mut variables = BTreeMap::new();
    for line in work.variables.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((name, value)) = line.split_once('=') {
            variables.insert(name.trim().to_owned(), value.to_owned());
        } else {
            let message = format!("`{line}` is not of the form `NAME=value`");
            faults.push(error::FieldError::new("variables", "malformed", message));
        }
    }
    let mut number = |field: &str, text: &str| {
        let number = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
        number.unwrap_or_else(|_err| {
            faults.push(error::FieldError::new(field, "invalid_value", "must be a whole number"));
            None
        })
    };
    let retries = number("retries", &work.retries);
    let retry_wait_seconds = number("retry_wait_seconds", &work.retry_wait);
    let sbatch = work.slurm.as_ref().filter(|_| work.is_script).map(|slurm| slurm.sbatch);
    let slurm = work.slurm.clone().unwrap_or_default();
    let nodes = number("nodes", &slurm.nodes);
    let tasks_per_node = number("tasks_per_node", &slurm.tasks_per_node);
    let needs = work.needs.parse().unwrap_or(Needs::Ok);
    let mut after = Vec::new();
    for id in work.after.split([' ', ',']).filter(|id| !id.is_empty()) {
        match id.parse() {
            Ok(job) => after.push(Prerequisite { job, needs }),
            Err(_) => {
                faults.push(error::FieldError::new("after", "malformed", format!("`{id}` is not the ID of a job")));
            }
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let tags = work.tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
    let tags: Vec<String> = tags.map(str::to_owned).collect();
    Ok(JobRequest {
        tags: Some(tags).filter(|tags| !tags.is_empty()),
        notes: Some(work.notes.clone()).filter(|notes| !notes.trim().is_empty()),
        retries,
        retry_wait_seconds,
        sbatch,
        nodes,
        tasks_per_node,
        after: Some(after).filter(|after| !after.is_empty()),
        name: like.name,
        command,
        script,
        arguments: arguments.filter(|arguments| !arguments.is_empty()),
        login_shell: Some(true).filter(|_| work.login_shell),
        working_directory: like.working_directory,
        profile: like.profile,
        resources: like.resources,
        environment: like.environment,
        image: like.image,
        modules: like.modules,
        slurm: like.slurm,
        variables: Some(variables).filter(|variables| !variables.is_empty()),
        group: like.group,
        time_limit_seconds: like.duration_seconds,
        log_directory: Some(form.log_directory.clone()).filter(|folder| !folder.is_empty()),
        ..JobRequest::default()
    })
}

async fn view(
    portal: &Portal,
    user: &CurrentUser,
    headers: &HeaderMap,
    standing: &QuotaStatus,
    (form, work): (NewSessionForm, WorkForm),
    errors: Vec<FieldError>,
) -> Result<NewJob> {
    let slurm = portal.sessions.scheduler.has_queue().then(|| work.slurm.clone().unwrap_or_default());
    let slurm_fields = SlurmFields::new(choices(portal, user).await?.as_ref(), &form.slurm);
    let layout = portal.layout_of(&user.0, Nav::Jobs);
    let csrf_token = layout.csrf_token.clone();
    let chosen = form.duration.parse().unwrap_or(0);
    Ok(NewJob {
        layout,
        own_environments: portal.sessions.own_environments(user.actor()).await?,
        sizes: sessions::sizes(portal, user, standing, Class::Job),
        custom: Some(sessions::sliders(portal, standing)),
        gpu_models: sessions::gpu_models(portal),
        groups: standing.billing_groups.groups.iter().map(|group| group.name.clone()).collect(),
        environments: environments(portal, user),
        images: sessions::images(portal, user),
        modules: sessions::modules(portal),
        durations: NewSession::durations(sessions::longest(portal, standing, Class::Job), chosen),
        meters: cards::meters(standing),
        slurm_fields,
        form: NewSessionForm { csrf_token, ..form },
        work: WorkForm { live: live(portal, user).await?, slurm, ..work },
        errors,
        verdict: None,
        copy_of: None,
        presets: presets::choices(portal, user, PresetKind::Job).await?,
        base_url: portal.portal_origin(headers),
    })
}

/// One's own jobs that others may follow.
async fn live(portal: &Portal, user: &CurrentUser) -> Result<Vec<(String, String)>> {
    let filter = JobFilter { owner: Some(user.id()), live_only: true, limit: 50, ..JobFilter::default() };
    let jobs = portal.jobs.list(filter).await?;
    Ok(jobs.into_iter().map(|job| (job.id.to_string(), job.name)).collect())
}

/// A job that names none starts at once, in what is there.
fn environments(portal: &Portal, user: &CurrentUser) -> Vec<EnvironmentChoice> {
    let at_once = EnvironmentChoice { name: String::new(), title: "default, if it is ready".to_owned(), ready: true };
    std::iter::once(at_once).chain(sessions::environments(portal, user)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> NewSessionForm {
        NewSessionForm { profile: "small".to_owned(), ..NewSessionForm::default() }
    }

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let work = |command: &str, variables: &str| WorkForm {
            command: command.to_owned(),
            variables: variables.to_owned(),
            ..WorkForm::default()
        };
        let asked = request(&form(), &work(r#"python -c 'print("a b")' x\ y"#, "A=1=2\n\n B = 3")).unwrap();
        assert_eq!(asked.command.unwrap(), ["python", "-c", r#"print("a b")"#, "x y"]);
        let variables: Vec<_> = asked.variables.unwrap().into_iter().collect();
        assert_eq!(variables, [("A".to_owned(), "1=2".to_owned()), ("B".to_owned(), " 3".to_owned())]);
        let tagged = WorkForm { tags: " paper, lr 0.1,,".to_owned(), ..work("true", "") };
        assert_eq!(request(&form(), &tagged).unwrap().tags.unwrap(), ["paper", "lr 0.1"]);
        let noted = WorkForm { notes: "A *baseline*.".to_owned(), ..work("true", "") };
        assert_eq!(request(&form(), &noted).unwrap().notes.as_deref(), Some("A *baseline*."));
        assert_eq!(request(&form(), &work("true", "")).unwrap().notes, None);
        assert_eq!(
            work_of(JobRequest { tags: Some(vec!["a".to_owned(), "b".to_owned()]), ..JobRequest::default() }).tags,
            "a, b"
        );
        for (command, variables, field) in [("echo 'a", "", "command"), ("true", "A", "variables")] {
            let faults = request(&form(), &work(command, variables)).unwrap_err();
            assert_eq!(faults[0].field, field);
        }
        assert_eq!(request(&form(), &work(" ", "")).unwrap().command, None, "the service says that there is none");
    }
}
