//! When a session counts as idle. [`last_use`] is the rule, a pure function over what was
//! [`ObservedActivity`]; the rest looks. What cannot be asked is never idle, but what refuses to answer may
//! be. An open tab alone is no use, a training that goes on without anybody is, and a person may
//! say "keep".

use std::sync::atomic::Ordering;

use serde::Deserialize;

use super::{LiveState, Result, Sessions};
use lyceum_model::{
    Session, SessionState, Timestamp,
    ending::{Cause, Deadline},
    gpus::GpuReport,
    quota::{Effective, Field, Limit},
    session::Placement,
};
use lyceum_node::apps::{self, Idle};
use lyceum_wire::protocol::files;

use crate::scheduler::{GpuUse, Metering};

/// More busy cores than this are work, whoever started it: a cell, a script, a detached training.
pub(super) const WORKING_CORES: f64 = 0.3;

/// A thread that has run or waited for a core for more than this part of the time computes,
/// however little of the machine it got.
const BUSY_SHARE: f64 = 0.5;

/// A GPU busier than this (percent) computes; one that only shows a picture or holds memory is below.
const WORKING_GPU: u32 = 5;

/// A measurement older than this says nothing any more (seconds); agents measure every two.
const MAX_MEASUREMENT_AGE: i64 = 60;

/// Use is written down at most so often (seconds); what is not written yet is in memory.
const WRITE_INTERVAL: i64 = 10;

/// When nothing could be seen for so long, an administrator should hear of it (seconds).
const MAX_UNOBSERVABLE: i64 = 24 * 3600;

/// Reports the reading of one source of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ActivityReading {
    /// There is nothing of the kind, or it has never been used.
    #[default]
    Nothing,
    /// It was last used then.
    At(Timestamp),
    /// It is being used.
    Now,
    /// It could not be asked, which proves nothing.
    Unknown,
}

/// Holds all observed signs of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedActivity {
    /// A person's requests and what they send through sockets; neither polls nor pings.
    pub requests: ActivityReading,
    /// Input and output of terminals, the agent's or Jupyter's.
    pub terminals: ActivityReading,
    /// Jupyter's kernels: one that computes, also in silence, or what one last did.
    pub kernels: ActivityReading,
    /// The processor time of all its processes, or a thread that wants more than it gets.
    pub cores: ActivityReading,
    /// The use of its GPUs by its own processes; `None` where nobody can ever measure it.
    pub gpus: Option<ActivityReading>,
}

impl ActivityReading {
    fn at(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Nothing => None,
            // Times of a user's program may lie, but not into the future.
            Self::At(at) => Some(at.min(now)),
            Self::Now | Self::Unknown => Some(now),
        }
    }

    fn latest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, _) | (_, Self::Now) => Self::Now,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::At(one), Self::At(two)) => Self::At(one.max(two)),
            (Self::Nothing, other) => other,
            (one, Self::Nothing) => one,
        }
    }

    /// The same by our clock, where it was told by one that is ahead by so many milliseconds.
    fn ours(self, ahead: i64) -> Self {
        match self {
            Self::At(at) => Self::At(Timestamp(at.0.saturating_sub(ahead))),
            other => other,
        }
    }

    fn if_used(used: Option<Timestamp>) -> Self {
        used.map_or(Self::Nothing, Self::At)
    }
}

/// When it was last used, by the rule of its app; `None` where it is never stopped.
pub(super) fn last_use(rule: Idle, seen: &ObservedActivity, known: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let gpus = seen.gpus.unwrap_or_default();
    let counts: &[ActivityReading] = match rule {
        Idle::None => return None,
        Idle::Gpu => &[seen.gpus?],
        Idle::Cpu => &[seen.cores, gpus],
        Idle::Http => &[seen.requests, seen.cores, gpus],
        Idle::Terminals => &[seen.requests, seen.terminals, seen.cores, gpus],
        Idle::Kernels => &[seen.requests, seen.kernels, seen.terminals, seen.cores, gpus],
    };
    counts.iter().filter_map(|look| look.at(now)).chain([known]).max()
}

/// When this session will be stopped for what has gone on since then, if nothing happens; `None`
/// where it never is.
pub(super) fn deadline(session: &Session, cause: Cause, since: Timestamp, limit: &Effective) -> Option<Deadline> {
    let Limit::AtMost(seconds @ 1..) = limit.limit else { return None };
    if session.state != SessionState::Running || session.unknown_since.is_some() {
        return None;
    }
    Some(Deadline::new(cause, since.max(session.ready_at?), seconds, limit.source.clone()))
}

/// Since when GPUs have done nothing, after another look at them: what cannot be measured is
/// never idle, and has to be seen doing nothing anew.
pub(super) fn gpus_idle_since(
    before: Option<Timestamp>,
    look: Option<ActivityReading>,
    now: Timestamp,
) -> Option<Timestamp> {
    match look {
        Some(ActivityReading::Nothing) => before.or(Some(now)),
        Some(ActivityReading::At(at)) => Some(before.map_or(at, |before| before.max(at))),
        Some(ActivityReading::Now | ActivityReading::Unknown) | None => None,
    }
}

/// Whether a GPU computes, as an agent reports it.
pub(super) fn computes(report: &GpuReport) -> bool {
    let percent = report.reading.as_ref().and_then(|reading| reading.utilisation);
    percent.is_some_and(|percent| i64::from(WORKING_GPU) < percent)
}

/// How the GPUs were used, by what an agent's reports have left behind; `None` where it measures none. A slice has no
/// utilisation and is never idle.
fn reported(live: &LiveState, now: Timestamp) -> Option<ActivityReading> {
    let at = live.gpus_at?;
    let is_measured = |report: &GpuReport| report.reading.as_ref().is_some_and(|reading| reading.utilisation.is_some());
    let is_whole = !live.gpus.is_empty() && live.gpus.iter().all(is_measured);
    if now.seconds_since(at) <= MAX_MEASUREMENT_AGE && is_whole {
        Some(ActivityReading::if_used(live.gpus_worked_at))
    } else {
        Some(ActivityReading::Unknown)
    }
}

/// Measures whether its GPUs compute, where it has any, and whether one of its threads wants a core.
async fn measure(metering: &dyn Metering, session: &Session, placement: &Placement) -> (Option<ActivityReading>, bool) {
    let gpus = match metering.gpu_use(session.id, placement, &session.gpus).await {
        GpuUse::Unmeasured => None,
        GpuUse::Percent(percent) if percent <= WORKING_GPU => Some(ActivityReading::Nothing),
        GpuUse::Percent(_) => Some(ActivityReading::Now),
        GpuUse::Unknown => Some(ActivityReading::Unknown),
    };
    let eager = metering.eagerness(session.id, placement).await.is_some_and(|share| BUSY_SHARE < share);
    (gpus, eager)
}

/// How its cores were used, by what the samples have left behind.
fn cores(live: &LiveState, now: Timestamp) -> ActivityReading {
    match live.sampled_at {
        Some(at) if now.seconds_since(at) <= MAX_MEASUREMENT_AGE => ActivityReading::if_used(live.worked_at),
        _ => ActivityReading::Unknown,
    }
}

#[derive(Deserialize)]
struct Kernel {
    execution_state: Option<String>,
    last_activity: Option<Timestamp>,
}

/// What Jupyter says of its kernels: one that computes is in use, however silent it is.
fn kernels(list: &[Kernel]) -> ActivityReading {
    let one = |kernel: &Kernel| match kernel.execution_state.as_deref() {
        Some("busy") => ActivityReading::Now,
        _ => ActivityReading::if_used(kernel.last_activity),
    };
    list.iter().map(one).fold(ActivityReading::Nothing, ActivityReading::latest)
}

#[derive(Deserialize)]
struct Terminal {
    last_activity: Option<Timestamp>,
}

fn terminals(list: &[Terminal]) -> ActivityReading {
    list.iter()
        .map(|terminal| ActivityReading::if_used(terminal.last_activity))
        .fold(ActivityReading::Nothing, ActivityReading::latest)
}

impl Sessions {
    /// Looks at what was used last, notes it, and notes when idleness would end the session.
    pub(super) async fn look_at_use(&self, session: &Session) -> Result<()> {
        let idle = self.first_deadline(session).await?;
        if let Some(live) = self.live.write().get_mut(&session.id) {
            live.idle = idle;
        }
        Ok(())
    }

    async fn first_deadline(&self, session: &Session) -> Result<Option<Deadline>> {
        let Some(app) = self.apps.find(&session.app) else { return Ok(None) };
        if app.idle == Idle::None {
            return Ok(None);
        }
        let seen = self.see(session, app.idle).await;
        let now = self.clock.now();
        self.note_blindness(session, &seen, now);
        let limits = self.admission.limits(session.owner).await?;
        let gpus = self
            .note_gpus(session, &seen, now)
            .and_then(|since| deadline(session, Cause::GpusUnused, since, limits.of(&Field::GpuIdleTimeoutSeconds)));
        let known = session.last_activity_at.unwrap_or(session.created_at);
        let Some(last_use) = last_use(app.idle, &seen, known, now) else { return Ok(gpus) };
        if session.last_activity_at.is_none_or(|known| last_use.seconds_since(known) >= WRITE_INTERVAL) {
            self.db.set_activity(session.id, last_use).await?;
        }
        // Nobody could come while no portal ran, so that time is not idleness.
        let since = last_use.max(self.since);
        let unused = deadline(session, Cause::Unused, since, limits.of(&Field::IdleTimeoutSeconds));
        Ok(unused.into_iter().chain(gpus).min_by_key(|deadline| deadline.at))
    }

    /// Notes since when its GPUs do nothing.
    fn note_gpus(&self, session: &Session, seen: &ObservedActivity, now: Timestamp) -> Option<Timestamp> {
        let mut live = self.live.write();
        let live = live.get_mut(&session.id)?;
        live.gpus_idle_since = gpus_idle_since(live.gpus_idle_since, seen.gpus, now);
        live.gpus_idle_since
    }

    async fn see(&self, session: &Session, rule: Idle) -> ObservedActivity {
        let Some(placement) = &session.placement else {
            return ObservedActivity { cores: ActivityReading::Unknown, ..ObservedActivity::default() };
        };
        let (kernels, terminals) = match rule {
            Idle::Kernels => tokio::join!(
                self.ask_jupyter(session, placement, "kernels", kernels),
                self.ask_jupyter(session, placement, "terminals", terminals)
            ),
            _ => (ActivityReading::Nothing, ActivityReading::Nothing),
        };
        let (gpus, eager) = measure(&*self.scheduler, session, placement).await;
        // Last, because everything above took its time.
        let live = self.live(session.id);
        let requested = Timestamp(live.activity.load(Ordering::Relaxed));
        let typed = live.status.as_ref().and_then(|status| status.terminal_activity).map(Timestamp);
        ObservedActivity {
            requests: ActivityReading::if_used(Some(requested).filter(|at| *at != Timestamp::default())),
            terminals: terminals.latest(ActivityReading::if_used(typed)).ours(live.ahead),
            kernels: kernels.ours(live.ahead),
            cores: if eager { ActivityReading::Now } else { cores(&live, self.clock.now()) },
            gpus: gpus.or_else(|| reported(&live, self.clock.now())),
        }
    }

    /// A list of Jupyter's API, which its own page asks for as well: asking is no use.
    async fn ask_jupyter<T: for<'de> Deserialize<'de>>(
        &self,
        session: &Session,
        placement: &Placement,
        list: &str,
        judge: impl Fn(&[T]) -> ActivityReading,
    ) -> ActivityReading {
        let path = format!("{}api/{list}?no_track_activity=1", apps::base_url(session.id));
        let authorization = format!("token {}", self.upstream_secret(session.id));
        match self.scheduler.ask(session.id, placement, files::APP_SOCKET, &path, Some(&authorization)).await {
            Ok(Some(body)) => {
                serde_json::from_slice(&body).map_or(ActivityReading::Unknown, |list: Vec<T>| judge(&list))
            }
            // A site may have switched its terminals off, and a person may have set another token: what
            // the app does not say counts for nothing, or no limit would bind who made it silent.
            Ok(None) => ActivityReading::Nothing,
            Err(_) => ActivityReading::Unknown,
        }
    }

    /// A session that cannot be looked at is never stopped, so somebody should know of it.
    fn note_blindness(&self, session: &Session, seen: &ObservedActivity, now: Timestamp) {
        let looks = [seen.terminals, seen.kernels, seen.cores, seen.gpus.unwrap_or_default()];
        let blind = looks.contains(&ActivityReading::Unknown);
        let mut live = self.live.write();
        let Some(live) = live.get_mut(&session.id) else { return };
        let since = *live.unobservable_since.get_or_insert(now);
        if !blind {
            live.unobservable_since = None;
        } else if now.seconds_since(since) >= MAX_UNOBSERVABLE {
            live.unobservable_since = Some(now);
            tracing::warn!(session.id = %session.id, user.name = %session.owner_name, ?seen,
                "use of a session unknown for a day; idle timeout not applied");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lyceum_model::{gpus::Reading, quota::Source, session::example};

    const NOW: Timestamp = Timestamp(10_000_000);
    const KNOWN: Timestamp = Timestamp(1_000_000);
    const LATER: Timestamp = Timestamp(2_000_000);

    type Row = (&'static str, fn(ActivityReading) -> ObservedActivity, &'static [Idle]);

    /// Whatever is in use counts for the apps on its line, and for no other.
    #[test]
    fn what_counts_for_whom() {
        const ALL: [Idle; 6] = [Idle::None, Idle::Gpu, Idle::Cpu, Idle::Http, Idle::Terminals, Idle::Kernels];
        let nothing = ObservedActivity { gpus: Some(ActivityReading::Nothing), ..ObservedActivity::default() };
        let table: [Row; 5] = [
            (
                "requests",
                |requests| ObservedActivity { requests, ..ObservedActivity::default() },
                &[Idle::Http, Idle::Terminals, Idle::Kernels],
            ),
            (
                "terminals",
                |terminals| ObservedActivity { terminals, ..ObservedActivity::default() },
                &[Idle::Terminals, Idle::Kernels],
            ),
            ("kernels", |kernels| ObservedActivity { kernels, ..ObservedActivity::default() }, &[Idle::Kernels]),
            (
                "cores",
                |cores| ObservedActivity { cores, ..ObservedActivity::default() },
                &[Idle::Cpu, Idle::Http, Idle::Terminals, Idle::Kernels],
            ),
            (
                "gpus",
                |gpus| ObservedActivity { gpus: Some(gpus), ..ObservedActivity::default() },
                &[Idle::Gpu, Idle::Cpu, Idle::Http, Idle::Terminals, Idle::Kernels],
            ),
        ];
        for (source, seen, counted) in table {
            for rule in ALL {
                let judge = |look| {
                    let seen = ObservedActivity { gpus: seen(look).gpus.or(nothing.gpus), ..seen(look) };
                    last_use(rule, &seen, KNOWN, NOW)
                };
                let expected = |at| Some(if counted.contains(&rule) { at } else { KNOWN });
                for (look, at) in [
                    (ActivityReading::Nothing, KNOWN),
                    (ActivityReading::At(Timestamp(5)), KNOWN),
                    (ActivityReading::At(LATER), LATER),
                    (ActivityReading::At(Timestamp(i64::MAX)), NOW),
                    (ActivityReading::Now, NOW),
                    // A probe's error is never idle.
                    (ActivityReading::Unknown, NOW),
                ] {
                    let expected = if rule == Idle::None { None } else { expected(at) };
                    assert_eq!(judge(look), expected, "{source} {look:?} for {rule:?}");
                }
            }
        }
    }

    #[test]
    fn gpus_that_nobody_measures() {
        let seen = ObservedActivity { gpus: None, requests: ActivityReading::At(LATER), ..ObservedActivity::default() };
        assert_eq!(last_use(Idle::Gpu, &seen, KNOWN, NOW), None, "what cannot be measured is never idle");
        assert_eq!(last_use(Idle::Kernels, &seen, KNOWN, NOW), Some(LATER), "the other sources tell");
    }

    #[test]
    fn gpus_are_idle_from_the_first_look_that_saw_it() {
        for (before, look, since) in [
            (None, Some(ActivityReading::Nothing), Some(NOW)),
            (Some(KNOWN), Some(ActivityReading::Nothing), Some(KNOWN)),
            (Some(KNOWN), Some(ActivityReading::Now), None),
            // No driver, or one that does not answer, proves nothing: it begins anew.
            (Some(KNOWN), Some(ActivityReading::Unknown), None),
            (Some(KNOWN), None, None),
        ] {
            assert_eq!(gpus_idle_since(before, look, NOW), since, "{before:?} {look:?}");
        }
    }

    #[test]
    fn limits_bind_with_their_source_and_none_is_never() {
        let session = Session { ready_at: Some(LATER), ..example(SessionState::Running) };
        let limit = |limit| Effective { limit, source: Source::Group("vision".to_owned()) };
        let judged = |since, limit: &Effective| deadline(&session, Cause::Unused, since, limit);
        let hour = limit(Limit::AtMost(3600));
        let found = judged(KNOWN, &hour).unwrap();
        assert_eq!(
            (found.at, &*found.source.to_string()),
            (LATER.plus_seconds(3600), "group vision"),
            "not before it ran"
        );
        assert_eq!(judged(NOW, &hour).unwrap().at, NOW.plus_seconds(3600));
        assert_eq!(judged(NOW, &limit(Limit::AtMost(0))), None);
        assert_eq!(judged(NOW, &limit(Limit::Unlimited)), None);
        let unknown = Session { unknown_since: Some(NOW), ..session.clone() };
        assert_eq!(deadline(&unknown, Cause::Unused, NOW, &hour), None);
    }

    #[test]
    fn a_clock_that_is_off_is_set_right() {
        let (ahead, behind) = (ActivityReading::At(NOW).ours(500), ActivityReading::At(NOW).ours(-500));
        assert_eq!(
            (ahead, behind),
            (ActivityReading::At(Timestamp(9_999_500)), ActivityReading::At(Timestamp(10_000_500)))
        );
        assert_eq!(
            [ActivityReading::Now, ActivityReading::Unknown, ActivityReading::Nothing].map(|look| look.ours(7)),
            [ActivityReading::Now, ActivityReading::Unknown, ActivityReading::Nothing]
        );
        assert_eq!(ActivityReading::At(Timestamp(i64::MIN)).ours(i64::MAX), ActivityReading::At(Timestamp(i64::MIN)));
    }

    #[test]
    fn a_silent_kernel_and_an_open_tab() {
        let list = |text: &str| kernels(&serde_json::from_str::<Vec<Kernel>>(text).unwrap());
        let at = r#""last_activity": "1970-01-01T00:33:20.000000Z""#;
        for (kernels, look) in [
            ("[]".to_owned(), ActivityReading::Nothing),
            (r#"[{"execution_state": "starting"}]"#.to_owned(), ActivityReading::Nothing),
            (format!(r#"[{{"execution_state": "idle", {at}, "connections": 3}}]"#), ActivityReading::At(LATER)),
            (
                format!(r#"[{{"execution_state": "idle", {at}}}, {{"execution_state": "busy", {at}}}]"#),
                ActivityReading::Now,
            ),
        ] {
            assert_eq!(list(&kernels), look, "{kernels}");
        }
    }

    #[test]
    fn samples_get_old() {
        let live = |sampled_at, worked_at| LiveState { sampled_at, worked_at, ..LiveState::default() };
        for (sampled, worked, look) in [
            (None, None, ActivityReading::Unknown),
            (Some(-1), None, ActivityReading::Nothing),
            (Some(-MAX_MEASUREMENT_AGE), Some(-90), ActivityReading::At(NOW.plus_seconds(-90))),
            (Some(-MAX_MEASUREMENT_AGE - 1), Some(-90), ActivityReading::Unknown),
        ] {
            let at = |seconds: Option<i64>| seconds.map(|seconds| NOW.plus_seconds(seconds));
            assert_eq!(cores(&live(at(sampled), at(worked)), NOW), look, "{sampled:?} {worked:?}");
        }
    }

    #[test]
    fn reports_of_gpus_get_old() {
        let at = |seconds: i64| NOW.plus_seconds(seconds);
        let report = |utilisation| GpuReport {
            reading: Some(Reading { utilisation, ..Reading::default() }),
            ..GpuReport::default()
        };
        assert!(computes(&report(Some(6))) && !computes(&report(Some(5))) && !computes(&report(None)));
        let live = |age: i64, worked: Option<i64>, gpus| LiveState {
            gpus,
            gpus_at: Some(at(-age)),
            gpus_worked_at: worked.map(at),
            ..LiveState::default()
        };
        let measured = vec![report(Some(0)), report(Some(3))];
        let rests = Some(ActivityReading::Nothing);
        assert_eq!(reported(&LiveState::default(), NOW), None, "no agent reports them");
        assert_eq!(reported(&live(2, None, measured.clone()), NOW), rests);
        assert_eq!(reported(&live(2, Some(-30), measured.clone()), NOW), Some(ActivityReading::At(at(-30))));
        let unknown = Some(ActivityReading::Unknown);
        assert_eq!(reported(&live(MAX_MEASUREMENT_AGE + 1, None, measured), NOW), unknown);
        assert_eq!(reported(&live(2, None, vec![report(Some(0)), report(None)]), NOW), unknown, "a slice");
        assert_eq!(reported(&live(2, None, vec![]), NOW), unknown, "it no longer reports them");
    }

    #[test]
    fn what_is_unsure_hides_nothing_that_is_sure() {
        assert_eq!(ActivityReading::Unknown.latest(ActivityReading::Now), ActivityReading::Now);
        assert_eq!(ActivityReading::At(KNOWN).latest(ActivityReading::Unknown), ActivityReading::Unknown);
        assert_eq!(ActivityReading::At(LATER).latest(ActivityReading::At(KNOWN)), ActivityReading::At(LATER));
        assert_eq!(ActivityReading::Nothing.latest(ActivityReading::At(KNOWN)), ActivityReading::At(KNOWN));
    }
}
