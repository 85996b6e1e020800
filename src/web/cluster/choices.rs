//! `GET /slurm/choices`: what somebody may choose of a Slurm cluster, for the forms and for programs. Whether a choice
//! is right is checked again when something is started.

use std::sync::Arc;

use axum::{Json as Answer, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    model::{SlurmChoices, slurm::Choice},
    scheduler::PortalUser,
    sessions,
    web::{
        Portal,
        http::{error::Result, extract::CurrentUser},
    },
};

/// What this user may choose; `None` where the portal does not use Slurm.
pub async fn choices(portal: &Portal, user: &CurrentUser) -> Result<Option<SlurmChoices>> {
    let scheduler = &portal.sessions.scheduler;
    if !scheduler.has_queue() {
        return Ok(None);
    }
    // Somebody without an account there is told so when they start something.
    match scheduler.person(&PortalUser::from(&user.user)).await {
        Ok(person) => Ok(scheduler.choices(&person.unix_name).await),
        Err(crate::scheduler::Error::Refused(_)) => Ok(Some(SlurmChoices::default())),
        Err(error) => Err(sessions::Error::from(error).into()),
    }
}

/// What can be chosen for one option of Slurm.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlurmChoice)]
pub struct ChoiceView {
    /// The values that you may choose.
    values: Vec<String>,
    /// Why none can be listed; null if `values` is complete.
    reason: Option<String>,
}

/// What you may choose of the Slurm cluster for a session or a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SlurmChoices)]
pub struct ChoicesView {
    /// Partitions.
    partition: ChoiceView,
    /// Slurm accounts that you belong to.
    account: ChoiceView,
    /// Qualities of service.
    qos: ChoiceView,
    /// Reservations that you or your accounts may use.
    reservation: ChoiceView,
    /// Features of nodes; an expression such as `a100&nvlink` can name several.
    constraint: ChoiceView,
}

/// Why there is nothing to choose on one machine.
const NO_SLURM: &str = "this portal does not use Slurm";
const UNKNOWN: &str = "Slurm does not list it at the moment; it checks the value when the job is submitted";

impl From<Option<&Choice>> for ChoiceView {
    fn from(choice: Option<&Choice>) -> Self {
        match choice {
            Some(Choice::OneOf(values)) => Self { values: values.clone(), reason: None },
            Some(Choice::Fixed(why)) => Self { values: Vec::new(), reason: Some((*why).to_owned()) },
            Some(Choice::Unknown) => Self { values: Vec::new(), reason: Some(UNKNOWN.to_owned()) },
            None => Self { values: Vec::new(), reason: Some(NO_SLURM.to_owned()) },
        }
    }
}

/// Returns what you may choose of the Slurm cluster for a session or a job.
#[utoipa::path(get, path = "/slurm/choices", tag = "cluster", responses((status = 200, body = ChoicesView)))]
pub async fn list(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Answer<ChoicesView>> {
    let choices = choices(&portal, &user).await?;
    let of = |option| ChoiceView::from(choices.as_ref().map(|choices| choices.of(option)));
    Ok(Answer(ChoicesView {
        partition: of("partition"),
        account: of("account"),
        qos: of("qos"),
        reservation: of("reservation"),
        constraint: of("constraint"),
    }))
}
