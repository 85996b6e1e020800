//! Requests to pages and the API that are being answered, by whose access. It stands around
//! every route, so that a new one is covered by being one: when somebody's access ends, or
//! reaches less far than before, what they are still sending is cut, and so is what they are
//! still being sent. Requests to apps are the proxy's, which does the same.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{Method, header::CONTENT_TYPE},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{
    auth::{Access, Principal},
    listen::Connection,
    proxy::{Registration, Registry},
    web::{Error, Identity, Portal},
};

/// An answer that is complete and no longer than this (bytes) is sent as it is: it was made
/// while the access stood, or is the answer to what has ended it.
const SHORT_ANSWER: u64 = 1024 * 1024;

/// How long a change may go on after the access that it was asked for with has ended: signing
/// out is such a change itself.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Every request that somebody's access has let in, and what is left of its answer.
#[derive(Default)]
pub struct LiveRequests(Registry<Arc<Principal>>);

impl LiveRequests {
    /// Cuts what may live no longer. A database that does not answer proves nothing against anybody.
    pub async fn cut_what_lost_access(&self, access: &Access) {
        let mut holders: Vec<Arc<Principal>> = self.0.collect(Arc::clone);
        holders.sort_by_key(Arc::as_ptr);
        holders.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for principal in holders {
            if has_less(&principal, access).await {
                self.0.cut(|holder| Arc::ptr_eq(holder, &principal));
            }
        }
    }

    /// How many requests of this kind are being answered.
    pub fn count(&self, wanted: impl Fn(&Principal) -> bool) -> usize {
        self.0.count(|principal| wanted(principal))
    }
}

/// Whether what somebody was let in with is now worth less.
async fn has_less(principal: &Principal, access: &Access) -> bool {
    match access.still(principal).await {
        Ok(None) => true,
        Ok(Some(now)) => is_less(principal, &now),
        Err(_) => false,
    }
}

/// A role and groups open what is other people's. What more than before they would open is
/// asked for anew.
fn is_less(before: &Principal, now: &Principal) -> bool {
    let lost = |before: &[String], now: &[String]| before.iter().any(|group| !now.contains(group));
    now.user.role < before.user.role
        || lost(&before.user.groups, &now.user.groups)
        || lost(&before.user.manages, &now.user.manages)
}

/// Answers a request, as long as the access stands that it came with. `generation` is the
/// access generation from before anybody was judged.
pub(in crate::web) async fn run(
    portal: &Portal,
    identity: &Identity,
    generation: i64,
    request: Request,
    next: Next,
) -> Response {
    let Some(principal) = identity.somebody() else { return next.run(request).await };
    let registration = portal.live_requests.0.register(principal.clone());
    let token = registration.token.clone();
    // What changes from now on finds the registration; what has changed since is seen here.
    if portal.access.generation() != generation && has_less(principal, &portal.access).await {
        return Error::unauthenticated().into_response();
    }
    let connection = request.extensions().get::<Connection>().cloned();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let request = request
        .map(|body| if body.is_end_stream() { body } else { WhileAllowed::new(body, token.clone(), None).into() });
    let answered = async {
        if reads {
            return token.run_until_cancelled(next.run(request)).await;
        }
        let mut answer = std::pin::pin!(next.run(request));
        match token.run_until_cancelled(answer.as_mut()).await {
            Some(answer) => Some(answer),
            None => tokio::time::timeout(CHANGE_TIMEOUT, answer).await.ok(),
        }
    };
    let answer = match answered.await {
        // What failed because its body was cut says so.
        Some(answer) if !(token.is_cancelled() && is_failure(&answer)) => answer,
        _ => return Error::unauthenticated().into_response(),
    };
    if answer.body().size_hint().exact().is_some_and(|length| length <= SHORT_ANSWER) {
        return answer;
    }
    // A stream of events has no whole: it ends as ever, and whoever listens asks again.
    let is_events = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    if let Some(connection) = connection.filter(|_| !is_events) {
        registration.closes(connection);
    }
    answer
        .map(|body| WhileAllowed { ends_well: is_events, ..WhileAllowed::new(body, token, Some(registration)) }.into())
}

fn is_failure(answer: &Response) -> bool {
    answer.status().is_client_error() || answer.status().is_server_error()
}

/// What somebody sends or is sent, for as long as they may.
struct WhileAllowed {
    body: Body,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whether it ends when it is cut, instead of breaking off.
    ends_well: bool,
    /// Of an answer, which is live until the last byte of it has been taken.
    _registration: Option<Registration<Arc<Principal>>>,
}

impl WhileAllowed {
    fn new(body: Body, token: CancellationToken, registration: Option<Registration<Arc<Principal>>>) -> Self {
        Self { body, cut: Box::pin(token.cancelled_owned()), ends_well: false, _registration: registration }
    }
}

impl From<WhileAllowed> for Body {
    fn from(body: WhileAllowed) -> Self {
        Self::new(body)
    }
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
#[error("access has ended")]
struct Ended;

impl HttpBody for WhileAllowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            if self.ends_well {
                return Poll::Ready(None);
            }
            return Poll::Ready(Some(Err(axum::Error::new(Ended))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
