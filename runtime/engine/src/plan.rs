//! The shape rule: which chains of stages can keep an atomic sink's promise.
//!
//! An atomic sink commits a split's rows and the split's position in one transaction, so both must be written by the
//! same subtask: the sink is chained one to one with its source subtask. Pure; checked before anything starts.

use std::fmt;

use thiserror::Error;

/// What a stage does to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageKind {
    /// Reads records.
    Source,
    /// Turns one record into any number, in the same subtask.
    Map,
    /// Gives records their time, in the subtask of the source.
    Watermarks,
    /// Sends records to other subtasks by key.
    Exchange,
    /// Sends each record on or into a branch; the branch's stages follow.
    SideOutput,
    /// Sends each record on and into a branch; the branch's stages follow.
    Tee,
    /// Commits rows and source positions together.
    AtomicSink,
    /// Commits by checkpoints of a store.
    CheckpointedSink,
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StageKind::Source => "source",
            StageKind::Map => "map",
            StageKind::Watermarks => "watermarks",
            StageKind::Exchange => "exchange",
            StageKind::SideOutput => "side output",
            StageKind::Tee => "tee",
            StageKind::AtomicSink => "atomic sink",
            StageKind::CheckpointedSink => "checkpointed sink",
        })
    }
}

/// One stage of a job, under its stable name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The name, unique within the job.
    pub uid: String,
    /// What it does.
    pub kind: StageKind,
}

impl Stage {
    /// Names a stage.
    pub fn new(uid: impl Into<String>, kind: StageKind) -> Self {
        Self { uid: uid.into(), kind }
    }
}

/// A job's shape cannot work. Names the stage and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Two stages have one name.
    #[error(
        "stage {first_place} ({first}) and stage {second_place} ({second}) are both called {uid:?}: a stage's name \
         finds its state again, so it must be unique in the job, its branches included"
    )]
    RepeatedUid {
        /// The name.
        uid: String,
        /// What the first stage of this name does.
        first: StageKind,
        /// Which stage of the job that is, counted from 1.
        first_place: usize,
        /// What the second one does.
        second: StageKind,
        /// Which stage of the job that is.
        second_place: usize,
    },
    /// A job of no subtask.
    #[error("parallelism is 0: at least one subtask must run")]
    NoSubtask,
    /// An exchange parts rows from the positions they came from.
    #[error(
        "exchange {exchange:?} stands before atomic sink {sink:?} with {parallelism} subtasks: a split's rows and its \
         position would be written by different subtasks; remove the exchange, use one subtask, or a two-phase sink"
    )]
    ExchangeBeforeAtomicSink {
        /// The exchange.
        exchange: String,
        /// The sink.
        sink: String,
        /// The number of subtasks.
        parallelism: u32,
    },
    /// Behind an exchange nobody knows the splits any more.
    #[error(
        "watermarks {watermarks:?} stand behind exchange {exchange:?}: they are made for each split by itself, and behind \
         an exchange the records of many splits are mixed; put them before it"
    )]
    WatermarksBehindExchange {
        /// The watermarks.
        watermarks: String,
        /// The exchange.
        exchange: String,
    },
    /// Two truths about the time of a record.
    #[error(
        "watermarks {second:?} stand behind watermarks {first:?}: a source tells time once; remove one of them"
    )]
    SecondWatermarks {
        /// Those that were there.
        first: String,
        /// Those too many.
        second: String,
    },
    /// Two atomic sinks would have two truths about the positions.
    #[error(
        "atomic sink {second:?} stands beside atomic sink {first:?}: positions live in one target only; write many \
         tables by one sink, or run two pipelines"
    )]
    SecondAtomicSink {
        /// The sink that was there.
        first: String,
        /// The one too many.
        second: String,
    },
    /// An atomic sink beside one that commits by checkpoints.
    #[error(
        "checkpointed sink {checkpointed:?} stands beside atomic sink {atomic:?}: they restart from different \
         positions; run two pipelines, or use two-phase sinks on one checkpoint store"
    )]
    AtomicBesideCheckpointed {
        /// The atomic sink.
        atomic: String,
        /// The checkpointed one.
        checkpointed: String,
    },
}

/// Checks the stages of a job, in the order of the chain.
///
/// # Errors
/// The first rule that is broken, in words that name the stage.
pub fn check_shape(stages: &[Stage], parallelism: u32) -> Result<(), ShapeError> {
    if parallelism == 0 {
        return Err(ShapeError::NoSubtask);
    }
    if let Some(repeated) = repeated_uid(stages) {
        return Err(repeated);
    }
    check_time(stages)?;
    let of_kind = |kind| stages.iter().filter(move |stage| stage.kind == kind);
    let Some(atomic) = of_kind(StageKind::AtomicSink).next() else {
        return Ok(());
    };
    if let Some(second) = of_kind(StageKind::AtomicSink).nth(1) {
        return Err(ShapeError::SecondAtomicSink { first: atomic.uid.clone(), second: second.uid.clone() });
    }
    if let Some(checkpointed) = of_kind(StageKind::CheckpointedSink).next() {
        return Err(ShapeError::AtomicBesideCheckpointed {
            atomic: atomic.uid.clone(),
            checkpointed: checkpointed.uid.clone(),
        });
    }
    match of_kind(StageKind::Exchange).next() {
        Some(exchange) if parallelism > 1 => Err(ShapeError::ExchangeBeforeAtomicSink {
            exchange: exchange.uid.clone(),
            sink: atomic.uid.clone(),
            parallelism,
        }),
        _ => Ok(()),
    }
}

/// Watermarks stand once, in front of every exchange of the line from the source.
fn check_time(stages: &[Stage]) -> Result<(), ShapeError> {
    // A branch begins where it leaves, and ends with its one sink.
    let mut branches = 0_usize;
    let (mut exchange, mut watermarks) = (None, None);
    for stage in stages {
        match stage.kind {
            StageKind::SideOutput | StageKind::Tee => branches += 1,
            StageKind::CheckpointedSink | StageKind::AtomicSink => branches = branches.saturating_sub(1),
            StageKind::Exchange if branches == 0 => exchange = exchange.or(Some(&stage.uid)),
            StageKind::Watermarks => {
                let second = stage.uid.clone();
                if let Some(first) = watermarks.replace(&stage.uid) {
                    return Err(ShapeError::SecondWatermarks { first: first.clone(), second });
                }
                if let Some(exchange) = exchange {
                    let exchange = exchange.clone();
                    return Err(ShapeError::WatermarksBehindExchange { watermarks: second, exchange });
                }
            }
            StageKind::Source | StageKind::Map | StageKind::Exchange => {}
        }
    }
    Ok(())
}

fn repeated_uid(stages: &[Stage]) -> Option<ShapeError> {
    stages.iter().enumerate().find_map(|(place, stage)| {
        let earlier = stages[..place].iter().position(|earlier| earlier.uid == stage.uid)?;
        Some(ShapeError::RepeatedUid {
            uid: stage.uid.clone(),
            first: stages[earlier].kind,
            first_place: earlier + 1,
            second: stage.kind,
            second_place: place + 1,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(kinds: &[(&str, StageKind)]) -> Vec<Stage> {
        kinds.iter().map(|(uid, kind)| Stage::new(*uid, *kind)).collect()
    }

    fn refusal(kinds: &[(&str, StageKind)], parallelism: u32) -> String {
        check_shape(&stages(kinds), parallelism).expect_err("must be refused").to_string()
    }

    /// [TPL-21]
    #[test]
    fn exchange_before_an_atomic_sink_of_several_subtasks_is_refused() {
        let shape = [
            ("flights", StageKind::Source),
            ("by-carrier", StageKind::Exchange),
            ("table", StageKind::AtomicSink),
        ];
        let message = refusal(&shape, 2);
        assert!(message.contains("\"by-carrier\"") && message.contains("\"table\""), "{message}");
        assert_eq!(check_shape(&stages(&shape), 1), Ok(()));
    }

    /// [TPL-21]
    #[test]
    fn second_atomic_sink_is_refused() {
        let shape =
            [("flights", StageKind::Source), ("a", StageKind::AtomicSink), ("b", StageKind::AtomicSink)];
        let message = refusal(&shape, 1);
        assert!(message.contains("\"a\"") && message.contains("\"b\""), "{message}");
    }

    /// [TPL-21]
    #[test]
    fn atomic_sink_beside_a_checkpointed_one_is_refused() {
        let shape = [
            ("flights", StageKind::Source),
            ("a", StageKind::AtomicSink),
            ("f", StageKind::CheckpointedSink),
        ];
        let message = refusal(&shape, 1);
        assert!(message.contains("\"a\"") && message.contains("\"f\""), "{message}");
    }

    /// Time is told for each split by itself, once.
    #[test]
    fn watermarks_behind_an_exchange_or_behind_others_are_refused() {
        use StageKind::{CheckpointedSink, Exchange, Source, Tee, Watermarks};
        let behind =
            [("flights", Source), ("by-carrier", Exchange), ("time", Watermarks), ("f", CheckpointedSink)];
        let message = refusal(&behind, 1);
        assert!(message.contains("\"by-carrier\"") && message.contains("\"time\""), "{message}");
        let twice =
            [("flights", Source), ("time", Watermarks), ("again", Watermarks), ("f", CheckpointedSink)];
        let message = refusal(&twice, 1);
        assert!(message.contains("\"again\""), "{message}");
        let of_a_branch = [
            ("flights", Source),
            ("copy", Tee),
            ("by-carrier", Exchange),
            ("f", CheckpointedSink),
            ("time", Watermarks),
            ("g", CheckpointedSink),
        ];
        assert_eq!(check_shape(&stages(&of_a_branch), 2), Ok(()));
    }

    #[test]
    fn repeated_name_is_refused() {
        let message = refusal(&[("x", StageKind::Source), ("x", StageKind::AtomicSink)], 1);
        assert!(message.contains("\"x\""), "{message}");
        assert!(check_shape(&[], 0).is_err());
    }
}
