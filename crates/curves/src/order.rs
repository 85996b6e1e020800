//! Where a point goes whose step is lower than the one before it. Within one file the rule is that
//! of TensorBoard, which since version 2 of its files takes only a new file or a session's start
//! for a restart, and shows all other points. One case is added for programs without event files:
//! a step that is in the curve already, and is written again, begins another attempt.
//!
//! - The step is in the curve: a restart. What was written from there on is past, and kept.
//! - It is new, and lower than at most the last 64 points: it came late, as from several
//!   processes or a buffer, and is sorted in.
//! - It is lower than every other: a counter that overflowed, or a first value that was logged
//!   last. It is kept before the others and hides none of them.
//! - It falls back further, in between the steps of the curve: a restart.

use super::series::{Attempt, Point, Series};

/// A point that comes behind more points than these with higher steps is not late.
const LATE: usize = 64;

/// A curve of more stretches than these has no order: every further step back is a restart.
const MAX_STRETCHES: usize = 1000;

/// What a new point does to its curve.
#[derive(Debug)]
pub(super) enum Course {
    Append,
    /// The first of another stretch.
    Begin(Attempt),
    /// Before the point that is at this index.
    Insert(usize),
}

impl Series {
    /// Decides where a point goes. A start without points takes its step.
    pub(super) fn course(&mut self, point: &Point) -> Course {
        let (index, step) = (self.len(), point.step);
        let begin = |number, from, limit| Course::Begin(Attempt { number, begin: index, from, limit });
        let Some(last) = self.attempts.last_mut() else { return begin(point.attempt, step, None) };
        if last.begin == index {
            last.from = last.from.min(step);
            return Course::Append;
        }
        let last = *last;
        if last.number < point.attempt {
            return begin(point.attempt, step, None);
        }
        if self.steps.get(index - 1) <= step && last.limit.is_none_or(|limit| step < limit) {
            return Course::Append;
        }
        let restart = begin(last.number + 1, step, None);
        let place = self.steps.first_at(step, last.begin..index);
        let is_near = index - place <= LATE;
        if place < index {
            if self.steps.get(place) == step {
                return restart;
            }
            if last.begin < place && is_near {
                return Course::Insert(place);
            }
        }
        if MAX_STRETCHES < self.attempts.len() {
            return restart;
        }
        self.course_among_stretches(step, place, is_near).unwrap_or(restart)
    }

    /// The same where the other stretches must be looked at; `None` is a restart.
    fn course_among_stretches(&self, step: i64, place: usize, is_near: bool) -> Option<Course> {
        let last = self.attempts.last()?;
        let begin = |from, limit| Course::Begin(Attempt { number: last.number, begin: self.len(), from, limit });
        let visible = self.visible();
        let lowest = self.steps.get(visible.first()?.start);
        if self.steps.get(visible.last()?.end - 1) < step {
            // From a counter that had overflowed, back to the others.
            return Some(begin(step, None));
        }
        let is_first_of_last = is_near && place == last.begin;
        if step < lowest {
            let insert = is_first_of_last && visible.first()?.start == last.begin;
            return Some(if insert { Course::Insert(place) } else { begin(i64::MAX, Some(lowest)) });
        }
        // Between the others: new and late where all stretches but the last are before it.
        let before = visible.iter().rfind(|range| self.steps.get(range.start) <= step)?;
        let is_behind = self.steps.get(before.end - 1) < step;
        let is_next = visible.last()?.start == last.begin && before.start < last.begin;
        (is_first_of_last && is_behind && is_next && visible.iter().rev().nth(1) == Some(before))
            .then_some(Course::Insert(place))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(steps: impl IntoIterator<Item = i64>) -> Series {
        let mut series = Series::default();
        for (index, step) in steps.into_iter().enumerate() {
            let at = f64::from(u32::try_from(index).unwrap());
            series.push(Point { step, wall_time: at, value: at, attempt: 0 });
        }
        series
    }

    /// The steps that are shown, and how many attempts there are.
    fn shown(series: &Series) -> (Vec<i64>, usize) {
        (
            series.visible().into_iter().flatten().map(|index| series.get(index).step).collect(),
            series.attempts().count(),
        )
    }

    #[test]
    fn steps_out_of_order_are_sorted_in() {
        assert_eq!(shown(&series([0, 2, 1, 4, 3, 6, 5, 8, 7, 9])), ((0..10).collect(), 1));
        // Eight processes, each as far behind as its number.
        let of_eight = (0..400).flat_map(|round| (0..8).rev().map(move |process| round * 8 + process));
        assert_eq!(shown(&series(of_eight)), ((0..3200).collect(), 1));
        assert_eq!(shown(&series((0..50).rev())), ((0..50).collect(), 1), "a countdown");
        assert_eq!(shown(&series((0..5000).rev())), ((0..5000).collect(), 1), "a long one");
    }

    #[test]
    fn values_and_times_stay_with_their_steps() {
        let read = series((0..300).map(|index| if index % 3 == 2 { index * 2 - 5 } else { index * 2 }));
        let mut points: Vec<_> = read.points().map(|point| (point.step, point.wall_time, point.value)).collect();
        assert!(
            points.is_sorted_by_key(|(step, ..)| *step)
                && points.iter().all(|(_, time, value)| time.to_bits() == value.to_bits())
        );
        points.sort_by(|one, other| one.1.total_cmp(&other.1));
        assert_eq!(points.len(), 300);
        assert!(
            (0..300)
                .zip(&points)
                .all(|(index, (step, ..))| { *step == if index % 3 == 2 { index * 2 - 5 } else { index * 2 } })
        );
    }

    #[test]
    fn what_is_written_again_is_another_attempt() {
        assert_eq!(shown(&series((0..100).chain(50..60))), ((0..60).collect(), 2));
        assert_eq!(shown(&series((0..100).chain(50..60).chain(40..45))), ((0..45).collect(), 3));
        assert_eq!(shown(&series([0, 1, 2, 3, 1, 2])), (vec![0, 1, 2], 2), "also a few steps before");
        // Every tenth step, and from the middle on others.
        let uneven = (0..200).map(|step| step * 10).chain((100..110).map(|step| step * 10 + 5));
        let expected: Vec<i64> = (0..=100).map(|step| step * 10).chain((100..110).map(|step| step * 10 + 5)).collect();
        assert_eq!(shown(&series(uneven)), (expected, 2));
    }

    #[test]
    fn a_counter_that_overflows_hides_nothing() {
        let (most, least) = (i64::from(i32::MAX), i64::from(i32::MIN));
        let few = [most - 1, most, least, least + 1, least + 2];
        assert_eq!(shown(&series(few)), (vec![least, least + 1, least + 2, most - 1, most], 1));
        let many = (most - 999..=most).chain(least..least + 1000);
        assert_eq!(shown(&series(many)), ((least..least + 1000).chain(most - 999..=most).collect(), 1));
        // One wrong step among right ones.
        let one = (1..1000).chain([-5]).chain(1000..1100);
        assert_eq!(shown(&series(one)), ([-5].into_iter().chain(1..1100).collect(), 1));
        // One that comes up to the others writes them again.
        let back = (10..1000).chain(5..20);
        assert_eq!(shown(&series(back)), ((5..20).collect(), 2));
    }

    #[test]
    fn a_late_point_of_a_second_file_goes_before_its_first() {
        let mut read = series((0..10).map(|step| step * 10));
        for step in [95, 94, 96, 93] {
            read.push(Point { step, wall_time: 0.0, value: 0.0, attempt: 1 });
        }
        let expected = (0..10).map(|step| step * 10).chain([93, 94, 95, 96]).collect();
        assert_eq!(shown(&read), (expected, 2));
    }

    proptest! {
        #[test]
        fn whatever_the_steps_no_point_is_lost(
            steps in proptest::collection::vec(prop_oneof![4 => 0_i64..300, 1 => any::<i64>(), 1 => Just(i64::MIN), 1 => Just(i64::MAX)], 1..400),
            count in 1_usize..20,
        ) {
            let read = series(steps.iter().copied());
            // Each value is the place of its step in the order of writing.
            let mut values: Vec<f64> = read.points().map(|point| point.value).collect();
            values.sort_by(f64::total_cmp);
            prop_assert!(values.iter().zip(0_u32..).all(|(value, place)| value.to_bits() == f64::from(place).to_bits()));
            prop_assert_eq!(values.len(), steps.len());
            let (shown, _) = shown(&read);
            prop_assert!(shown.is_sorted() && shown.contains(steps.last().unwrap()));
            let counted: usize = read.by_step(i64::MIN..=i64::MAX, count).iter().map(|bucket| bucket.count).sum();
            prop_assert_eq!(counted, shown.len());
        }

        #[test]
        fn a_shuffled_window_is_the_same_curve(seed in any::<u64>(), width in 1_usize..60, count in 1_i64..1500) {
            let mut steps: Vec<i64> = (0..count).collect();
            let mut state = seed | 1;
            for window in steps.chunks_mut(width) {
                for at in (1..window.len()).rev() {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    window.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
                }
            }
            let read = series(steps.iter().copied());
            prop_assert_eq!(shown(&read), ((0..count).collect(), 1));
            let whole = read.by_step(i64::MIN..=i64::MAX, 1);
            let mean = whole[0].range.unwrap().mean;
            prop_assert!((mean - f64::from(i32::try_from(count - 1).unwrap()) / 2.0).abs() < 1e-6);
        }
    }
}
