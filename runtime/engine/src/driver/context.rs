//! What a driver is told when it is opened.

use std::sync::Arc;

use levada_core::{CheckpointId, Clock, SinkContext, State};

use super::error::DriverError;

/// Who a driver is, and its clock.
#[derive(Debug, Clone)]
pub struct DriverContext {
    /// The job and the subtask.
    pub sink: SinkContext,
    /// The sink's uid: the same in every run of the job.
    pub uid: String,
    /// The first checkpoint that may follow. Transactions are named by it, so it must be above every id that an earlier
    /// opening was given or has seen, also when the process is still the same.
    pub first: CheckpointId,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
}

/// What a checkpoint held for a subtask, dealt out for today's parallelism.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// This subtask's share. Empty lists are legal: there may be more subtasks than before.
    pub state: State,
}

/// Where a driver stands between open and close.
#[derive(Debug, Default)]
pub(super) struct Stage {
    opened: Option<DriverContext>,
    last_barrier: Option<CheckpointId>,
    is_finished: bool,
    /// The first barrier behind the end. It covers every record.
    final_barrier: Option<CheckpointId>,
}

impl Stage {
    pub(super) fn open(&mut self, ctx: DriverContext) {
        self.opened = Some(ctx);
    }

    pub(super) fn context(&self) -> Result<&DriverContext, DriverError> {
        self.opened.as_ref().ok_or(DriverError::NotOpen)
    }

    /// Checks that a record may come.
    pub(super) fn writing(&self) -> Result<&DriverContext, DriverError> {
        if self.is_finished {
            return Err(DriverError::AfterFinish);
        }
        self.context()
    }

    /// Notes a barrier, whose id must be above the last one.
    pub(super) fn barrier(&mut self, checkpoint: CheckpointId) -> Result<(), DriverError> {
        let lowest = self.next_checkpoint()?;
        if checkpoint < lowest {
            return Err(DriverError::OutOfOrder { found: checkpoint, lowest });
        }
        self.last_barrier = Some(checkpoint);
        if self.is_finished && self.final_barrier.is_none() {
            self.final_barrier = Some(checkpoint);
        }
        Ok(())
    }

    /// Returns the lowest id that the next barrier can have.
    pub(super) fn next_checkpoint(&self) -> Result<CheckpointId, DriverError> {
        let first = self.context()?.first;
        Ok(self.last_barrier.map_or(first, CheckpointId::next))
    }

    pub(super) fn last_barrier(&self) -> Option<CheckpointId> {
        self.last_barrier
    }

    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Tells whether a complete checkpoint covers everything that will ever come.
    pub(super) fn is_final(&self, checkpoint: CheckpointId) -> bool {
        self.final_barrier.is_some_and(|last| last <= checkpoint)
    }
}
