//! The sink.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, BoxError, CheckpointId, Clock, ErrorClass, SinkContext, SinkError, SystemClock};
use tokio::sync::watch;

use super::identity::ByCoordinator;
use super::mark::Marking;
use super::resolver::Resolver;
use super::watch::Watch;
use crate::failpoint::fail_point;
use crate::protocol::{ProtocolClient, ProtocolConfig};
use crate::sink::metrics::SinkMetrics;
use crate::sink::producing::{
    Guarantee, InBatch, KafkaSinkConfig, Outgoing, ProduceError, Serialise, SinkConfigError,
};
use crate::sink::recovery::{Partitions, SlotName, TransactionHandle, TransactionNaming};
use crate::sink::slot::{Freeze, FrozenSlot, OpenSlot, ProducerIdentity, Slots, Standings};

/// How long an abort may take when a job ends.
const ABORT_WITHIN: Duration = Duration::from_secs(10);
/// How long closing waits until readers see what was committed; an engine waits a little longer.
const SEEN_WITHIN: Duration = Duration::from_secs(4);

/// Slots of this process have numbers that no other had: a job that is started again in one attempt makes new ids, because
/// handles of its earlier run may still name the old ones.
static NEXT_SLOT: AtomicU32 = AtomicU32::new(0);

/// So many numbers for one run of one writer.
const SLOTS_OF_A_RUN: u32 = 1 << 16;

/// Writes records to Kafka exactly once, for readers of committed data: in transactions that are committed when their
/// checkpoint is complete, also after the process that wrote them was killed.
pub struct TransactionalSink<T, S> {
    config: KafkaSinkConfig,
    prefix: String,
    uid: String,
    clock: Arc<dyn Clock>,
    margin: Duration,
    resolve_within: Option<Duration>,
    metrics: SinkMetrics,
    serialise: S,
    outgoing: Outgoing,
    running: Option<Running>,
    takes: PhantomData<fn(T)>,
}

impl<T, S> fmt::Debug for TransactionalSink<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalSink")
            .field("config", &self.config)
            .field("prefix", &self.prefix)
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

/// What there is between opening and closing.
#[derive(Debug)]
struct Running {
    subtask: u32,
    naming: TransactionNaming,
    resolver: Resolver,
    admin: ProtocolClient,
    cluster_id: String,
    slots: Option<Slots<ByCoordinator>>,
    open: Option<OpenSlot>,
    /// A slot that was opened for a transaction into which nothing was written.
    unused: Option<OpenSlot>,
    /// Pre-committed, by transactional id.
    frozen: BTreeMap<String, FrozenSlot>,
    /// Committed; free once a checkpoint is complete that was taken after the commit, and readers see it.
    committed: VecDeque<(Option<CheckpointId>, FrozenSlot)>,
    /// The newest complete checkpoint that is known.
    complete: Option<CheckpointId>,
    /// Looks behind commits.
    watch: Watch,
}

impl<T, S: Serialise<T>> TransactionalSink<T, S> {
    /// Makes a sink whose records `serialise` turns into messages. Its transactional ids begin with `prefix`, which rights on
    /// ids can be granted by, and with the job's name and `uid`, which tells the sinks of a job apart.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(
        config: KafkaSinkConfig,
        prefix: impl Into<String>,
        uid: impl Into<String>,
        serialise: S,
    ) -> Result<Self, SinkConfigError> {
        let config = config.guarantee(Guarantee::ExactlyOnceByCheckpoint);
        config.check()?;
        Ok(Self {
            config,
            prefix: prefix.into(),
            uid: uid.into(),
            clock: Arc::new(SystemClock),
            margin: Duration::from_secs(10),
            resolve_within: None,
            metrics: SinkMetrics::new(),
            serialise,
            outgoing: Outgoing::new(),
            running: None,
            takes: PhantomData,
        })
    }

    /// Sets the clock by which the time is told that a transaction has left.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how much of its timeout must be left to a transaction that is pre-committed or committed after a crash; default
    /// 10 s. It has to cover all commits of a start, and what our clock and the brokers' differ by.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets how long each question to the brokers about transactions, and each commit, may take before it fails, retries
    /// included; default 30 s. Whoever drives the sink may try again.
    #[must_use]
    pub fn resolve_within(mut self, within: Duration) -> Self {
        self.resolve_within = Some(within);
        self
    }

    /// Sets where it counts what it does; an account of its own unless set. The sinks of a job share one, so that it tells of
    /// all subtasks, and of what a start has found.
    #[must_use]
    pub fn metrics(mut self, metrics: SinkMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns how its producers stand, now and after each change; `None` before they are being made ready.
    pub fn slots(&self) -> Option<watch::Receiver<Standings>> {
        self.running.as_ref()?.slots.as_ref().map(Slots::standings)
    }

    /// The same, unless readers do not see what was committed.
    fn seen(&mut self) -> Result<&mut Running, SinkError> {
        let running = self.running()?;
        running.watch.check()?;
        Ok(running)
    }

    fn running(&mut self) -> Result<&mut Running, SinkError> {
        self.running.as_mut().ok_or_else(|| SinkError::new(ErrorClass::Fatal, "the Kafka sink is not open"))
    }

    /// What is needed to connect without a producer.
    fn connecting(&self, ctx: &SinkContext) -> Result<Connecting, SinkError> {
        let fatal =
            |cause: BoxError| SinkError::new(ErrorClass::Fatal, "open the Kafka sink").caused_by(cause);
        let naming = TransactionNaming::new(&self.prefix, &ctx.job, &self.uid);
        let naming = naming.map_err(|cause| fatal(cause.into()))?;
        let config = ProtocolConfig::from_properties(self.config.all_properties());
        let admin = config.and_then(ProtocolClient::new).map_err(|cause| fatal(cause.into()))?;
        let resolver = Resolver::new(admin.clone(), naming.clone(), Arc::clone(&self.clock), self.margin)
            .metrics(self.metrics.clone());
        let resolver = self.resolve_within.into_iter().fold(resolver, Resolver::within);
        let (timeout, topics) = (self.config.timeout(), self.config.topics.clone());
        Ok(Connecting { subtask: ctx.subtask, timeout, topics, naming, resolver, admin })
    }
}

#[derive(Debug)]
struct Connecting {
    subtask: u32,
    timeout: Duration,
    topics: Vec<String>,
    naming: TransactionNaming,
    resolver: Resolver,
    admin: ProtocolClient,
}

impl Connecting {
    /// Connects, without a producer: nothing is initialised.
    async fn connect(self) -> Result<Running, SinkError> {
        let Self { subtask, timeout, topics, naming, resolver, admin } = self;
        let cluster_id = resolver.check_start(timeout, &topics).await?;
        let (frozen, committed) = (BTreeMap::new(), VecDeque::new());
        let (slots, open, unused) = (None, None, None);
        let (complete, watch) = (None, Watch::default());
        Ok(Running {
            subtask,
            naming,
            resolver,
            admin,
            cluster_id,
            slots,
            open,
            unused,
            frozen,
            committed,
            complete,
            watch,
        })
    }
}

impl Running {
    /// Opens a slot for a transaction that `checkpoint` will cover.
    async fn begin(
        &mut self,
        config: &KafkaSinkConfig,
        checkpoint: CheckpointId,
    ) -> Result<&OpenSlot, SinkError> {
        let slot = match self.unused.take() {
            Some(unused) => unused,
            None => self.slots(config, checkpoint.attempt)?.open().await?,
        };
        self.resolver.note_begun(slot.id(), checkpoint);
        fail_point!("kafka::begin::opened");
        Ok(self.open.insert(slot))
    }

    /// The attempt is told behind the opening, so slots are made ready from then on.
    fn slots(
        &mut self,
        config: &KafkaSinkConfig,
        attempt: u64,
    ) -> Result<&mut Slots<ByCoordinator>, ProduceError> {
        if self.slots.is_none() {
            let (naming, subtask) = (self.naming.clone(), self.subtask);
            let first = NEXT_SLOT.fetch_add(SLOTS_OF_A_RUN, Ordering::Relaxed);
            let id = move |slot: u32| {
                naming.id_of(SlotName { attempt, subtask, slot: first.wrapping_add(slot % SLOTS_OF_A_RUN) })
            };
            let describe = Arc::new(ByCoordinator(self.admin.clone()));
            self.slots = Some(Slots::start(config.clone(), id, describe)?);
        }
        self.slots.as_mut().ok_or(ProduceError::Lost { doing: "making slots ready" })
    }

    /// Gives slots back whose commit came before a checkpoint that is complete now, so that no start will ask for them, and is
    /// seen: their ids are initialised anew from here on.
    fn free_up_to(&mut self, complete: Option<CheckpointId>) {
        self.complete = self.complete.max(complete);
        let (free, kept) = std::mem::take(&mut self.committed).into_iter().partition(|(covered, slot)| {
            covered.is_some() && *covered <= self.complete && self.watch.is_seen(slot.id())
        });
        self.committed = kept;
        let free: VecDeque<(_, FrozenSlot)> = free;
        for (_, slot) in free {
            if let Some(slots) = &mut self.slots {
                slots.free(slot);
            }
        }
    }

    /// Commits what this run has pre-committed. Whether readers see it is found out beside what is written next.
    async fn commit_own(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        self.resolver.decide_commit(handle).await?;
        self.watch.begin(&self.resolver, handle);
        if let Some(slot) = self.frozen.remove(&handle.transactional_id) {
            self.committed.push_back((None, slot));
        }
        Ok(())
    }
}

/// What was not pre-committed is nobody's from here on. What was is known until it is decided: the checkpoint that names it may
/// be complete, and a fence that comes late must spare it.
impl Drop for Running {
    fn drop(&mut self) {
        let never_committed = self.open.iter().chain(&self.unused);
        never_committed.for_each(|slot| self.resolver.note_decided(slot.id()));
    }
}

impl<T: Send + Sync + 'static, S: Serialise<T>> TwoPhaseCommitSink<T> for TransactionalSink<T, S> {
    type Handle = TransactionHandle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let connecting = self.connecting(&ctx)?;
        self.running = Some(connecting.connect().await?);
        Ok(())
    }

    fn will_begin(&mut self, first: &TransactionName) {
        let Some(running) = self.running.as_mut() else { return };
        // To others nothing comes, where the driver has asked who writes.
        if running.subtask >= self.config.writers {
            return;
        }
        // What is wrong is told by the transaction that needs a slot.
        if let Err(error) = running.slots(&self.config, first.checkpoint.attempt) {
            tracing::debug!(error = %levada_core::ErrorChain(&error), "no slot is made ready");
        }
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<TransactionHandle, SinkError> {
        let (config, timeout) = (self.config.clone(), self.config.timeout());
        let (metrics, now, finite) = (self.metrics.clone(), self.clock.now(), self.config.finite_timeout());
        let running = self.seen()?;
        running.free_up_to(None);
        let cluster_id = running.cluster_id.clone();
        let slot = running.begin(&config, name.checkpoint).await?;
        let ProducerIdentity { producer_id, epoch } = slot.identity();
        metrics.note_begun(slot.id(), now, finite);
        Ok(TransactionHandle {
            transactional_id: slot.id().to_owned(),
            producer_id,
            epoch,
            start: None,
            timeout,
            checkpoint: name.checkpoint,
            attempt: name.checkpoint.attempt,
            subtask: name.subtask,
            partitions: Partitions::new(),
            records: 0,
            cluster_id,
        })
    }

    async fn write(
        &mut self,
        _handle: &mut TransactionHandle,
        batch: Batch<T>,
        _ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.seen()?;
        let Self { running, outgoing, serialise, .. } = self;
        let open = running.as_ref().and_then(|running| running.open.as_ref());
        let slot = open.ok_or_else(|| SinkError::new(ErrorClass::Fatal, "no transaction is open"))?;
        for record in batch.records() {
            let record = InBatch::new(&batch, record);
            outgoing.clear();
            if let Err(cause) = serialise.serialise(record, outgoing) {
                let refused = "the serialiser refuses the record";
                return Err(SinkError::bad_record(record.coordinates(), refused).caused_by(cause));
            }
            let origin = record.coordinates();
            for message in outgoing.messages() {
                slot.send(&message, Some(&origin)).await?;
            }
        }
        fail_point!("kafka::write::after_batch");
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut TransactionHandle) -> Result<(), SinkError> {
        let (metrics, timeout) = (self.metrics.clone(), self.config.finite_timeout());
        let running = self.seen()?;
        let slot = running.open.take();
        let slot = slot.ok_or_else(|| SinkError::new(ErrorClass::Fatal, "no transaction is open"))?;
        // Whatever was committed up to here is in no checkpoint from this one on.
        for (covered, _) in running.committed.iter_mut().filter(|(covered, _)| covered.is_none()) {
            *covered = Some(handle.checkpoint);
        }
        let marking = Marking { resolver: &running.resolver, handle };
        let frozen = match slot.freeze_marked(&marking).await? {
            Freeze::Frozen(frozen) => frozen,
            Freeze::Empty(slot) => {
                metrics.forget(slot.id());
                running.unused = Some(slot);
                return Ok(());
            }
        };
        let delivered = frozen.delivered();
        handle.records = delivered.messages;
        for (topic, partition) in delivered.partitions.into_keys() {
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            handle.partitions.entry(topic).or_default().insert(partition);
        }
        fail_point!("kafka::pre_commit::before_describe");
        let start = running.resolver.prepared(handle).await?;
        fail_point!("kafka::pre_commit::described");
        handle.start = Some(start);
        metrics.note_prepared(&handle.transactional_id, start, timeout, handle.records);
        running.frozen.insert(handle.transactional_id.clone(), frozen);
        Ok(())
    }

    async fn commit(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        let running = self.running()?;
        // Without records it has never begun: whatever has its id by now is another transaction.
        if handle.records > 0 {
            match running.frozen.contains_key(&handle.transactional_id) {
                true => running.commit_own(handle).await?,
                // Of an earlier run: once its checkpoint is resolved, no start asks for it.
                false => running.resolver.commit(handle).await?,
            }
            // No fence can hurt it any more.
            running.resolver.note_decided(&handle.transactional_id);
        }
        fail_point!("kafka::commit::before_free");
        // The driver commits what is covered by a complete checkpoint, and this one was.
        running.free_up_to(Some(handle.checkpoint));
        Ok(())
    }

    async fn abort(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        let metrics = self.metrics.clone();
        let running = self.running()?;
        if let Some(open) = running.open.take_if(|open| open.id() == handle.transactional_id) {
            if open.is_empty() {
                metrics.forget(open.id());
                running.unused = Some(open);
                return Ok(());
            }
            fail_point!("kafka::abort::before");
            drop(open.abort(ABORT_WITHIN).await?);
            metrics.note_aborted(&handle.transactional_id);
            fail_point!("kafka::abort::after");
            running.resolver.note_decided(&handle.transactional_id);
            return Ok(());
        }
        running.resolver.abort(handle).await?;
        running.resolver.note_decided(&handle.transactional_id);
        running.frozen.remove(&handle.transactional_id);
        Ok(())
    }

    async fn inspect(&mut self, handles: &[TransactionHandle]) -> Result<Option<Vec<Fate>>, SinkError> {
        Ok(Some(self.running()?.resolver.inspect(handles).await?))
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[TransactionHandle]) -> Result<(), SinkError> {
        let (timeout, mut topics) = (self.config.timeout(), self.config.topics.clone());
        topics.extend(kept.iter().flat_map(|handle| handle.partitions.keys().cloned()));
        topics.sort();
        topics.dedup();
        let Running { resolver, cluster_id, .. } = self.running()?;
        resolver.see_unseen(cluster_id).await?;
        resolver.see_left_over(&topics).await?;
        Ok(resolver.fence(first, kept, timeout).await?)
    }

    fn writers(&self) -> Option<u32> {
        Some(self.config.writers)
    }

    fn transaction_timeout(&self) -> Option<Duration> {
        self.config.finite_timeout()
    }

    async fn close(&mut self) {
        // Producers end on their own threads; what is frozen is left to whoever recovers.
        let Some(mut running) = self.running.take() else { return };
        running.watch.finish(SEEN_WITHIN).await;
        let open = running.open.iter().map(OpenSlot::id);
        let frozen = running.frozen.keys().map(String::as_str);
        open.chain(frozen).for_each(|id| self.metrics.forget(id));
    }
}
