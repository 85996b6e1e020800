//! When somebody sets the system's clock. Time that a session was given counts as it passes:
//! the portal's own clock goes evenly, and when the system's has jumped, everything that is
//! stored about live sessions is moved with it, so that nobody gains or loses. What is over
//! keeps the times that it had, and logins and tokens go by the clock as it is.

use super::{Result, Sessions};
use lyceum_model::Timestamp;

/// The setting that outlives us: the boot, and how far the clock was ahead of it.
const SETTING: &str = "clock";

/// Smaller jumps are left alone until they add up (milliseconds).
const TOLERANCE: i64 = 1000;

impl Sessions {
    /// Goes on from the clock of the portal before us, which then follows the system's. To be
    /// called once, before anything asks for the time.
    pub async fn take_over_the_clock(&self) -> Result<()> {
        let Some(ahead) = self.clock.ahead() else { return Ok(()) };
        match self.db.setting(SETTING).await?.and_then(|text| ahead_of_this(&self.config.boot_id, &text)) {
            Some(before) => self.clock.follow(before),
            // Another boot: whatever ran has ended with the one before.
            None => self.db.set_setting(SETTING, &self.setting(ahead)).await?,
        }
        self.apply_clock_jump().await
    }

    /// Follows the system's clock if that was set.
    pub(super) async fn apply_clock_jump(&self) -> Result<()> {
        let (jump, Some(before)) = (self.clock.jump(), self.clock.ahead()) else { return Ok(()) };
        if jump.abs() < TOLERANCE {
            return Ok(());
        }
        let after = before.saturating_add(jump);
        let moved = self.db.move_times(jump, (SETTING, &self.setting(after)), || self.clock.follow(after)).await;
        if moved.is_err() {
            self.clock.follow(before);
        }
        moved?;
        self.move_live(jump);
        tracing::warn!(seconds = jump / 1000, "system clock changed; end times of live sessions adjusted");
        Ok(())
    }

    /// What is remembered besides the rows moves with them.
    fn move_live(&self, by: i64) {
        for live in self.live.write().values_mut() {
            let move_at = |at: &mut Option<Timestamp>| *at = at.map(|at| Timestamp(at.0.saturating_add(by)));
            move_at(&mut live.gpus_idle_since);
            live.idle = live.idle.take().map(|deadline| deadline.moved(by));
        }
    }

    fn setting(&self, ahead: i64) -> String {
        format!("{} {ahead}", self.config.boot_id)
    }
}

/// What was noted, if it was in this boot.
fn ahead_of_this(boot: &str, text: &str) -> Option<i64> {
    let (of, ahead) = text.split_once(' ')?;
    (of == boot).then(|| ahead.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_this_boot_alone() {
        assert_eq!(ahead_of_this("b", "b 1800000000000"), Some(1_800_000_000_000));
        for text in ["", "b", "a 5", "b x", "b 5 6"] {
            assert_eq!(ahead_of_this("b", text), None, "{text}");
        }
    }
}
