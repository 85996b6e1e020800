//! The order among those that wait, and who may go ahead without delaying the others. Whoever
//! used fewer GPUs lately comes first, then whoever asked earlier. A request that only shared
//! room is missing for, the machine's or what a group or all together may use, holds a place:
//! later ones start before it where it loses nothing by that (Feitelson and Weil, “conservative
//! backfilling”), so that small ones fill gaps and a large one never starves.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    sync::OnceLock,
};

use parking_lot::Mutex;

use super::{Class, Field, Reason, Request, decide::requested, sentence};
use crate::{GroupId, Timestamp, UserId};

/// Describes a request that waits or is being made.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingRequest {
    pub owner: UserId,
    /// The groups in which it counts.
    pub groups: Vec<GroupId>,
    pub request: Request,
    /// What this person used of GPUs lately; who used less comes first.
    pub recent_gpu_seconds: i64,
    pub since: Timestamp,
    /// Its own quota would let it in: it waits for shared room alone, and so may hold back others.
    pub lacks_room: bool,
}

/// What there is of everything: on the machine, and of what some may use together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    pub cpus: i64,
    pub memory_bytes: i64,
    /// How many GPUs of each model.
    pub gpus: Vec<(String, i64)>,
    pub shares: Vec<GroupShare>,
}

/// How much of something a group may use together; without a group, all people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupShare {
    pub group: Option<GroupId>,
    pub field: Field,
    pub limit: i64,
}

/// Lists the resources of an admitted workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldResources {
    pub request: Request,
    /// The groups in which it counts.
    pub groups: Vec<GroupId>,
    /// The models of its GPUs, one entry each.
    pub gpus: Vec<String>,
    /// When it ends at the latest.
    pub ends_by: Timestamp,
}

/// Everything that the order depends on, at one moment. Whoever decides about many asks one queue, which remembers
/// what is the same for all that come behind the first.
#[derive(Debug)]
pub struct Queue {
    now: Timestamp,
    /// Models by their place in the amounts, behind cores and memory.
    models: Vec<String>,
    /// Behind those.
    shares: Vec<GroupShare>,
    /// Cores, memory, GPUs by model, and what some may use together.
    capacity: Vec<i64>,
    /// When what is held comes free, in order, each with all that has come free by then.
    freed: Vec<(Timestamp, Vec<i64>)>,
    /// Of those who lack room the first of each person, in order.
    firsts: Vec<WaitingRequest>,
    /// The places of the first [`PLACES`] of them.
    front: OnceLock<Vec<Option<FutureSlot>>>,
    /// When requests behind all of those start, and what objects to them.
    starts_behind: Mutex<HashMap<Shape, Option<Timestamp>>>,
    objections_behind: Mutex<HashMap<Shape, Option<Reason>>>,
}

/// What of a request counts for its place, once others are ahead: what it asks for and where it counts.
type Shape = (Request, Vec<GroupId>);

/// Reserves a future time slot for a waiting request.
#[derive(Clone, Debug)]
struct FutureSlot {
    from: Timestamp,
    to: Timestamp,
    amounts: Vec<i64>,
}

/// So many requests hold places at once; those behind them wait without one.
const PLACES: usize = 8;

/// What is over its time and still there is thought to end so much later (seconds).
const ASSUMED_OVERRUN: i64 = 60;

impl Queue {
    #[must_use]
    pub fn new(room: Availability, held: &[HeldResources], mut waiting: Vec<WaitingRequest>, now: Timestamp) -> Self {
        let mut capacity = vec![room.cpus, room.memory_bytes];
        let mut models = Vec::new();
        for (model, count) in room.gpus {
            models.push(model);
            capacity.push(count);
        }
        capacity.extend(room.shares.iter().map(|share| share.limit));
        let mut ends: Vec<(Timestamp, Vec<i64>)> = held
            .iter()
            .map(|held| {
                let of_model = |model: &String| held.gpus.iter().filter(|gpu| *gpu == model).map(|_| 1).sum::<i64>();
                let mut amounts = vec![cores(&held.request), held.request.resources.memory_bytes];
                amounts.extend(models.iter().map(of_model));
                amounts.extend(room.shares.iter().map(|share| share.part(&held.groups, &held.request, of_model)));
                (held.ends_by.max(now.plus_seconds(ASSUMED_OVERRUN)), amounts)
            })
            .collect();
        ends.sort_by_key(|(end, _)| *end);
        let mut sum = vec![0; capacity.len()];
        for (_, amounts) in &mut ends {
            add(&mut sum, amounts, 1);
            amounts.clone_from(&sum);
        }
        waiting.retain(|waiting| waiting.lacks_room);
        waiting.sort_by(WaitingRequest::order);
        let mut owners = HashSet::new();
        waiting.retain(|waiting| owners.insert(waiting.owner));
        Self {
            now,
            models,
            shares: room.shares,
            capacity,
            freed: ends,
            firsts: waiting,
            front: OnceLock::new(),
            starts_behind: Mutex::default(),
            objections_behind: Mutex::default(),
        }
    }

    /// Nobody waits who could be held up by somebody else.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.firsts.is_empty()
    }

    /// Why this request, which would fit now, has to let others go first; `None` where it delays
    /// nobody.
    #[must_use]
    pub fn objection(&self, own: &WaitingRequest) -> Option<Reason> {
        let ahead = self.ahead_of(own);
        if !self.is_behind_the_front(own, &ahead) {
            return self.objection_of(own, &ahead, &self.places(&ahead));
        }
        let shape = (own.request.clone(), own.groups.clone());
        let known = self.objections_behind.lock().get(&shape).cloned();
        known.unwrap_or_else(|| {
            let objection = self.objection_of(own, &ahead, self.front());
            self.objections_behind.lock().insert(shape, objection.clone());
            objection
        })
    }

    fn objection_of(
        &self,
        own: &WaitingRequest,
        ahead: &[&WaitingRequest],
        expected: &[Option<FutureSlot>],
    ) -> Option<Reason> {
        let taken = self.place(&[], own, self.now)?;
        let delayed = self.starts(ahead, vec![taken]);
        let expected = expected.iter().map(|place| place.as_ref().map(|place| place.from));
        let behind: Vec<Timestamp> =
            expected.zip(delayed).filter(|(without, with)| without < with).filter_map(|(start, _)| start).collect();
        let first = behind.iter().min()?;
        let ends_in_time = Some(first.seconds_since(self.now)).filter(|seconds| *seconds >= 60);
        Some(sentence::behind_others(behind.len(), ends_in_time))
    }

    /// When this request starts at the latest, if everything lasts as long as it may and nobody
    /// with a better claim comes; `None` where no end is in sight.
    #[must_use]
    pub fn estimate(&self, own: &WaitingRequest) -> Option<Timestamp> {
        let ahead = self.ahead_of(own);
        let start = |places: &[Option<FutureSlot>]| {
            let places: Vec<FutureSlot> = places.iter().flatten().cloned().collect();
            self.earliest(&places, own).map(|place| place.from)
        };
        if !self.is_behind_the_front(own, &ahead) {
            return start(&self.places(&ahead));
        }
        let shape = (own.request.clone(), own.groups.clone());
        let known = self.starts_behind.lock().get(&shape).copied();
        known.unwrap_or_else(|| {
            let found = start(self.front());
            self.starts_behind.lock().insert(shape, found);
            found
        })
    }

    /// Whether exactly those are ahead that are ahead of everybody else behind them.
    fn is_behind_the_front(&self, own: &WaitingRequest, ahead: &[&WaitingRequest]) -> bool {
        let front = &self.firsts[..self.firsts.len().min(PLACES)];
        ahead.len() == front.len() && front.iter().all(|waiting| waiting.owner != own.owner)
    }

    fn front(&self) -> &[Option<FutureSlot>] {
        self.front.get_or_init(|| self.places(&self.firsts.iter().take(PLACES).collect::<Vec<_>>()))
    }

    /// The place that each of these takes, in this order.
    fn places(&self, waiters: &[&WaitingRequest]) -> Vec<Option<FutureSlot>> {
        let (mut taken, mut places) = (Vec::new(), Vec::with_capacity(waiters.len()));
        for waiting in waiters {
            let place = self.earliest(&taken, waiting);
            taken.extend(place.clone());
            places.push(place);
        }
        places
    }

    /// Those that come before it and hold places: one for each other person.
    fn ahead_of(&self, own: &WaitingRequest) -> Vec<&WaitingRequest> {
        let others = self.firsts.iter().filter(|waiting| waiting.owner != own.owner);
        others.take_while(|waiting| waiting.order(own) == Ordering::Less).take(PLACES).collect()
    }

    /// When each of these starts, in this order, beside the places that are taken.
    fn starts(&self, waiters: &[&WaitingRequest], mut places: Vec<FutureSlot>) -> Vec<Option<Timestamp>> {
        let mut starts = Vec::with_capacity(waiters.len());
        for waiting in waiters {
            let place = self.earliest(&places, waiting);
            starts.push(place.as_ref().map(|place| place.from));
            places.extend(place);
        }
        starts
    }

    /// The first moment at which there is room for all of its time.
    fn earliest(&self, places: &[FutureSlot], waiting: &WaitingRequest) -> Option<FutureSlot> {
        let mut moments: Vec<Timestamp> = std::iter::once(self.now)
            .chain(self.freed.iter().map(|(end, _)| *end))
            .chain(places.iter().map(|place| place.to))
            .collect();
        moments.sort_unstable();
        moments.dedup();
        moments.into_iter().find_map(|moment| self.place(places, waiting, moment))
    }

    /// A place from this moment on, if there is room for all of its time.
    fn place(&self, places: &[FutureSlot], waiting: &WaitingRequest, from: Timestamp) -> Option<FutureSlot> {
        let to = from.plus_seconds(waiting.request.duration_seconds);
        let begins = places.iter().map(|place| place.from).filter(|begin| from < *begin && *begin < to);
        let mut least: Option<Vec<i64>> = None;
        for moment in std::iter::once(from).chain(begins) {
            let free = self.free(places, moment);
            match &mut least {
                None => least = Some(free),
                Some(least) => least.iter_mut().zip(free).for_each(|(least, free)| *least = free.min(*least)),
            }
        }
        Some(FutureSlot { from, to, amounts: self.take(waiting, &least?)? })
    }

    /// What is free at a moment.
    fn free(&self, places: &[FutureSlot], at: Timestamp) -> Vec<i64> {
        let mut free = self.capacity.clone();
        if let Some((_, held)) = self.freed.last() {
            add(&mut free, held, -1);
        }
        let ended = self.freed.partition_point(|(end, _)| *end <= at);
        if let Some((_, freed)) = ended.checked_sub(1).and_then(|last| self.freed.get(last)) {
            add(&mut free, freed, 1);
        }
        for place in places.iter().filter(|place| place.from <= at && at < place.to) {
            add(&mut free, &place.amounts, -1);
        }
        free
    }

    /// What a request takes of what is free: GPUs of one model where one has enough of them.
    fn take(&self, waiting: &WaitingRequest, free: &[i64]) -> Option<Vec<i64>> {
        let (request, asked) = (&waiting.request, &waiting.request.resources);
        let mut amounts = vec![0; free.len()];
        amounts[0] = cores(request);
        amounts[1] = asked.memory_bytes;
        let first_share = 2 + self.models.len();
        let shares = || self.shares.iter().enumerate().map(|(place, share)| (first_share + place, share));
        // Of a model there is no more than may be used of it together.
        let left = |index: usize| {
            let field = Field::GpusOf(self.models[index - 2].clone());
            let bounds = shares().filter(|(_, share)| share.field == field && share.counts(&waiting.groups));
            bounds.map(|(place, _)| free[place]).fold(free[index], i64::min).max(0)
        };
        let mut missing = asked.gpus;
        let wanted = |model: &String| asked.gpu_model.as_ref().is_none_or(|wanted| wanted == model);
        let usable: Vec<usize> = (2..first_share).filter(|&index| wanted(&self.models[index - 2])).collect();
        let whole = usable.iter().copied().find(|&index| missing <= left(index));
        for index in whole.map_or(usable, |index| vec![index]) {
            amounts[index] = missing.min(left(index));
            missing -= amounts[index];
        }
        for (place, share) in shares() {
            let of_model =
                |model: &String| self.models.iter().position(|known| known == model).map_or(0, |at| amounts[at + 2]);
            amounts[place] = share.part(&waiting.groups, request, of_model);
        }
        let fits = missing == 0 && amounts.iter().zip(free).all(|(amount, free)| *amount == 0 || amount <= free);
        fits.then_some(amounts)
    }
}

impl GroupShare {
    /// Whether something counts that counts in these groups.
    fn counts(&self, groups: &[GroupId]) -> bool {
        self.group.is_none_or(|group| groups.contains(&group))
    }

    /// How much of it something takes that counts in these groups and has so many GPUs of a model.
    fn part(&self, groups: &[GroupId], request: &Request, of_model: impl Fn(&String) -> i64) -> i64 {
        match &self.field {
            _ if !self.counts(groups) => 0,
            Field::GpusOf(model) => of_model(model),
            field => requested(field, request),
        }
    }
}

impl WaitingRequest {
    /// Who goes before whom.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let key = |waiting: &Self| (waiting.recent_gpu_seconds, waiting.since, waiting.owner);
        key(self).cmp(&key(other))
    }
}

/// Light sessions share the cores that others leave idle.
fn cores(request: &Request) -> i64 {
    if request.class == Class::Light { 0 } else { request.resources.cpus }
}

fn add(sum: &mut [i64], amounts: &[i64], sign: i64) {
    for (sum, amount) in sum.iter_mut().zip(amounts) {
        *sum = sum.saturating_add(sign.saturating_mul(*amount));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Resources, size::GIB};

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const HOUR: i64 = 3600;

    fn request(gpus: i64, hours: i64) -> Request {
        let resources = Resources { gpus, gpu_model: None, cpus: 1, memory_bytes: GIB };
        Request { resources, duration_seconds: hours * HOUR, class: Class::Session }
    }

    fn held(gpus: usize, hours: i64) -> HeldResources {
        let request = request(i64::try_from(gpus).unwrap(), hours);
        HeldResources {
            request,
            groups: Vec::new(),
            gpus: vec!["A".to_owned(); gpus],
            ends_by: NOW.plus_seconds(hours * HOUR),
        }
    }

    fn waiting(request: Request, recent: i64) -> WaitingRequest {
        WaitingRequest {
            owner: UserId::new(),
            groups: Vec::new(),
            request,
            recent_gpu_seconds: recent,
            since: NOW,
            lacks_room: true,
        }
    }

    fn room(gpus: i64) -> Availability {
        Availability { cpus: 64, memory_bytes: 256 * GIB, gpus: vec![("A".to_owned(), gpus)], shares: Vec::new() }
    }

    fn machine(gpus: i64, held: &[HeldResources], waiting: Vec<WaitingRequest>) -> Queue {
        Queue::new(room(gpus), held, waiting, NOW)
    }

    #[test]
    fn a_small_one_fills_a_gap_and_delays_nobody() {
        // Four GPUs: two are held for 2 h; somebody waits for all four.
        let large = waiting(request(4, 8), 0);
        let queue = machine(4, &[held(2, 2)], vec![large.clone()]);
        assert_eq!(queue.estimate(&large), Some(NOW.plus_seconds(2 * HOUR)));
        assert_eq!(queue.objection(&waiting(request(2, 2), 1)), None);
        let reason = queue.objection(&waiting(request(2, 3), 1)).unwrap();
        assert_eq!(reason.code.to_string(), "queue.order");
        assert_eq!(
            reason.hint,
            "A larger request is ahead of this one and would start later if this went first. Wait for that, or ask for \
             at most 2 h."
        );
        // Without GPUs it takes nothing from the large one.
        assert_eq!(queue.objection(&waiting(request(0, 8), 1)), None);
        // Who used less goes first, and who has something waiting may go on with small things.
        assert_eq!(queue.objection(&waiting(request(2, 3), -1)), None);
        assert_eq!(queue.objection(&WaitingRequest { owner: large.owner, ..waiting(request(2, 3), 1) }), None);
        // What its own quota keeps out holds nobody back.
        let over_quota = WaitingRequest { lacks_room: false, ..large };
        assert_eq!(machine(4, &[held(2, 2)], vec![over_quota]).objection(&waiting(request(2, 3), 1)), None);
    }

    #[test]
    fn what_is_left_beside_the_large_one_can_be_had() {
        // It needs three of four, so a fourth is free for ever.
        let queue = machine(4, &[held(2, 2)], vec![waiting(request(3, 8), 0)]);
        assert_eq!(queue.objection(&waiting(request(1, 100), 1)), None);
        assert!(queue.objection(&waiting(request(2, 100), 1)).is_some());
    }

    #[test]
    fn one_place_a_person_and_the_next_waits_behind_them() {
        let first = waiting(request(4, 8), 0);
        let more = WaitingRequest { since: NOW.plus_seconds(1), ..first.clone() };
        let second = waiting(request(4, 8), 5);
        let queue = machine(4, &[held(2, 2)], vec![second.clone(), more, first]);
        assert_eq!(queue.estimate(&second), Some(NOW.plus_seconds(10 * HOUR)));
        let last = waiting(request(1, 1), 9);
        assert_eq!(queue.estimate(&last), Some(NOW));
    }

    #[test]
    fn models_do_not_stand_in_each_others_way() {
        let room = Availability { gpus: vec![("A".to_owned(), 2), ("B".to_owned(), 2)], ..room(0) };
        let mut wants_a = waiting(request(2, 8), 0);
        wants_a.request.resources.gpu_model = Some("A".to_owned());
        let queue = Queue::new(room, &[held(1, 4)], vec![wants_a], NOW);
        let mut own = waiting(request(1, 8), 1);
        own.request.resources.gpu_model = Some("B".to_owned());
        assert_eq!(queue.objection(&own), None);
        own.request.resources.gpu_model = Some("A".to_owned());
        assert!(queue.objection(&own).is_some());
    }

    #[test]
    fn light_ones_take_no_cores_and_what_is_overdue_ends_soon() {
        let room = Availability { cpus: 4, gpus: Vec::new(), ..room(0) };
        let busy = HeldResources {
            request: Request { resources: Resources { cpus: 2, ..request(0, 1).resources }, ..request(0, 1) },
            gpus: Vec::new(),
            groups: Vec::new(),
            ends_by: NOW.plus_seconds(-5),
        };
        let large =
            waiting(Request { resources: Resources { cpus: 4, ..request(0, 1).resources }, ..request(0, 1) }, 0);
        let queue = Queue::new(room, &[busy], vec![large.clone()], NOW);
        assert_eq!(queue.estimate(&large), Some(NOW.plus_seconds(ASSUMED_OVERRUN)));
        let light = waiting(Request { class: Class::Light, ..request(0, 9) }, 1);
        assert_eq!(queue.objection(&light), None);
        assert!(queue.objection(&waiting(request(0, 9), 1)).is_some());
    }

    /// So many GPUs for what is charged to this group; for all together without one.
    fn share(group: Option<GroupId>, limit: i64) -> GroupShare {
        GroupShare { group, field: Field::Gpus, limit }
    }

    #[test]
    fn what_a_group_may_use_together_is_room_too() {
        let vision = Some(GroupId::new());
        // The machine is nearly empty; of the group's four GPUs two are held for 2 h.
        let busy = HeldResources { groups: Vec::from_iter(vision), ..held(2, 2) };
        let large = WaitingRequest { groups: Vec::from_iter(vision), ..waiting(request(4, 8), 0) };
        let with = |shares| {
            Queue::new(Availability { shares, ..room(16) }, std::slice::from_ref(&busy), vec![large.clone()], NOW)
        };
        for shares in [vec![share(vision, 4)], vec![share(None, 4)], vec![share(None, 9), share(vision, 4)]] {
            let queue = with(shares.clone());
            assert_eq!(queue.estimate(&large), Some(NOW.plus_seconds(2 * HOUR)), "{shares:?}");
            let own = |group, hours| WaitingRequest { groups: Vec::from_iter(group), ..waiting(request(1, hours), 1) };
            assert_eq!(queue.objection(&own(vision, 2)), None, "{shares:?}");
            assert_eq!(queue.objection(&own(vision, 3)).unwrap().code.to_string(), "queue.order", "{shares:?}");
            // Whom another group is charged for takes nothing from it, unless the limit is everybody's.
            let is_everybodys = shares[0].group.is_none() && shares.len() == 1;
            assert_eq!(queue.objection(&own(None, 3)).is_some(), is_everybodys, "{shares:?}");
        }
        // Of one model: what it may not have more of is no room, and other models are.
        let of_model = GroupShare { field: Field::GpusOf("A".to_owned()), ..share(vision, 4) };
        assert!(
            with(vec![of_model.clone()])
                .objection(&WaitingRequest { groups: Vec::from_iter(vision), ..waiting(request(1, 3), 1) })
                .is_some()
        );
        let gpus = vec![("A".to_owned(), 8), ("B".to_owned(), 8)];
        let queue = Queue::new(
            Availability { shares: vec![of_model], gpus, ..room(0) },
            std::slice::from_ref(&busy),
            vec![],
            NOW,
        );
        assert_eq!(queue.estimate(&large), Some(NOW), "it gets the other model");
        // So many at once, whatever they hold.
        let sessions = GroupShare { field: Field::Sessions, ..share(vision, 1) };
        let next = WaitingRequest { groups: Vec::from_iter(vision), ..waiting(request(0, 1), -1) };
        assert_eq!(with(vec![sessions]).estimate(&next), Some(NOW.plus_seconds(2 * HOUR)));
    }

    #[test]
    fn a_lowered_share_keeps_out_what_uses_it_and_nothing_else() {
        let vision = Some(GroupId::new());
        let busy = HeldResources { groups: Vec::from_iter(vision), ..held(6, 2) };
        let queue = Queue::new(Availability { shares: vec![share(vision, 4)], ..room(16) }, &[busy], vec![], NOW);
        let own = |gpus| WaitingRequest { groups: Vec::from_iter(vision), ..waiting(request(gpus, 1), 0) };
        assert_eq!(queue.estimate(&own(0)), Some(NOW));
        assert_eq!(queue.estimate(&own(1)), Some(NOW.plus_seconds(2 * HOUR)));
        assert_eq!(queue.estimate(&own(5)), None);
    }

    proptest! {
        /// Small ones come all the time, and everything lasts as long as it may: the large one
        /// starts no later than it was told at first, whatever it is that it lacks: the machine's
        /// GPUs, its group's, or everybody's.
        #[test]
        fn a_large_request_never_starves(
            running in prop::collection::vec((1..3usize, 1..6i64), 0..4),
            large in (4..9i64, 1..5i64),
            small in prop::collection::vec((0..60i64, 1..5i64, 1..9i64), 0..40),
            lacks in 0..3usize,
        ) {
            let (whole, vision) = (8, Some(GroupId::new()));
            let of_group = |held: HeldResources| HeldResources { groups: Vec::from_iter(vision), ..held };
            let mut held: Vec<HeldResources> = running.into_iter().map(|(gpus, hours)| of_group(held(gpus, hours))).collect();
            let large = WaitingRequest { groups: Vec::from_iter(vision), ..waiting(request(large.0, large.1), 0) };
            let at = |now, held: &Vec<HeldResources>, waiting| {
                let room = match lacks {
                    0 => room(whole),
                    1 => Availability { shares: vec![share(vision, whole)], ..room(64) },
                    _ => Availability { shares: vec![share(None, whole)], ..room(64) },
                };
                Queue::new(room, held, waiting, now)
            };
            let promised = at(NOW, &held, vec![large.clone()]).estimate(&large).unwrap();
            let mut small = small;
            small.sort_unstable();
            for (minutes, gpus, hours) in small {
                let now = NOW.plus_seconds(minutes * 600);
                if promised <= now {
                    break;
                }
                held.retain(|held| now < held.ends_by);
                let own = WaitingRequest { since: now, groups: Vec::from_iter(vision), ..waiting(request(gpus, hours), 1) };
                let free = whole - held.iter().map(|held| held.request.resources.gpus).sum::<i64>();
                let queue = at(now, &held, vec![large.clone()]);
                if gpus <= free && queue.objection(&own).is_none() {
                    let (ends_by, gpus) = (now.plus_seconds(hours * HOUR), vec!["A".to_owned(); usize::try_from(gpus).unwrap()]);
                    held.push(HeldResources { gpus, groups: Vec::from_iter(vision), request: own.request, ends_by });
                }
                let expected = at(now, &held, vec![large.clone()]).estimate(&large).unwrap();
                prop_assert!(expected <= promised.max(now), "{expected} is later than {promised}");
            }
        }
    }
}
