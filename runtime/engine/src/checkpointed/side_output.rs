//! Side outputs: lines that leave another line.

use std::fmt;

use levada_core::{BoxError, StreamElement};
use tokio::sync::mpsc;

use super::flow::Flow;
use super::inlet::Inlet;
use super::launch::Launch;
use super::line::{FromBranch, SideLine, SpawnLine};
use super::outlet::{CAPACITY, Outlet};
use super::relay::{Doubling, LateParting, Parting, Relay};
use super::segment::{Segment, Steps};
use super::sink_part::{SinkPart, Writes};
use crate::job::Job;
use crate::map::{Input, one_to_one};
use crate::plan::{Stage, StageKind};

/// Which way a record goes at a [side output](Flow::side_output), and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<O, S> {
    /// On along its line.
    Main(O),
    /// Into the side output.
    Side(S),
}

/// A side line up to its sink: what the closure of [`Flow::side_output`] and of [`Flow::tee`] returns.
///
/// It has no settings of its own: parallelism, checkpoints and restarts are the job's.
#[must_use = "a branch does nothing unless it is returned to the line that it leaves"]
pub struct Branch<S> {
    pub(super) stages: Vec<Stage>,
    pub(super) sinks_idempotent: bool,
    pub(super) sinks: Vec<Box<dyn SinkPart>>,
    pub(super) writes: Writes,
    pub(super) spawn: SpawnLine<SideLine<S>>,
}

impl<S> fmt::Debug for Branch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl<S: Send + 'static> Branch<S> {
    /// Spawns the branch's tasks, and returns the ways into it, one for each subtask of the line it leaves.
    fn enter(&self, launch: &mut Launch<'_>) -> Vec<Outlet<S>> {
        let (senders, receivers): (Vec<mpsc::Sender<StreamElement<S>>>, Vec<_>) =
            (0..launch.parallelism).map(|_| mpsc::channel(CAPACITY)).unzip();
        let inlets = receivers.into_iter().map(|receiver| Inlet::new(vec![receiver])).collect();
        // Those of the branch are between nobody on this line.
        let has_exchange = launch.has_exchange;
        (self.spawn)(launch, SideLine { inlets });
        launch.has_exchange = has_exchange;
        senders.into_iter().map(Outlet::Forward).collect()
    }
}

/// Where branches leave a line. Dead letters are to leave it the same way.
impl<I: Send + 'static, T: Send + 'static, L: 'static> Flow<I, T, L> {
    /// Sends each record on along the line or into a side output, whose records may be of another type.
    ///
    /// `route` says which way a record goes, and as what; it is a step, so it may also refuse the record. `branch` builds the
    /// line that the side output begins: with steps, exchanges and side outputs of its own, down to its sink. Several side
    /// outputs stand one behind the other.
    ///
    /// ```text
    ///  source ─▶ decode ─▶ side_output ─▶ sum ─▶ sink "delays"
    ///                          └─ Route::Side ─▶ key_by ─▶ name ─▶ sink "cancelled"
    /// ```
    ///
    /// *Checkpoints.* Barriers, watermarks, idleness and the end go down every line; each sink takes part in every
    /// checkpoint, and a failure of one takes all back to the same one.
    ///
    /// *Order.* The records of one line keep their order. Between two lines there is none, save that a barrier parts both
    /// at the same record.
    ///
    /// *Back pressure.* Lines are joined by bounded channels, and the task at the parting waits for whichever is full: a slow
    /// branch slows the others down to its pace, and no record waits anywhere else.
    ///
    /// *Memory.* Records keep their origins, so a batch's two parts share its arena, and the byte budget gets its bytes back
    /// when the slower line has let go of them.
    ///
    /// *Refused records* go down one line: those refused before the parting or by `route` stay on the line they came from,
    /// those refused in a branch go to the branch's sink.
    ///
    /// ```
    /// # use std::sync::{Arc, Mutex};
    /// # use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
    /// # use levada_core::{Batch, SinkContext, SinkError, SourceContext, SourceError, State};
    /// # use levada_engine::{Job, Route, store::Store};
    /// # #[derive(Debug)]
    /// # struct Numbers(u64);
    /// # impl SourceFunction for Numbers {
    /// #     type Item = u64;
    /// #     async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> { Ok(()) }
    /// #     async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
    /// #         (0..self.0).for_each(|number| out.record(number));
    /// #         Ok(Next::End)
    /// #     }
    /// # }
    /// # #[derive(Debug, Clone)]
    /// # struct Table<T>(Arc<Mutex<Vec<T>>>);
    /// # impl<T> Default for Table<T> { fn default() -> Self { Self(Arc::default()) } }
    /// # impl<T: Clone + Send + Sync + std::fmt::Debug + 'static> IdempotentSink<T> for Table<T> {
    /// #     async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> { Ok(()) }
    /// #     async fn upsert(&mut self, batch: Batch<T>, _: &WriteContext) -> Result<(), SinkError> {
    /// #         self.0.lock().unwrap().extend(batch.records().iter().map(|record| record.item.clone()));
    /// #         Ok(())
    /// #     }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (even, odd, audit) = (Table::default(), Table::default(), Table::default());
    /// # let (even_sink, odd_sink, audit_sink) = (even.clone(), odd.clone(), audit.clone());
    ///
    /// let job = Job::new("numbers")
    ///     .source_function("numbers", |_| Numbers(5))
    ///     .tee("audit", |copy| copy.idempotent_sink("audit-table", move |_| audit_sink.clone()))
    ///     .side_output(
    ///         "odd",
    ///         |number| match *number.item() {
    ///             odd if odd % 2 == 1 => Ok(Route::Side(format!("{odd} is odd"))),
    ///             even => Ok(Route::Main(even)),
    ///         },
    ///         |side| side.idempotent_sink("odd-table", move |_| odd_sink.clone()),
    ///     )
    ///     .map("halve", |number| Ok(number.item() / 2))
    ///     .idempotent_sink("even-table", move |_| even_sink.clone());
    /// job.start(Store::open("memory:").await?)?.wait().await?;
    ///
    /// assert_eq!(*even.0.lock().unwrap(), [0, 1, 2]);
    /// assert_eq!(*odd.0.lock().unwrap(), ["1 is odd", "3 is odd"]);
    /// assert_eq!(*audit.0.lock().unwrap(), [0, 1, 2, 3, 4]);
    /// # Ok(()) }
    /// ```
    pub fn side_output<O, S, R, B>(mut self, uid: impl Into<String>, route: R, branch: B) -> Flow<I, O, L>
    where
        O: Send + 'static,
        S: Send + 'static,
        R: Fn(Input<'_, T>) -> Result<Route<O, S>, BoxError> + Clone + Send + 'static,
        B: FnOnce(Flow<S, S, SideLine<S>>) -> Branch<S>,
    {
        self.stages.push(Stage::new(uid, StageKind::SideOutput));
        let branch = self.leave(branch);
        let wire = move |launch: &mut Launch<'_>, behind: Vec<Outlet<O>>| {
            let parting = |(main, side)| Outlet::Relay(Box::new(Parting { main, side }));
            behind.into_iter().zip(branch.enter(launch)).map(parting).collect()
        };
        self.rebuild(|Segment { inflow, steps }| {
            let routed = steps.then(move |_| one_to_one(route.clone()));
            Segment { inflow, steps: routed.then_wire(wire) }
        })
    }

    /// Sends each record on along the line, and a clone of it into a branch: the same records for two sinks.
    ///
    /// What is said of [`Flow::side_output`] holds here, too. The copies share the arena of the batch they came in, so payload
    /// bytes are counted once in the byte budget, until both lines have let go of them; what `T` holds itself is there twice.
    /// A record that was refused before goes down the line only, not into the branch.
    pub fn tee<B>(mut self, uid: impl Into<String>, branch: B) -> Flow<I, T, L>
    where
        T: Clone + Sync,
        B: FnOnce(Flow<T, T, SideLine<T>>) -> Branch<T>,
    {
        self.stages.push(Stage::new(uid, StageKind::Tee));
        let branch = self.leave(branch);
        let wire = move |launch: &mut Launch<'_>, behind: Vec<Outlet<T>>| {
            let doubling = |(main, copy)| Outlet::Relay(Box::new(Doubling { main, copy }));
            behind.into_iter().zip(branch.enter(launch)).map(doubling).collect()
        };
        self.rebuild(|Segment { inflow, steps }| Segment { inflow, steps: steps.then_wire(wire) })
    }

    /// Sends records that come too late into a branch: those whose timestamp the watermark has covered that stands here in
    /// front of them. The others go on along the line.
    ///
    /// What is late depends on the place: behind an exchange a record may be late that was not in front of it. A record
    /// without a timestamp is never late. Late records are counted wherever there are watermarks
    /// ([`TimeStatus`](crate::TimeStatus)); without this they go on like all others.
    ///
    /// What is said of [`Flow::side_output`] holds here, too.
    pub fn late_side_output<B>(mut self, uid: impl Into<String>, branch: B) -> Flow<I, T, L>
    where
        B: FnOnce(Flow<T, T, SideLine<T>>) -> Branch<T>,
    {
        let uid = uid.into();
        self.stages.push(Stage::new(uid.clone(), StageKind::SideOutput));
        let branch = self.leave(branch);
        let wire = move |launch: &mut Launch<'_>, behind: Vec<Outlet<T>>| {
            let ways = (0..).zip(behind.into_iter().zip(branch.enter(launch)));
            let parting = |(subtask, (main, late))| {
                let report = launch.time.stage(&uid, subtask);
                Outlet::Relay(Box::new(LateParting { main, late, report }) as Box<dyn Relay<T>>)
            };
            ways.map(parting).collect()
        };
        self.rebuild(|Segment { inflow, steps }| Segment { inflow, steps: steps.then_wire(wire) })
    }

    /// Builds a branch, and notes its stages.
    fn leave<S, B>(&mut self, branch: B) -> Branch<S>
    where
        S: Send + 'static,
        B: FnOnce(Flow<S, S, SideLine<S>>) -> Branch<S>,
    {
        let mut branch = branch(beginning_of_branch(self.job.clone()));
        self.stages.append(&mut branch.stages);
        self.sinks_idempotent &= branch.sinks_idempotent;
        self.sinks.append(&mut branch.sinks);
        self.writes.append(&mut branch.writes);
        branch
    }
}

fn beginning_of_branch<S: Send + 'static>(job: Job) -> Flow<S, S, SideLine<S>> {
    let segment = Segment { inflow: Box::new(FromBranch), steps: Steps::none() };
    Flow { job, stages: Vec::new(), sinks_idempotent: true, sinks: Vec::new(), writes: Vec::new(), segment }
}
