//! The account of one producer: what was sent, and what the brokers said to it.
//!
//! Senders count up `sent` before they hand a message to the client; the client's thread counts its report, and wakes whoever
//! waits when both are equal. Room is given back with the reports, so what is in flight is bounded.
//!
//! Senders and the client's thread run at the same time, some hundred thousand messages a second: what one of them writes
//! for each message, the other does not touch for each message.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, TryAcquireError, watch};
use tokio::time::timeout;

use super::error::{ClientError, ProduceError, Undelivered};

/// What the client itself needs for a message, at least: counted, or many empty messages would weigh nothing.
const WEIGHT_OF_ONE: usize = 256;

/// So many failed messages are kept by name; the others are only counted.
const KEPT_FAILURES: usize = 1000;

/// What brokers have acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivered {
    /// Messages.
    pub messages: u64,
    /// The size of their keys, values and headers in bytes.
    pub bytes: u64,
    /// Messages by topic and partition.
    pub partitions: BTreeMap<(String, u32), u64>,
}

/// The part of the room that may be kept back: the bound over this.
const GIVEN_BACK_IN: usize = 64;

/// Alone on its lines of the processor's caches: two of them are often fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

#[derive(Debug)]
pub(super) struct Ledger {
    /// Written by senders.
    sent: Apart<AtomicU64>,
    /// Written by the client's thread.
    reported: Apart<Reported>,
    /// How many wait for reports.
    awaiting: Apart<AtomicU32>,
    /// How many wait for room.
    short: AtomicU32,
    /// Locked by the client's thread for each report, by others for a look: never across an await.
    tallies: Mutex<Tallies>,
    all_in: Notify,
    /// What `has_failed` says, for a look at each message.
    is_failed: AtomicBool,
    has_failed: watch::Sender<bool>,
    /// Bytes that may still be handed over. Closed at the first failure, so that nobody waits for room in vain.
    room: Semaphore,
    bound: u32,
}

#[derive(Debug, Default)]
struct Reported {
    /// Acknowledged or failed.
    settled: AtomicU64,
    /// Room of reported messages that is not given back yet: giving it back is dear, and nobody is waiting for it.
    kept_back: AtomicU64,
}

/// One more, as long as it lives.
struct Counted<'a>(&'a AtomicU32);

impl<'a> Counted<'a> {
    fn up(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct Tallies {
    acked: u64,
    failed: u64,
    bytes: u64,
    partitions: BTreeMap<String, BTreeMap<u32, u64>>,
    /// Reports of a batch come one after the other: they are counted here, and looked up once.
    run: Option<Run>,
    first: Option<ProduceError>,
    failures: Vec<Undelivered>,
}

#[derive(Debug)]
struct Run {
    topic: String,
    partition: u32,
    messages: u64,
}

impl Ledger {
    pub(super) fn new(bound: u32) -> Self {
        Self {
            sent: Apart::default(),
            reported: Apart::default(),
            awaiting: Apart::default(),
            short: AtomicU32::new(0),
            tallies: Mutex::default(),
            all_in: Notify::new(),
            is_failed: AtomicBool::new(false),
            has_failed: watch::Sender::new(false),
            room: Semaphore::new(bound as usize),
            bound,
        }
    }

    /// Waits for room for a message of so many bytes and takes it: its report gives it back. Cancel safe: a dropped call has
    /// taken nothing.
    pub(super) async fn take_room(&self, bytes: usize) -> Result<(), ProduceError> {
        let weight = self.weight_of(bytes);
        match self.room.try_acquire_many(weight) {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::Closed) => self.check()?,
            Err(TryAcquireError::NoPermits) => self.wait_for_room(weight).await?,
        }
        Ok(())
    }

    /// The room that a message takes. One that is larger than all room waits for all of it.
    fn weight_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.saturating_add(WEIGHT_OF_ONE)).unwrap_or(u32::MAX).min(self.bound)
    }

    async fn wait_for_room(&self, weight: u32) -> Result<(), ProduceError> {
        // In this order: a report from here on gives everything back, and what was kept back before is given back here.
        let _short = Counted::up(&self.short);
        self.give_back();
        match self.room.acquire_many(weight).await {
            Ok(permit) => permit.forget(),
            Err(_) => self.check()?,
        }
        Ok(())
    }

    fn give_back(&self) {
        let kept_back = self.reported.0.kept_back.swap(0, Ordering::SeqCst);
        if kept_back > 0 {
            // It was taken from there, so it fits.
            self.room.add_permits(usize::try_from(kept_back).unwrap_or(usize::MAX));
        }
    }

    pub(super) fn note_sent(&self) {
        self.sent.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn note_acked(&self, bytes: usize, topic: &str, partition: i32) {
        self.tallies().acknowledge(bytes, topic, u32::try_from(partition).unwrap_or_default());
        self.settle(self.weight_of(bytes));
    }

    pub(super) fn note_failed(&self, undelivered: Undelivered) {
        let weight = self.weight_of(undelivered.bytes);
        self.tallies().fail(undelivered);
        self.announce();
        self.settle(weight);
    }

    /// Notes a failure that is no message's.
    pub(super) fn fail(&self, error: ProduceError) {
        self.tallies().first.get_or_insert(error);
        self.announce();
    }

    fn announce(&self) {
        // In this order: who is woken by the closing finds the failure.
        self.is_failed.store(true, Ordering::SeqCst);
        self.has_failed.send_replace(true);
        self.room.close();
    }

    fn settle(&self, weight: u32) {
        let Reported { settled, kept_back } = &self.reported.0;
        let kept_back = kept_back.fetch_add(weight.into(), Ordering::SeqCst) + u64::from(weight);
        let settled = settled.fetch_add(1, Ordering::SeqCst) + 1;
        let share = self.bound as usize / GIVEN_BACK_IN;
        if kept_back >= share as u64 || self.short.load(Ordering::SeqCst) > 0 {
            self.give_back();
        }
        // Whoever waits has said so before it looked.
        if self.awaiting.0.load(Ordering::SeqCst) > 0 && settled == self.sent() {
            self.all_in.notify_waiters();
        }
    }

    /// Returns the number of messages that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.0.load(Ordering::SeqCst)
    }

    /// Returns the number of messages without a report.
    pub(super) fn outstanding(&self) -> u64 {
        // In this order: a report that comes in between makes the difference smaller, never negative.
        let settled = self.reported.0.settled.load(Ordering::SeqCst);
        self.sent().saturating_sub(settled)
    }

    /// Returns how much room is taken, in bytes.
    pub(super) fn in_flight_bytes(&self) -> usize {
        let kept_back = self.reported.0.kept_back.load(Ordering::SeqCst);
        let free =
            self.room.available_permits().saturating_add(usize::try_from(kept_back).unwrap_or(usize::MAX));
        (self.bound as usize).saturating_sub(free)
    }

    /// Fails if anything has failed.
    pub(super) fn check(&self) -> Result<(), ProduceError> {
        if !self.is_failed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let tallies = self.tallies();
        match tallies.first.clone() {
            Some(ProduceError::NotDelivered { first, cause, .. }) => {
                Err(ProduceError::NotDelivered { first, cause, failed: tallies.failed, sent: self.sent() })
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits until something has failed. Cancel safe.
    pub(super) async fn failed(&self) -> ProduceError {
        let mut news = self.has_failed.subscribe();
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            // The sender is ours, so this does not fail.
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until every message has its report, then fails if one of them failed. Cancel safe.
    pub(super) async fn settled(&self, within: Duration) -> Result<(), ProduceError> {
        if timeout(within, self.all_reports()).await.is_err() {
            // What has failed says more than what is missing.
            self.check()?;
            let outstanding = self.outstanding();
            return Err(ProduceError::Unreported { outstanding, sent: self.sent(), within });
        }
        self.check()
    }

    async fn all_reports(&self) {
        let _awaiting = Counted::up(&self.awaiting.0);
        loop {
            let mut woken = pin!(self.all_in.notified());
            // Registered before the look: a report in between is not missed.
            woken.as_mut().enable();
            if self.outstanding() == 0 {
                return;
            }
            woken.await;
        }
    }

    pub(super) fn delivered(&self) -> Delivered {
        let mut tallies = self.tallies();
        tallies.end_run();
        let partitions = tallies.partitions.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(|(partition, messages)| ((topic.clone(), *partition), *messages))
        });
        Delivered { messages: tallies.acked, bytes: tallies.bytes, partitions: partitions.collect() }
    }

    pub(super) fn failures(&self) -> (u64, Vec<Undelivered>) {
        let tallies = self.tallies();
        (tallies.failed, tallies.failures.clone())
    }

    fn tallies(&self) -> MutexGuard<'_, Tallies> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tallies {
    fn acknowledge(&mut self, bytes: usize, topic: &str, partition: u32) {
        self.acked += 1;
        self.bytes += bytes as u64;
        match &mut self.run {
            Some(run) if run.partition == partition && run.topic == topic => run.messages += 1,
            _ => {
                self.end_run();
                self.run = Some(Run { topic: topic.to_owned(), partition, messages: 1 });
            }
        }
    }

    fn end_run(&mut self) {
        if let Some(Run { topic, partition, messages }) = self.run.take() {
            *self.partitions.entry(topic).or_default().entry(partition).or_default() += messages;
        }
    }

    fn fail(&mut self, undelivered: Undelivered) {
        self.failed += 1;
        if self.first.is_none() {
            let cause: ClientError = undelivered.cause.clone();
            let first = Box::new(undelivered.clone());
            self.first = Some(ProduceError::NotDelivered { first, cause, failed: 1, sent: 1 });
        }
        if self.failures.len() < KEPT_FAILURES {
            self.failures.push(undelivered);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rdkafka::error::RDKafkaErrorCode;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn undelivered() -> Undelivered {
        let cause = ClientError { code: RDKafkaErrorCode::MessageTimedOut, text: "timed out".to_owned() };
        Undelivered { topic: "t".to_owned(), partition: Some(0), origin: None, bytes: 9, cause }
    }

    fn sent(ledger: &Ledger, bytes: usize) {
        ledger.take_room(bytes).now_or_never().expect("there is room").expect("no failure");
        ledger.note_sent();
    }

    /// [KSK-03] the account's part. [KSK-06] whoever waits is woken by the last report itself: no step of time is taken.
    #[tokio::test]
    async fn flush_ends_with_the_last_report_and_not_before() {
        let ledger = Ledger::new(1 << 20);
        (0..2).for_each(|_| sent(&ledger, 1));
        let mut flush = pin!(ledger.settled(HOUR));
        assert!(flush.as_mut().now_or_never().is_none());
        ledger.note_acked(1, "t", 0);
        assert!(flush.as_mut().now_or_never().is_none(), "one is outstanding");
        ledger.note_acked(1, "t", 1);
        flush.as_mut().now_or_never().expect("woken by the last report").expect("nothing failed");
        let partitions = [(("t".to_owned(), 0), 1), (("t".to_owned(), 1), 1)].into();
        assert_eq!(ledger.delivered(), Delivered { messages: 2, bytes: 2, partitions });
    }

    /// [KSK-03] the account's part: that all reports are in says nothing about what they say.
    #[tokio::test]
    async fn flush_fails_when_one_of_many_failed() {
        let ledger = Ledger::new(1 << 20);
        for _ in 0..9 {
            sent(&ledger, 1);
            ledger.note_acked(1, "t", 0);
        }
        sent(&ledger, 9);
        ledger.note_failed(undelivered());
        let error = ledger.settled(HOUR).await.expect_err("one failed");
        assert_eq!(
            error.to_string(),
            "a message of 9 bytes was not delivered to topic t, partition 0; 1 of 10 messages failed"
        );
        assert_eq!((ledger.delivered().messages, ledger.failures().0, ledger.outstanding()), (9, 1, 0));
    }

    /// [KSK-04] the account's part: an error is seen while nothing is written, and by whoever waits for room.
    #[tokio::test]
    async fn failure_wakes_who_is_idle_and_who_waits_for_room() {
        let ledger = Ledger::new(1000);
        sent(&ledger, 1000);
        let mut idle = pin!(ledger.failed());
        let mut waits = pin!(ledger.take_room(1));
        assert!(idle.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
        ledger.note_failed(undelivered());
        assert!(matches!(idle.as_mut().now_or_never(), Some(ProduceError::NotDelivered { .. })));
        assert!(matches!(waits.as_mut().now_or_never(), Some(Err(ProduceError::NotDelivered { .. }))));
        assert!(ledger.check().is_err());
    }

    /// [KSK-06] the account's part.
    #[tokio::test]
    async fn room_is_bounded_and_comes_back_with_the_reports() {
        let ledger = Ledger::new(3 * 1256);
        (0..3).for_each(|_| sent(&ledger, 1000));
        assert!(ledger.take_room(1000).now_or_never().is_none(), "all room is taken");
        assert_eq!(ledger.in_flight_bytes(), 3 * 1256, "a wait that was given up holds nothing");
        ledger.note_acked(1000, "t", 0);
        sent(&ledger, 1000);
        assert_eq!(ledger.in_flight_bytes(), 3 * 1256);
        // One that is larger than all room is let through alone.
        let mut large = pin!(ledger.take_room(1 << 20));
        for _ in 0..2 {
            assert!(large.as_mut().now_or_never().is_none());
            ledger.note_acked(1000, "t", 0);
        }
        assert!(large.as_mut().now_or_never().is_none());
        ledger.note_acked(1000, "t", 0);
        large.as_mut().now_or_never().expect("room").expect("no failure");
        assert_eq!(ledger.in_flight_bytes(), 3 * 1256, "and takes no more than there is");
    }

    /// [KSK-06] the account's part: room that was kept back is not missing to whoever needs all of it.
    #[tokio::test]
    async fn room_that_was_kept_back_is_given_to_whoever_waits() {
        let bound = 64 * 12_560;
        let ledger = Ledger::new(bound);
        (0..3).for_each(|_| sent(&ledger, 1000));
        ledger.note_acked(1000, "t", 0);
        assert_eq!(ledger.in_flight_bytes(), 2 * 1256, "kept back, and free");
        let mut all = pin!(ledger.take_room(bound as usize));
        assert!(all.as_mut().now_or_never().is_none());
        ledger.note_acked(1000, "t", 0);
        assert!(all.as_mut().now_or_never().is_none(), "one is outstanding");
        ledger.note_acked(1000, "t", 0);
        all.as_mut().now_or_never().expect("room").expect("no failure");
        assert_eq!(ledger.in_flight_bytes(), bound as usize);
    }

    /// [KSK-26] the account's part: the wait for reports is bounded, and says what is missing.
    #[tokio::test(start_paused = true)]
    async fn wait_for_reports_is_bounded() {
        let ledger = Ledger::new(1 << 20);
        sent(&ledger, 1);
        let error = ledger.settled(HOUR).await.expect_err("no report comes");
        assert!(matches!(error, ProduceError::Unreported { outstanding: 1, sent: 1, .. }));
    }
}
