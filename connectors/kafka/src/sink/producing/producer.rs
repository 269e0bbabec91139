//! One producer: a client on threads of its own, and the account of what went through it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::batch::Coordinates;
use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client::client_config;
use super::config::KafkaSinkConfig;
use super::error::{ClientError, ProduceError, Undelivered};
use super::ledger::{Delivered, Ledger};
use super::message::Message;
use super::origins::Origin;
use super::reports::{Client, Reports};
use super::thread::{on_own_thread, start_polling};
use super::warm;

/// How much longer than the client may take to give a message up its report is waited for: the client looks once a second.
const REPORT_GRACE: Duration = Duration::from_secs(10);

/// The least that one client may take to connect, before another one tries.
const LEAST_TRY: Duration = Duration::from_secs(1);

/// How much longer than a call's own timeout its thread is waited for.
const CALL_GRACE: Duration = Duration::from_secs(5);

/// An idempotent producer that knows of every message what became of it.
///
/// It serves several tasks at once. The order within a partition is that of the calls of [`Producer::send`]; after a
/// failure it is of no use any more. Dropping it blocks nobody: the client ends on its own thread, and drops what is
/// not delivered yet.
pub struct Producer {
    client: Arc<Client>,
    ledger: Arc<Ledger>,
    reports_within: Duration,
    ended: oneshot::Receiver<()>,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("sent", &self.sent())
            .field("outstanding", &self.outstanding())
            .field("in_flight_bytes", &self.in_flight_bytes())
            .finish_non_exhaustive()
    }
}

impl Producer {
    /// Connects a producer that is not transactional. `name` tells it apart in the brokers' eyes.
    ///
    /// # Errors
    /// The configuration cannot work, no broker answered in time, or a topic named in the configuration does not exist.
    pub async fn open(config: &KafkaSinkConfig, name: &str) -> Result<Self, ProduceError> {
        config.check()?;
        let (client, config) = (client_config(config, name, None), config.clone());
        let within = config.open_within;
        on_own_thread("connecting", 3 * within + CALL_GRACE, move || Self::connected(&client, &config))
            .await?
    }

    /// Makes a transactional producer ready: its id is initialised, which ends whatever is open under it and gives it an
    /// epoch that no transaction has had; the topics are known and their leaders connected; and its transaction is begun,
    /// which brokers learn with its first message only.
    pub(crate) async fn ready(
        config: &KafkaSinkConfig,
        id: &str,
        topics: Vec<String>,
    ) -> Result<Self, ProduceError> {
        let (client, config) = (client_config(config, id, Some(id)), config.clone());
        let (id, within) = (id.to_owned(), config.open_within);
        // Each of the steps may take its time.
        on_own_thread("making a transactional producer ready", 5 * within + CALL_GRACE, move || {
            let producer = Self::connected(&client, &config)?;
            let initialised = producer.client.init_transactions(within);
            initialised.map_err(|cause| producer.not_initialised(&config, &id, &ClientError::of(&cause)))?;
            producer.warm_up(&topics, within);
            let begun = producer.client.begin_transaction();
            begun.map_err(|cause| in_transaction(&id, "begin a transaction under", &cause))?;
            Ok(producer)
        })
        .await?
    }

    fn start(client: &ClientConfig, config: &KafkaSinkConfig) -> Result<Self, ProduceError> {
        let ledger = Arc::new(Ledger::new(config.in_flight_bytes));
        let client: Client = client
            .create_with_context(Reports::new(Arc::clone(&ledger)))
            .map_err(|cause| ProduceError::of_creation(&cause))?;
        let client = Arc::new(client);
        let ended = start_polling(Arc::clone(&client))?;
        let reports_within = config.delivers_within() + REPORT_GRACE;
        Ok(Self { client, ledger, reports_within, ended })
    }

    /// Makes a client that has connected, trying anew with another client while brokers are away. Blocks.
    ///
    /// A broker that has stood still is fenced for a moment; if no other is left, the cluster says that it has no brokers. A
    /// client that hears that lets go of all it knows, the bootstrap servers included, and never asks again.
    fn connected(client: &ClientConfig, config: &KafkaSinkConfig) -> Result<Self, ProduceError> {
        let started = Instant::now();
        loop {
            let producer = Self::start(client, config)?;
            match producer.connect(config, (config.open_within / 3).max(LEAST_TRY)) {
                Ok(()) => return Ok(producer),
                Err(ProduceError::Away { .. }) if started.elapsed() < config.open_within => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Blocks.
    fn connect(&self, config: &KafkaSinkConfig, within: Duration) -> Result<(), ProduceError> {
        warm::reach(&self.client, config, within)?;
        for topic in &config.topics {
            let leaders = match warm::learn(&self.client, topic, within) {
                Ok(leaders) => leaders,
                Err(cause) if cause.is_of_absence() => {
                    return Err(warm::away(&self.client, config, "asking for a topic", Some(cause)));
                }
                Err(cause) => return Err(ProduceError::Topic { topic: topic.clone(), cause }),
            };
            warm::connect(&self.client, topic, &leaders, within);
        }
        Ok(())
    }

    /// Blocks. What fails here fails again, and loudly, if a message needs it.
    fn warm_up(&self, topics: &[String], within: Duration) {
        for topic in topics {
            if let Ok(leaders) = warm::learn(&self.client, topic, within) {
                warm::connect(&self.client, topic, &leaders, within);
            }
        }
    }

    fn not_initialised(&self, config: &KafkaSinkConfig, id: &str, cause: &ClientError) -> ProduceError {
        let fatal = self.client.client().fatal_error();
        let cause = fatal.map_or(cause.clone(), |(code, text)| ClientError { code, text });
        match cause.code {
            RDKafkaErrorCode::InvalidTransactionTimeout => {
                ProduceError::TimeoutTooLong { timeout_ms: config.transaction_timeout.milliseconds(), cause }
            }
            RDKafkaErrorCode::OperationTimedOut => {
                let doing = "initialising a transactional id";
                warm::away(&self.client, config, doing, None)
            }
            _ => ProduceError::Transaction { id: id.to_owned(), doing: "initialise", cause },
        }
    }

    /// Hands a message over, when there is room for it. Cancel safe: a call that is dropped has sent nothing.
    ///
    /// # Errors
    /// An earlier message failed, or this one cannot be sent; the producer has failed then.
    pub async fn send(
        &self,
        message: &Message<'_>,
        origin: Option<&Coordinates>,
    ) -> Result<(), ProduceError> {
        self.ledger.check()?;
        if let Some(reason) = message.unsendable() {
            let topic = message.topic.to_owned();
            let error = ProduceError::Unsendable { topic, origin: origin.cloned(), reason };
            // Whoever goes on after this error must not get a transaction committed that lacks the message.
            self.ledger.fail(error.clone());
            return Err(error);
        }
        self.ledger.take_room(message.bytes()).await?;
        let origin = origin.map_or(Origin::NONE, |origin| self.client.context().origins.shorten(origin));
        self.hand_over(message, origin)
    }

    fn hand_over(&self, message: &Message<'_>, origin: Origin) -> Result<(), ProduceError> {
        let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(message.topic, origin.word());
        record.key = message.key;
        record.payload = message.value;
        record.timestamp = message.timestamp.map(|at| at.0);
        // `unsendable` has checked that it fits.
        record.partition = message.partition.map(|partition| partition as i32);
        if !message.headers.is_empty() {
            record.headers = Some(headers(&message.headers));
        }
        // Before the client has it: a report is never counted before its message.
        self.ledger.note_sent();
        let Err((error, _)) = self.client.send(record) else {
            return Ok(());
        };
        let fatal = self.client.client().fatal_error();
        let cause = fatal.map_or_else(|| ClientError::of(&error), |(code, text)| ClientError { code, text });
        let topic = message.topic.to_owned();
        let (partition, bytes) = (message.partition, message.bytes());
        let origin = self.client.context().origins.full(origin);
        self.ledger.note_failed(Undelivered { topic, partition, origin, bytes, cause });
        self.ledger.check()
    }

    /// Returns when everything that was sent is acknowledged by all in-sync replicas. Cancel safe.
    ///
    /// # Errors
    /// At least one message failed, or the client itself. Bounded by the delivery timeout and ten seconds more.
    pub async fn flush(&self) -> Result<(), ProduceError> {
        self.ledger.settled(self.reports_within).await?;
        match self.client.client().fatal_error() {
            Some((code, text)) => Err(ProduceError::of_fatal(ClientError { code, text })),
            None => Ok(()),
        }
    }

    /// Waits until something has failed; never returns as long as all is well. Cancel safe.
    pub async fn failed(&self) -> ProduceError {
        self.ledger.failed().await
    }

    /// Fails if anything has failed.
    ///
    /// # Errors
    /// The first failure.
    pub fn check(&self) -> Result<(), ProduceError> {
        self.ledger.check()
    }

    /// Returns how many messages were handed over, those that failed included.
    pub fn sent(&self) -> u64 {
        self.ledger.sent()
    }

    /// Returns how many messages have no report yet.
    pub fn outstanding(&self) -> u64 {
        self.ledger.outstanding()
    }

    /// Returns what messages without a report weigh: at most the configured bound.
    pub fn in_flight_bytes(&self) -> usize {
        self.ledger.in_flight_bytes()
    }

    /// Returns what brokers have acknowledged so far.
    pub fn delivered(&self) -> Delivered {
        self.ledger.delivered()
    }

    /// Returns how many messages have failed, and the first thousand of them.
    pub fn failures(&self) -> (u64, Vec<Undelivered>) {
        self.ledger.failures()
    }

    /// Aborts the transaction through the client.
    pub(crate) async fn abort(&self, id: &str, within: Duration) -> Result<(), ProduceError> {
        let client = Arc::clone(&self.client);
        let aborted = on_own_thread("aborting a transaction", within + CALL_GRACE, move || {
            client.abort_transaction(within)
        })
        .await?;
        aborted.map_err(|cause| in_transaction(id, "abort the transaction of", &cause))
    }

    /// Ends the client and waits for it; what is not delivered yet is dropped.
    ///
    /// # Errors
    /// The client does not end in time. It is left to its thread then, with its memory and its connections: there is no
    /// way to end it from outside. So it is when the producer is dropped.
    pub async fn close(self, within: Duration) -> Result<(), ProduceError> {
        let Self { client, ended, .. } = self;
        drop(client);
        // An error is the thread's end, too.
        match timeout(within, ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ProduceError::Stuck { doing: "ending", within }),
        }
    }
}

fn in_transaction(id: &str, doing: &'static str, cause: &rdkafka::error::KafkaError) -> ProduceError {
    ProduceError::Transaction { id: id.to_owned(), doing, cause: ClientError::of(cause) }
}

fn headers(headers: &[(&str, Option<&[u8]>)]) -> OwnedHeaders {
    let empty = OwnedHeaders::new_with_capacity(headers.len());
    headers.iter().fold(empty, |all, (key, value)| all.insert(Header { key, value: *value }))
}
