//! Which plan comes next: the schedule's, or one for a point that nobody was killed at so far.

use super::plan::{Plan, Point};
use super::report::Report;
use super::schedule::Schedule;

/// The part of the loop after which points without a kill come first.
const MIDDLE: f64 = 0.5;
/// How far a loop may go beyond its end for the sake of such points: as long again.
const LAST_END: f64 = 2.0;

/// Chooses plans. What it adds to the schedule takes nothing away from it, so the schedule's plans keep their order in
/// every run of a seed.
#[derive(Debug)]
pub(super) struct Choice {
    schedule: Schedule,
    points: Vec<Point>,
    /// Whether the last plan was for a point owed.
    was_owed: bool,
}

impl Choice {
    pub(super) fn new(schedule: Schedule, points: Vec<Point>) -> Choice {
        Choice { schedule, points, was_owed: false }
    }

    /// Returns the next plan; `None` at the end. `progress` is 1 when the loop has had its time.
    pub(super) fn next(&mut self, progress: f64, report: &Report) -> Option<Plan> {
        let owed = self.owed(progress, report);
        self.was_owed = owed.is_some();
        match owed {
            Some(owed) => Some(owed),
            None if progress < 1.0 => self.schedule.next(),
            None => None,
        }
    }

    /// Returns a plan for a point without a kill, if it is time for one: the point that was tried least, at its first
    /// passing.
    ///
    /// Before the end a point that was tried in vain has every second life only: it may be one that the child never passes,
    /// and the others shall not go short for it.
    fn owed(&self, progress: f64, report: &Report) -> Option<Plan> {
        if !(MIDDLE..LAST_END).contains(&progress) {
            return None;
        }
        let standings = self.points.iter().zip(report.points());
        let (point, tried) = standings
            .filter(|(_, standing)| standing.kills == 0)
            .map(|(point, standing)| (point, standing.missed + standing.finished))
            .min_by_key(|(point, tried)| (*tried, !point.needs_action))?;
        let has_its_turn = tried == 0 || progress >= 1.0 || !self.was_owed;
        has_its_turn.then(|| Plan::AtPoint { point: point.name.clone(), passing: point.first_passing() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::outcome::End;
    use super::super::plan::{Plan, Point};
    use super::super::report::Report;
    use super::super::schedule::Schedule;
    use super::Choice;

    fn scene() -> (Choice, Report) {
        let point = |name: &str, needs_action| Point { name: name.to_owned(), passings: 1..=9, needs_action };
        let points = vec![point("a", false), point("b", false), point("staged", true)];
        let moments = Duration::from_millis(1)..=Duration::from_millis(2);
        let schedule = Schedule::new(1, "loop", &points, &moments, 0.5);
        let report = Report::new("loop", 1, points.iter().map(|point| point.name.as_str()));
        (Choice::new(schedule, points), report)
    }

    fn at(point: &str) -> Plan {
        Plan::AtPoint { point: point.to_owned(), passing: 1 }
    }

    /// [TST-10]
    #[test]
    fn a_point_that_needs_an_action_comes_first_in_the_middle() {
        let (mut choice, mut report) = scene();
        for _ in 0..20 {
            assert_ne!(choice.next(0.49, &report).expect("a plan").point(), Some("staged"));
        }
        report.count(&at("a"), End::AtPoint);
        report.count(&at("b"), End::AtPoint);
        assert_eq!(choice.next(0.5, &report), Some(at("staged")));
        report.count(&at("staged"), End::AtPoint);
        assert!(choice.next(0.51, &report).is_some());
        assert_eq!(choice.next(1.0, &report), None, "nobody is owed");
    }

    /// [TST-10] Else a point that a child never passes before it finishes has every life of the second half.
    #[test]
    fn a_life_that_finishes_before_its_point_has_tried_it() {
        let (mut choice, mut report) = scene();
        report.count(&at("staged"), End::AtPoint);
        assert_eq!(choice.next(0.6, &report), Some(at("a")));
        report.count(&at("a"), End::Finished);
        assert_eq!(choice.next(0.6, &report), Some(at("b")));
        report.count(&at("b"), End::AtPoint);
        let lives: Vec<Option<Plan>> = (0..6).map(|_| choice.next(0.7, &report)).collect();
        assert!(lives.iter().any(|plan| *plan != Some(at("a"))), "{lives:?}");
    }

    /// [TST-10]
    #[test]
    fn points_without_a_kill_come_first_in_the_second_half_and_beyond_the_end() {
        let (mut choice, mut report) = scene();
        report.count(&at("staged"), End::AtPoint);
        report.count(&at("a"), End::AtPoint);
        assert_eq!(choice.next(0.6, &report), Some(at("b")));
        report.count(&at("b"), End::Missed);
        let lives: Vec<Option<Plan>> = (0..6).map(|_| choice.next(0.7, &report)).collect();
        let owed = lives.iter().filter(|plan| **plan == Some(at("b"))).count();
        assert!(owed >= 3 && lives.windows(2).any(|pair| pair[0] != pair[1]), "{lives:?}");
        assert_eq!(choice.next(1.5, &report), Some(at("b")));
        assert_eq!(choice.next(1.6, &report), Some(at("b")));
        assert_eq!(choice.next(2.0, &report), None, "there is an end to it");
    }
}
