//! What a loop did, to be printed and to be checked.

use std::fmt;
use std::time::Duration;

use super::{End, Plan};
use crate::Error;

/// What a crash loop did. `Display` writes one block of lines.
#[derive(Clone, Debug)]
pub struct Report {
    name: String,
    seed: u64,
    lasted: Duration,
    points: Vec<PointReport>,
    at_random: u32,
    finished: u32,
}

/// What happened at one fail point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointReport {
    /// The fail point's name.
    pub name: String,
    /// How many lives ended there.
    pub kills: u32,
    /// How many lives were to end there and did not come there in time.
    pub missed: u32,
    /// How many lives were to end there and finished before.
    pub finished: u32,
}

impl Report {
    pub(super) fn new<'n>(name: &str, seed: u64, points: impl Iterator<Item = &'n str>) -> Report {
        Report {
            name: name.to_owned(),
            seed,
            lasted: Duration::ZERO,
            points: points
                .map(|name| PointReport { name: name.to_owned(), kills: 0, missed: 0, finished: 0 })
                .collect(),
            at_random: 0,
            finished: 0,
        }
    }

    pub(super) fn count(&mut self, plan: &Plan, end: End) {
        let point = self.points.iter_mut().find(|point| plan.point() == Some(&point.name));
        match (end, point) {
            (End::AtPoint, Some(point)) => point.kills += 1,
            (End::Missed, Some(point)) => point.missed += 1,
            (End::Finished, point) => {
                self.finished += 1;
                if let Some(point) = point {
                    point.finished += 1;
                }
            }
            _ => self.at_random += 1,
        }
    }

    pub(super) fn lasted(&mut self, lasted: Duration) {
        self.lasted = lasted;
    }

    /// Returns the seed that replays the loop.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns what happened at each fail point, in the order in which they were given.
    #[must_use]
    pub fn points(&self) -> &[PointReport] {
        &self.points
    }

    /// Returns how many lives were ended at a random moment.
    #[must_use]
    pub fn at_random(&self) -> u32 {
        self.at_random
    }

    /// Returns how many lives ended by themselves, with success.
    #[must_use]
    pub fn finished(&self) -> u32 {
        self.finished
    }

    /// Returns how many lives were to end at a fail point and did not come there in time. They were killed, too.
    #[must_use]
    pub fn missed(&self) -> u32 {
        self.points.iter().map(|point| point.missed).sum()
    }

    /// Returns how many lives were killed, wherever.
    #[must_use]
    pub fn kills(&self) -> u32 {
        self.at_random + self.missed() + self.points.iter().map(|point| point.kills).sum::<u32>()
    }

    /// Returns how many lives there were.
    #[must_use]
    pub fn lives(&self) -> u32 {
        self.kills() + self.finished
    }

    /// Checks that at least one life ended at each fail point.
    ///
    /// # Errors
    ///
    /// [`Error::NotCovered`] with the names of the others: the child does not pass them, or there is no such point in
    /// it.
    pub fn covered(&self) -> Result<(), Error> {
        let never = self.points.iter().filter(|point| point.kills == 0);
        let points: Vec<String> = never.map(|point| point.name.clone()).collect();
        match points.is_empty() {
            true => Ok(()),
            false => Err(Error::NotCovered { crash_loop: self.name.clone(), points, seed: self.seed }),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "crash loop {}: {} kills in {:.1} s, LEVADA_SEED={}",
            self.name,
            self.kills(),
            self.lasted.as_secs_f64(),
            self.seed
        )?;
        let words = ["at random moments", "missed", "finished"];
        let names = self.points.iter().map(|point| point.name.as_str());
        let width = names.chain(words).map(str::len).max().unwrap_or(0);
        for point in &self.points {
            let note = if point.kills == 0 { "  NEVER" } else { "" };
            write!(f, "\n  {:width$} {:>6}{note}", point.name, point.kills)?;
        }
        for (word, count) in words.iter().zip([self.at_random, self.missed(), self.finished]) {
            write!(f, "\n  {word:width$} {count:>6}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{End, Plan, Report};

    /// [TST-10]
    #[test]
    fn a_report_shows_kills_and_names_the_points_without_one() {
        let mut report = Report::new("sink", 42, ["commit::before", "commit::after"].into_iter());
        let at = |point: &str| Plan::AtPoint { point: point.to_owned(), passing: 3 };
        report.count(&at("commit::before"), End::AtPoint);
        report.count(&at("commit::before"), End::AtPoint);
        report.count(&at("commit::after"), End::Missed);
        report.count(&at("commit::after"), End::Finished);
        report.count(&Plan::AtMoment { after: Duration::ZERO }, End::AtMoment);
        report.lasted(Duration::from_millis(1520));
        assert_eq!(
            report.to_string(),
            "crash loop sink: 4 kills in 1.5 s, LEVADA_SEED=42\n  \
             commit::before         2\n  \
             commit::after          0  NEVER\n  \
             at random moments      1\n  \
             missed                 1\n  \
             finished               1"
        );
        assert_eq!((report.kills(), report.lives()), (4, 5));
        let error = report.covered().expect_err("one point has no kill").to_string();
        assert!(error.contains("commit::after") && !error.contains("commit::before"), "{error}");
        report.count(&at("commit::after"), End::AtPoint);
        report.covered().expect("every point has one");
    }
}
