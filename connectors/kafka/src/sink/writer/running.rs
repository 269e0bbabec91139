//! A writer that may be written to: its slots, and what waits.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use levada_core::CheckpointId;

use super::error::WriterError;
use super::misuse::Misuse;
use super::writing::TransactionalWriter;
use crate::protocol::{ProtocolClient, TransactionAdmin as _, TransactionKey};
use crate::sink::producing::ProduceError;
use crate::sink::recovery::{Partitions, SlotName, TransactionHandle};
use crate::sink::slot::{Freeze, FrozenSlot, Mark, OpenSlot, ProducerIdentity, Slots};
use crate::sink::two_phase::{ByCoordinator, Resolver};

/// How long the client may take to abort; then the coordinator is told.
const ABORT_WITHIN: Duration = Duration::from_secs(10);
/// How long the coordinator may take.
const FENCE_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Running {
    admin: ProtocolClient,
    pub(super) resolver: Resolver,
    cluster_id: String,
    pub(super) slots: Slots<ByCoordinator>,
    pub(super) open: Open,
    /// Prepared and not decided, oldest first.
    pub(super) prepared: VecDeque<(TransactionHandle, FrozenSlot)>,
    /// The one that was committed last. Its handle may be noted still, so its coordinator is to remember it: the slot is used
    /// again when the next one is committed. From then on its marker tells.
    pub(super) committed: Option<FrozenSlot>,
    timeout: Duration,
    attempt: u64,
    /// Counts transactions.
    sequence: u64,
}

/// The transaction that is written to.
#[derive(Debug)]
pub(super) enum Open {
    None,
    /// None; and a slot that was opened and not written to.
    Unused(OpenSlot),
    Slot(OpenSlot),
    /// It has failed, or is being ended, under this id.
    Broken(String),
}

impl Open {
    /// Why it cannot be written to.
    pub(super) fn refuse(&self, doing: &'static str) -> Misuse {
        match self {
            Open::None | Open::Unused(_) => Misuse::NotBegun { doing },
            Open::Slot(_) => Misuse::AlreadyBegun,
            Open::Broken(id) => Misuse::Broken { doing, id: id.clone() },
        }
    }
}

impl Running {
    /// Begins to make producers ready, under ids that nobody had.
    pub(super) fn start(
        writer: &TransactionalWriter,
        admin: ProtocolClient,
        resolver: Resolver,
        cluster_id: String,
    ) -> Result<Self, ProduceError> {
        let (naming, attempt) = (writer.naming.clone(), writer.attempt);
        let id = move |slot| naming.id_of(SlotName { attempt, subtask: 0, slot });
        let describe = Arc::new(ByCoordinator(admin.clone()));
        Ok(Self {
            slots: Slots::start(writer.config.clone(), id, describe)?,
            admin,
            resolver,
            cluster_id,
            open: Open::None,
            prepared: VecDeque::new(),
            committed: None,
            timeout: writer.config.timeout(),
            attempt,
            sequence: 0,
        })
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = &TransactionHandle> {
        self.prepared.iter().map(|(handle, _)| handle)
    }

    pub(super) async fn begin(&mut self) -> Result<(), WriterError> {
        match mem::replace(&mut self.open, Open::None) {
            Open::None => self.open = Open::Slot(self.slots.open().await?),
            Open::Unused(slot) => self.open = Open::Slot(slot),
            other => {
                self.open = other;
                return Err(self.open.refuse("begin").into());
            }
        }
        Ok(())
    }

    pub(super) async fn prepare(&mut self) -> Result<Option<TransactionHandle>, WriterError> {
        let slot = match mem::replace(&mut self.open, Open::None) {
            Open::Slot(slot) => slot,
            other => {
                self.open = other;
                return Err(self.open.refuse("prepare").into());
            }
        };
        // Until it is prepared. Also when this future is dropped.
        self.open = Open::Broken(slot.id().to_owned());
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        let id = slot.id().to_owned();
        let marking = Marking { resolver: &self.resolver, id: &id, identity: slot.identity(), checkpoint };
        let frozen = match slot.freeze_marked(&marking).await? {
            Freeze::Frozen(frozen) => frozen,
            Freeze::Empty(slot) => {
                self.open = Open::Unused(slot);
                return Ok(None);
            }
        };
        let mut handle = self.handle_of(&frozen, checkpoint);
        handle.start = Some(self.resolver.prepared(&handle).await?);
        self.open = Open::None;
        self.prepared.push_back((handle.clone(), frozen));
        Ok(Some(handle))
    }

    fn handle_of(&self, frozen: &FrozenSlot, checkpoint: CheckpointId) -> TransactionHandle {
        let (identity, delivered) = (frozen.identity(), frozen.delivered());
        let mut partitions = Partitions::new();
        for (topic, partition) in delivered.partitions.into_keys() {
            partitions.entry(topic).or_default().insert(i32::try_from(partition).unwrap_or(i32::MAX));
        }
        TransactionHandle {
            transactional_id: frozen.id().to_owned(),
            producer_id: identity.producer_id,
            epoch: identity.epoch,
            start: None,
            timeout: self.timeout,
            checkpoint,
            attempt: self.attempt,
            subtask: 0,
            partitions,
            records: delivered.messages,
            cluster_id: self.cluster_id.clone(),
        }
    }

    pub(super) async fn discard(&mut self) -> Result<(), WriterError> {
        match mem::replace(&mut self.open, Open::None) {
            Open::Slot(slot) if slot.is_empty() && slot.producer().check().is_ok() => {
                self.open = Open::Unused(slot);
                Ok(())
            }
            Open::Slot(slot) => {
                let id = slot.id().to_owned();
                self.open = Open::Broken(id.clone());
                match slot.abort(ABORT_WITHIN).await {
                    Ok(slot) => self.slots.free(slot),
                    Err(error) => {
                        tracing::debug!(%error, "the client does not abort its transaction; the coordinator is told to");
                        self.fence(&id).await?;
                    }
                }
                self.open = Open::None;
                Ok(())
            }
            Open::Broken(id) => {
                self.open = Open::Broken(id.clone());
                self.fence(&id).await?;
                self.open = Open::None;
                Ok(())
            }
            other => {
                self.open = other;
                Err(self.open.refuse("discard").into())
            }
        }
    }

    /// A new epoch also refuses what the client has still on the way. The id is not used again.
    async fn fence(&self, id: &str) -> Result<(), WriterError> {
        let doing = "end a transaction that has failed";
        let fenced = self.admin.fence(id, self.timeout, FENCE_WITHIN).await;
        fenced.map(drop).map_err(WriterError::asking(doing))
    }
}

/// Marks the transaction that is being prepared.
struct Marking<'a> {
    resolver: &'a Resolver,
    id: &'a str,
    identity: ProducerIdentity,
    checkpoint: CheckpointId,
}

impl Mark for Marking<'_> {
    type Error = WriterError;

    async fn mark(&self, topic: &str, partition: u32) -> Result<(), WriterError> {
        let ProducerIdentity { producer_id, epoch } = self.identity;
        let key = TransactionKey { transactional_id: self.id, producer_id, epoch };
        Ok(self.resolver.mark(key, self.checkpoint, topic, partition).await?)
    }
}
