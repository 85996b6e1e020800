//! How long a connection may wait for a request, and for the rest of one that has begun.
//! hyper can watch this too, but arms a timer for each request, which costs two system calls;
//! here one timer for each connection looks now and then at a deadline that requests move.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep};

/// What is known about one connection.
pub struct Watch {
    start: Instant,
    deadline: Deadline,
    /// A request on it could be read in two ways; see `guard`.
    pub refused: AtomicBool,
}

impl Watch {
    /// The first head must be complete within `head`; between requests there may be `idle`.
    pub fn new(head: Duration, idle: Duration) -> Arc<Self> {
        let deadline = Deadline::new(millis(head), millis(idle));
        Arc::new(Self { start: Instant::now(), deadline, refused: AtomicBool::new(false) })
    }

    /// The first bytes of a head came: it has the time of a head from now on.
    pub fn head_began(&self) {
        self.deadline.head_began(self.now());
    }

    /// A head is complete; until its answer's body is dropped there is no deadline.
    pub fn serve(self: &Arc<Self>) -> Serving {
        self.deadline.lift();
        Serving(self.clone())
    }

    /// Returns once the connection has waited for too long, at most the time of a head late.
    pub async fn expired(&self) {
        loop {
            let left = self.deadline.left(self.now());
            if left == 0 {
                return;
            }
            // A head that begins meanwhile sets an earlier deadline, but none earlier than this.
            sleep(Duration::from_millis(left.min(self.deadline.head))).await;
        }
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

/// When a connection is to be closed, in milliseconds after its start.
struct Deadline {
    at: AtomicU64,
    head: u64,
    idle: u64,
}

/// No deadline: a request is being served.
const NO_DEADLINE: u64 = u64::MAX;

impl Deadline {
    fn new(head: u64, idle: u64) -> Self {
        Self { at: AtomicU64::new(head), head, idle }
    }

    fn head_began(&self, now: u64) {
        let at = self.at.load(Ordering::Relaxed);
        if at != NO_DEADLINE {
            self.at.store(at.min(now.saturating_add(self.head)), Ordering::Relaxed);
        }
    }

    fn lift(&self) {
        self.at.store(NO_DEADLINE, Ordering::Relaxed);
    }

    fn answered(&self, now: u64) {
        self.at.store(now.saturating_add(self.idle), Ordering::Relaxed);
    }

    fn left(&self, now: u64) -> u64 {
        self.at.load(Ordering::Relaxed).saturating_sub(now)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NO_DEADLINE)
}

/// A request being served, to the last byte of its answer.
pub struct Serving(Arc<Watch>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.deadline.answered(self.0.now());
    }
}

/// An answer's body, which ends its request when it is dropped.
pub struct Watched {
    body: Body,
    _serving: Serving,
}

impl Watched {
    pub fn new(body: Body, serving: Serving) -> Self {
        Self { body, _serving: serving }
    }
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines() {
        let deadline = Deadline::new(15, 75);
        assert_eq!(deadline.left(5), 10, "the first head counts from the connection");
        deadline.head_began(5);
        assert_eq!(deadline.left(14), 1);
        assert_eq!(deadline.left(15), 0);

        deadline.lift();
        deadline.head_began(20);
        assert!(deadline.left(30) > 1_000_000, "an answer takes as long as it likes, whatever is sent meanwhile");
        deadline.answered(100);
        assert_eq!(deadline.left(100), 75);
        deadline.head_began(130);
        assert_eq!(deadline.left(130), 15);
        deadline.head_began(140);
        assert_eq!(deadline.left(144), 1, "further bytes do not prolong a head");
    }
}
