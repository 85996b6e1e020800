//! Attempts to sign in, each counted under every name that it turns out to be about. Attempts
//! about one name, or about one person, take turns: a thousand at once are looked at one after
//! the other, so that what a directory counts is never ahead of what is counted here. An attempt
//! whose client goes away while the directory looks at the password counts as one that failed.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::{
    Error, Result,
    throttle::{Lockout, Throttle},
};
use lyceum_model::{Clock, UserId};

/// How long an attempt waits for those before it.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// All attempts to sign in.
pub struct Attempts {
    clock: Clock,
    throttle: Mutex<Throttle>,
    /// For names as they are typed, and for the people who are found by them.
    typed: NameLocks,
    people: NameLocks,
}

impl Attempts {
    pub fn new(clock: Clock, lockout: Option<Lockout>) -> Self {
        Self {
            clock,
            throttle: Mutex::new(Throttle::new(lockout)),
            typed: NameLocks::default(),
            people: NameLocks::default(),
        }
    }

    /// Begins an attempt under the canonical form of a typed name, unless too many have failed.
    pub async fn begin(&self, name: &str, from: IpAddr) -> Result<Attempt<'_>> {
        // Who is refused anyway does not wait for that.
        self.check(&[name.to_owned()], from)?;
        let turn = self.typed.of(name).await?;
        let attempt = Attempt {
            all: self,
            from,
            state: Mutex::new(State { names: vec![name.to_owned()], turns: vec![turn], is_pending: false }),
        };
        // Others may have failed while this one waited.
        self.check(&attempt.names(), from)?;
        Ok(attempt)
    }

    /// Counts an attempt under what cannot be a name: it concerns an address alone.
    pub fn refuse(&self, from: IpAddr) -> Result<()> {
        self.check(&[], from)?;
        self.throttle.lock().failed(self.clock.now(), &[], from);
        Ok(())
    }

    fn check(&self, names: &[String], from: IpAddr) -> Result<()> {
        match self.throttle.lock().wait(self.clock.now(), names, from) {
            Some(retry_after_seconds) => Err(Error::Throttled { retry_after_seconds }),
            None => Ok(()),
        }
    }
}

/// One attempt; nobody else tries its names while it lasts.
pub struct Attempt<'a> {
    all: &'a Attempts,
    from: IpAddr,
    state: Mutex<State>,
}

struct State {
    names: Vec<String>,
    turns: Vec<OwnedMutexGuard<()>>,
    /// A password is being looked at by somebody else, who counts.
    is_pending: bool,
}

impl Attempt<'_> {
    /// Counts the attempt for this person too, whatever was typed to find them, unless too many
    /// attempts about them have failed. To be called before the password is looked at.
    pub async fn is_about(&self, person: &str) -> Result<()> {
        let turn = self.all.people.of(person).await?;
        {
            let mut state = self.state.lock();
            state.turns.push(turn);
            if !state.names.iter().any(|name| name == person) {
                state.names.push(person.to_owned());
            }
        }
        self.all.check(&self.names(), self.from)
    }

    /// Notes that the password is on its way to somebody who counts failures.
    pub fn asks(&self) {
        self.state.lock().is_pending = true;
    }

    /// Notes that the password was found to be right.
    pub fn is_right(&self) {
        self.state.lock().is_pending = false;
    }

    /// Counts how it ended.
    pub fn end(self, outcome: &Result<UserId>) {
        match outcome {
            Ok(_) => {
                self.is_right();
                self.all.throttle.lock().succeeded(self.all.clock.now(), &self.names(), self.from);
            }
            Err(Error::BadCredentials { .. }) => self.asks(),
            // Where nobody knows whether it was counted elsewhere, it is counted here.
            Err(_) => {}
        }
    }

    fn names(&self) -> Vec<String> {
        self.state.lock().names.clone()
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let state = self.state.lock();
        if state.is_pending {
            self.all.throttle.lock().failed(self.all.clock.now(), &state.names, self.from);
        }
    }
}

/// Turns by name. Names that share one by chance only wait for each other.
struct NameLocks {
    turns: [Arc<Turn<()>>; 256],
    hasher: RandomState,
}

impl Default for NameLocks {
    fn default() -> Self {
        Self { turns: std::array::from_fn(|_| Arc::default()), hasher: RandomState::new() }
    }
}

impl NameLocks {
    async fn of(&self, name: &str) -> Result<OwnedMutexGuard<()>> {
        let hash = self.hasher.hash_one(name).to_le_bytes()[0];
        let turn = Arc::clone(&self.turns[usize::from(hash)]);
        tokio::time::timeout(QUEUE_TIMEOUT, turn.lock_owned()).await.map_err(|_elapsed| Error::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::Timestamp;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn attempts() -> Attempts {
        let clock = Clock::manual(Timestamp(1_800_000_000_000));
        Attempts::new(clock, Some(Lockout { failures: 5, window_seconds: 1800 }))
    }

    #[tokio::test]
    async fn spellings_of_one_person_share_the_count() {
        let attempts = attempts();
        for name in ["alice", "alice@example.org", "a.l@example.org"] {
            let attempt = attempts.begin(name, HOME).await.expect("not yet");
            attempt.is_about("alice").await.expect("not yet");
            attempt.end(&Err(Error::refused("wrong")));
        }
        let attempt = attempts.begin("fourth@example.org", HOME).await.expect("nobody knows yet whose it is");
        assert!(matches!(attempt.is_about("alice").await, Err(Error::Throttled { .. })));
        drop(attempt);
        assert!(matches!(attempts.begin("alice", HOME).await, Err(Error::Throttled { .. })));
        assert!(attempts.begin("bob", HOME).await.is_ok());
    }

    #[tokio::test]
    async fn who_goes_away_while_the_password_is_looked_at_is_counted() {
        let attempts = attempts();
        for _ in 0..3 {
            attempts.begin("alice", HOME).await.expect("not yet").asks();
        }
        assert!(matches!(attempts.begin("alice", HOME).await, Err(Error::Throttled { .. })));
        for _ in 0..9 {
            drop(attempts.begin("bob", HOME).await.expect("nothing was asked"));
        }
    }

    #[tokio::test]
    async fn attempts_about_one_person_take_turns() {
        let attempts = attempts();
        let first = attempts.begin("alice", HOME).await.expect("the first");
        let mut second = std::pin::pin!(attempts.begin("alice", HOME));
        assert!(futures_util::poll!(&mut second).is_pending(), "it waits");
        first.end(&Err(Error::refused("wrong")));
        assert!(second.await.is_ok());
    }
}
