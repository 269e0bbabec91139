//! The shape rule: which chains of stages can keep an atomic sink's promise.
//!
//! An atomic sink commits a split's rows and the split's position in one transaction, so both must be written by the
//! same subtask: the sink is chained one to one with its source subtask. Pure; checked before anything starts.

use std::collections::BTreeMap;
use std::fmt;

use levada_core::WriteOrder;
use levada_core::async_io::{Order, SettingsError};
use thiserror::Error;

/// What a stage does to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageKind {
    /// Reads records.
    Source,
    /// Turns one record into any number, in the same subtask.
    Map,
    /// Calls a function with each record, many at once, in a task of its own.
    Async,
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
            StageKind::Async => "async step",
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
    /// What an async step asks for.
    pub(crate) asked: Option<AskedOrder>,
}

impl Stage {
    /// Names a stage.
    pub fn new(uid: impl Into<String>, kind: StageKind) -> Self {
        Self { uid: uid.into(), kind, asked: None }
    }

    /// Names an async step.
    pub(crate) fn asking(uid: impl Into<String>, asked: AskedOrder) -> Self {
        Self { asked: Some(asked), ..Self::new(uid, StageKind::Async) }
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
    /// The settings of an async step cannot work.
    #[error("async step {stage:?} cannot work")]
    AsyncSettings {
        /// The step.
        stage: String,
        /// Why.
        #[source]
        cause: SettingsError,
    },
    /// A call that is stuck would hold up the commits of an atomic sink for ever.
    #[error(
        "async step {stage:?} has no timeout, and stands before atomic sink {sink:?}: a call that is stuck would hold up every \
         commit; set a timeout below the time that a revoked split is given"
    )]
    AsyncWithoutTimeout {
        /// The step.
        stage: String,
        /// The sink.
        sink: String,
    },
    /// The last record of a key would be whichever was answered last.
    #[error(
        "async step {stage:?} is unordered, and sink {sink:?} behind it keeps the last record of a key: an older record could \
         be written over a newer one; use ordered, or key_ordered_by with the sink's key, or give the sink a version guard"
    )]
    UnorderedBeforeKeyedSink {
        /// The step.
        stage: String,
        /// The sink.
        sink: String,
    },
    /// Behind an async step nobody knows the splits any more.
    #[error(
        "watermarks {watermarks:?} stand behind async step {stage:?}: they are made for each split by itself, in the subtask of \
         the source; put them before it"
    )]
    WatermarksBehindAsync {
        /// The watermarks.
        watermarks: String,
        /// The step.
        stage: String,
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
    let (mut exchange, mut calls, mut watermarks) = (None, None, None);
    for stage in stages {
        match stage.kind {
            StageKind::SideOutput | StageKind::Tee => branches += 1,
            StageKind::CheckpointedSink | StageKind::AtomicSink => branches = branches.saturating_sub(1),
            StageKind::Exchange if branches == 0 => exchange = exchange.or(Some(&stage.uid)),
            StageKind::Async if branches == 0 => calls = calls.or(Some(&stage.uid)),
            StageKind::Watermarks => {
                let second = stage.uid.clone();
                if let Some(first) = watermarks.replace(&stage.uid) {
                    return Err(ShapeError::SecondWatermarks { first: first.clone(), second });
                }
                if let Some(exchange) = exchange {
                    let exchange = exchange.clone();
                    return Err(ShapeError::WatermarksBehindExchange { watermarks: second, exchange });
                }
                if let Some(stage) = calls {
                    let stage: String = stage.clone();
                    return Err(ShapeError::WatermarksBehindAsync { watermarks: second, stage });
                }
            }
            StageKind::Source | StageKind::Map | StageKind::Async | StageKind::Exchange => {}
        }
    }
    Ok(())
}

/// What an async step asks for, and what is known of its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedOrder {
    /// `None`: what the sinks behind need.
    pub(crate) order: Option<Order>,
    pub(crate) has_timeout: bool,
    pub(crate) settings: Result<(), SettingsError>,
}

/// The order in which each async step lets results leave, by name.
pub(crate) type Orders = BTreeMap<String, Order>;

/// Decides in which order async steps let results leave; `writes` tells what order means to a sink, and is asked only where
/// there is such a step. [ASY-16]
pub(crate) fn orders(stages: &[Stage], writes: impl Fn(&str) -> WriteOrder) -> Result<Orders, ShapeError> {
    let mut orders = Orders::new();
    for (place, stage) in stages.iter().enumerate() {
        let Some(asked) = &stage.asked else { continue };
        asked.settings.map_err(|cause| ShapeError::AsyncSettings { stage: stage.uid.clone(), cause })?;
        let sinks = sinks_behind(&stages[place + 1..]);
        if let Some(atomic) = sinks.iter().find(|sink| sink.kind == StageKind::AtomicSink)
            && !asked.has_timeout
        {
            let (stage, sink) = (stage.uid.clone(), atomic.uid.clone());
            return Err(ShapeError::AsyncWithoutTimeout { stage, sink });
        }
        let needs: Vec<WriteOrder> = sinks.iter().map(|sink| writes(&sink.uid)).collect();
        if asked.order == Some(Order::Unordered)
            && let Some(keyed) = needs.iter().position(|need| *need != WriteOrder::Any)
        {
            let (stage, sink) = (stage.uid.clone(), sinks[keyed].uid.clone());
            return Err(ShapeError::UnorderedBeforeKeyedSink { stage, sink });
        }
        orders.insert(stage.uid.clone(), asked.order.unwrap_or_else(|| needed(&needs)));
    }
    Ok(orders)
}

/// Records of one key must stay in order where the key is that of the record. Where it is not, nobody but the sink knows which
/// those are, so all stay in order.
fn needed(needs: &[WriteOrder]) -> Order {
    match needs.contains(&WriteOrder::ByRecordKey) && !needs.contains(&WriteOrder::ByOwnKey) {
        true => Order::KeyOrdered,
        false => Order::Ordered,
    }
}

/// Finds the sinks that records behind a stage may come to: that of its line, and those of branches that leave the line
/// behind it.
fn sinks_behind(behind: &[Stage]) -> Vec<&Stage> {
    let (mut branches, mut sinks) = (0_usize, Vec::new());
    for stage in behind {
        match stage.kind {
            StageKind::SideOutput | StageKind::Tee => branches += 1,
            StageKind::CheckpointedSink | StageKind::AtomicSink => {
                sinks.push(stage);
                match branches.checked_sub(1) {
                    Some(fewer) => branches = fewer,
                    None => break,
                }
            }
            _ => {}
        }
    }
    sinks
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

    fn asking(uid: &str, order: Option<Order>) -> Stage {
        Stage::asking(uid, AskedOrder { order, has_timeout: true, settings: Ok(()) })
    }

    /// A line with a branch before an async step, and one behind it.
    fn branched(order: Option<Order>) -> Vec<Stage> {
        use StageKind::{CheckpointedSink, Source, Tee};
        let mut stages = stages(&[("flights", Source), ("early", Tee), ("archive", CheckpointedSink)]);
        stages.push(asking("airline", order));
        stages.extend(self::stages(&[
            ("late", Tee),
            ("copy", CheckpointedSink),
            ("table", CheckpointedSink),
        ]));
        stages
    }

    /// [ASY-16] before any sink behind it, also at the end of a branch; the message names both.
    #[test]
    fn unordered_step_before_a_keyed_sink_is_refused() {
        for keyed in ["copy", "table"] {
            let writes = |sink: &str| if sink == keyed { WriteOrder::ByOwnKey } else { WriteOrder::Any };
            let refused = orders(&branched(Some(Order::Unordered)), writes).unwrap_err().to_string();
            assert!(refused.contains("\"airline\"") && refused.contains(&format!("{keyed:?}")), "{refused}");
        }
        let before = |sink: &str| if sink == "archive" { WriteOrder::ByOwnKey } else { WriteOrder::Any };
        let allowed = orders(&branched(Some(Order::Unordered)), before).unwrap();
        assert_eq!(allowed["airline"], Order::Unordered);
    }

    /// [ASY-16] by the record's key where that is the key of the sinks, else in the order of the inputs.
    #[test]
    fn default_order_is_what_the_sinks_need() {
        let of = |copy, table| {
            let writes = |sink: &str| if sink == "copy" { copy } else { table };
            orders(&branched(None), writes).unwrap()["airline"]
        };
        assert_eq!(of(WriteOrder::Any, WriteOrder::ByRecordKey), Order::KeyOrdered);
        assert_eq!(of(WriteOrder::ByOwnKey, WriteOrder::ByRecordKey), Order::Ordered);
        assert_eq!(of(WriteOrder::Any, WriteOrder::Any), Order::Ordered);
    }

    /// [ASY-09] a finite timeout is required before an atomic sink; [ASY-01] settings are looked at before anything starts.
    #[test]
    fn async_steps_that_cannot_work_are_refused() {
        let mut stages = stages(&[("flights", StageKind::Source)]);
        let asked = AskedOrder { order: None, has_timeout: false, settings: Ok(()) };
        stages.push(Stage::asking("airline", asked));
        stages.push(Stage::new("table", StageKind::AtomicSink));
        let refused = orders(&stages, |_| WriteOrder::Any).unwrap_err().to_string();
        assert!(refused.contains("\"airline\"") && refused.contains("\"table\""), "{refused}");
        let settings = Err(SettingsError::NoCapacity);
        stages[1].asked = Some(AskedOrder { order: None, has_timeout: true, settings });
        let cause = SettingsError::NoCapacity;
        let refused = ShapeError::AsyncSettings { stage: "airline".to_owned(), cause };
        assert_eq!(orders(&stages, |_| WriteOrder::Any), Err(refused));
    }

    /// Time is told in the subtask of the source.
    #[test]
    fn watermarks_behind_an_async_step_are_refused() {
        let shape = [
            ("flights", StageKind::Source),
            ("airline", StageKind::Async),
            ("time", StageKind::Watermarks),
            ("f", StageKind::CheckpointedSink),
        ];
        let message = refusal(&shape, 1);
        assert!(message.contains("\"airline\"") && message.contains("\"time\""), "{message}");
    }

    #[test]
    fn repeated_name_is_refused() {
        let message = refusal(&[("x", StageKind::Source), ("x", StageKind::AtomicSink)], 1);
        assert!(message.contains("\"x\""), "{message}");
        assert!(check_shape(&[], 0).is_err());
    }
}
