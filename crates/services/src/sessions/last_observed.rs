//! When the portal last saw this machine at work. What ended with the machine was held until
//! then, and not until somebody came to look: a machine that was off for a night gives nobody
//! hours of it. One row is written now and then for the whole machine, never one a session.

use super::{Result, Sessions};
use lyceum_model::Timestamp;

/// The setting: the boot, and the last moment of it that was seen.
const SETTING: &str = "observed";

/// The same of the boot before this one.
const BEFORE: &str = "observed_before";

/// How often it is written (seconds): so much too little is counted at most.
const WRITE_INTERVAL: i64 = 60;

/// What was noted, in this life of the portal's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    noted_at: Option<Timestamp>,
    /// The last moment that was seen of the boot before.
    before: Option<Timestamp>,
}

impl Sessions {
    /// Notes that the machine is there.
    pub(super) async fn note_observation(&self) -> Result<()> {
        let (now, mut observed) = (self.clock.now(), *self.observed.lock());
        match observed.noted_at {
            // A clock that was set back must not keep it from being written.
            Some(noted_at) if (0..WRITE_INTERVAL).contains(&now.seconds_since(noted_at)) => return Ok(()),
            Some(_) => {}
            None => {
                let last = self.db.setting(SETTING).await?;
                // First, so that a portal that dies in between finds it again.
                if let Some(text) = last.filter(|text| read(text).is_some_and(|(boot, _)| boot != self.config.boot_id))
                {
                    self.db.set_setting(BEFORE, &text).await?;
                }
                observed.before = self.db.setting(BEFORE).await?.as_deref().and_then(read).map(|(_, at)| at);
            }
        }
        self.db.set_setting(SETTING, &format!("{} {}", self.config.boot_id, now.0)).await?;
        observed.noted_at = Some(now);
        *self.observed.lock() = observed;
        Ok(())
    }

    /// Until when what ended with the boot before was seen to hold what it had.
    pub(super) fn last_seen_before(&self) -> Option<Timestamp> {
        self.observed.lock().before
    }
}

fn read(text: &str) -> Option<(&str, Timestamp)> {
    let (boot, at) = text.split_once(' ')?;
    Some((boot, Timestamp(at.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_their_boot() {
        assert_eq!(read("b 1800000000000"), Some(("b", Timestamp(1_800_000_000_000))));
        for text in ["", "b", "b x", "b 5 6"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
