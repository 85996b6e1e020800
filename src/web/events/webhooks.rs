//! `/webhooks` over REST: the addresses that the portal calls for events, how far each has got, and a test of one. The
//! rules are in `services::events`.

use std::sync::Arc;

use axum::{
    Json as Answer,
    extract::State,
    response::{IntoResponse, NoContent, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    db::webhooks::Webhook,
    events::WebhookRequest,
    model::{Timestamp, WebhookId},
    web::{
        Portal,
        http::{
            error::{Created, Problem, Result},
            extract::{Admin, Id, Json},
            paging::Listed,
        },
    },
};

/// An address that the portal calls for events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub struct WebhookView {
    #[schema(value_type = String, format = "uuid")]
    pub id: WebhookId,
    /// The address, which the portal calls with POST.
    pub url: String,
    /// The types of events that it gets, such as `job.ended` or `quota.*`; `*`: all.
    pub types: Vec<String>,
    /// Whether it gets events.
    pub active: bool,
    /// The secret for checking the header `Lyceum-Signature`.
    pub secret: String,
    /// Who added it.
    pub created_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
    /// The number of the last event that it has got, or that is not for it.
    pub position: i64,
    /// When it got an event last; null: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub delivered_at: Option<Timestamp>,
    /// How many events its receiver has refused.
    pub refused: i64,
    /// Failed attempts to deliver the next event.
    pub attempts: i64,
    /// When the next attempt begins; null if none has failed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<Timestamp>,
    /// Why the last attempt failed; null if it did not.
    pub error: Option<String>,
}

impl WebhookView {
    fn new(portal: &Portal, hook: Webhook) -> Self {
        let secret = portal.events.secret(&hook);
        let Webhook { id, url, types, active, created_by, created_at, changed_at, progress, .. } = hook;
        Self {
            id,
            url,
            types,
            active,
            secret,
            created_by,
            created_at,
            changed_at,
            position: progress.position,
            delivered_at: progress.delivered_at,
            refused: progress.refused,
            attempts: progress.attempts,
            retry_at: progress.due_at,
            error: progress.error,
        }
    }
}

/// What a webhook is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WebhookRequest)]
pub struct WebhookBody {
    /// The address, at a host that the configuration allows.
    #[schema(min_length = 1, max_length = 2000)]
    url: String,
    /// The types of events that it gets: `job.ended`, all of a family with `job.*`, or all with `*`.
    #[schema(min_items = 1, max_items = 50)]
    types: Vec<String>,
    /// Whether it gets events. Default: true.
    #[serde(default = "default_active")]
    #[schema(default = true)]
    active: bool,
}

fn default_active() -> bool {
    true
}

impl From<WebhookBody> for WebhookRequest {
    fn from(body: WebhookBody) -> Self {
        let WebhookBody { url, types, active } = body;
        Self { url, types, active }
    }
}

/// What came of a test.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookTest {
    /// Whether the receiver confirmed it.
    delivered: bool,
    /// Why it did not arrive; null if it did.
    error: Option<String>,
}

/// Lists the webhooks, oldest first.
#[utoipa::path(get, path = "/webhooks", tag = "events",
    responses((status = 200, body = Listed<WebhookView>),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem)))]
pub async fn list(_: Admin, State(portal): State<Arc<Portal>>) -> Result<Answer<Listed<WebhookView>>> {
    let hooks = portal.events.webhooks().await?.into_iter();
    Ok(Answer(Listed { items: hooks.map(|hook| WebhookView::new(&portal, hook)).collect(), next_cursor: None }))
}

/// Returns a webhook.
#[utoipa::path(get, path = "/webhooks/{id}", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = WebhookView), (status = 404, description = "Not found", body = Problem)))]
pub async fn find(_: Admin, State(portal): State<Arc<Portal>>, Id(id): Id<WebhookId>) -> Result<Answer<WebhookView>> {
    Ok(Answer(WebhookView::new(&portal, portal.events.find_webhook(id).await?)))
}

/// Adds a webhook, which gets what happens from now on.
#[utoipa::path(post, path = "/webhooks", tag = "events", request_body = WebhookBody,
    responses((status = 201, body = WebhookView),
        (status = 403, description = "Not an administrator, or a token with scopes", body = Problem),
        (status = 409, description = "There are as many as there may be", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn create(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Json(body): Json<WebhookBody>,
) -> Result<Created<WebhookView>> {
    let hook = portal.events.add_webhook(body.into(), portal.changed_by(&admin)).await?;
    let address = format!("/api/v1/webhooks/{}", hook.id);
    Ok(Created(address, WebhookView::new(&portal, hook)))
}

/// Changes a webhook. It keeps its secret unless the address is another.
#[utoipa::path(put, path = "/webhooks/{id}", tag = "events", params(("id" = String, Path)), request_body = WebhookBody,
    responses((status = 200, body = WebhookView), (status = 404, description = "Not found", body = Problem),
        (status = 422, description = "A field is invalid", body = Problem)))]
pub async fn change(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<WebhookId>,
    Json(body): Json<WebhookBody>,
) -> Result<Answer<WebhookView>> {
    let hook = portal.events.change_webhook(id, body.into(), portal.changed_by(&admin)).await?;
    Ok(Answer(WebhookView::new(&portal, hook)))
}

/// Removes a webhook.
#[utoipa::path(delete, path = "/webhooks/{id}", tag = "events", params(("id" = String, Path)),
    responses((status = 204, description = "Removed"), (status = 404, description = "Not found", body = Problem)))]
pub async fn remove(admin: Admin, State(portal): State<Arc<Portal>>, Id(id): Id<WebhookId>) -> Result<Response> {
    portal.events.remove_webhook(id, portal.changed_by(&admin)).await?;
    Ok(NoContent.into_response())
}

/// Sends an event of the type `webhook.test` to a webhook, once, and returns whether it arrived.
#[utoipa::path(post, path = "/webhooks/{id}/test", tag = "events", params(("id" = String, Path)),
    responses((status = 200, body = WebhookTest), (status = 404, description = "Not found", body = Problem)))]
pub async fn try_out(
    admin: Admin,
    State(portal): State<Arc<Portal>>,
    Id(id): Id<WebhookId>,
) -> Result<Answer<WebhookTest>> {
    let error = portal.events.try_webhook(id, admin.0.user.name.as_str()).await?;
    Ok(Answer(WebhookTest { delivered: error.is_none(), error }))
}
