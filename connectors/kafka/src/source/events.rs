//! librdkafka's event API: the one module of the workspace that may say `unsafe`.
//!
//! The safe crate's own poll loop reports an end of partition without topic and offset, and allocates per record. This
//! module takes the same client's consumer queue and reads the events itself; everything else (assigning, pausing,
//! asking for offsets) goes through the safe crate.
//!
//! ```text
//!   Client ── poll ──▶ OwnedEvent ── view ──▶ Event::Fetched(Fetched) ── record, headers ──▶ slices of librdkafka's memory
//!     │                    │ drop: rd_kafka_event_destroy
//!     └── wake: Arc<Wake>, the only part that other threads hold
//! ```
//!
//! What the proofs rest on: a `Client` owns its queue references and its consumer, and drops them in this order; an
//! `OwnedEvent` borrows the `Client`; every view borrows its `OwnedEvent`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::{SplitId, Timestamp, TimestampKind};
use rdkafka::bindings as rd;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, ClientContext};

use super::error::ClientError;
use super::retire::retire;

/// Receives what the safe crate handles itself while a client is being closed: nothing of interest.
pub(super) struct Quiet;

impl ClientContext for Quiet {}
impl ConsumerContext for Quiet {}

/// A consumer together with its queue of events. Lives on one thread.
pub(super) struct Client {
    // Before the consumer: fields are dropped in their order, and the queues are given back while it is alive.
    queues: Queues,
    consumer: BaseConsumer<Quiet>,
    config: ClientConfig,
}

/// The queues of one consumer, and who interrupts the wait at them.
struct Queues {
    /// The queue that is polled: our own, to which the consumer's is forwarded. Polling the consumer's itself would
    /// note the time of every single record, for a poll interval that an assigning client does not have.
    polled: NonNull<rd::rd_kafka_queue_t>,
    /// Our own reference to the consumer's queue. Both are given back in `drop`, before the consumer is destroyed.
    forwarded: NonNull<rd::rd_kafka_queue_t>,
    wake: Arc<Wake>,
}

/// Interrupts a wait in [`Client::poll`] from another thread.
#[derive(Default)]
pub(super) struct Wake(Mutex<Option<WakeTarget>>);

struct WakeTarget(NonNull<rd::rd_kafka_queue_t>);

// SAFETY: the only thing done with the pointer is `rd_kafka_queue_yield`, which librdkafka allows from any thread, and
// it is done under the lock that `Queues::drop` takes before it gives the queue back.
unsafe impl Send for WakeTarget {}

impl Wake {
    /// Makes the current or the next wait of the client's thread return early. Does nothing once the client is gone.
    pub(super) fn wake(&self) {
        if let Some(target) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: the queue is alive as long as the target is set, and we hold its lock.
            unsafe { rd::rd_kafka_queue_yield(target.0.as_ptr()) }
        }
    }

    fn set(&self, queue: NonNull<rd::rd_kafka_queue_t>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(WakeTarget(queue));
    }

    /// Lets a queue go. That of a client which has taken this one's place stays.
    fn unset(&self, queue: NonNull<rd::rd_kafka_queue_t>) {
        let mut target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        target.take_if(|target| target.0 == queue);
    }
}

/// A topic as the cluster describes it.
pub(super) struct TopicDescription {
    pub(super) name: String,
    /// Kafka's topic id in base64; `None` from brokers before 2.8.
    pub(super) id: Option<String>,
    pub(super) partitions: u32,
    pub(super) error: Option<RDKafkaErrorCode>,
}

impl TopicDescription {
    /// Returns why there is no description.
    pub(super) fn error(&self) -> Option<ClientError> {
        Some(ClientError { code: self.error?, text: format!("topic {}", self.name) })
    }
}

impl Client {
    /// Makes a client; nothing is connected yet. `config` names a group, which librdkafka wants for assigning.
    pub(super) fn new(config: ClientConfig, wake: Arc<Wake>) -> Result<Self, KafkaError> {
        let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet)?;
        let client = consumer.client().native_ptr();
        // SAFETY: `consumer` is alive. A consumer with a group has a consumer queue, so the pointer is not null, which
        // is checked all the same; the call gives us a reference of our own.
        let forwarded = unsafe { rd::rd_kafka_queue_get_consumer(client) };
        let Some(forwarded) = NonNull::new(forwarded) else {
            return Err(KafkaError::ClientCreation("the client has no consumer queue".to_owned()));
        };
        // SAFETY: the client is alive; a new queue is ours, and never null (the library aborts when it has no memory,
        // and the check costs nothing). Both queues outlive the forwarding, which `Queues::drop` ends first.
        let queue = unsafe {
            let queue = rd::rd_kafka_queue_new(client);
            rd::rd_kafka_queue_forward(forwarded.as_ptr(), queue);
            NonNull::new(queue)
                .ok_or_else(|| KafkaError::ClientCreation("no queue could be made".to_owned()))?
        };
        wake.set(queue);
        Ok(Self { queues: Queues { polled: queue, forwarded, wake }, consumer, config })
    }

    /// Makes another client with the same properties, which reads nothing yet and is the one that is woken from now on.
    pub(super) fn anew(&self) -> Result<Self, KafkaError> {
        Self::new(self.config.clone(), Arc::clone(&self.queues.wake))
    }

    /// Ends the client without waiting for it.
    pub(super) fn retire(self) {
        let Self { queues, consumer, .. } = self;
        drop(queues);
        retire(consumer);
    }

    /// Returns the safe crate's consumer, for everything but polling.
    pub(super) fn consumer(&self) -> &BaseConsumer<Quiet> {
        &self.consumer
    }

    /// Returns the next event, waiting up to `patience` (whole milliseconds) for one.
    pub(super) fn poll(&self, patience: Duration) -> Option<OwnedEvent<'_>> {
        // SAFETY: the queue is alive until `Queues::drop`. The event is ours to destroy, and `OwnedEvent` does so.
        let event = unsafe { rd::rd_kafka_queue_poll(self.queues.polled.as_ptr(), milliseconds(patience)) };
        Some(OwnedEvent { event: NonNull::new(event)?, client: PhantomData })
    }

    /// Returns the cluster's id, or `None` when no broker told it in time.
    pub(super) fn cluster_id(&self, patience: Duration) -> Option<String> {
        let client = self.consumer.client().native_ptr();
        // SAFETY: the client is alive; the call returns null or a string that we give back with the client's own
        // allocator after copying it.
        unsafe {
            let id = rd::rd_kafka_clusterid(client, milliseconds(patience));
            let copy = text(id);
            if !id.is_null() {
                rd::rd_kafka_mem_free(client, id.cast());
            }
            copy
        }
    }

    /// Returns the end of a partition, open transactions included, as the last fetch of it told; asks nobody.
    pub(super) fn high_watermark(&self, split: &SplitId) -> Option<u64> {
        let topic = CString::new(&*split.stream).ok()?;
        let partition = i32::try_from(split.index).ok()?;
        let (mut low, mut high) = (-1, -1);
        // SAFETY: the client is alive; the name is zero-terminated and outlives the call, which writes to two numbers.
        let code = unsafe {
            let client = self.consumer.client().native_ptr();
            rd::rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &mut low, &mut high)
        };
        let is_known = code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        is_known.then(|| u64::try_from(high).ok()).flatten()
    }

    /// Tells whether the client knows any broker that the cluster has told it of.
    pub(super) fn knows_broker(&self) -> bool {
        knows_broker(&self.consumer)
    }

    /// Asks the cluster for topics: their ids, their partitions, or why there is no answer for one.
    pub(super) fn describe_topics(
        &self,
        topics: &[String],
        patience: Duration,
    ) -> Result<Vec<TopicDescription>, ClientError> {
        // A name with a zero byte is no topic of any cluster.
        let names: Option<Vec<CString>> =
            topics.iter().map(|topic| CString::new(topic.as_str()).ok()).collect();
        let Some(names) = names else {
            return Err(ClientError {
                code: RDKafkaErrorCode::InvalidTopic,
                text: "a topic's name holds a zero".into(),
            });
        };
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let client = self.consumer.client().native_ptr();
        // SAFETY: all pointers come from the calls right here and are given back below, once each, and after the
        // request has taken its own copies. `pointers` and `names` outlive the call that copies them. The result's
        // event stays alive until its contents were copied by `topic_descriptions`.
        unsafe {
            let replies = rd::rd_kafka_queue_new(client);
            let options = rd::rd_kafka_AdminOptions_new(
                client,
                rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            );
            // A timeout out of range leaves the default; the wait below is bounded in either case.
            rd::rd_kafka_AdminOptions_set_request_timeout(
                options,
                milliseconds(patience).max(1),
                ptr::null_mut(),
                0,
            );
            let collection =
                rd::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            rd::rd_kafka_DescribeTopics(client, collection, options, replies);
            rd::rd_kafka_TopicCollection_destroy(collection);
            rd::rd_kafka_AdminOptions_destroy(options);
            let reply = rd::rd_kafka_queue_poll(replies, milliseconds(patience).saturating_add(500));
            let outcome = topic_descriptions(reply);
            if !reply.is_null() {
                rd::rd_kafka_event_destroy(reply);
            }
            rd::rd_kafka_queue_destroy(replies);
            outcome
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.wake.unset(self.polled);
        // SAFETY: our own references, given back once, while the consumer is still alive (`Client` drops it after this). The
        // forwarding ends first: closing the consumer serves its own queue.
        unsafe {
            rd::rd_kafka_queue_forward(self.forwarded.as_ptr(), ptr::null_mut());
            rd::rd_kafka_queue_destroy(self.forwarded.as_ptr());
            rd::rd_kafka_queue_destroy(self.polled.as_ptr());
        }
    }
}

/// Tells whether a client knows any broker that the cluster has told it of; those of its configuration do not count.
pub(super) fn knows_broker<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> bool {
    let mut count = 0;
    // SAFETY: the client lives as long as the consumer. The list, which may be null, is ours, and given back once.
    unsafe {
        let client = consumer.client().native_ptr();
        let ids = rd::rd_kafka_brokers_learned_ids(client, &mut count);
        rd::rd_kafka_mem_free(client, ids.cast());
    }
    count > 0
}

/// Copies the answer to [`Client::describe_topics`].
///
/// # Safety
/// `reply` is null or a live event.
unsafe fn topic_descriptions(reply: *mut rd::rd_kafka_event_t) -> Result<Vec<TopicDescription>, ClientError> {
    if reply.is_null() {
        return Err(ClientError {
            code: RDKafkaErrorCode::OperationTimedOut,
            text: "no answer in time".to_owned(),
        });
    }
    // SAFETY: `reply` is live (the caller's promise); the result, its topics and their parts belong to it and are
    // copied before it is destroyed. The array has `count` entries.
    unsafe {
        let code = rd::rd_kafka_event_error(reply);
        if code != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let text = text(rd::rd_kafka_event_error_string(reply)).unwrap_or_default();
            return Err(ClientError { code: code.into(), text });
        }
        let result = rd::rd_kafka_event_DescribeTopics_result(reply);
        if result.is_null() {
            return Err(ClientError {
                code: RDKafkaErrorCode::Fail,
                text: "an answer to another question".to_owned(),
            });
        }
        let mut count = 0;
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok((0..count).map(|index| topic_description(*topics.add(index))).collect())
    }
}

/// Copies one topic of an answer.
///
/// # Safety
/// `topic` belongs to a live event.
unsafe fn topic_description(topic: *const rd::rd_kafka_TopicDescription_t) -> TopicDescription {
    // SAFETY: `topic` is live (the caller's promise), and so are the name, the id and the error that belong to it; the
    // id's text is cached inside the id.
    unsafe {
        let mut partitions = 0;
        rd::rd_kafka_TopicDescription_partitions(topic, &mut partitions);
        let uuid = rd::rd_kafka_TopicDescription_topic_id(topic);
        let has_id = !uuid.is_null()
            && (rd::rd_kafka_Uuid_most_significant_bits(uuid) != 0
                || rd::rd_kafka_Uuid_least_significant_bits(uuid) != 0);
        let error = rd::rd_kafka_TopicDescription_error(topic);
        let code = if error.is_null() { None } else { Some(rd::rd_kafka_error_code(error)) };
        TopicDescription {
            name: text(rd::rd_kafka_TopicDescription_name(topic)).unwrap_or_default(),
            id: if has_id { text(rd::rd_kafka_Uuid_base64str(uuid)) } else { None },
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
            error: code
                .filter(|&code| code != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR)
                .map(Into::into),
        }
    }
}

/// An event taken from the queue, destroyed when dropped.
pub(super) struct OwnedEvent<'c> {
    event: NonNull<rd::rd_kafka_event_t>,
    /// An event must not outlive its client.
    client: PhantomData<&'c Client>,
}

impl Drop for OwnedEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: the event is ours and destroyed once; views of it have ended, because they borrow `self`.
        unsafe { rd::rd_kafka_event_destroy(self.event.as_ptr()) }
    }
}

/// What an event says.
pub(super) enum Event<'e> {
    /// A record.
    Fetched(Fetched<'e>),
    /// A partition has no more records for now; the next one will have at least this offset.
    EndOfPartition(Place),
    /// The client or a broker reports an error.
    Error(Failure),
    /// A line of the client's log.
    Log { level: i32, facility: &'e str, text: &'e str },
    /// The client's statistics, a JSON document.
    Statistics(&'e str),
    /// The group moves partitions: cannot happen to a client that only assigns.
    Rebalance,
    /// An answer to an offset commit.
    OffsetCommit,
    /// An OAUTHBEARER token is wanted.
    TokenRefresh,
    /// Anything else, by number.
    Other(i32),
}

/// The partition an event is about.
pub(super) struct Place {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// An offset, or negative where the event has none.
    pub(super) offset: i64,
}

/// An error event.
pub(super) struct Failure {
    pub(super) error: ClientError,
    pub(super) is_fatal: bool,
    pub(super) place: Option<Place>,
}

impl OwnedEvent<'_> {
    /// Looks at the event. A record can be looked at once.
    #[inline]
    pub(super) fn view(&mut self) -> Event<'_> {
        let event = self.event.as_ptr();
        // SAFETY: the event is alive as long as `self`.
        match unsafe { rd::rd_kafka_event_type(event) } {
            rd::RD_KAFKA_EVENT_FETCH => self.fetched(),
            rd::RD_KAFKA_EVENT_ERROR => self.error(),
            rd::RD_KAFKA_EVENT_LOG => self.log(),
            rd::RD_KAFKA_EVENT_STATS => self.statistics(),
            rd::RD_KAFKA_EVENT_REBALANCE => Event::Rebalance,
            rd::RD_KAFKA_EVENT_OFFSET_COMMIT => Event::OffsetCommit,
            rd::RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH => Event::TokenRefresh,
            other => Event::Other(other),
        }
    }

    #[inline]
    fn fetched(&mut self) -> Event<'_> {
        // SAFETY: a fetch event holds one message, which lives as long as the event: the view borrows `self`.
        match unsafe { rd::rd_kafka_event_message_next(self.event.as_ptr()).as_ref() } {
            Some(message) => Event::Fetched(Fetched { message }),
            None => Event::Other(rd::RD_KAFKA_EVENT_FETCH),
        }
    }

    fn error(&mut self) -> Event<'_> {
        let event = self.event.as_ptr();
        // SAFETY: the event is alive; the strings are copied; `rd_kafka_event_topic_partition` gives null or a
        // partition that is ours to destroy, whose topic is a zero-terminated string.
        let (code, error_text, is_fatal, place) = unsafe {
            let code = rd::rd_kafka_event_error(event);
            let partition = rd::rd_kafka_event_topic_partition(event);
            let place = partition.as_ref().map(|at| Place {
                topic: text(at.topic).unwrap_or_default(),
                partition: at.partition,
                offset: at.offset,
            });
            if !partition.is_null() {
                rd::rd_kafka_topic_partition_destroy(partition);
            }
            let error_text = text(rd::rd_kafka_event_error_string(event)).unwrap_or_default();
            (RDKafkaErrorCode::from(code), error_text, rd::rd_kafka_event_error_is_fatal(event) != 0, place)
        };
        match place {
            Some(place) if code == RDKafkaErrorCode::PartitionEOF => Event::EndOfPartition(place),
            place => Event::Error(Failure { error: ClientError { code, text: error_text }, is_fatal, place }),
        }
    }

    fn statistics(&mut self) -> Event<'_> {
        // SAFETY: the event is alive and tells statistics; the string belongs to it, and the view borrows `self`.
        Event::Statistics(unsafe { borrowed(rd::rd_kafka_event_stats(self.event.as_ptr())) })
    }

    fn log(&mut self) -> Event<'_> {
        let (mut facility, mut line, mut level) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the event is alive and a log event; it fills the pointers with strings of its own.
        unsafe {
            rd::rd_kafka_event_log(self.event.as_ptr(), &mut facility, &mut line, &mut level);
            Event::Log { level, facility: borrowed(facility), text: borrowed(line) }
        }
    }
}

/// A record in librdkafka's memory.
pub(super) struct Fetched<'e> {
    message: &'e rd::rd_kafka_message_t,
}

impl<'e> Fetched<'e> {
    /// Identifies topic and partition for as long as the partition is assigned: equal keys, equal partition.
    #[inline]
    pub(super) fn key(&self) -> (usize, i32) {
        (self.message.rkt as usize, self.message.partition)
    }

    /// Returns the topic's name.
    pub(super) fn topic(&self) -> &'e str {
        // SAFETY: the message holds a reference to its topic; the name lives as long as the topic.
        unsafe { borrowed(rd::rd_kafka_topic_name(self.message.rkt)) }
    }

    /// Returns the error that came in a record's place.
    #[inline]
    pub(super) fn failure(&self) -> Option<Failure> {
        if self.message.err == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return None;
        }
        // SAFETY: the message is alive; the text is copied.
        let text = unsafe { text(rd::rd_kafka_message_errstr(self.message)) }.unwrap_or_default();
        let place = Place {
            topic: self.topic().to_owned(),
            partition: self.message.partition,
            offset: self.message.offset,
        };
        let error = ClientError { code: self.message.err.into(), text };
        Some(Failure { error, is_fatal: false, place: Some(place) })
    }

    /// Returns the record. Offsets of records are never negative.
    #[inline]
    pub(super) fn record(&self) -> RawRecord<'e> {
        let message: &'e rd::rd_kafka_message_t = self.message;
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive for `'e`; a key or payload that is not null has the length that stands beside
        // it, and stays where it is until the event is destroyed.
        let (timestamp, epoch, key, value) = unsafe {
            (
                rd::rd_kafka_message_timestamp(message, &mut kind),
                rd::rd_kafka_message_leader_epoch(message),
                bytes(message.key.cast(), message.key_len),
                bytes(message.payload.cast(), message.len),
            )
        };
        let timestamp_kind = match kind {
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => TimestampKind::None,
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_CREATE_TIME => TimestampKind::Create,
            rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME => TimestampKind::Append,
        };
        RawRecord {
            offset: message.offset as u64,
            timestamp: Timestamp(timestamp),
            timestamp_kind,
            leader_epoch: u32::try_from(epoch).ok(),
            key,
            value,
        }
    }

    /// Returns the record's headers, or `None` when it has none. Not cheap in either case: they are parsed anew.
    #[inline]
    pub(super) fn headers(&self) -> Option<HeaderWalk<'e>> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the headers belong to it and stay until the event is destroyed.
        let code = unsafe { rd::rd_kafka_message_headers(self.message, &mut headers) };
        let is_there = code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        is_there.then(|| NonNull::new(headers)).flatten().map(|headers| HeaderWalk {
            headers,
            next: 0,
            message: PhantomData,
        })
    }
}

/// Walks through a record's headers in order.
pub(super) struct HeaderWalk<'e> {
    headers: NonNull<rd::rd_kafka_headers_t>,
    next: usize,
    message: PhantomData<&'e rd::rd_kafka_message_t>,
}

impl<'e> Iterator for HeaderWalk<'e> {
    type Item = (&'e [u8], Option<&'e [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the headers are alive for `'e`, and so are the name (zero-terminated) and the value (`length` bytes,
        // or null) that the call points to when it reports no error.
        unsafe {
            let headers = self.headers.as_ptr();
            let code = rd::rd_kafka_header_get_all(headers, self.next, &mut name, &mut value, &mut length);
            if code != rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
                return None;
            }
            self.next += 1;
            Some((CStr::from_ptr(name).to_bytes(), bytes(value.cast(), length)))
        }
    }
}

/// Makes a slice of a pointer that may be null.
///
/// # Safety
/// `start` is null or points to `length` bytes that stay as they are for `'e`.
#[inline]
unsafe fn bytes<'e>(start: *const u8, length: usize) -> Option<&'e [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the pointer is not null, and bytes need no alignment.
    Some(unsafe { slice::from_raw_parts(start, length) })
}

/// Copies a zero-terminated string that may be null.
///
/// # Safety
/// `start` is null or points to a zero-terminated string.
unsafe fn text(start: *const c_char) -> Option<String> {
    if start.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned())
}

/// Borrows a zero-terminated string; empty when it is null or not UTF-8.
///
/// # Safety
/// `start` is null or points to a zero-terminated string that lives for `'e`.
unsafe fn borrowed<'e>(start: *const c_char) -> &'e str {
    if start.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(start) }.to_str().unwrap_or_default()
}

fn milliseconds(patience: Duration) -> c_int {
    c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX)
}
