//! The same work on many pieces, on several threads at once. Who takes which piece, what a failure
//! means for the others, and how a stop is obeyed is decided here; what the work is, is not.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::Error;

/// Does `work` for each number below `count`, each thread with what `begin` gives it. `hear` is told
/// of each piece while others are worked on; where it or a piece fails, no new one is begun.
pub fn share_out<S, T: Send>(
    (count, threads): (usize, usize),
    stop: &AtomicBool,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<T, Error> + Sync,
    hear: impl FnOnce(&mpsc::Receiver<Result<T, Error>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (next, halt) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..threads.clamp(1, 512).min(count) {
            let (send, next, halt, begin, work) = (send.clone(), &next, &halt, &begin, &work);
            scope.spawn(move || {
                let mut own = begin();
                while !halt.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let done = work(&mut own, at);
                    let failed = done.is_err();
                    if send.send(done).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(send);
        let heard = hear(&receive);
        halt.store(heard.is_err(), Ordering::Relaxed);
        heard
    })?;
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}
