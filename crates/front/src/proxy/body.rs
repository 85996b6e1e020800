//! Bodies on their way through: frames pass one by one, are counted, and nothing is kept. An
//! answer's body drives the connection that it comes from and gives it back at its end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Error, activity::Activity, pool::Lease, registry::Registration, tunnel::Tunnel};
use lyceum_model::Clock;

/// The body of an app's answer.
pub(super) struct Answer {
    /// `None` once the body is over and the connection given back.
    lease: Option<Lease>,
    activity: Arc<Activity>,
    cut: Option<Cut>,
    broken: Option<Error>,
}

struct Cut {
    token: Pin<Box<WaitForCancellationFutureOwned>>,
    _registration: Registration<Tunnel>,
}

impl Answer {
    /// It is cut with its registration, like a tunnel.
    pub(super) fn new(lease: Lease, activity: Arc<Activity>, registration: Registration<Tunnel>) -> Self {
        let token = Box::pin(registration.token.clone().cancelled_owned());
        let cut = Some(Cut { token, _registration: registration });
        Self { lease: Some(lease), activity, cut, broken: None }
    }

    fn close(&mut self) {
        if let Some(mut lease) = self.lease.take() {
            lease.close();
        }
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Some(cut) = &mut this.cut
            && cut.token.as_mut().poll(cx).is_ready()
        {
            this.close();
            return Poll::Ready(Some(Err(Error::Cut)));
        }
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(lease) = &mut this.lease else { return Poll::Ready(None) };
        let data = match ready!(lease.poll_body(cx)) {
            Some(Err(error)) => {
                // An error ends the browser's connection on the spot. One round of patience
                // lets the frames before it leave first.
                this.close();
                this.broken = Some(error);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Ok(data)) => Some(data),
            None => None,
        };
        if lease.is_over() {
            (this.lease, this.cut) = (None, None);
        }
        Poll::Ready(data.map(|data| {
            this.activity.sent_down(data.len());
            Ok(Frame::data(data))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.lease {
            None => SizeHint::with_exact(0),
            Some(lease) => lease.left().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// A request's body, counted as use of the app while it is being sent.
pub(super) struct Upload {
    pub(super) body: Body,
    pub(super) activity: Arc<Activity>,
    /// `None` where this request does not count as activity.
    pub(super) clock: Option<Clock>,
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.activity.sent_up(data.len());
            if let Some(clock) = &self.clock {
                self.activity.note(clock.now());
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
