//! Signals that are meant for a job's program: a batch system sends them to its first process,
//! which is the agent, and the agent hands them on. They are heard from the first moment, so that
//! none ends the agent; what comes before the program runs reaches it when it does. SIGTERM is not
//! among them: that asks the agent to end everything.

use std::{future::poll_fn, io, task::Poll};

use nix::sys::signal::Signal as Name;
use rustix::process::{Pid, Signal as Sent};
use tokio::signal::unix::{Signal, SignalKind, signal};

use lyceum_wire::protocol::SIGTERM_FOR_PROGRAM;

/// The signals that a program may catch, but for SIGTERM, those that report its own faults, and those that the agent needs.
const HANDED_ON: [Name; 12] = [
    Name::SIGHUP,
    Name::SIGINT,
    Name::SIGQUIT,
    Name::SIGUSR1,
    Name::SIGUSR2,
    Name::SIGALRM,
    Name::SIGCONT,
    Name::SIGTSTP,
    Name::SIGURG,
    Name::SIGXCPU,
    Name::SIGWINCH,
    Name::SIGPWR,
];

/// The signals that this process receives from now on.
pub(super) struct Signals(Vec<(Name, Signal)>);

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let numbers = HANDED_ON.map(|name| (name, name as i32));
        let all = numbers.into_iter().chain([(Name::SIGTERM, SIGTERM_FOR_PROGRAM)]);
        let heard = all.map(|(name, number)| Ok((name, signal(SignalKind::from_raw(number))?)));
        Ok(Self(heard.collect::<io::Result<_>>()?))
    }

    /// Hands on whatever comes to this process of ours; never returns.
    pub async fn hand_on_to(&mut self, program: Pid) -> std::convert::Infallible {
        loop {
            let name = poll_fn(|context| {
                let mut heard = self
                    .0
                    .iter_mut()
                    .filter_map(|(name, signal)| signal.poll_recv(context).is_ready().then_some(*name));
                heard.next().map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            // The program may have ended; its end is handled where it is waited for.
            if let Some(sent) = Sent::from_named_raw(name as i32) {
                let _ = rustix::process::kill_process(program, sent);
            }
        }
    }
}
