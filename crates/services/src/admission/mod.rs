//! Admission: decide and reserve in one transaction. Sessions (and later jobs) come here
//! before anything happens; nothing is launched that was not admitted, and what is admitted
//! counts until it has ended. The rules are `model::quota`'s, the transaction `db`'s.

pub mod external_usage;
mod gpus;
mod inputs;
mod outlook;
mod preview;
pub mod slurm_limits;
mod user_limits;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use jiff::tz::TimeZone;
use parking_lot::RwLock;

use external_usage::ExternalUsage;
use gpus::{choose_gpus, models};
use inputs::{request, verdict, waiting};
pub use outlook::Outlook;
pub use preview::{ChangePreview, ExceededLimit, ImpossibleRequest};
use slurm_limits::SharedSlurmLimits;
pub use user_limits::UserLimits;

use lyceum_db::{
    self as db, Db,
    admit::{AdmissionMode, AdmissionOutcome, Cause, NewAttempt, NewSession, Verdict},
    extend::ExtensionOutcome,
    facts::{Facts, Holdings},
    limits_and_usage::{LimitsAndUsage, Requester},
    quota_table::{QuotaTableLine, TableFilter},
    quotas::BillingGroups,
    refusals::Refusal,
};
use lyceum_model::{
    Capacity, Clock, GroupId, Inventory, Resources, Session, SessionId, Timestamp, UserId,
    gpus::Obstacle,
    quota::{
        Availability, Class, Decision, Extension, LimitRow, Limits, Period, Queue, Reason, Request, Scope, Situation,
        Total, TotalScope, Usage, Window, codes, decide, extend, usual_extension, wait,
    },
    session::SessionSpec,
};

/// Decides for one cluster.
#[derive(Clone, Debug)]
pub struct Admission {
    pub db: Db,
    pub clock: Clock,
    pub stock: Inventory,
    /// What GPU-hours and core-hours are counted in.
    pub period: Period,
    /// Whether a session may go on for longer than it asked for while others wait for what it
    /// holds.
    pub extend_while_others_wait: bool,
    /// Whether what is admitted is held from then on; else a queue of the scheduler's own gives it
    /// later, and until then it is promised and not used.
    pub holds_at_once: bool,
    /// Whose midnights part one day's use from the next one's.
    pub zone: TimeZone,
    /// GPUs that are not given out, however free they are.
    pub blocked_gpus: BlockedGpus,
    /// What people hold without the portal.
    pub external_usage: ExternalUsage,
    /// What Slurm says of limits, where it keeps them itself.
    pub slurm_limits: Option<SharedSlurmLimits>,
}

/// The GPUs that must not be given out now. A copy is another handle on the same list, which
/// whoever looks at the GPUs keeps.
#[derive(Clone, Debug, Default)]
pub struct BlockedGpus(Arc<RwLock<BTreeMap<String, Bar>>>);

/// Why a GPU is not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    pub obstacle: Obstacle,
    /// Somebody holds it all the same: it is not free anyway.
    pub is_held: bool,
}

impl BlockedGpus {
    /// Exchanges the list (by UUID); whether other GPUs can be given out now.
    pub fn set(&self, bars: BTreeMap<String, Bar>) -> bool {
        let mut list = self.0.write();
        let changed = list.keys().ne(bars.keys());
        *list = bars;
        changed
    }

    /// Blocks one more, until the list is exchanged.
    pub fn add(&self, uuid: &str, bar: Bar) {
        self.0.write().insert(uuid.to_owned(), bar);
    }

    /// Returns the number of blocked GPUs that no session holds.
    fn free(&self) -> i64 {
        self.0.read().values().filter(|bar| !bar.is_held).map(|_| 1).sum()
    }

    /// Those that nobody holds, by UUID.
    fn of(&self, taken: &HashSet<String>) -> BTreeMap<String, Obstacle> {
        let list = self.0.read();
        let free = list.iter().filter(|(uuid, _)| !taken.contains(*uuid));
        free.map(|(uuid, bar)| (uuid.clone(), bar.obstacle)).collect()
    }
}

/// Holds a user's limits with the usage that counts against them.
#[derive(Clone, Debug)]
pub struct QuotaStatus {
    pub limits: Limits,
    pub usage: Usage,
    /// The part of `usage` that the portal did not start.
    pub external_usage: external_usage::UserExternalUsage,
    /// Of the group that they charge by default, and of all together.
    pub totals: Vec<Total>,
    pub in_use: Usage,
    pub capacity: Capacity,
    pub period: Period,
    pub window: Window,
    /// What their sessions can be charged to.
    pub billing_groups: BillingGroups,
    pub at: Timestamp,
    /// What would fit later is Slurm's to hold back.
    goes_to_slurm: bool,
}

/// Holds the inputs of a decision besides the request.
#[derive(Clone, Copy, Debug)]
struct DecisionContext {
    /// The portal is one person's.
    single_user_mode: bool,
    already_waiting: bool,
    /// What would fit later is Slurm's to hold back.
    hands_on: bool,
}

/// Holds a decision that was made, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    pub verdict: Verdict,
    /// When it would start at the latest, where it has to wait for room and that can be told.
    pub estimated_start: Option<Timestamp>,
}

/// Whether a portal that is not root serves this person: it runs everything as its own
/// account, which is for the one who came first.
pub async fn is_single_user(db: &Db, user: UserId) -> db::Result<bool> {
    Ok(db.setting_or("one_person", &user.to_string()).await? == user.to_string())
}

impl QuotaStatus {
    /// Whether a request would be admitted, by the numbers alone.
    #[must_use]
    pub fn decide(&self, request: &Request) -> Decision {
        decide(request, &self.situation(&[], false))
    }

    /// What the person could stop, with its GPUs, in the portal and elsewhere.
    fn stoppable(&self, own: &[(String, i64)]) -> Vec<(String, i64)> {
        own.iter().chain(&self.external_usage.jobs).cloned().collect()
    }

    fn situation<'a>(&'a self, own: &'a [(String, i64)], already_waiting: bool) -> Situation<'a> {
        Situation {
            limits: &self.limits,
            usage: &self.usage,
            totals: &self.totals,
            in_use: &self.in_use,
            capacity: self.capacity,
            period: &self.period,
            period_left: self.window.to.map(|to| to.seconds_since(self.at)),
            own,
            goes_to_slurm: self.goes_to_slurm,
            already_waiting,
        }
    }
}

impl Admission {
    /// What binds somebody who charges this group. What its managers give counts for it alone: so nobody
    /// uses it up under another group's totals.
    pub fn resolve(
        &self,
        owner: Option<UserId>,
        group: Option<GroupId>,
        rows: &[LimitRow],
        at: (bool, Timestamp),
    ) -> Limits {
        let is_theirs = |row: &&LimitRow| match &row.scope {
            Scope::Raised { group: raised, .. } => group == Some(*raised),
            _ => true,
        };
        let rows: Vec<LimitRow> = rows.iter().filter(is_theirs).cloned().collect();
        self.resolve_at_most(owner, group, &rows, at)
    }

    /// The same whatever they charge: the one place where what is set becomes limits.
    fn resolve_at_most(
        &self,
        owner: Option<UserId>,
        group: Option<GroupId>,
        rows: &[LimitRow],
        (single_user_mode, now): (bool, Timestamp),
    ) -> Limits {
        let limits = Limits::resolve(rows, &self.stock.capacity(), single_user_mode, now);
        match &self.slurm_limits {
            Some(slurm_limits) => limits.with_slurms(&slurm_limits.of(owner, group), &self.stock.capacity()),
            None => limits,
        }
    }

    /// The same of somebody of whom no group is known that is charged.
    fn resolve_for_default_group(&self, owner: UserId, rows: &[LimitRow], at: (bool, Timestamp)) -> Limits {
        let group = self.slurm_limits.as_ref().and_then(|slurm_limits| slurm_limits.usual_group(owner));
        self.resolve_at_most(Some(owner), group, rows, at)
    }

    /// What would be decided about this request, with nothing reserved.
    pub async fn rehearse(&self, owner: UserId, group: Option<GroupId>, request: &Request) -> db::Result<DryRun> {
        let single_user_mode = self.db.single_user_mode().await?;
        let asking = Requester { owner, group, period: &self.period, holds_at_once: self.holds_at_once };
        // A preview says that a request would wait; a real one may wait in Slurm's queue instead.
        let context = DecisionContext { single_user_mode, already_waiting: false, hands_on: false };
        let facts = Box::pin(self.db.facts(&asking, self.clock.now())).await?;
        Ok(self.decide_with_maintenance(request, &facts, context, None))
    }

    /// Decides about a new session and writes it, unless it is refused. That it waits or is refused is
    /// logged once, here.
    pub async fn insert(&self, new: &NewSession) -> db::Result<AdmissionOutcome> {
        let request = request(&new.spec, new.class());
        let hold = new.job.as_ref().and_then(|job| job.hold.clone());
        let admitted =
            self.admit(new.owner, new.charged_group, AdmissionMode::Insert(new), &request, hold, &mut None).await?;
        let (what, reasons) = match &admitted {
            AdmissionOutcome::Judged(Verdict::Wait(reasons)) => ("request queued", reasons),
            AdmissionOutcome::Judged(Verdict::Refuse(reasons)) => ("request rejected", reasons),
            _ => return Ok(admitted),
        };
        let why = reasons.first().map(|reason| reason.hint.as_str()).unwrap_or_default();
        let Resources { gpus, cpus, memory_bytes, .. } = new.spec.resources;
        tracing::info!(session.id = %new.id, user.id = %new.owner, app = new.app, gpus, cpus, memory_bytes,
            reasons = codes(reasons), why, "{what}");
        Ok(admitted)
    }

    /// Decides again about one that waits, and goes on waiting where something else holds it.
    pub async fn reconsider(
        &self,
        owner: UserId,
        id: SessionId,
        spec: &SessionSpec,
        class: Class,
        hold: Option<Reason>,
    ) -> db::Result<DryRun> {
        let (mut estimated_start, asked) = (None, request(spec, class));
        let admitted =
            self.admit(owner, None, AdmissionMode::Reevaluate(id), &asked, hold, &mut estimated_start).await?;
        Ok(DryRun { verdict: verdict(admitted), estimated_start })
    }

    /// Those that wait, as they are to be decided about: who used fewer GPUs lately first, then who
    /// asked earlier.
    pub async fn in_order(&self, mut waiting: Vec<Session>) -> db::Result<Vec<Session>> {
        if waiting.len() > 1 {
            let recent = self.db.recent_gpu_seconds(self.clock.now()).await?;
            let used = |session: &Session| recent.get(&session.owner).copied().unwrap_or(0);
            waiting.sort_by_cached_key(|session| (used(session), session.created_at, session.owner, session.id));
        }
        Ok(waiting)
    }

    /// Gives a running session more time, in the name of `by`, unless something is in the way:
    /// so many seconds, or as many as one extension adds.
    pub async fn extend(&self, id: SessionId, seconds: Option<i64>, by: &str) -> db::Result<ExtensionOutcome> {
        let single_user_mode = self.db.single_user_mode().await?;
        let judge = |session: &Session, facts: &Facts| self.judge_extension(session, facts, seconds, single_user_mode);
        self.db.extend_session(id, &self.period, &self.clock, by, judge).await
    }

    /// By how many seconds [`Admission::extend`] would move the end of a session now, or what
    /// would be in the way; nothing is changed. `None` where it does not run.
    pub async fn rehearse_extension(
        &self,
        id: SessionId,
        seconds: Option<i64>,
    ) -> db::Result<Option<Result<i64, Vec<Reason>>>> {
        let single_user_mode = self.db.single_user_mode().await?;
        let found = self.db.look_at_extension(id, &self.period, &self.clock).await?;
        Ok(found.map(|(session, facts)| self.judge_extension(&session, &facts, seconds, single_user_mode)))
    }

    /// Limits with their sources, and use now, for bars and sliders.
    pub async fn standing(&self, owner: UserId) -> db::Result<QuotaStatus> {
        let single_user_mode = self.db.single_user_mode().await?;
        let billing_groups = self.db.billing_groups_of(owner).await?;
        let asking = Requester {
            owner,
            group: billing_groups.default_group(),
            period: &self.period,
            holds_at_once: self.holds_at_once,
        };
        let mut sums = self.db.usage(&asking, self.clock.now()).await?;
        // Nobody gets these now, so they are not shown as free.
        sums.in_use.gpus = sums.in_use.gpus.saturating_add(self.blocked_gpus.free());
        let stored = self.db.storage_of(owner).await?;
        sums.usage.storage_bytes = stored.map_or(0, |stored| i64::try_from(stored.measured.bytes).unwrap_or(i64::MAX));
        Ok(QuotaStatus { billing_groups, ..self.standing_of(owner, asking.group, sums, single_user_mode) })
    }

    /// What is charged to a group, or used by all together; with the hours of the period, where
    /// they are limited.
    pub async fn used_together(&self, group: Option<GroupId>) -> db::Result<Usage> {
        let mut held = self.holdings().await?;
        let mut usage = match group {
            Some(group) => held.by_group.remove(&group).unwrap_or_default(),
            None => held.all,
        };
        // Whoever asks, totals are the same.
        let asking = Requester { owner: UserId::new(), group, period: &self.period, holds_at_once: self.holds_at_once };
        let totals = self.db.usage(&asking, self.clock.now()).await?.totals;
        let ours = |total: &&Total| match total.whose {
            TotalScope::Cluster => group.is_none(),
            TotalScope::Group { id, .. } => group == Some(id),
        };
        if let Some(total) = totals.iter().find(ours) {
            usage.gpu_seconds = total.usage.gpu_seconds;
            usage.cpu_seconds = total.usage.cpu_seconds;
        }
        if let Some(together) =
            self.slurm_limits.as_ref().zip(group).and_then(|(slurm_limits, group)| slurm_limits.together(group))
        {
            together.count(&mut usage);
        }
        Ok(usage)
    }

    /// Somebody's limits alone, for those who look often.
    pub async fn limits(&self, owner: UserId) -> db::Result<Limits> {
        let single_user_mode = self.db.single_user_mode().await?;
        let rows = self.db.limits_of(owner).await?;
        Ok(self.resolve_for_default_group(owner, &rows, (single_user_mode, self.clock.now())))
    }

    /// What was refused somebody lately, the latest first.
    pub async fn refusals(&self, owner: UserId, limit: i64) -> db::Result<Vec<Refusal>> {
        self.db.refusals(owner, limit).await
    }

    /// What everybody holds now, by person and by group, without hours.
    pub async fn holdings(&self) -> db::Result<Holdings> {
        let mut holdings = self.db.holdings().await?;
        for (owner, held) in self.external_usage.all() {
            holdings.all.add_held(&held.usage);
            let as_member = holdings.together.members_groups(owner);
            for group in as_member {
                holdings.by_group.entry(*group).or_default().add_held(&held.usage);
            }
            for (group, usage) in held.by_group.iter().filter(|(group, _)| !as_member.contains(group)) {
                holdings.by_group.entry(*group).or_default().add_held(usage);
            }
            match holdings.by_user.iter_mut().find(|(user, ..)| *user == owner) {
                Some((_, _, usage)) => usage.add_held(&held.usage),
                None => holdings.by_user.push((owner, held.name, held.usage)),
            }
        }
        Ok(holdings)
    }

    /// One page of the administrators' table: each person with what binds them.
    pub async fn table(&self, filter: &TableFilter) -> db::Result<Vec<(QuotaTableLine, Limits)>> {
        let single_user_mode = self.db.single_user_mode().await?;
        let now = self.clock.now();
        let lines = self.db.quota_table(filter, self.period.window(now), now).await?;
        let resolved = |line: QuotaTableLine| {
            let limits = self.resolve_for_default_group(line.id, &line.limits, (single_user_mode, now));
            (line, limits)
        };
        Ok(lines.into_iter().map(resolved).collect())
    }

    async fn admit(
        &self,
        owner: UserId,
        group: Option<GroupId>,
        mode: AdmissionMode<'_>,
        request: &Request,
        hold: Option<Reason>,
        estimate: &mut Option<Timestamp>,
    ) -> db::Result<AdmissionOutcome> {
        let single_user_mode = self.db.single_user_mode().await?;
        // What goes on by itself was let in when somebody asked for it.
        let already_waiting = match mode {
            AdmissionMode::Reevaluate(_) => true,
            AdmissionMode::Insert(new) => matches!(new.job, Some(NewAttempt { cause: Cause::Retried(_), .. })),
        };
        let context = DecisionContext { single_user_mode, already_waiting, hands_on: self.slurm_limits.is_some() };
        let asking = Requester { owner, group, period: &self.period, holds_at_once: self.holds_at_once };
        let judge = |facts: &Facts| {
            let judged = self.decide_with_maintenance(request, facts, context, hold);
            *estimate = judged.estimated_start;
            judged.verdict
        };
        // What it holds meanwhile would make every caller large.
        Box::pin(self.db.admit(&asking, mode, &self.clock, judge)).await
    }

    /// The verdict, with maintenance and what else holds it, and when it would start.
    fn decide_with_maintenance(
        &self,
        request: &Request,
        facts: &Facts,
        context: DecisionContext,
        hold: Option<Reason>,
    ) -> DryRun {
        if let Some(maintenance) = &facts.maintenance
            && let Some(reason) = maintenance.objection(facts.is_admin, facts.sums.at)
        {
            let reasons = vec![reason];
            let verdict = if context.already_waiting { Verdict::Wait(reasons) } else { Verdict::Refuse(reasons) };
            return DryRun { verdict, estimated_start: None };
        }
        let verdict = match (self.judge(request, facts, context), hold) {
            (verdict @ Verdict::Refuse(_), _) | (verdict, None) => verdict,
            (_, Some(reason)) => self.held(reason, facts, context),
        };
        let waits_for_room = matches!(&verdict, Verdict::Wait(reasons) if reasons.iter().all(Reason::is_about_room));
        let estimated_start =
            if waits_for_room { self.queue(facts).estimate(&waiting(facts.owner, request, facts)) } else { None };
        DryRun { verdict, estimated_start }
    }

    /// Something else than quotas and room is in the way; how many may wait is bounded all the same.
    fn held(&self, reason: Reason, facts: &Facts, context: DecisionContext) -> Verdict {
        let standing = self.standing_of(facts.owner, facts.group, facts.sums.clone(), context.single_user_mode);
        match wait(vec![reason], &standing.situation(&standing.stoppable(&facts.own), context.already_waiting)) {
            Decision::Refuse(reasons) => Verdict::Refuse(reasons),
            Decision::Wait(reasons) => Verdict::Wait(reasons),
            Decision::Admit => Verdict::Wait(Vec::new()),
        }
    }

    /// The whole decision: quotas, room, the GPUs themselves, and those who wait already.
    fn judge(&self, request: &Request, facts: &Facts, context: DecisionContext) -> Verdict {
        let mut standing = self.standing_of(facts.owner, facts.group, facts.sums.clone(), context.single_user_mode);
        standing.goes_to_slurm = context.hands_on;
        let own = standing.stoppable(&facts.own);
        let situation = standing.situation(&own, context.already_waiting);
        // What decide did not see makes a request wait by the same rule.
        let held_up = |reasons| match wait(reasons, &situation) {
            Decision::Refuse(reasons) => Verdict::Refuse(reasons),
            Decision::Wait(reasons) => Verdict::Wait(reasons),
            Decision::Admit => Verdict::Wait(Vec::new()),
        };
        let mut best = Verdict::Refuse(Vec::new());
        let blocked_gpus = self.blocked_gpus.of(&facts.common.gpus_taken);
        let inventory = self.stock.inventory();
        for model in models(&inventory, request, &standing) {
            let mut asked = request.clone();
            asked.resources.gpu_model = model;
            let verdict = match decide(&asked, &situation) {
                Decision::Refuse(reasons) => Verdict::Refuse(reasons),
                Decision::Wait(reasons) => Verdict::Wait(reasons),
                Decision::Admit => {
                    match choose_gpus(&inventory, &facts.common.gpus_taken, &blocked_gpus, &asked.resources) {
                        // Slurm has a queue of its own for those who want what others have.
                        Verdict::Wait(_) if context.hands_on => {
                            choose_gpus(&inventory, &HashSet::new(), &blocked_gpus, &asked.resources)
                        }
                        Verdict::Wait(reasons) => held_up(reasons),
                        verdict => verdict,
                    }
                }
            };
            match (&verdict, &best) {
                (Verdict::Admit { .. }, _) => {
                    best = verdict;
                    break;
                }
                (Verdict::Wait(_), Verdict::Refuse(_)) => best = verdict,
                (Verdict::Refuse(_), Verdict::Refuse(none)) if none.is_empty() => best = verdict,
                // Of two that wait, or two that never fit, the first is as good.
                _ => {}
            }
        }
        // Whoever may start while maintenance keeps the others out delays none of them.
        let keeps_others = facts.maintenance.as_ref().is_some_and(|set| set.objection(false, facts.sums.at).is_some());
        if matches!(best, Verdict::Admit { .. })
            && !context.hands_on
            && !keeps_others
            && !self.queue(facts).is_empty()
            && let Some(reason) = self.queue(facts).objection(&waiting(facts.owner, request, facts))
        {
            return held_up(vec![reason]);
        }
        best
    }

    /// More time for a running session: how much it gets, or what is in the way.
    fn judge_extension(
        &self,
        session: &Session,
        facts: &Facts,
        seconds: Option<i64>,
        single_user_mode: bool,
    ) -> Result<i64, Vec<Reason>> {
        let standing = self.standing_of(facts.owner, facts.group, facts.sums.clone(), single_user_mode);
        let seconds = seconds.unwrap_or_else(|| usual_extension(&standing.limits)).max(1);
        let from = session.expires_at.unwrap_or(standing.at);
        let period_left = standing.window.to.map(|to| to.seconds_since(from).max(0));
        let resources = session.spec.resources.clone();
        let request = Request { class: session.class(), resources, duration_seconds: seconds };
        let asked = Extension {
            owner: session.owner,
            groups: &facts.groups,
            request: &request,
            gpus: &session.gpus,
            extensions: session.extensions,
            waiting: if self.extend_while_others_wait { &[] } else { &facts.common.waiting },
        };
        let reasons = extend(&asked, &Situation { period_left, ..standing.situation(&[], false) });
        if reasons.is_empty() { Ok(seconds) } else { Err(reasons) }
    }

    /// Everybody's order at the moment of these facts.
    fn queue<'a>(&self, facts: &'a Facts) -> &'a Queue {
        facts.common.queue.get_or_init(|| self.queue_of(facts))
    }

    fn queue_of(&self, facts: &Facts) -> Queue {
        let common = &facts.common;
        let Capacity { cpus, memory_bytes, .. } = self.stock.capacity();
        let inventory = self.stock.inventory();
        let blocked_gpus = self.blocked_gpus.of(&common.gpus_taken);
        let mut gpus = inventory.models();
        for (model, count) in &mut gpus {
            let of_model = inventory.gpus.iter().filter(|gpu| gpu.model == *model);
            *count -= of_model.filter(|gpu| blocked_gpus.contains_key(&gpu.uuid)).map(|_| 1).sum::<i64>();
        }
        let mut shares = common.shares.clone();
        for share in &mut shares {
            let held = self.external_usage.counted(share.group, &facts.sums.together);
            share.limit = share.limit.saturating_sub(held.of(&share.field));
        }
        let room = Availability { cpus, memory_bytes, gpus, shares };
        Queue::new(room, &common.held, common.waiting.clone(), facts.sums.at)
    }

    /// What somebody asks for is judged by; what they hold without the portal counts with the rest.
    fn standing_of(
        &self,
        owner: UserId,
        group: Option<GroupId>,
        mut sums: LimitsAndUsage,
        single_user_mode: bool,
    ) -> QuotaStatus {
        for total in &mut sums.totals {
            let group = if let TotalScope::Group { id, .. } = total.whose { Some(id) } else { None };
            total.usage.add_held(&self.external_usage.counted(group, &sums.together));
        }
        if let Some(slurm_limits) = &self.slurm_limits {
            // Its count of a group has what came from a shell.
            slurm_limits.apply(group, &mut sums.totals);
        }
        let external_usage = self.external_usage.of(owner).unwrap_or_default();
        sums.usage.add_held(&external_usage.usage);
        QuotaStatus {
            limits: self.resolve(Some(owner), group, &sums.limits, (single_user_mode, sums.at)),
            usage: sums.usage,
            external_usage,
            totals: sums.totals,
            in_use: sums.in_use,
            capacity: self.stock.capacity(),
            period: self.period.clone(),
            window: sums.window,
            billing_groups: BillingGroups::default(),
            at: sums.at,
            goes_to_slurm: false,
        }
    }
}
