//! One waker for everything that belongs to a connection. hyper's two halves of a connection
//! wake one another while both are being polled here, in one task; passed on, each such wake
//! would make the runtime queue the task again and rouse another thread to look for it. So
//! wakes during a poll only say "look again".

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Nobody polls: a wake goes to the task.
const IDLE: u8 = 0;
/// Somebody polls.
const POLLING: u8 = 1;
/// Somebody polls, and was woken meanwhile.
const AGAIN: u8 = 2;

/// How often one looks again before letting other tasks have their turn.
const ROUNDS: usize = 32;

/// Polls the halves of a connection until neither has anything to tell the other.
pub(super) struct Quiet {
    bell: Arc<Bell>,
    waker: Waker,
}

#[derive(Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.state.compare_exchange(POLLING, AGAIN, Ordering::AcqRel, Ordering::Acquire);
        if woken == Err(IDLE) {
            self.task.wake();
        }
    }
}

impl Quiet {
    pub(super) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self { waker: bell.clone().into(), bell }
    }

    /// Does something whose wakes do not matter, because a poll follows.
    pub(super) fn hush<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bell.state.store(POLLING, Ordering::Release);
        let done = act();
        self.bell.state.store(IDLE, Ordering::Release);
        done
    }

    /// Calls `poll` until it is ready, or pending without having been woken from within.
    pub(super) fn poll<T>(&self, cx: &mut Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.bell.task.register(cx.waker());
        let mut quiet = Context::from_waker(&self.waker);
        for _ in 0..ROUNDS {
            self.bell.state.store(POLLING, Ordering::Release);
            let polled = poll(&mut quiet);
            let unwoken = self.bell.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if polled.is_ready() || unwoken {
                self.bell.state.store(IDLE, Ordering::Release);
                return polled;
            }
        }
        self.bell.state.store(IDLE, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU8);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wakes_from_within_poll_again_and_others_reach_the_task() {
        let count = Arc::new(Count::default());
        let task = Waker::from(count.clone());
        let quiet = Quiet::new();
        let (mut polls, mut inner) = (0, noop_waker());
        let polled: Poll<()> = quiet.poll(&mut Context::from_waker(&task), |cx| {
            polls += 1;
            if polls < 4 {
                cx.waker().wake_by_ref();
            }
            inner = cx.waker().clone();
            Poll::Pending
        });
        assert_eq!((polled, polls, count.0.load(Ordering::SeqCst)), (Poll::Pending, 4, 0));
        inner.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);

        // Somebody who always has more to say gives way to other tasks now and then.
        let polled: Poll<()> = quiet.poll(&mut Context::from_waker(&task), |cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!((polled, count.0.load(Ordering::SeqCst)), (Poll::Pending, 2));
    }
}
