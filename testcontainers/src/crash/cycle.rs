//! The loop itself.

use std::process::Command;
use std::time::{Duration, Instant};

use super::builder::Length;
use super::choice::Choice;
use super::outcome::judge;
use super::schedule::Schedule;
use super::{CrashLoop, End, Life, Plan, Report, seed};
use crate::Error;
use crate::process::DataFolder;

impl CrashLoop<'_> {
    /// Runs the loop. `start` makes the command of each life, whose number it is told, counted from 1.
    ///
    /// The command's standard input, output and error are replaced, and `LEVADA_KILL_AT` is set. The seed is printed on
    /// standard error; so are the report so far and the child's log when something is wrong with a life.
    ///
    /// # Errors
    ///
    /// [`Error::EndedByItself`] if a child ended in a way that it must not, [`Error::Complaint`] if the oracle or an
    /// action fails, and whatever keeps a child from being started. Points without a kill are no error here: see
    /// [`Report::covered`].
    pub fn run(mut self, mut start: impl FnMut(u32) -> Command) -> Result<Report, Error> {
        let seed = self.seed.map_or_else(seed::seed, Ok)?;
        eprintln!("crash loop {}: LEVADA_SEED={seed}", self.name);
        let folder = DataFolder::create("crash")?;
        let schedule = Schedule::new(seed, &self.name, &self.points, &self.moments, self.share_of_points);
        let mut report = Report::new(&self.name, seed, self.points.iter().map(|point| point.name.as_str()));
        let mut choice = Choice::new(schedule, self.points.clone());
        let begun = Instant::now();
        while let Some(plan) = choice.next(self.progress(begun.elapsed(), &report), &report) {
            let number = report.lives() + 1;
            let title = format!("life {number} of {}, {plan}, LEVADA_SEED={seed}", self.name);
            let mut life = Life::start(title, number, plan.clone(), start(number), folder.path())?;
            match self.live(&mut life) {
                Ok(end) => report.count(&plan, end),
                Err(error) => {
                    report.lasted(begun.elapsed());
                    eprintln!("{report}");
                    life.show_log();
                    return Err(error);
                }
            }
            life.forget();
        }
        report.lasted(begun.elapsed());
        Ok(report)
    }

    /// Sees a life through and asks the oracle.
    fn live(&mut self, life: &mut Life) -> Result<End, Error> {
        self.act(life)?;
        let patience = match life.plan() {
            Plan::AtPoint { .. } => self.patience,
            Plan::AtMoment { after } => *after,
        };
        let ended = life.ends_within(patience);
        let status = ended.map_or_else(|| life.kill(), Ok)?;
        let end = judge(life.plan(), status, ended.is_none(), life.has_last_words(), self.may_finish)
            .ok_or_else(|| life.ended_by_itself(status))?;
        if let Some(oracle) = &mut self.oracle {
            oracle(&life.outcome(end)).map_err(|source| life.complaint("the oracle", source))?;
        }
        Ok(end)
    }

    /// Runs the caller's action, if the life's point needs one.
    fn act(&mut self, life: &mut Life) -> Result<(), Error> {
        let mut actions = self.actions.iter_mut();
        match actions.find(|(point, _)| life.plan().point() == Some(point)) {
            Some((_, action)) => action(life).map_err(|source| life.complaint("the action", source)),
            None => Ok(()),
        }
    }

    /// Returns how much of the loop is over; more than 1 after its end.
    fn progress(&self, elapsed: Duration, report: &Report) -> f64 {
        match self.length {
            Length::Lasting(duration) => elapsed.as_secs_f64() / duration.as_secs_f64().max(f64::EPSILON),
            Length::Lives(lives) => f64::from(report.lives()) / f64::from(lives.max(1)),
        }
    }
}
