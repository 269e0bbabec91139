//! Two-phase commit as a job of the suite.

use std::time::Duration;

use levada_core::template::TwoPhaseCommitSink;
use levada_core::{CheckpointId, SinkContext};
use levada_engine::driver::{Decision, JobRecovery, Retry, TwoPhaseDriver, TwoPhaseOptions};

use super::TwoPhaseTarget;
use super::wrapped::Wrapped;
use crate::failure::Finding;
use crate::fuse::Fuse;
use crate::job::{Complete, Kind};
use crate::ledger::Ledger;
use crate::numbers::Range;

pub(super) struct TwoPhase<'a, T>(pub(super) &'a T);

fn options() -> TwoPhaseOptions {
    let retry =
        Retry { first_pause: Duration::from_millis(5), longest_pause: Duration::from_secs(2), attempts: 12 };
    TwoPhaseOptions { retry, ..TwoPhaseOptions::default() }
}

/// Reads what is visible of a history.
pub(super) async fn seen<T: TwoPhaseTarget>(target: &T, range: Range) -> Result<Vec<u64>, Finding> {
    Ok(range.records(target.visible().await.map_err(Finding::Target)?))
}

/// Checks that nothing waits in the target any more.
pub(super) async fn check_left_over<T: TwoPhaseTarget>(target: &T) -> Result<(), Finding> {
    match target.left_over().await.map_err(Finding::Target)? {
        Some(names) if !names.is_empty() && target.fences() => Err(Finding::LeftOver { names }),
        _ => Ok(()),
    }
}

impl<T: TwoPhaseTarget> Kind for TwoPhase<'_, T> {
    type Item = T::Item;
    type Driver = TwoPhaseDriver<T::Item, Wrapped<T::Sink>>;
    type Coordinator = Option<Wrapped<T::Sink>>;

    const OPENING_PUBLISHES: bool = true;

    fn start(&self, fuse: &Fuse, parallelism: u32) -> (Self::Coordinator, Vec<Self::Driver>) {
        let sinks = self.0.sinks(parallelism + 1).into_iter();
        let mut sinks = sinks.map(|sink| Wrapped { sink, fuse: fuse.clone() });
        let drivers = sinks.by_ref().take(parallelism as usize);
        let drivers = drivers.map(|sink| TwoPhaseDriver::new(sink, options())).collect();
        (sinks.next(), drivers)
    }

    fn item(&self, number: u64) -> T::Item {
        self.0.item(number)
    }

    async fn recover(
        &self,
        coordinator: Self::Coordinator,
        ctx: SinkContext,
        first: CheckpointId,
        complete: &[Complete],
    ) -> Result<(), Finding> {
        let Some(mut sink) = coordinator else {
            return Err(Finding::answer("one sink more than subtasks", "a sink", "none"));
        };
        let newest = complete.last();
        let previous = complete.len().checked_sub(2).map(|at| complete[at].checkpoint);
        let states = newest.map_or(&[][..], |newest| &newest.states);
        let recovery = JobRecovery::read(states);
        let recovery = recovery.map_err(|error| Finding::refused("read a handle back", error))?;
        sink.open(ctx).await.map_err(|error| Finding::refused("open for the coordinator", error))?;
        let decision = recovery.inspect(&mut sink, previous).await;
        let decision = decision.map_err(Finding::driver("inspect the transactions of a checkpoint"))?;
        if decision != Decision::CommitAll {
            return Err(Finding::answer(
                "the fates of transactions that are not lost",
                Decision::CommitAll,
                decision,
            ));
        }
        let fenced = recovery.fence(&mut sink, first, newest.map(|newest| newest.checkpoint)).await;
        fenced.map_err(Finding::driver("fence earlier attempts"))?;
        sink.close().await;
        Ok(())
    }

    async fn check(&self, range: Range, ledger: &Ledger) -> Result<(), Finding> {
        let seen = seen(self.0, range).await?;
        Ledger::check_once(&seen)?;
        ledger.check_bounds(&seen)?;
        if self.0.keeps_order() { ledger.check_order(&seen) } else { Ok(()) }
    }

    async fn check_end(&self) -> Result<(), Finding> {
        check_left_over(self.0).await
    }
}
