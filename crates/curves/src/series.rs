//! One curve: every point that was written, in the order of writing, in columns; and over
//! them the least and the greatest of each stretch, so that a question about a million points
//! looks at a few thousand. A spike is in every answer. Where a run was begun anew, points that
//! a later attempt wrote again are kept, and left out of the answers unless they are asked for.
//! Which points those are, and where one goes that comes late, is decided in `order`.

use std::{
    mem::replace,
    ops::{Range, RangeInclusive},
};

use super::{
    columns::{Steps, Values, insert, push},
    order::Course,
};

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub step: i64,
    /// Seconds since 1970, by the writer's clock.
    pub wall_time: f64,
    pub value: f64,
    /// Which attempt of the run wrote it, from 0.
    pub attempt: u32,
}

/// All the points of one tag of one run. 16 bytes a point and a quarter more at most where values are floats
/// of 32 bits, as nearly all writers' are, and steps follow each other evenly; 20 where they do not and are under 2³².
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub(super) steps: Steps,
    wall_times: Vec<f64>,
    values: Values,
    /// Stretches in which steps never fall, in the order of writing. An attempt is one or several of them.
    pub(super) attempts: Vec<Attempt>,
    /// Level 0 has a block for each [`WIDTH`] points, each further one for [`WIDTH`] blocks.
    levels: Vec<Vec<Block>>,
    /// Where values are NaN or infinite.
    nonfinite: Vec<u32>,
}

/// Points a block, and blocks a block of the next level.
const WIDTH: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub number: u32,
    /// The index of its first point.
    pub begin: usize,
    /// What earlier attempts wrote at this step and later is past.
    pub from: i64,
    /// The lowest step before this stretch, where all of its steps are lower: it hides nothing.
    pub limit: Option<i64>,
}

/// What is known of some points that follow each other. The indices are of finite points.
#[derive(Clone, Copy, Debug)]
struct Block {
    least: u32,
    greatest: u32,
    finite: u32,
    sum: f64,
}

/// What a stretch of a curve comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// How many points, those that are not finite included.
    pub count: usize,
    /// The index of the last of them.
    pub end: usize,
    pub first: Point,
    pub last: Point,
    /// Of the finite ones; `None` where there is none.
    pub range: Option<Extent>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    pub min: Point,
    pub max: Point,
    pub mean: f64,
}

impl Series {
    pub fn len(&self) -> usize {
        self.wall_times.len()
    }

    pub fn is_empty(&self) -> bool {
        self.wall_times.is_empty()
    }

    /// Adds a point. Behind the others, unless its step is lower than the one before: see `order`.
    pub fn push(&mut self, point: Point) {
        let index = self.len();
        match self.course(&point) {
            Course::Append => {}
            Course::Begin(attempt) => self.attempts.push(attempt),
            Course::Insert(place) => return self.insert(place, point),
        }
        self.steps.push(point.step);
        push(&mut self.wall_times, point.wall_time);
        self.values.push(point.value);
        if !point.value.is_finite() {
            self.nonfinite.push(small(index));
        }
        if (index + 1).is_multiple_of(WIDTH) {
            let block = self.scan(index + 1 - WIDTH..index + 1);
            self.add_block(0, block);
        }
    }

    /// Adds a point that came late at its place among the last ones.
    fn insert(&mut self, place: usize, point: Point) {
        if let Some(last) = self.attempts.last_mut()
            && last.limit.is_none()
        {
            last.from = last.from.min(point.step);
        }
        self.steps.insert(place, point.step);
        insert(&mut self.wall_times, place, point.wall_time);
        self.values.insert(place, point.value);
        let behind = self.nonfinite.partition_point(|index| *index < small(place));
        for index in &mut self.nonfinite[behind..] {
            *index += 1;
        }
        if !point.value.is_finite() {
            self.nonfinite.insert(behind, small(place));
        }
        // The blocks of moved points are rebuilt.
        let mut width = WIDTH;
        for level in &mut self.levels {
            level.truncate(place / width);
            width = width.saturating_mul(WIDTH);
        }
        for block in place / WIDTH..self.len() / WIDTH {
            let block = self.scan(block * WIDTH..(block + 1) * WIDTH);
            self.add_block(0, block);
        }
    }

    /// A writer began anew at `step`: what was written from there on is past, whether this
    /// curve is written again or not.
    pub fn restart(&mut self, attempt: u32, step: i64) {
        if !self.is_empty() {
            self.attempts.push(Attempt { number: attempt, begin: self.len(), from: step, limit: None });
        }
    }

    fn add_block(&mut self, level: usize, block: Option<Block>) {
        if self.levels.len() == level {
            self.levels.push(Vec::new());
        }
        // Without a finite point a block is of no use, but keeps its place.
        self.levels[level].push(block.unwrap_or(Block { least: 0, greatest: 0, finite: 0, sum: 0.0 }));
        let count = self.levels[level].len();
        if count.is_multiple_of(WIDTH) {
            let block = self.merge(&self.levels[level][count - WIDTH..]);
            self.add_block(level + 1, block);
        }
    }

    pub fn get(&self, index: usize) -> Point {
        let attempt = self.attempts.partition_point(|attempt| attempt.begin <= index) - 1;
        Point {
            step: self.steps.get(index),
            wall_time: self.wall_times[index],
            value: self.values.get(index),
            attempt: self.attempts[attempt].number,
        }
    }

    pub fn value_at(&self, index: usize) -> f64 {
        self.values.get(index)
    }

    pub fn last(&self) -> Option<Point> {
        self.len().checked_sub(1).map(|index| self.get(index))
    }

    /// Every point, of all attempts, in the order of writing.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The stretches that make up the curve: what each attempt wrote before the step at which
    /// a later one went on. Over all of them together steps never fall.
    pub fn visible(&self) -> Vec<Range<usize>> {
        let mut ends = self.len();
        let mut below = i64::MAX;
        let mut ranges = Vec::with_capacity(self.attempts.len());
        for attempt in self.attempts.iter().rev() {
            let written = attempt.begin..ends;
            ends = attempt.begin;
            let cut = if below == i64::MAX { written.end } else { self.steps.first_at(below, written.clone()) };
            if attempt.begin < cut {
                ranges.push(attempt.begin..cut);
            }
            below = below.min(attempt.from);
        }
        ranges.reverse();
        if self.attempts.iter().any(|attempt| attempt.limit.is_some()) {
            ranges.sort_by_key(|range| self.steps.get(range.start));
        }
        ranges
    }

    /// The step of the last visible point that was written by then, where writers' clocks went evenly.
    pub fn step_at(&self, wall_time: f64) -> Option<i64> {
        self.visible().into_iter().rev().find_map(|range| {
            let written = self.wall_times[range.clone()].partition_point(|at| *at <= wall_time);
            (written > 0).then(|| self.steps.get(range.start + written - 1))
        })
    }

    /// The value of a curve at a step: of the last point that is not behind it. `visible` is the curve's.
    pub fn value_by_then(&self, visible: &[Range<usize>], step: i64) -> Option<f64> {
        visible.iter().rev().find_map(|range| {
            let behind = self.steps.first_behind(step, range.clone());
            (range.start < behind).then(|| self.values.get(behind - 1))
        })
    }

    /// Returns each attempt that has points, with the indices of the points it wrote.
    pub fn attempts(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        let ends = self.attempts.iter().skip(1).map(|next| next.begin).chain([self.len()]);
        let mut found: Vec<(u32, Range<usize>)> = Vec::new();
        for (attempt, end) in self.attempts.iter().zip(ends).filter(|(attempt, end)| attempt.begin < *end) {
            match found.last_mut() {
                Some((number, points)) if *number == attempt.number => points.end = end,
                _ => found.push((attempt.number, attempt.begin..end)),
            }
        }
        found.into_iter()
    }

    /// The bucket of one point alone.
    pub fn alone(&self, index: usize) -> Bucket {
        let point = self.get(index);
        let range = point.value.is_finite().then_some(Extent { min: point, max: point, mean: point.value });
        Bucket { count: 1, end: index, first: point, last: point, range }
    }

    /// The points whose steps lie in `steps`, cut into at most `count` buckets of equal width.
    /// Stretches without a point have no bucket.
    pub fn by_step(&self, steps: RangeInclusive<i64>, count: usize) -> Vec<Bucket> {
        let visible = self.visible();
        let Some((from, to)) = self.bounds(&visible, steps) else { return Vec::new() };
        let width = i128::from(to) - i128::from(from) + 1;
        let count = i128::try_from(count.max(1)).unwrap_or(width).min(width);
        let edge = |number| i64::try_from(i128::from(from) + width * number / count).unwrap_or(i64::MAX);
        self.between(&visible, from..=to, count, edge)
    }

    /// The same as a logarithmic axis shows it: each bucket is as many times as wide as the one before. What lies at
    /// step 0 and before has no place there, and is one bucket.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the same edge for both its buckets"
    )]
    pub fn by_magnitude(&self, steps: RangeInclusive<i64>, count: usize) -> Vec<Bucket> {
        let (first, last) = steps.into_inner();
        let mut found = if first <= 0 { self.by_step(first..=last.min(0), 1) } else { Vec::new() };
        let visible = self.visible();
        let Some((from, to)) = self.bounds(&visible, first.max(1)..=last) else { return found };
        let count = i128::try_from(count.max(1)).unwrap_or(1);
        let growth = (to as f64 / from as f64).ln() / count as f64;
        let edge = |number| (from as f64 * (growth * number as f64).exp()).ceil() as i64;
        found.extend(self.between(&visible, from..=to, count, edge));
        found
    }

    /// So many buckets of the steps within bounds; each begins at its edge, the last one ends with the bounds.
    fn between(
        &self,
        visible: &[Range<usize>],
        bounds: RangeInclusive<i64>,
        count: i128,
        edge: impl Fn(i128) -> i64,
    ) -> Vec<Bucket> {
        let (from, to) = bounds.into_inner();
        // A bucket begins where the one before it ended.
        let mut at: Vec<usize> = visible.iter().map(|range| self.steps.first_at(from, range.clone())).collect();
        let bucket = |number: i128| {
            let is_last = number + 1 == count;
            let end = if is_last { to } else { edge(number + 1).min(to) };
            self.bucket(visible.iter().zip(&mut at).filter_map(|(range, at)| {
                let rest = *at..range.end;
                // Behind the last bucket there may be no number any more.
                let behind = if is_last { self.steps.first_behind(to, rest) } else { self.steps.first_near(end, rest) };
                let first = replace(at, behind);
                (first < behind).then_some(first..behind)
            }))
        };
        (0..count).filter_map(bucket).collect()
    }

    /// The lowest and the highest step that is visible within `steps`.
    fn bounds(&self, visible: &[Range<usize>], steps: RangeInclusive<i64>) -> Option<(i64, i64)> {
        let (from, to) = steps.into_inner();
        let mut bounds: Option<(i64, i64)> = None;
        for range in visible {
            let within = self.steps.first_at(from, range.clone())..self.steps.first_behind(to, range.clone());
            if !within.is_empty() {
                let (first, last) = (self.steps.get(within.start), self.steps.get(within.end - 1));
                bounds = Some(bounds.map_or((first, last), |(low, high)| (low.min(first), high.max(last))));
            }
        }
        bounds
    }

    /// The same by any other measure of a point (its wall time, another curve's value), which
    /// need not grow with the points: each is looked at.
    pub fn by(&self, measure: impl Fn(usize) -> Option<f64>, bounds: Range<f64>, count: usize) -> Vec<Bucket> {
        let mut parts: Vec<Vec<Range<usize>>> = vec![Vec::new(); count.max(1)];
        let width = (bounds.end - bounds.start) / f64::from(small(parts.len()));
        for range in self.visible() {
            for index in range {
                let Some(x) = measure(index).filter(|x| (bounds.start..=bounds.end).contains(x)) else { continue };
                let place = place_of((x - bounds.start) / width).min(parts.len() - 1);
                match parts[place].last_mut() {
                    Some(last) if last.end == index => last.end += 1,
                    _ => parts[place].push(index..index + 1),
                }
            }
        }
        parts.into_iter().filter_map(|parts| self.bucket(parts.into_iter())).collect()
    }

    /// The visible points that are not finite, in order.
    pub fn nonfinite(&self) -> impl Iterator<Item = Point> {
        self.visible().into_iter().flat_map(move |range| {
            let first = self.nonfinite.partition_point(|index| (*index as usize) < range.start);
            let last = self.nonfinite.partition_point(|index| (*index as usize) < range.end);
            self.nonfinite[first..last].iter().map(|index| self.get(*index as usize))
        })
    }

    fn bucket(&self, parts: impl Iterator<Item = Range<usize>>) -> Option<Bucket> {
        let (mut count, mut ends, mut blocks) = (0, None, Vec::new());
        for part in parts {
            count += part.len();
            ends = Some((ends.map_or(part.start, |(first, _)| first), part.end - 1));
            self.blocks(part, &mut blocks);
        }
        let (first, last) = ends?;
        let range = self.merge(&blocks).map(|all| Extent {
            min: self.get(all.least as usize),
            max: self.get(all.greatest as usize),
            mean: all.sum / f64::from(all.finite),
        });
        Some(Bucket { count, end: last, first: self.get(first), last: self.get(last), range })
    }

    /// What some points come to, by as few blocks as there are.
    fn blocks(&self, mut range: Range<usize>, found: &mut Vec<Block>) {
        while !range.is_empty() {
            let mut size = 1;
            let mut level = 0;
            // The largest block that begins here and ends within.
            while range.start.is_multiple_of(size * WIDTH)
                && range.start + size * WIDTH <= range.end
                && level < self.levels.len()
            {
                size *= WIDTH;
                level += 1;
            }
            if level == 0 {
                let next = range.start.next_multiple_of(WIDTH).max(range.start + 1);
                let end = if range.start.is_multiple_of(WIDTH) { range.end } else { next.min(range.end) };
                found.extend(self.scan(range.start..end));
                range.start = end;
            } else {
                found.push(self.levels[level - 1][range.start / size]);
                range.start += size;
            }
        }
    }

    /// Looks at each of some points.
    fn scan(&self, range: Range<usize>) -> Option<Block> {
        let (least, greatest, finite, sum) = self.values.extremes(range)?;
        Some(Block { least: small(least), greatest: small(greatest), finite, sum })
    }

    fn merge(&self, blocks: &[Block]) -> Option<Block> {
        blocks.iter().filter(|block| block.finite > 0).copied().reduce(|one, other| Block {
            least: if self.value(other.least) < self.value(one.least) { other.least } else { one.least },
            greatest: if self.value(other.greatest) > self.value(one.greatest) { other.greatest } else { one.greatest },
            finite: one.finite + other.finite,
            sum: one.sum + other.sum,
        })
    }

    fn value(&self, index: u32) -> f64 {
        self.value_at(index as usize)
    }
}

/// An index in four bytes: a curve has fewer than 2³² points.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among the buckets, from 0")]
fn place_of(place: f64) -> usize {
    place as usize
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "nothing is rounded here")]

    use proptest::prelude::*;

    use super::*;

    fn series(steps_and_values: &[(i64, f64)]) -> Series {
        let mut series = Series::default();
        for (index, (step, value)) in steps_and_values.iter().enumerate() {
            let wall_time = f64::from(u32::try_from(index).unwrap());
            series.push(Point { step: *step, wall_time, value: *value, attempt: 0 });
        }
        series
    }

    fn visible_steps(series: &Series) -> Vec<i64> {
        series.visible().into_iter().flatten().map(|index| series.get(index).step).collect()
    }

    #[test]
    fn a_spike_is_in_every_answer() {
        let mut points: Vec<(i64, f64)> = (0..100_000).map(|step| (step, 1.0)).collect();
        points[77_777].1 = 1e6;
        points[5].1 = -3.5;
        let series = series(&points);
        for count in [1, 10, 1000, 99_999] {
            let buckets = series.by_step(i64::MIN..=i64::MAX, count);
            assert_eq!(buckets.len(), count);
            assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<usize>(), 100_000);
            let ranges = || buckets.iter().filter_map(|bucket| bucket.range);
            let most = ranges().map(|range| range.max).max_by(|one, other| one.value.total_cmp(&other.value)).unwrap();
            let least = ranges().map(|range| range.min).min_by(|one, other| one.value.total_cmp(&other.value)).unwrap();
            assert_eq!((most.step, most.value), (77_777, 1e6));
            assert_eq!((least.step, least.value), (5, -3.5));
        }
    }

    #[test]
    fn buckets_of_a_logarithmic_axis_are_as_wide_as_it_shows_them() {
        let series = series(&(0..1_000_000).map(|step| (step, 1.0)).collect::<Vec<_>>());
        let buckets = series.by_magnitude(i64::MIN..=i64::MAX, 600);
        assert_eq!((buckets[0].count, buckets[0].last.step), (1, 0));
        for (from, to) in [(1, 10), (100, 1000), (100_000, 1_000_000)] {
            let within = buckets.iter().filter(|bucket| (from..to).contains(&bucket.first.step)).count();
            assert!(if from == 1 { within == 9 } else { (99..=101).contains(&within) }, "{within} from {from} to {to}");
        }
    }

    #[test]
    fn a_later_attempt_takes_the_place_of_what_it_writes_again() {
        let mut series = series(&[(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (1, 20.0), (2, 30.0)]);
        assert_eq!(visible_steps(&series), [0, 1, 2]);
        assert_eq!(series.get(5).attempt, 1);
        assert_eq!(series.points().count(), 6, "nothing is lost");
        series.restart(2, 2);
        assert_eq!(visible_steps(&series), [0, 1], "a start hides what comes after it at once");
        series.push(Point { step: 2, wall_time: 9.0, value: 300.0, attempt: 2 });
        assert_eq!(visible_steps(&series), [0, 1, 2]);
        assert_eq!(series.last().map(|point| (point.value, point.attempt)), Some((300.0, 2)));
    }

    #[test]
    fn nothing_is_rounded() {
        let values = [0.1_f32.into(), 0.1, 1e300, f64::from(f32::MAX), f64::MIN_POSITIVE];
        let steps = [0, 5, i64::from(u32::MAX), i64::MAX, i64::MAX];
        let series = series(&steps.into_iter().zip(values).collect::<Vec<_>>());
        assert_eq!(series.points().map(|point| point.value).collect::<Vec<_>>(), values);
        assert_eq!(series.points().map(|point| point.step).collect::<Vec<_>>(), steps);
        let buckets = series.by_step(i64::MIN..=i64::MAX, 10);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<usize>(), 5, "up to the greatest step there is");
    }

    #[test]
    fn what_is_not_finite_is_told_apart() {
        let series = series(&[(1, 1.0), (2, f64::NAN), (3, 2.0), (4, f64::INFINITY)]);
        let nonfinite: Vec<_> = series.nonfinite().map(|point| point.step).collect();
        assert_eq!(nonfinite, [2, 4]);
        let [bucket] = series.by_step(0..=10, 1)[..] else { panic!("one bucket") };
        let range = bucket.range.unwrap();
        assert_eq!((bucket.count, range.min.value, range.max.value, range.mean), (4, 1.0, 2.0, 1.5));
        assert_eq!(self::series(&[(1, f64::NAN)]).by_step(0..=1, 5)[0].range, None);
    }

    /// Generates steps that mostly grow, with late steps and restarts, none below the first, and values of every kind.
    fn points() -> impl Strategy<Value = Vec<(i64, f64)>> {
        let value = prop_oneof![8 => -10.0..10.0, 1 => Just(f64::NAN), 1 => Just(f64::NEG_INFINITY)];
        let growth = prop_oneof![60 => 0_i64..9, 6 => -12_i64..0, 1 => -900_i64..-100];
        proptest::collection::vec((growth, value), 1..800).prop_map(|moves| {
            let mut step = 0;
            let first = (0, 1.0);
            let add = |(growth, value): (i64, f64)| {
                step = (step + growth).max(0);
                (step, value)
            };
            std::iter::once(first).chain(moves.into_iter().map(add)).collect()
        })
    }

    /// The points that are visible, in the order of their steps.
    fn visible_by_hand(points: &[(i64, f64)]) -> Vec<(i64, f64)> {
        let mut kept: Vec<(i64, f64)> = Vec::new();
        // How many of the first ones were there when the stretch began that is being written.
        let mut before = 0;
        for (step, value) in points {
            let place = kept.partition_point(|(other, _)| other <= step);
            let is_there = place > 0 && kept[place - 1].0 == *step;
            let late = kept.len() - place;
            if late == 0 || !is_there && late <= 64 && place >= before {
                kept.insert(place, (*step, *value));
            } else {
                // Written again, or too far back.
                kept.retain(|(other, _)| other < step);
                before = kept.len();
                kept.push((*step, *value));
            }
        }
        kept
    }

    proptest! {
        #[test]
        fn buckets_are_what_counting_says(points in points(), count in 1_usize..50, from in -60_i64..500, width in 0_i64..1000) {
            let series = series(&points);
            let to = from + width;
            let expected: Vec<_> =
                visible_by_hand(&points).into_iter().filter(|(step, _)| (from..=to).contains(step)).collect();
            let buckets = series.by_step(from..=to, count);
            prop_assert!(buckets.len() <= count);
            prop_assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<usize>(), expected.len());
            let mut rest = &expected[..];
            for bucket in buckets {
                let (here, others) = rest.split_at(bucket.count);
                rest = others;
                prop_assert_eq!(bucket.first.step, here[0].0);
                prop_assert_eq!(bucket.last.step, here[here.len() - 1].0);
                let finite: Vec<f64> = here.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
                prop_assert_eq!(bucket.range.is_none(), finite.is_empty());
                let Some(range) = bucket.range else { continue };
                prop_assert_eq!(range.min.value, finite.iter().copied().fold(f64::INFINITY, f64::min));
                prop_assert_eq!(range.max.value, finite.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let mean = finite.iter().sum::<f64>() / f64::from(u32::try_from(finite.len()).unwrap());
                prop_assert!((range.mean - mean).abs() < 1e-9);
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn on_a_logarithmic_axis_nothing_is_lost(points in points(), count in 1_usize..50, from in -60_i64..500, width in 0_i64..1000) {
            let series = series(&points);
            let to = from + width;
            let expected = visible_by_hand(&points).into_iter().filter(|(step, _)| (from..=to).contains(step)).count();
            let buckets = series.by_magnitude(from..=to, count);
            prop_assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<usize>(), expected);
            prop_assert!(buckets.is_sorted_by(|one, next| one.last.step < next.first.step));
            prop_assert!(buckets.iter().all(|bucket| (bucket.first.step <= 0) == (bucket.last.step <= 0)));
        }

        #[test]
        fn by_wall_time_nothing_is_lost_either(points in points(), count in 1_usize..50) {
            let series = series(&points);
            let end = f64::from(u32::try_from(points.len()).unwrap());
            let buckets = series.by(|index| Some(series.get(index).wall_time), 0.0..end, count);
            prop_assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<usize>(), visible_by_hand(&points).len());
        }
    }
}
