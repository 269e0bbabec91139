//! Where the histories of one scenario are played, each as a job of its own.

use crate::failure::{Failure, Finding};
use crate::fuse::{Fuse, SIDES, Side};
use crate::history::{Event, Histories, drawn};
use crate::job::{Job, Kind};
use crate::numbers::Range;

/// Histories of one scenario are numbered below this.
const HISTORIES: u64 = 1 << 20;

/// Gives each history of a scenario a job and numbers that no other has.
#[derive(Debug)]
pub(crate) struct Stage {
    scenario: &'static str,
    next: u64,
}

impl Stage {
    /// `all` are the scenarios of the template: they may be played on one target.
    pub(crate) fn new(scenario: &'static str, all: &[&str]) -> Self {
        let place = all.iter().position(|name| *name == scenario);
        debug_assert!(place.is_some(), "{scenario} is not in the list of its template");
        let place = place.unwrap_or(all.len());
        Self { scenario, next: place as u64 * HISTORIES }
    }

    pub(crate) fn next(&mut self) -> (String, Range) {
        let number = self.next;
        self.next += 1;
        // Short, because systems limit the length of names: the scenario's number and the history's.
        (format!("conformance{}x{}", number / HISTORIES, number % HISTORIES), Range::nth(number))
    }

    pub(crate) fn failure(&self, fuse: &Fuse, seed: Option<u64>, finding: Finding) -> Failure {
        Failure::new(self.scenario, seed, fuse.trail(), finding)
    }

    /// Plays one history; returns whether a process has died at a call of its sink.
    pub(crate) async fn play<K: Kind>(
        &mut self,
        kind: &K,
        parallelism: u32,
        events: &[Event],
    ) -> Result<bool, Failure> {
        self.play_seeded(kind, parallelism, events, None).await
    }

    async fn play_seeded<K: Kind>(
        &mut self,
        kind: &K,
        parallelism: u32,
        events: &[Event],
        seed: Option<u64>,
    ) -> Result<bool, Failure> {
        let (name, range) = self.next();
        let mut job = Job::new(kind, name, range, parallelism);
        let played = Box::pin(job.play(events)).await;
        played.map_err(|finding| self.failure(&job.fuse, seed, finding))?;
        Ok(job.fuse.has_burnt())
    }

    /// Plays a history once for each call in it, and for each side of that call, with the process dying there.
    pub(crate) async fn play_with_every_death<K, F>(
        &mut self,
        kind: impl Fn() -> K,
        parallelism: u32,
        history: F,
    ) -> Result<(), Failure>
    where
        K: Kind,
        F: Fn(u32, Side) -> Vec<Event>,
    {
        for side in SIDES {
            for calls in 0.. {
                if !self.play(&kind(), parallelism, &history(calls, side)).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Plays a history once with a crash between each two events, and once for each death in a call.
    pub(crate) async fn play_with_every_crash<K: Kind>(
        &mut self,
        kind: impl Fn() -> K,
        parallelism: u32,
        history: &[Event],
    ) -> Result<(), Failure> {
        for at in 0..=history.len() {
            let (before, behind) = history.split_at(at);
            let events = [before, &[Event::Crash(parallelism)], behind].concat();
            self.play(&kind(), parallelism, &events).await?;
        }
        let dying = |calls, side| [&[Event::Light(calls, side)], history].concat();
        self.play_with_every_death(kind, parallelism, dying).await
    }

    pub(crate) async fn play_random<K: Kind>(
        &mut self,
        kind: impl Fn() -> K,
        histories: Histories,
    ) -> Result<(), Failure> {
        for seed in histories.seeds() {
            let (parallelism, events) = drawn(seed);
            self.play_seeded(&kind(), parallelism, &events, Some(seed)).await?;
        }
        Ok(())
    }

    /// Runs a scenario that is no history.
    pub(crate) async fn run(
        mut self,
        scenario: impl AsyncFnOnce(Fuse, String, Range) -> Result<(), Finding>,
    ) -> Result<(), Failure> {
        let (name, range) = self.next();
        let fuse = Fuse::default();
        let ran = Box::pin(scenario(fuse.clone(), name, range)).await;
        ran.map_err(|finding| self.failure(&fuse, None, finding))
    }
}
