//! The step behind which records have a time.

use levada_core::time::WatermarkStrategy;
use levada_core::{Batch, StreamElement};

use super::event::{TimeEvent, Wanted};
use super::keeper::{Keeper, TimeContext};
use super::ticks::TimeTerms;
use crate::map::{Chain, Produced};

/// A chain with time behind it.
pub(crate) struct Timed<I, T> {
    before: Box<dyn Chain<I, T>>,
    strategy: WatermarkStrategy<T>,
    /// Whether the source's own word is all there is.
    is_own: bool,
    /// There from [`Chain::begin_time`] on, which comes first.
    keeper: Option<Keeper<T>>,
}

impl<I, T: 'static> Timed<I, T> {
    /// Keeps time as `strategy` says.
    pub(crate) fn by(strategy: WatermarkStrategy<T>, before: Box<dyn Chain<I, T>>) -> Self {
        Self { before, strategy, is_own: false, keeper: None }
    }

    /// Merges what the source itself says of its splits.
    pub(crate) fn own(before: Box<dyn Chain<I, T>>) -> Self {
        Self { before, strategy: WatermarkStrategy::none(), is_own: true, keeper: None }
    }
}

impl<I: Send, T: Send + 'static> Chain<I, T> for Timed<I, T> {
    fn process(&mut self, batch: Batch<I>) -> Produced<T> {
        let before = self.before.process(batch);
        let Some(keeper) = &mut self.keeper else { return before };
        let mut produced = Produced { tally: before.tally, failure: before.failure, ..Produced::new() };
        for element in before.elements {
            match element {
                StreamElement::Batch(batch) if produced.failure.is_none() => {
                    keeper.batch(batch, &mut produced)
                }
                StreamElement::Batch(_) => {}
                other => produced.elements.push(other),
            }
        }
        produced
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        self.keeper = Some(Keeper::new(self.strategy.clone(), self.is_own, ctx));
        Some(TimeTerms { interval: (!self.is_own).then(|| self.strategy.interval()) })
    }

    fn time(&mut self, event: TimeEvent, wanted: &mut Wanted) -> Produced<T> {
        let mut produced = Produced::new();
        if let Some(keeper) = &mut self.keeper {
            keeper.event(event, wanted, &mut produced);
        }
        produced
    }
}
