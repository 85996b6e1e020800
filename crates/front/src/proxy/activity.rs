//! What passed between people and one session: when somebody last did something, and how many
//! bytes went each way. Plain atomics, written by every request and tunnel of the session.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use lyceum_model::Timestamp;

/// A bare WebSocket ping or pong, masked and with a few bytes of payload, is no larger. An
/// open tab alone, which only answers pings, must not keep a session from being idle.
const CONTROL_FRAME: usize = 14;

static TOTAL_UP: AtomicU64 = AtomicU64::new(0);
static TOTAL_DOWN: AtomicU64 = AtomicU64::new(0);

/// Bytes of bodies and tunnels of all sessions since the start of this process: to the apps, from the apps.
pub fn total_bytes() -> (u64, u64) {
    (TOTAL_UP.load(Ordering::Relaxed), TOTAL_DOWN.load(Ordering::Relaxed))
}

/// One session's traffic; shared by all that speaks to it.
#[derive(Debug, Default)]
pub struct Activity {
    last: AtomicI64,
    up: AtomicU64,
    down: AtomicU64,
}

impl Activity {
    /// The last request, or piece of a tunnel larger than a ping, from the client to the app.
    pub fn last(&self) -> Option<Timestamp> {
        Some(Timestamp(self.last.load(Ordering::Relaxed))).filter(|last| *last != Timestamp::default())
    }

    /// Bytes of bodies and tunnels: to the app, from the app.
    pub fn bytes(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }

    pub(super) fn note(&self, now: Timestamp) {
        self.last.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(super) fn sent_up(&self, bytes: usize) {
        TOTAL_UP.fetch_add(bytes as u64, Ordering::Relaxed);
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn sent_down(&self, bytes: usize) {
        TOTAL_DOWN.fetch_add(bytes as u64, Ordering::Relaxed);
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// True where so many bytes at once in a tunnel are more than a ping or pong.
    pub(super) fn counts(bytes: usize) -> bool {
        bytes > CONTROL_FRAME
    }
}
