//! What somebody wants to be told of their jobs while they look elsewhere: `/me/notifications`,
//! and the form under Settings. Who is told what, and how, is `notifications`' to say.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::State,
    response::{IntoResponse, NoContent, Redirect, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Portal,
    http::{
        error::{Error, Problem, Result},
        extract::{CurrentUser, Form, Json},
    },
    settings,
};
use crate::{
    model::{
        JobId, NotificationId, Timestamp,
        notification::{Delivery, Event, Notification, UnseenJob, Way, offered},
    },
    notifications::{Overview, WishesRequest},
};

/// Your notification settings, the available channels, and your latest notifications.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Notifications)]
pub struct NotificationsView {
    /// The events that you are notified about.
    pub events: Vec<Event>,
    /// The e-mail address that notifications are sent to.
    pub mail: Option<String>,
    /// The address that notifications are posted to.
    pub webhook: Option<String>,
    /// A running job counts as stalled after this time without a new point.
    pub stalled_after_seconds: i64,
    /// Whether this portal can send e-mail.
    pub mail_offered: bool,
    /// The hosts that webhooks may use.
    pub webhook_hosts: Vec<String>,
    /// The secret that signs the bodies sent to the webhook. Only returned in response to a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub webhook_secret: Option<String>,
    /// The latest notifications, newest first.
    pub latest: Vec<NotificationView>,
    /// Notifications about your jobs that you have not seen yet, newest first. Browsers show these.
    pub unseen: Vec<UnseenView>,
}

/// A notification that its recipient has not seen yet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnseenNotification)]
pub struct UnseenView {
    pub event: Event,
    pub title: String,
    pub text: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
}

impl From<UnseenJob> for UnseenView {
    fn from(UnseenJob { message, at, .. }: UnseenJob) -> Self {
        let job = message.job.map(|(job, _)| job);
        Self { event: message.event, title: message.title, text: message.text, job, at }
    }
}

/// The notifications to mark as seen.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = SeenRequest)]
pub struct Seen {
    /// Mark the notifications of this job. If null, mark all notifications.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
}

/// A notification and the state of its delivery.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Notification)]
pub struct NotificationView {
    #[schema(value_type = String, format = "uuid")]
    pub id: NotificationId,
    pub event: Event,
    pub way: Way,
    pub title: String,
    pub text: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    pub job: Option<JobId>,
    pub state: Delivery,
    /// The number of delivery attempts.
    pub attempts: i64,
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
    /// Why it was not delivered.
    pub error: Option<String>,
}

impl From<Notification> for NotificationView {
    fn from(one: Notification) -> Self {
        Self {
            id: one.id,
            event: one.message.event,
            way: one.way,
            title: one.message.title,
            text: one.message.text,
            job: one.message.job.map(|(job, _)| job),
            state: one.state,
            attempts: one.attempts,
            at: one.at,
            error: one.error,
        }
    }
}

impl NotificationsView {
    fn new(overview: Overview, with_secret: bool) -> Self {
        Self {
            events: overview.wishes.events,
            mail: overview.wishes.mail,
            webhook: overview.wishes.webhook.map(|hook| hook.url),
            stalled_after_seconds: overview.wishes.stalled_after,
            mail_offered: overview.mail_offered,
            webhook_hosts: overview.hosts,
            webhook_secret: overview.secret.filter(|_| with_secret),
            latest: overview.latest.into_iter().map(NotificationView::from).collect(),
            unseen: overview.unseen.into_iter().map(UnseenView::from).collect(),
        }
    }
}

/// Returns your notification settings and your latest notifications.
#[utoipa::path(get, path = "/me/notifications", tag = "me", responses((status = 200, body = NotificationsView)))]
pub(super) async fn find(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Answer<NotificationsView>> {
    Ok(Answer(NotificationsView::new(portal.notifications.overview(&user.user).await?, false)))
}

/// Replaces your notification settings.
///
/// Events that are omitted are switched off.
#[utoipa::path(put, path = "/me/notifications", tag = "me", request_body = WishesRequest,
    responses((status = 200, body = NotificationsView)))]
pub(super) async fn change(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(request): Json<WishesRequest>,
) -> Result<Answer<NotificationsView>> {
    Ok(Answer(NotificationsView::new(portal.notifications.change(&user.user, request).await?, true)))
}

/// Sends a test notification through each channel that you have set up.
#[utoipa::path(post, path = "/me/notifications/test", tag = "me",
    responses((status = 204, description = "The test is being sent"),
        (status = 409, description = "No channel is set up", body = Problem)))]
pub(super) async fn try_out(user: CurrentUser, State(portal): State<Arc<Portal>>) -> Result<Response> {
    portal.notifications.try_out(&user.user).await?;
    Ok(NoContent.into_response())
}

/// Marks notifications about your jobs as seen.
///
/// Browsers no longer show them.
#[utoipa::path(post, path = "/me/notifications/seen", tag = "me", request_body = Seen,
    responses((status = 204, description = "Marked as seen")))]
pub(super) async fn see(
    user: CurrentUser,
    State(portal): State<Arc<Portal>>,
    Json(seen): Json<Seen>,
) -> Result<Response> {
    portal.notifications.see(user.id(), seen.job).await?;
    Ok(NoContent.into_response())
}

/// `POST /settings/notifications`
pub(super) async fn save(user: CurrentUser, State(portal): State<Arc<Portal>>, form: Form) -> Result<Response> {
    let text = |name: &str| Some(form.get(name).trim().to_owned()).filter(|text| !text.is_empty());
    let minutes = text("stalled_minutes").map(|minutes| minutes.parse::<i64>());
    let request = WishesRequest {
        events: offered(user.user.role)
            .into_iter()
            .filter(|event| form.all("events").any(|chosen| chosen == event.as_str()))
            .collect(),
        mail: text("mail"),
        webhook: text("webhook"),
        stalled_after_seconds: minutes.clone().and_then(Result::ok).map(|minutes| minutes.saturating_mul(60)),
    };
    let outcome = match minutes {
        Some(Err(_)) => Err(Error::field("stalled_minutes", "invalid_value", "must be a whole number")),
        _ => portal.notifications.change(&user.user, request.clone()).await.map_err(Error::from),
    };
    match outcome {
        Ok(_) => Ok(Redirect::to("/settings?done=notifications#job-notifications").into_response()),
        Err(error) => {
            settings::again(&portal, &user, error, |view| {
                view.told.keep(&request, user.user.role, form.get("stalled_minutes"));
            })
            .await
        }
    }
}

/// `POST /settings/notifications/test`
pub(super) async fn save_test(user: CurrentUser, State(portal): State<Arc<Portal>>, _form: Form) -> Result<Redirect> {
    portal.notifications.try_out(&user.user).await?;
    Ok(Redirect::to("/settings?done=test#job-notifications"))
}
