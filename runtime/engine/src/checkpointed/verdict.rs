//! What becomes of a checkpoint whose sinks were inspected.

use std::fmt;

use levada_core::CheckpointId;
use levada_core::template::Fate;
use thiserror::Error;

use super::sink_part::FoundTransaction;
use crate::driver::{Decision, decide};

/// What one sink was found to have pending.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InspectedSink {
    /// The sink.
    pub uid: String,
    /// Its transactions.
    pub transactions: Vec<FoundTransaction>,
}

/// Prints the sink, what is gone or unknown with handles and records, and how much of the rest there is.
impl fmt::Display for InspectedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink {:?}:", self.uid)?;
        for FoundTransaction { name, checkpoint, records, fate, .. } in &self.transactions {
            let fate = match fate {
                Fate::Pending => "waits",
                Fate::Expiring => "waits, but too near its timeout",
                Fate::Committed => "is visible",
                Fate::Aborted => "is gone",
                _ => "is unknown to the target",
            };
            write!(f, " {name} ({records} records of checkpoint {checkpoint}) {fate},")?;
        }
        match self.transactions.is_empty() {
            true => f.write_str(" nothing"),
            false => Ok(()),
        }
    }
}

fn list(sinks: &[InspectedSink]) -> String {
    sinks.iter().map(|sink| sink.to_string().trim_end_matches(',').to_owned()).collect::<Vec<_>>().join("; ")
}

/// A start cannot be decided without a human. Nothing was committed, dropped or fenced.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// Some records of the checkpoint are visible and others gone for good.
    #[error(
        "checkpoint {checkpoint} is torn: {}. Start from checkpoint {} with a replay allowed to publish the visible ones again, \
         or let the sink continue after a loss to do without those that are gone",
        list(.sinks), .previous.map_or("none".to_owned(), |id| id.to_string())
    )]
    Torn {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The one before it.
        previous: Option<CheckpointId>,
        /// What was found.
        sinks: Vec<InspectedSink>,
    },
    /// The target does not tell what became of some transactions, and the others do not, either.
    #[error(
        "what became of checkpoint {checkpoint} is unknown: {}. Find it out in the target; then start from checkpoint {} with a \
         replay allowed if nothing of it is visible, or let the sink continue after a loss if it is gone and may be",
        list(.sinks), .previous.map_or("none".to_owned(), |id| id.to_string())
    )]
    Unknown {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The one before it.
        previous: Option<CheckpointId>,
        /// What was found.
        sinks: Vec<InspectedSink>,
    },
    /// The checkpoint would have to be rolled back, and there is none before it.
    #[error(
        "checkpoint {checkpoint} must be rolled back, and none is before it: {}. Allow a fresh start to read from where the \
         sources begin",
        list(.sinks)
    )]
    NothingBefore {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What was found.
        sinks: Vec<InspectedSink>,
    },
    /// Something that was to be dropped has become visible.
    #[error(
        "checkpoint {checkpoint} is rolled back, and yet some of it is visible: {}. Allow a replay to publish it again",
        list(.sinks)
    )]
    VisibleAfterAll {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What is visible.
        sinks: Vec<InspectedSink>,
    },
}

/// How a start goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// From this checkpoint. What is gone, if anything, may be by the sinks' policy.
    GoOn,
    /// From the one before.
    RollBack { to: Option<CheckpointId> },
    /// Not at all.
    Stop(RecoveryError),
}

/// Decides once over all sinks together.
pub(super) fn judge(
    checkpoint: CheckpointId,
    previous: Option<CheckpointId>,
    sinks: Vec<InspectedSink>,
    allow_fresh: bool,
) -> Verdict {
    let all = || sinks.iter().flat_map(|sink| &sink.transactions);
    let fates: Vec<_> = all().map(|found| (found.checkpoint, found.fate)).collect();
    let may_be_lost = || {
        all()
            .filter(|found| !matches!(found.fate, Fate::Pending | Fate::Committed))
            .all(|found| found.is_loss_tolerated)
    };
    let stop = |error| Verdict::Stop(error);
    match decide(&fates, previous) {
        Decision::CommitAll => Verdict::GoOn,
        // Nothing is lost and nothing doubled by it: better than a loss, also where that is tolerated.
        Decision::RollBack { to } if to.is_some() || allow_fresh => Verdict::RollBack { to },
        _ if may_be_lost() => Verdict::GoOn,
        Decision::RollBack { .. } => stop(RecoveryError::NothingBefore { checkpoint, sinks }),
        Decision::Torn { .. } => stop(RecoveryError::Torn { checkpoint, previous, sinks }),
        // Unknown, or what this version does not know.
        _ => stop(RecoveryError::Unknown { checkpoint, previous, sinks }),
    }
}
