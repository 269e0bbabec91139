//! The lookup: rows of a table found by key, for stages that enrich records.
//!
//! ```text
//!   get, get_many, Service ──▶ encode by column type ──▶ cache, or the whole table ──▶ there
//!                                                               │ not there
//!                                                               ▼
//!                              flights: equal keys once, the rest `keys_per_query` at a time
//!                                                               │
//!                                                               ▼
//!                              lines: the connection with the fewest calls ──▶ pipelined ──▶ answers by key
//!                                 ▲ made, and asked whether they live, by the pool
//! ```
//!
//! It reads at processing time: what a record finds depends on when it is looked up, and a replay may find something
//! else. With a version column it finds what counted at the event's time.
//!
//! ```rust,no_run
//! use levada_core::Value;
//! use levada_postgres::lookup::{CacheBound, CacheConfig, Enriched, Enrichment, Miss};
//! use levada_postgres::quote::TableName;
//! use levada_postgres::{PostgresLookup, PostgresLookupConfig};
//! use std::time::Duration;
//! use tower_service::Service;
//!
//! async fn enrich(record: levada_core::Row) -> Result<(), Box<dyn std::error::Error>> {
//!     let connection = "postgres://app@db.internal/flights".parse()?;
//!     let table = TableName::in_schema("public", "airlines")?;
//!     let config = PostgresLookupConfig::by_table(connection, table, ["code"])
//!         .columns(["name", "country"])
//!         .timeout(Duration::from_secs(3))
//!         .cache(CacheConfig::new(CacheBound::Rows(10_000)).after_write(Duration::from_secs(60)));
//!     let mut lookup = PostgresLookup::open(config).await?;
//!
//!     let one = lookup.get(&[Value::Text("AA".into())]).await?;          // none, one or all rows, as configured
//!     println!("{:?}", one.first().and_then(|row| row.get("name")));
//!     for found in lookup.get_many(&[[Value::Text("AA".into())], [Value::Text("DL".into())]]).await {
//!         println!("{} rows", found?.len());                              // one round trip, each key with its own answer
//!     }
//!     let answer = lookup.call(vec![Value::Text("DL".into())]).await?;    // the same as a tower service
//!
//!     let enrichment = Enrichment::new(lookup, "airline").on_miss(Miss::DeadLetter);
//!     match enrichment.joined(&record, &answer) {
//!         Enriched::Rows(rows) => println!("{} outputs", rows.len()),     // with airline_name and airline_country
//!         Enriched::Dropped | Enriched::Refused => println!("no airline"),
//!         _ => {}
//!     }
//!     Ok(())
//! }
//! # let _ = enrich;
//! ```

mod cache;
mod cancel;
mod clock;
mod config;
mod connect;
mod decode;
mod enrich;
mod error;
mod explain;
mod flight;
mod key;
mod line;
mod lines;
mod listen;
mod named;
mod plan;
mod queue;
mod service;
mod sql;
mod stats;
mod whole;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use levada_core::{Row, Shape, Timestamp, Value};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::quote::Identifier;
use crate::sink::backoff::Pauses;
use crate::sink::encode::ColumnType;
use crate::sink::error::Failure;
use crate::sink::session::{Session, answered};

use connect::Connector;
use flight::Tower;
use key::{Key, Scratch};
use lines::Lines;
use listen::Listener;
use plan::Plan;
use stats::Counters;
use whole::Whole;

pub use config::{CacheBound, CacheConfig, Matches, PostgresLookupConfig, Target};
pub use enrich::{Enriched, Enrichment, Join, LastMiss, Miss};
pub use error::{LookupError, SharedCause};
pub use lines::Census;
pub use stats::LookupStats;

/// The rows that a key has found; none: it has no match.
pub type Found = Arc<[Row]>;

/// Looks rows up by key. Clones share connections, queries under way and what is kept, so the subtasks of a stage have
/// one each of the same lookup.
#[derive(Debug, Clone)]
pub struct PostgresLookup {
    shared: Arc<Shared>,
    /// Ends them with the last clone; they hold what is shared.
    _tasks: Arc<Tasks>,
}

#[derive(Debug)]
struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// What the tasks of a lookup know, too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tower: Arc<Tower>,
    whole: Option<Arc<Whole>>,
    warnings: Vec<String>,
}

impl PostgresLookup {
    /// Connects, learns the types of keys and columns, and asks the server how it would find a key.
    ///
    /// With a preload it returns when the table was read, with a channel when it listens. A server that is away is waited
    /// for, up to `create_timeout`.
    ///
    /// # Errors
    /// The configuration is wrong or does not fit the server, or the server cannot be reached.
    pub async fn open(config: PostgresLookupConfig) -> Result<Self, LookupError> {
        config.check()?;
        let session = first_session(&config).await?;
        let plan = Arc::new(Plan::resolve(&session, &config).await?);
        for text in [&plan.one, &plan.many] {
            let prepared = answered(session.patience, session.client.prepare(text)).await;
            prepared.map_err(|failure| LookupError::server(&plan.target, failure))?;
        }
        let warnings = explain::check(&session, &plan).await;
        let counters = Arc::new(Counters::default());
        let mut tasks = Tasks(Vec::new());
        // It hears from before the table is read.
        let channel =
            config.invalidation_channel.as_ref().map(|name| Identifier::new(name.as_str())).transpose()?;
        let listener = match &channel {
            Some(channel) => {
                let listener = Listener::connect(&config, channel).await;
                Some(listener.map_err(|failure| LookupError::unreachable(&plan.target, failure))?)
            }
            None => None,
        };
        let whole = match config.preload {
            Some(refresh) => {
                let whole = Whole::read(&config, &plan, &counters).await?;
                tasks.0.push(tokio::spawn(Arc::clone(&whole).keep_fresh(refresh)).abort_handle());
                Some(whole)
            }
            None => None,
        };
        let connector =
            Connector { config: config.clone(), plan: Arc::clone(&plan), counters: Arc::clone(&counters) };
        let lines = Lines::new(connector)?;
        let tower = Tower::new(config, plan, lines, counters);
        let shared = Arc::new(Shared { tower, whole, warnings });
        if let (Some(channel), Some(listener)) = (channel, listener) {
            shared.tower.set_heard(true);
            let following = listen::follow(Arc::clone(&shared), channel, listener);
            tasks.0.push(tokio::spawn(following).abort_handle());
        }
        Ok(Self { shared, _tasks: Arc::new(tasks) })
    }

    /// Looks a key up: one value for each key column, or for each parameter in the order of first naming. A key with a
    /// NULL part has no match.
    ///
    /// Dropping the future gives the call up, as when its time is over, unless another one waits for the same key.
    ///
    /// # Errors
    /// The key does not fit its columns, the server did not answer in time or refused, or the number of rows is not the
    /// one asked for. No error stands for a row that is not there.
    pub async fn get(&self, key: &[Value]) -> Result<Found, LookupError> {
        self.shared.tower.counters.keys.fetch_add(1, Relaxed);
        let known = Scratch::with(|scratch| self.shared.known(scratch, key));
        let key = match known {
            Known::Answer(answer) => return answer,
            Known::Ask(key) => key,
        };
        let found = self.shared.ask(vec![key]).await.pop();
        found.unwrap_or_else(|| Err(self.shared.stopped()))
    }

    /// Looks many keys up with as few queries as it takes, each key with an answer of its own, in the order of `keys`.
    ///
    /// Dropping the future gives the calls up, as for [`PostgresLookup::get`].
    pub async fn get_many<K: AsRef<[Value]>>(&self, keys: &[K]) -> Vec<Result<Found, LookupError>> {
        Counters::add(&self.shared.tower.counters.keys, keys.len());
        let mut scratch = Scratch::default();
        let mut answers = Vec::with_capacity(keys.len());
        let (mut open, mut places) = (Vec::new(), Vec::new());
        for (place, key) in keys.iter().enumerate() {
            answers.push(match self.shared.known(&mut scratch, key.as_ref()) {
                Known::Answer(answer) => answer,
                Known::Ask(key) => {
                    open.push(key);
                    places.push(place);
                    Err(self.shared.stopped())
                }
            });
        }
        if !open.is_empty() {
            for (place, answer) in places.into_iter().zip(self.shared.ask(open).await) {
                answers[place] = answer;
            }
        }
        answers
    }

    /// Looks up the row that counted at `time`, for a lookup with a version column.
    ///
    /// # Errors
    /// As for [`PostgresLookup::get`].
    pub async fn get_as_of(&self, key: &[Value], time: Timestamp) -> Result<Found, LookupError> {
        self.get(&self.as_of(key, time)?).await
    }

    /// Returns the key that asks for what counted at `time`, for [`PostgresLookup::get_many`].
    ///
    /// # Errors
    /// The lookup has no version column.
    pub fn as_of(&self, key: &[Value], time: Timestamp) -> Result<Vec<Value>, LookupError> {
        let time = match &self.shared.tower.plan.version {
            Some(ColumnType::Int8) => Value::Int(time.0),
            Some(_) => Value::Timestamp { micros: time.0.saturating_mul(1000), is_instant: true },
            None => return Err(LookupError::Config("there is no version column".to_owned())),
        };
        Ok(key.iter().cloned().chain([time]).collect())
    }

    /// Makes what is kept of a key invalid. An answer that is on its way is given and not kept.
    ///
    /// Where the server alone can tell which keys are equal, as in a lookup by query, everything is made invalid.
    ///
    /// # Errors
    /// The key does not fit its columns; nothing was made invalid then.
    pub fn invalidate(&self, key: &[Value]) -> Result<(), LookupError> {
        self.shared.invalidate(key)
    }

    /// Makes everything that is kept invalid.
    pub fn invalidate_all(&self) {
        self.shared.clear();
    }

    /// Returns the columns of the rows that are found, in their order.
    pub fn columns(&self) -> &Arc<Shape> {
        &self.shared.tower.plan.shape
    }

    /// Returns what was done so far.
    pub fn stats(&self) -> LookupStats {
        self.shared.tower.counters.snapshot()
    }

    /// Returns where the connections are.
    pub fn census(&self) -> Census {
        self.shared.tower.lines.census()
    }

    /// Returns how many keys are kept, and what they weigh by the measure of the cache's bound.
    pub fn kept(&self) -> (u64, u64) {
        match (&self.shared.whole, &self.shared.tower.cache) {
            (Some(whole), _) => (whole.len() as u64, whole.len() as u64),
            (None, Some(cache)) => cache.size(),
            (None, None) => (0, 0),
        }
    }

    /// Returns what the start has found to be slow: tables in which no index finds the key.
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }
}

enum Known {
    Answer(Result<Found, LookupError>),
    Ask(Key),
}

impl Shared {
    /// Tells what can be told without the server.
    fn known(&self, scratch: &mut Scratch, parts: &[Value]) -> Known {
        let (plan, counters) = (&self.tower.plan, &self.tower.counters);
        match scratch.encode(plan, parts) {
            Err(error) => return Known::Answer(Err(error)),
            Ok(false) => {
                counters.null_keys.fetch_add(1, Relaxed);
                return Known::Answer(plan.judge(Arc::from([])));
            }
            Ok(true) => {}
        }
        let kept = match (&self.whole, &self.tower.cache) {
            (Some(whole), _) => whole.get(&scratch.canonical),
            (None, Some(cache)) => cache.get(&scratch.canonical),
            (None, None) => None,
        };
        match kept {
            Some(rows) => Known::Answer(plan.judge(rows)),
            None => Known::Ask(scratch.key()),
        }
    }

    /// Asks the server about keys, and returns their answers in order.
    async fn ask(&self, keys: Vec<Key>) -> Vec<Result<Found, LookupError>> {
        let deadline = Instant::now() + self.tower.config.timeout;
        let mut answers: Vec<_> = keys.iter().map(|_| Err(self.stopped())).collect();
        let mut open: Vec<usize> = (0..keys.len()).collect();
        while !open.is_empty() {
            let wanted: Vec<&Key> = open.iter().map(|place| &keys[*place]).collect();
            let seats = self.tower.board(&wanted, deadline);
            let mut again = Vec::new();
            for (place, mut seat) in open.into_iter().zip(seats) {
                let Some(answer) = seat.answer().await else { continue };
                // Whoever had come first had less time left.
                let is_theirs = seat.is_shared && is_over(&answer) && Instant::now() < deadline;
                match is_theirs {
                    true => again.push(place),
                    false => answers[place] = answer,
                }
            }
            open = again;
        }
        answers.iter().for_each(|answer| self.count(answer));
        answers
    }

    /// Counts for each who has asked, not for each query: others may have waited for the same one.
    fn count(&self, answer: &Result<Found, LookupError>) {
        let counters = &self.tower.counters;
        let counter = match answer {
            Ok(found) if found.is_empty() => &counters.not_found,
            Err(LookupError::NoMatch { .. }) => &counters.not_found,
            Ok(_) | Err(LookupError::Ambiguous { .. }) => &counters.found,
            Err(_) => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn stopped(&self) -> LookupError {
        LookupError::Stopped { target: Arc::clone(&self.tower.plan.target) }
    }

    /// Makes a key invalid, and with it whatever the server may take for equal.
    pub(crate) fn invalidate(&self, parts: &[Value]) -> Result<(), LookupError> {
        if self.tower.plan.is_canonical() {
            return self.forget(parts);
        }
        Scratch::default().encode(&self.tower.plan, parts)?;
        self.clear();
        Ok(())
    }

    /// Makes invalid what is kept under these very bytes: they are about to be asked for again.
    pub(crate) fn forget(&self, parts: &[Value]) -> Result<(), LookupError> {
        let mut scratch = Scratch::default();
        if !scratch.encode(&self.tower.plan, parts)? {
            // It matches nothing, so nothing was kept.
            return Ok(());
        }
        if let Some(whole) = &self.whole {
            whole.invalidate(&scratch.canonical);
        }
        self.tower.invalidate(&scratch.canonical);
        Ok(())
    }

    pub(crate) fn clear(&self) {
        if let Some(whole) = &self.whole {
            whole.clear();
        }
        self.tower.clear();
    }

    pub(crate) fn set_heard(&self, is_heard: bool) {
        self.tower.set_heard(is_heard);
        if let Some(whole) = &self.whole {
            whole.set_heard(is_heard);
        }
    }
}

fn is_over(answer: &Result<Found, LookupError>) -> bool {
    matches!(
        answer,
        Err(LookupError::Timeout { .. } | LookupError::Exhausted { .. } | LookupError::Unreachable { .. })
    )
}

/// Connects for the first time; a wrong address looks like a server that is away.
async fn first_session(config: &PostgresLookupConfig) -> Result<Session, LookupError> {
    let deadline = Instant::now() + config.create_timeout;
    let mut pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        let failure: Failure = match connect::session(config).await {
            Ok(session) => return Ok(session),
            Err(failure) => failure,
        };
        if !failure.class.is_retriable() || Instant::now() >= deadline {
            return Err(LookupError::unreachable(&"rows".into(), failure));
        }
        pauses.next().await;
    }
}
