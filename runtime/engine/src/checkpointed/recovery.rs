//! What is done once at each start of a job, before any subtask opens.
//!
//! ```text
//!  lease ─▶ choose n ─▶ inspect all pending ─▶ decide once ─┬─ commit all ─────────────────────▶ drop what was rolled back
//!             ▲         of all sinks                         ├─ roll back ─▶ note rolledback(n−1) ─┐        │
//!             └──────────────────────────────────────────────┼─────────────────────────────────────┘        ▼
//!                                                            └─ torn, unknown ─▶ stop             fence ─▶ open ─▶ resolved(n)
//! ```
//! Nothing is changed before the decision. Each step behind it can be repeated: a process that dies in the middle leaves the
//! note, and the next one goes on from it, drops the same again and fences again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{CheckpointId, Clock, SinkContext, State};

use super::launch::RestoredJob;
use super::restore::{deal_out, read_states, refuse_unknown};
use super::run::{CheckpointedJob, StartFrom};
use super::sink_part::SinkResolver;
use super::verdict::{InspectedSink, RecoveryError, Verdict, judge};
use crate::checkpoint::CheckpointSettings;
use crate::closing::close_in_time;
use crate::driver::{DriverError, check_timeout};
use crate::error::JobError;
use crate::failpoint::fail_point;
use crate::plan::Stage;
use crate::store::{
    Decision, Lease, Log, Manifest, Refusal, RestoreFrom, RestorePolicy, Store, StoreError, choose,
    choose_savepoint, republished,
};

/// What a start must know of its job.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) job: String,
    pub(super) parallelism: u32,
    pub(super) stages: Vec<Stage>,
    pub(super) settings: CheckpointSettings,
    pub(super) downtime: Duration,
    pub(super) policy: RestorePolicy,
    pub(super) allow_unknown_state: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl Terms {
    pub(super) fn of(job: &CheckpointedJob) -> Self {
        Self {
            job: job.job.name.clone(),
            parallelism: job.job.parallelism,
            stages: job.stages.clone(),
            settings: job.settings,
            downtime: job.downtime,
            policy: job.policy,
            allow_unknown_state: job.allow_unknown_state,
            clock: Arc::clone(&job.clock),
        }
    }

    /// Without an interval, whoever asks for the checkpoints sees to it that they come in time.
    fn check_timeout(&self, sink: &dyn SinkResolver) -> Result<(), JobError> {
        let interval = self.settings.interval.unwrap_or_default();
        let checked =
            check_timeout(sink.transaction_timeout(), interval, self.settings.timeout, self.downtime);
        checked.map_err(|cause| JobError::TransactionTimeout { uid: sink.uid().to_owned(), cause })
    }
}

/// One start.
pub(super) struct Recovery<'a> {
    pub(super) terms: &'a Terms,
    pub(super) store: &'a Store,
    pub(super) lease: &'a mut Lease,
    /// Where to go on from; the newest one once that was left behind.
    pub(super) from: &'a mut StartFrom,
    /// The first checkpoint that the tasks of this start may name.
    pub(super) first: CheckpointId,
}

/// What a start goes on from, and what it knows.
struct Chosen {
    log: Log,
    manifest: Option<Manifest>,
    states: BTreeMap<String, Vec<State>>,
}

impl Chosen {
    fn id(&self) -> Option<CheckpointId> {
        self.manifest.as_ref().map(|manifest| manifest.id)
    }

    /// Whether everything it covers is visible.
    fn is_resolved(&self) -> bool {
        self.id() <= self.log.newest_resolved()
    }

    fn states_of(&self, uid: &str) -> &[State] {
        self.states.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The number of its entry, if it is in the log.
    fn number(&self) -> Option<u64> {
        let id = self.id()?;
        self.log.checkpoints().find(|(_, manifest)| manifest.id == id).map(|(number, _)| number)
    }

    /// Whether others have followed it: names that it holds back may have been used again since.
    fn is_gone_back_to(&self) -> bool {
        let Some(id) = self.id() else { return false };
        let is_later =
            self.log.checkpoints().chain(self.log.rolled_back()).any(|(_, manifest)| manifest.id > id);
        // What followed may not be readable.
        is_later || self.log.damages.iter().any(|damage| damage.entry > self.number())
    }

    /// The complete checkpoint before it.
    fn previous(&self) -> Option<CheckpointId> {
        let own = self.number()?;
        let before = self.log.checkpoints().rev().find(|(number, _)| *number < own);
        before.map(|(_, manifest)| manifest.id)
    }
}

pub(super) type Resolvers = Vec<Box<dyn SinkResolver>>;

fn sink_error(uid: &str) -> impl FnOnce(DriverError) -> JobError {
    move |cause| JobError::CheckpointedSink { uid: uid.to_owned(), subtask: 0, cause: Box::new(cause) }
}

impl Recovery<'_> {
    /// Decides where to go on from, and brings the targets of all sinks there.
    pub(super) async fn run(&mut self, mut resolvers: Resolvers) -> Result<RestoredJob, JobError> {
        self.lease.confirm().await?;
        let outcome = self.resolve(&mut resolvers).await;
        for resolver in &mut resolvers {
            close_in_time("sink", resolver.close()).await;
        }
        outcome
    }

    async fn resolve(&mut self, resolvers: &mut Resolvers) -> Result<RestoredJob, JobError> {
        for resolver in resolvers.iter_mut() {
            let (job, parallelism) = (self.terms.job.clone(), self.terms.parallelism);
            let ctx = SinkContext { job, subtask: 0, parallelism };
            let opened = resolver.open(ctx).await;
            opened.map_err(sink_error(resolver.uid()))?;
            self.terms.check_timeout(&**resolver)?;
        }
        let chosen = self.decide(resolvers).await?;
        let mut states = chosen.states.clone();
        if chosen.is_resolved() {
            settle(&mut states, resolvers)?;
        }
        let spared = if chosen.is_gone_back_to() { states.clone() } else { chosen.states.clone() };
        // Before anything is dropped: what cannot be dealt out is refused.
        let restored = deal_out(self.terms, chosen.manifest.as_ref(), states)?;
        self.roll_back(&chosen, resolvers).await?;
        self.fence(&spared, resolvers).await?;
        let resolves_at_open = resolvers.iter().all(|resolver| resolver.resolves_at_open());
        let is_due = !chosen.is_resolved() && resolves_at_open;
        Ok(RestoredJob { is_resolved_by_opening: is_due && restored.checkpoint.is_some(), ..restored })
    }

    /// Goes back until there is a checkpoint that can be made visible as a whole.
    async fn decide(&mut self, resolvers: &mut Resolvers) -> Result<Chosen, JobError> {
        loop {
            let chosen = self.choose().await?;
            let Some(checkpoint) = chosen.id() else { return Ok(chosen) };
            if chosen.is_resolved() || resolvers.is_empty() {
                return Ok(chosen);
            }
            let sinks = self.inspect(&chosen, resolvers).await?;
            match judge(checkpoint, chosen.previous(), sinks, self.terms.policy.allow_fresh_start) {
                Verdict::GoOn => return Ok(chosen),
                Verdict::RollBack { to } => {
                    tracing::error!(%checkpoint, ?to, "transactions of the newest checkpoint are gone, none of it is visible: rolled back");
                    self.note(to).await?;
                    *self.from = StartFrom::Entry(RestoreFrom::Latest);
                }
                Verdict::Stop(error) => {
                    // Whoever was taken over has nothing to tell a human: what it found may be its successor's doing.
                    self.lease.confirm().await?;
                    return Err(error.into());
                }
            }
        }
    }

    async fn inspect(
        &self,
        chosen: &Chosen,
        resolvers: &mut Resolvers,
    ) -> Result<Vec<InspectedSink>, JobError> {
        fail_point!("recovery::before_inspect");
        let mut sinks = Vec::new();
        let now = self.terms.clock.now();
        for resolver in resolvers.iter_mut() {
            let uid = resolver.uid().to_owned();
            let found = resolver.inspect(chosen.states_of(&uid), now).await;
            sinks.push(InspectedSink { transactions: found.map_err(sink_error(&uid))?, uid });
        }
        fail_point!("recovery::after_inspect");
        Ok(sinks)
    }

    /// Finds what to go on from by what the store holds, and what the job allows.
    async fn choose(&mut self) -> Result<Chosen, JobError> {
        let (log, decision) = self.look().await?;
        let (manifest, passed_over) = match decision {
            Decision::Fresh => (None, None),
            Decision::Restore(manifest) => (Some(manifest), None),
            Decision::Replay { from, passed_over } => (Some(from), Some(passed_over)),
            Decision::Refuse(refusal) => return Err(refusal.into()),
        };
        let states = match &manifest {
            Some(manifest) => {
                self.refuse_another_jobs(&log, manifest.id)?;
                let states = read_states(self.store, manifest).await?;
                refuse_unknown(self.terms, manifest.id, &states)?;
                states
            }
            None => BTreeMap::new(),
        };
        match (&manifest, passed_over) {
            (Some(from), Some(passed_over)) => {
                let sinks = republished(from, &log.entries);
                tracing::error!(checkpoint = %from.id, ?passed_over, ?sinks, "an older checkpoint is used: sinks may publish again");
                // The fence ends what newer ones hold back, so they must not be restored any more.
                self.note(Some(from.id)).await?;
            }
            // Only where an empty start was asked for: what is there must not come back.
            (None, _) if log.has_history() => {
                tracing::error!(
                    "the job starts from nothing, though there were checkpoints, as it was asked to"
                );
                self.note(None).await?;
            }
            _ => {}
        }
        Ok(Chosen { log: self.store.log().await?, manifest, states })
    }

    /// Whoever names a checkpoint knows whose it is; the newest one may be another job's by mistake, and its positions and
    /// what it holds back are that one's own.
    fn refuse_another_jobs(&self, log: &Log, id: CheckpointId) -> Result<(), Refusal> {
        let StartFrom::Entry(RestoreFrom::Latest) = &self.from else { return Ok(()) };
        let entry = log.entries.iter().find(|entry| entry.number == id.attempt);
        match entry.and_then(|entry| entry.lease()) {
            Some(lease) if lease.owner != self.terms.job => {
                let (owner, job) = (lease.owner.clone(), self.terms.job.clone());
                Err(Refusal::AnotherJob { id, owner, job })
            }
            // Where the lease entry is damaged, its checkpoints stand for themselves.
            _ => Ok(()),
        }
    }

    async fn look(&mut self) -> Result<(Log, Decision), JobError> {
        let log = self.store.log().await?;
        let attempt = self.lease.attempt();
        // A restart of this attempt goes on from what it has completed itself.
        if log.checkpoints().any(|(_, manifest)| manifest.id.attempt == attempt) {
            *self.from = StartFrom::Entry(RestoreFrom::Latest);
        }
        let policy = self.terms.policy;
        match self.from {
            StartFrom::Entry(from) => {
                let log = self.store.recover(*from).await?.log;
                let decision = choose(&log.entries, &log.damages, *from, policy);
                Ok((log, decision))
            }
            StartFrom::Savepoint(name) => {
                let savepoint = self.store.savepoint(name).await?;
                let (id, name) = (savepoint.manifest.id, name.clone());
                let decision = match id.attempt < attempt {
                    true => choose_savepoint(&log.entries, &log.damages, &savepoint, policy),
                    false => Decision::Refuse(Refusal::ForeignSavepoint { name, id, attempt }),
                };
                Ok((log, decision))
            }
        }
    }

    async fn note(&mut self, to: Option<CheckpointId>) -> Result<(), JobError> {
        fail_point!("recovery::before_note");
        self.lease.roll_back(to).await?;
        fail_point!("recovery::after_note");
        Ok(())
    }

    /// Drops what rolled-back checkpoints hold back, until a newer checkpoint is complete.
    async fn roll_back(&self, chosen: &Chosen, resolvers: &mut Resolvers) -> Result<(), JobError> {
        let above = chosen.number().unwrap_or(0);
        let gone = chosen.log.rolled_back().filter(|(number, _)| *number > above);
        for (_, manifest) in gone.filter(|(_, manifest)| Some(manifest.id) > chosen.id()) {
            fail_point!("recovery::before_roll_back");
            let states = match read_states(self.store, manifest).await {
                Ok(states) => states,
                Err(JobError::Store(error)) if matches!(*error, StoreError::Damaged(_)) => {
                    tracing::warn!(checkpoint = %manifest.id, "what a rolled-back checkpoint holds back cannot be read; the fence ends it");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut sinks = Vec::new();
            for resolver in resolvers.iter_mut() {
                let uid = resolver.uid().to_owned();
                let Some(states) = states.get(&uid) else { continue };
                let visible = resolver.roll_back(states, chosen.id()).await;
                let transactions = visible.map_err(sink_error(&uid))?;
                if !transactions.is_empty() {
                    sinks.push(InspectedSink { uid, transactions });
                }
            }
            if !sinks.is_empty() && !self.terms.policy.allow_replay {
                self.lease.confirm().await?;
                return Err(RecoveryError::VisibleAfterAll { checkpoint: manifest.id, sinks }.into());
            }
            fail_point!("recovery::after_roll_back");
        }
        Ok(())
    }

    /// Ends what earlier attempts have left, except what the checkpoint holds back for all of its subtasks.
    async fn fence(
        &self,
        spared: &BTreeMap<String, Vec<State>>,
        resolvers: &mut Resolvers,
    ) -> Result<(), JobError> {
        if resolvers.is_empty() {
            return Ok(());
        }
        // Whoever was taken over need not begin. One that is taken over behind this line spares what bears later names.
        self.lease.confirm().await?;
        fail_point!("recovery::before_fence");
        for resolver in resolvers.iter_mut() {
            let uid = resolver.uid().to_owned();
            let states = spared.get(&uid).map_or(&[][..], Vec::as_slice);
            resolver.fence(self.first, states).await.map_err(sink_error(&uid))?;
        }
        fail_point!("recovery::after_fence");
        Ok(())
    }
}

/// What a resolved checkpoint holds back is visible: targets may have forgotten it meanwhile, so nobody commits it again.
fn settle(states: &mut BTreeMap<String, Vec<State>>, resolvers: &Resolvers) -> Result<(), JobError> {
    for resolver in resolvers {
        let uid = resolver.uid();
        for state in states.get_mut(uid).into_iter().flatten() {
            let settled = resolver.settled(state);
            *state = settled.map_err(|cause| JobError::State { uid: uid.to_owned(), cause })?;
        }
    }
    Ok(())
}
