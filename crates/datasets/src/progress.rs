//! How far a build is and when it will be done, judged by its speed of the last half minute.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

const WINDOW: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Files of a standard set are downloaded; counts are bytes.
    Downloading,
    /// The source is listed.
    Listing,
    /// Pictures are opened.
    Reading,
    /// Splits are written.
    Writing,
}

/// Told once a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub phase: Phase,
    pub done: u64,
    pub total: u64,
    pub broken: u64,
    pub per_second: f64,
    /// Seconds until this phase is done; nothing before there is a speed.
    pub eta_seconds: Option<u64>,
}

impl fmt::Display for Progress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.phase {
            Phase::Downloading => return self.download(to),
            Phase::Listing => return write!(to, "listing the source"),
            Phase::Reading => "read",
            Phase::Writing => "written",
        };
        let percent = (self.done * 100).checked_div(self.total).unwrap_or(100);
        write!(to, "{word} {} of {} ({percent} %)", self.done, self.total)?;
        if self.broken > 0 {
            write!(to, ", {} broken", self.broken)?;
        }
        if let Some(eta) = self.eta_seconds.filter(|_| self.done < self.total) {
            write!(to, ", {:.0} images/s, {}:{:02} min left", self.per_second, eta / 60, eta % 60)?;
        }
        Ok(())
    }
}

impl Progress {
    fn download(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabyte = 1_000_000;
        let percent = (self.done * 100).checked_div(self.total).unwrap_or(100);
        write!(to, "downloaded {} of {} MB ({percent} %)", self.done / megabyte, self.total.div_ceil(megabyte))?;
        match self.eta_seconds.filter(|_| self.done < self.total) {
            Some(eta) => write!(to, ", {:.1} MB/s, {}:{:02} min left", self.per_second / 1e6, eta / 60, eta % 60),
            None => Ok(()),
        }
    }
}

/// Remembers the last half minute.
#[derive(Debug)]
pub struct Speed {
    seen: VecDeque<(Instant, usize)>,
}

impl Speed {
    pub fn new(done: usize) -> Self {
        Self { seen: [(Instant::now(), done)].into() }
    }

    pub fn progress(&mut self, phase: Phase, done: usize, total: usize, broken: usize) -> Progress {
        let now = Instant::now();
        self.seen.push_back((now, done));
        while self.seen.len() > 2 && self.seen.front().is_some_and(|(at, _)| now - *at > WINDOW) {
            self.seen.pop_front();
        }
        let (per_second, eta_seconds) = self.seen.front().map_or((0.0, None), |(from, before)| {
            let per_second = count(done - before) / (now - *from).as_secs_f64().max(1e-3);
            let left = Duration::try_from_secs_f64(count(total - done) / per_second);
            (per_second, left.ok().map(|left| left.as_secs()))
        });
        Progress { phase, done: done as u64, total: total as u64, broken: broken as u64, per_second, eta_seconds }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 pictures")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_people() {
        let mut progress = Progress {
            phase: Phase::Reading,
            done: 250,
            total: 1000,
            broken: 3,
            per_second: 9.7,
            eta_seconds: Some(77),
        };
        assert_eq!(progress.to_string(), "read 250 of 1000 (25 %), 3 broken, 10 images/s, 1:17 min left");
        progress.done = 1000;
        assert_eq!(progress.to_string(), "read 1000 of 1000 (100 %), 3 broken");
        progress = Progress {
            phase: Phase::Downloading,
            done: 85_000_000,
            total: 170_052_171,
            broken: 0,
            per_second: 1.25e6,
            eta_seconds: Some(68),
        };
        assert_eq!(progress.to_string(), "downloaded 85 of 171 MB (49 %), 1.2 MB/s, 1:08 min left");
    }

    #[test]
    fn nothing_done_has_no_end_in_sight() {
        assert_eq!(Speed::new(0).progress(Phase::Reading, 0, 10, 0).eta_seconds, None);
    }
}
