//! Numbers to write, for the recipes that are about sinks.

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{
    CheckpointId, ErrorClass, ListState, SourceContext, SourceError, Spread, State, Timestamp,
};

/// Counts from 0, and goes on behind the last checkpoint. For one subtask; `resettable_counting_source.rs` is the
/// recipe for several.
///
/// Number n is of second n, and a watermark follows each, unless fewer are asked for.
#[derive(Debug)]
pub struct Numbers {
    next: u64,
    end: u64,
    watermark_every: u64,
}

impl Numbers {
    /// Counts up to `end` and does not emit it.
    pub fn up_to(end: u64) -> Self {
        Self { next: 0, end, watermark_every: 1 }
    }

    /// Has a watermark follow each `every`th number only; at least each 1st.
    #[must_use]
    pub fn watermark_every(self, every: u64) -> Self {
        Self { watermark_every: every.max(1), ..self }
    }
}

impl SourceFunction for Numbers {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        if ctx.parallelism > 1 {
            return Err(SourceError::new(ErrorClass::Fatal, "these numbers are for one subtask"));
        }
        if let Some(stored) = restored.get("next") {
            self.next = stored.values()?.into_iter().max().unwrap_or_default();
        }
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        if self.next >= self.end {
            return Ok(Next::End);
        }
        let second =
            Timestamp(i64::try_from(self.next).map_or(i64::MAX, |second| second.saturating_mul(1000)));
        out.record_at(self.next, second);
        self.next += 1;
        if self.next.is_multiple_of(self.watermark_every) {
            out.watermark(second);
        }
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        State::new().with("next", ListState::of(Spread::Split, [self.next]))
    }
}
