//! The start: what earlier attempts have left is decided over, then fenced.

use std::sync::Arc;
use std::time::Duration;

use levada_core::CheckpointId;
use levada_core::template::Fate;

use super::error::WriterError;
use super::misuse::Misuse;
use super::resolution::{Decided, Resolution};
use super::running::Running;
use super::writing::TransactionalWriter;
use crate::protocol::{ProtocolClient, ProtocolConfig, TransactionAdmin as _};
use crate::sink::recovery::{Plan, Standing, TransactionHandle, plan_by_fates};
use crate::sink::two_phase::Resolver;

/// How long brokers may take to list what they know.
const WITHIN: Duration = Duration::from_secs(30);

impl TransactionalWriter {
    /// Decides over the transactions that earlier attempts have prepared and whose handles are noted: asks about all of them
    /// first, then commits all or rolls all back. Whatever else earlier attempts have begun is aborted. Then the writer can
    /// begin. To be called at every start, also with no handle.
    ///
    /// All or none: they are committed unless one is gone or too near its timeout; then none is, and their records are to be
    /// written again. Nothing is changed before all are asked, and it can be repeated, also by another process, until it
    /// succeeds: the outcome is the same.
    ///
    /// # Errors
    /// [`WriterError::Torn`] where some are visible and others gone, unless a policy says how to go on;
    /// [`WriterError::Unknown`] where nobody tells; [`Misuse`] for handles of another writer or of no earlier attempt, and for an
    /// attempt that is not above all before; [`WriterError::Start`] where the cluster cannot keep what is promised: nothing was
    /// changed then. Otherwise the brokers cannot be reached, or refuse.
    ///
    /// # Cancel safety
    /// Behind a drop some may be decided, others not; the same call goes on.
    pub async fn resolve(&mut self, handles: &[TransactionHandle]) -> Result<Resolution, WriterError> {
        if self.running.is_some() {
            return Err(Misuse::AlreadyResolved.into());
        }
        handles.iter().try_for_each(|handle| self.check_handle(handle))?;
        let (admin, resolver) = self.connecting()?;
        let cluster_id = resolver.check_start(self.config.timeout(), &self.config.topics).await?;
        self.check_attempt(&admin).await?;
        let resolution = self.decide(&resolver, handles).await?;
        resolver.see_left_over(&self.config.topics).await?;
        // Those that are decided are spared: it may not be noted yet, and a fence makes coordinators forget.
        let first = CheckpointId::new(self.attempt, 1);
        resolver.fence(first, handles, self.config.timeout()).await?;
        self.running = Some(Running::start(self, admin, resolver, cluster_id)?);
        Ok(resolution)
    }

    fn check_handle(&self, handle: &TransactionHandle) -> Result<(), Misuse> {
        let transaction = handle.to_string();
        if self.naming.slot_of(&handle.transactional_id).is_none() {
            return Err(Misuse::Foreign {
                transaction, pattern: self.naming.probe().replace("probe", "a…")
            });
        }
        match handle.attempt < self.attempt {
            true => Ok(()),
            false => Err(Misuse::NotEarlier { transaction, theirs: handle.attempt, ours: self.attempt }),
        }
    }

    /// What is needed to connect without a producer: making one initialises its id.
    fn connecting(&self) -> Result<(ProtocolClient, Resolver), WriterError> {
        let config = ProtocolConfig::from_properties(self.config.all_properties());
        let admin = config.and_then(ProtocolClient::new).map_err(WriterError::Connect)?;
        let (naming, clock) = (self.naming.clone(), Arc::clone(&self.clock));
        let resolver = Resolver::new(admin.clone(), naming, clock, self.margin);
        Ok((admin, resolver))
    }

    /// Ids of this attempt would be initialised by us, which ends what is prepared under them.
    async fn check_attempt(&self, admin: &ProtocolClient) -> Result<(), WriterError> {
        let doing = "list the transactional ids of earlier attempts";
        let listed = admin.list(&[], WITHIN).await.map_err(WriterError::asking(doing))?;
        let attempts = listed.iter().filter_map(|listed| self.naming.slot_of(&listed.transactional_id));
        match attempts.map(|slot| slot.attempt).max() {
            Some(seen) if seen >= self.attempt => {
                Err(Misuse::AttemptUsed { ours: self.attempt, seen }.into())
            }
            _ => Ok(()),
        }
    }

    async fn decide(
        &self,
        resolver: &Resolver,
        handles: &[TransactionHandle],
    ) -> Result<Resolution, WriterError> {
        let mut handles = handles.to_vec();
        handles.sort_by_key(|handle| handle.checkpoint);
        let fates = resolver.inspect(&handles).await?;
        let covered: Vec<_> = handles.iter().map(|handle| handle.checkpoint).zip(fates.clone()).collect();
        let planned = plan_by_fates(&covered, Standing::Complete, None).under(self.torn);
        let found: Vec<(TransactionHandle, Fate)> = handles.into_iter().zip(fates).collect();
        let these = |places: &[usize]| places.iter().map(|place| found[*place].0.clone()).collect();
        let decided = match planned {
            _ if found.is_empty() => Decided::Nothing,
            Plan::Nothing | Plan::CommitAll => {
                commit_all(resolver, &found).await?;
                Decided::Committed
            }
            Plan::RollBackAll => {
                roll_back_all(resolver, &found).await?;
                Decided::RolledBack
            }
            Plan::Torn { visible, gone } => {
                return Err(WriterError::Torn { visible: these(&visible), gone: these(&gone) });
            }
            Plan::Unknown { unknown } => return Err(WriterError::Unknown { transactions: these(&unknown) }),
        };
        Ok(Resolution { decided, found })
    }
}

/// Oldest first. What is gone is done without, by policy.
async fn commit_all(resolver: &Resolver, found: &[(TransactionHandle, Fate)]) -> Result<(), WriterError> {
    for (handle, fate) in found {
        if *fate == Fate::Aborted {
            tracing::error!(transaction = %handle, "transaction lost with its records; going on by policy");
            continue;
        }
        resolver.commit(handle).await?;
    }
    Ok(())
}

/// Newest first. What is visible stays, by policy.
async fn roll_back_all(resolver: &Resolver, found: &[(TransactionHandle, Fate)]) -> Result<(), WriterError> {
    for (handle, fate) in found.iter().rev() {
        if *fate == Fate::Committed {
            tracing::error!(transaction = %handle, "transaction is visible and will be written again; going on by policy");
            resolver.see_committed(handle).await?;
            continue;
        }
        resolver.abort(handle).await?;
    }
    Ok(())
}
