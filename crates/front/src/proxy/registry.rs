//! What is live, and by whose leave: each entry can be counted, and cut at once. Whose leave it
//! is, and when it ends, is for others to say.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::listen::Connection;

/// Everything live of one kind.
pub struct Registry<T>(Arc<Mutex<Live<T>>>);

struct Live<T> {
    by_number: HashMap<u64, Entry<T>>,
    last: u64,
}

struct Entry<T> {
    holder: T,
    token: CancellationToken,
    /// Closed as well: a client that does not read would not notice.
    connection: Option<Connection>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Live { by_number: HashMap::new(), last: 0 })))
    }
}

impl<T> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Registry<T> {
    /// Enters something; it is live until the registration is dropped.
    pub fn register(&self, holder: T) -> Registration<T> {
        let token = CancellationToken::new();
        let mut live = self.0.lock();
        live.last += 1;
        let number = live.last;
        live.by_number.insert(number, Entry { holder, token: token.clone(), connection: None });
        Registration { registry: self.clone(), number, token }
    }

    /// Cuts everything that `doomed` is true of, at once; returns how many.
    pub fn cut(&self, doomed: impl Fn(&T) -> bool) -> usize {
        let mut live = self.0.lock();
        let doomed = live.by_number.values_mut().filter(|entry| doomed(&entry.holder));
        let cut: Vec<_> = doomed.map(|entry| (entry.token.clone(), entry.connection.take())).collect();
        drop(live);
        for (token, connection) in &cut {
            token.cancel();
            if let Some(connection) = connection {
                connection.close();
            }
        }
        cut.len()
    }

    /// How many entries `wanted` is true of.
    pub fn count(&self, wanted: impl Fn(&T) -> bool) -> usize {
        self.0.lock().by_number.values().filter(|entry| wanted(&entry.holder)).count()
    }

    /// What `of` makes of each entry.
    pub fn collect<U, C: FromIterator<U>>(&self, of: impl Fn(&T) -> U) -> C {
        self.0.lock().by_number.values().map(|entry| of(&entry.holder)).collect()
    }
}

/// An entry of something live.
pub struct Registration<T> {
    registry: Registry<T>,
    number: u64,
    /// Cancelled when the entry is cut.
    pub token: CancellationToken,
}

impl<T> Registration<T> {
    /// Has the client's connection closed when the entry is cut, which may have been already.
    pub fn closes(&self, connection: Connection) {
        if let Some(entry) = self.registry.0.lock().by_number.get_mut(&self.number)
            && !self.token.is_cancelled()
        {
            entry.connection = Some(connection);
        } else {
            connection.close();
        }
    }
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        let entry = self.registry.0.lock().by_number.remove(&self.number);
        // Dropped after the lock was given back.
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_and_cut() {
        let registry = Registry::default();
        let (first, second) = (registry.register("ann"), registry.register("bob"));
        assert_eq!((registry.count(|_| true), registry.cut(|name| *name == "ann")), (2, 1));
        assert!(first.token.is_cancelled() && !second.token.is_cancelled());
        drop(first);
        assert_eq!(registry.collect::<_, Vec<_>>(|name| *name), ["bob"]);
    }

    #[test]
    fn a_connection_is_closed_whenever_the_cut_comes() {
        let registry = Registry::default();
        let [early, late, never] = [(); 3].map(|()| Connection::default());
        let (before, after) = (registry.register(()), registry.register(()));
        before.closes(early.clone());
        registry.cut(|()| true);
        after.closes(late.clone());
        assert!(early.is_closed() && late.is_closed());
        let ends = registry.register(());
        ends.closes(never.clone());
        drop(ends);
        registry.cut(|()| true);
        assert!(!never.is_closed(), "what ends by itself closes nothing");
    }
}
