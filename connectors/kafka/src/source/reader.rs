//! The consumer's thread: serves the client's events, fills batches and hands them over.
//!
//! ```text
//!            ┌─────────── flowing: fill ◀──────────────┐
//!            │  full, dry or old                       │ all handed over
//!            ▼                                         │
//!         outbox ── room and budget ──▶ exchange ──────┤
//!            │  neither                                │
//!            ▼                                         │
//!         stuck, at most 1 s: wait, fetch nothing ─────┤
//!            │  longer                                 │
//!            ▼                                         │ room, and half of the batches' share is free
//!         held back: all splits paused, events served ─┘
//! ```
//!
//! Pausing throws away what the client has fetched ahead, which is why it is not the first resort. Commands are looked
//! for at every step, and interrupt every wait.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::time::{Pause, SplitEvent};
use levada_core::{Budget, Positions, Record, SourceError, SplitId};

use super::client::partitions;
use super::config::{BatchBounds, Headers, KafkaSourceConfig, WhenLost};
use super::contact::Contact;
use super::error::ReadError;
use super::events::Client;
use super::handover::{Exchange, Handover};
use super::producers::Finder;
use super::renew::Looks;
use super::splits::{Building, Splits};
use super::standing::Observer;
use super::status::SourceStatus;
use super::topic_ids::TopicIds;

/// How long the thread waits for an event when there is none; commands interrupt it.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// How long a batch is kept before all splits are paused.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the thread waits for the budget before it looks for commands again: the budget is shared by the process
/// and cannot be interrupted.
const STEP: Duration = Duration::from_millis(10);

/// The same while all splits are paused, where nothing is in a hurry any more.
const HELD_STEP: Duration = Duration::from_millis(50);

/// After so many records the thread looks at the clock and for commands.
const LOOK_EVERY: u32 = 64;

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Stop,
}

/// Where a reader's flow stands.
pub(super) enum Flow {
    Flowing,
    /// Something could not be handed over since.
    Stuck(Instant),
    /// All splits are paused.
    HeldBack,
}

/// Everything the thread owns.
pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) bootstrap: String,
    pub(super) headers: Headers,
    when_lost: WhenLost,
    pub(super) exchange: Arc<Exchange>,
    pub(super) status: Arc<SourceStatus>,
    pub(super) budget: Budget,
    pub(super) bounds: BatchBounds,
    pub(super) stops: Option<Positions>,
    topic_ids: TopicIds,
    pub(super) splits: Splits,
    pub(super) building: Building,
    /// When the first record of the batch that is being filled was appended.
    since: Option<Instant>,
    /// What is ready to be handed over, in order. Nothing is fetched while it holds something, except when held back.
    pub(super) outbox: VecDeque<Handover>,
    pub(super) flow: Flow,
    /// Whether a broker could not be reached since the last probe.
    pub(super) suspects_outage: bool,
    pub(super) looks: Looks,
    pub(super) contact: Contact,
    /// When fetching is to be started again for the splits that fail.
    pub(super) retry_at: Option<Instant>,
    observer: Observer,
    /// The splits that the user lets rest, also those that are not read now.
    pub(super) user_paused: BTreeSet<SplitId>,
    pub(super) has_user_paused: bool,
}

impl Reader {
    pub(super) fn new(
        client: Client,
        config: &KafkaSourceConfig,
        exchange: Arc<Exchange>,
        status: Arc<SourceStatus>,
        budget: Budget,
        stops: Option<Positions>,
        topic_ids: TopicIds,
    ) -> Self {
        Self {
            client,
            bootstrap: config.bootstrap.clone(),
            headers: config.headers,
            when_lost: config.when_lost,
            exchange,
            status,
            budget,
            bounds: config.bounds,
            stops,
            topic_ids,
            splits: Splits::default(),
            building: Building::default(),
            since: None,
            outbox: VecDeque::new(),
            flow: Flow::Flowing,
            suspects_outage: false,
            looks: Looks::default(),
            contact: Contact::default(),
            retry_at: None,
            observer: Observer::new(config.hanging_after),
            user_paused: BTreeSet::new(),
            has_user_paused: false,
        }
    }

    /// Has the transactions looked for that splits wait for.
    pub(super) fn finding_by(mut self, finder: Finder) -> Self {
        self.observer.find_by(finder);
        self
    }

    /// Reads until it is told to stop or fails. A failure is handed over behind everything that was read before it.
    pub(super) fn run(mut self) {
        loop {
            match self.step() {
                Ok(Next::Continue) => {}
                Ok(Next::Stop) => return,
                Err(error) => {
                    self.fail(error.into());
                    return;
                }
            }
        }
    }

    fn step(&mut self) -> Result<Next, ReadError> {
        if self.apply_commands()? == Next::Stop {
            return Ok(Next::Stop);
        }
        self.observer.look(&mut self.splits, &self.client, &self.status);
        if self.hand_over() {
            self.flow_again()?;
            self.fill()?;
        } else {
            self.wait_stuck()?;
        }
        Ok(Next::Continue)
    }

    /// Fills a batch until it is full, old, or nothing more is there.
    fn fill(&mut self) -> Result<(), ReadError> {
        let mut until_look = LOOK_EVERY;
        loop {
            let is_served = self.serve_what_is_there()?;
            // Events that bring nothing (statistics, lines of the log) may come for ever, and must not keep the rest waiting.
            if !is_served || self.building.is_empty() {
                self.look_after_client()?;
                self.fetch_again()?;
                break;
            }
            until_look -= 1;
            if until_look == 0 {
                until_look = LOOK_EVERY;
                if self.exchange.has_commands() || self.age() >= self.bounds.age {
                    break;
                }
            }
            if self.is_full() {
                break;
            }
        }
        self.close_batch()
    }

    /// Serves one event, waiting for it; tells whether there was one.
    fn serve_next(&mut self, patience: Duration) -> Result<bool, ReadError> {
        // The event borrows the client alone; the rest of the reader is free to change.
        let Some(mut event) = self.client.poll(patience) else {
            return Ok(false);
        };
        super::serve::serve(
            event.view(),
            &mut super::serve::Serving {
                client: &self.client,
                bootstrap: &self.bootstrap,
                headers: self.headers,
                when_lost: self.when_lost,
                is_held_back: matches!(self.flow, Flow::HeldBack),
                topic_ids: &self.topic_ids,
                splits: &mut self.splits,
                building: &mut self.building,
                status: &self.status,
                suspects_outage: &mut self.suspects_outage,
                retry_at: &mut self.retry_at,
            },
        )?;
        if self.since.is_none() && !self.building.is_empty() {
            self.since = Some(Instant::now());
        }
        Ok(true)
    }

    /// With nothing collected, waits for an event or a command. With something collected, serves only what is there
    /// already; while the receiver is busy anyhow, waits for more until the batch is old.
    fn serve_what_is_there(&mut self) -> Result<bool, ReadError> {
        if self.building.is_empty() {
            return self.serve_next(IDLE);
        }
        if self.serve_next(Duration::ZERO)? {
            return Ok(true);
        }
        if self.exchange.is_drained() {
            return Ok(false);
        }
        self.serve_next(self.bounds.age.saturating_sub(self.age()))
    }

    fn is_full(&self) -> bool {
        let builder = &self.building.builder;
        builder.len() >= self.bounds.records || builder.bytes() >= self.bounds.bytes
    }

    fn age(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Moves what was collected to the outbox: the batch, then how splits stand behind it, then the ends.
    pub(super) fn close_batch(&mut self) -> Result<(), ReadError> {
        self.since = None;
        if self.building.is_empty() {
            return Ok(());
        }
        let Building { builder, readings, news, ended, .. } = self.building.take();
        if !readings.is_empty() {
            self.outbox.push_back(Handover::Batch {
                builder,
                readings,
                is_paid: false,
                ready: Instant::now(),
            });
        }
        if !news.is_empty() {
            self.outbox.push_back(Handover::News(news));
        }
        if !ended.is_empty() {
            let list = partitions(ended.iter().map(|(_, split, _)| split))?;
            self.unassign(&list)?;
        }
        for (reading, split, end) in ended {
            self.outbox.push_back(Handover::EndOfSplit { reading, split, end });
        }
        Ok(())
    }

    /// Hands over what there is room and budget for; tells whether that was everything.
    fn hand_over(&mut self) -> bool {
        let share = self.share();
        if matches!(self.flow, Flow::HeldBack) && !self.outbox.is_empty() && self.budget.used() > share / 2 {
            return false;
        }
        while let Some(handover) = self.outbox.front_mut() {
            let has_room = !handover.is_batch() || self.exchange.has_room();
            if !has_room || !take_permit(handover, &self.budget, share, STEP) {
                return false;
            }
            if let Some(handover) = self.outbox.pop_front() {
                self.exchange.offer(handover);
            }
        }
        true
    }

    /// The part of the budget that batches may use: the other half is for what the client fetches ahead.
    fn share(&self) -> usize {
        self.budget.limit() / 2
    }

    fn flow_again(&mut self) -> Result<(), ReadError> {
        if matches!(self.flow, Flow::HeldBack) {
            let awake =
                self.splits.iter().filter(|reading| !reading.is_resting()).map(|reading| &reading.split);
            let list = partitions(awake)?;
            self.resume_list(&list)?;
            self.status.set_held_back(false);
            self.building.tell_of_all(&self.splits, SplitEvent::Resumed(Pause::BackPressure));
            self.exchange.want_room(false);
            tracing::debug!("the splits go on");
        }
        self.flow = Flow::Flowing;
        Ok(())
    }

    /// Waits a moment for room or budget; after [`PATIENCE`], pauses all splits and serves events meanwhile.
    fn wait_stuck(&mut self) -> Result<(), ReadError> {
        match self.flow {
            Flow::Flowing => self.flow = Flow::Stuck(Instant::now()),
            Flow::Stuck(since) if since.elapsed() >= PATIENCE => self.hold_back()?,
            // The wait for the budget was in `hand_over`.
            Flow::Stuck(since) => self.exchange.wait_for_room(PATIENCE.saturating_sub(since.elapsed())),
            Flow::HeldBack => {
                while self.serve_next(HELD_STEP)? && !self.exchange.has_commands() {}
                self.close_batch()?;
            }
        }
        Ok(())
    }

    fn hold_back(&mut self) -> Result<(), ReadError> {
        let list = partitions(self.splits.iter().map(|reading| &reading.split))?;
        self.pause_list(&list)?;
        self.flow = Flow::HeldBack;
        self.status.set_held_back(true);
        self.building.tell_of_all(&self.splits, SplitEvent::Paused(Pause::BackPressure));
        self.exchange.want_room(true);
        tracing::debug!(budget_used = self.budget.used(), "all splits are paused until batches are released");
        Ok(())
    }

    /// Starts fetching again for splits that failed a while ago. Only then does the client say that they are at their ends
    /// even if nothing has come since: without it, a split that failed once would count as failing until its next record.
    fn fetch_again(&mut self) -> Result<(), ReadError> {
        if self.retry_at.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        self.retry_at = None;
        for reading in self.splits.iter_mut().filter(|reading| reading.is_failing) {
            reading.is_failing = false;
            super::serve::restart(reading, matches!(self.flow, Flow::HeldBack), &self.client)?;
        }
        Ok(())
    }

    /// Hands over what was read before the failure, then the failure. Waits for the budget no longer than it must: the
    /// job ends in any case, and what is lost here is read again.
    fn fail(mut self, error: SourceError) {
        if self.close_batch().is_ok() {
            let share = self.share();
            for mut handover in std::mem::take(&mut self.outbox) {
                if !take_permit(&mut handover, &self.budget, share, STEP) {
                    break;
                }
                self.exchange.offer(handover);
            }
        }
        self.exchange.offer(Handover::Failed(error));
    }
}

/// Takes a batch's bytes from the budget, waiting up to `patience`: within the batches' share, or when nothing else is
/// in flight. Tells whether the handover is paid for.
fn take_permit(handover: &mut Handover, budget: &Budget, share: usize, patience: Duration) -> bool {
    let Handover::Batch { builder, is_paid, .. } = handover else { return true };
    // What a record weighs beside its payload counts as well: tiny records weigh little else.
    let bytes = builder.bytes() + builder.len() * size_of::<Record<()>>();
    if *is_paid || bytes == 0 {
        return true;
    }
    if !budget.wait_below(share.saturating_sub(bytes), patience) {
        return false;
    }
    match budget.try_acquire(bytes) {
        Some(permit) => {
            builder.hold(permit);
            *is_paid = true;
            true
        }
        None => false,
    }
}
