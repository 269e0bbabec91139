//! Queries under way, and who waits for them.
//!
//! ```text
//!   get(a) ─┬─ cache ─▶ there
//!           ├─ a is in the table of flights ─▶ wait for that one's answer          one query for equal keys
//!           └─ else: a flight of its own ─▶ task: send, again if need be ─▶ answer to all who wait, cache
//!   get_many(a, b, c, …): the same for each key; what is left is one flight per `keys_per_query`
//! ```
//!
//! A flight is a task of its own, so whoever started it may go away. When nobody waits any more, it is given up as when
//! its time is over.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use levada_core::{ErrorClass, Row, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::sink::backoff::Pauses;
use crate::sink::error::Failure;

use super::cache::{Cache, Rows};
use super::config::PostgresLookupConfig;
use super::error::LookupError;
use super::key::{Key, parameters};
use super::line::Query;
use super::lines::Lines;
use super::plan::Plan;
use super::stats::Counters;

/// The answer for one key.
pub(crate) type Found = Result<Rows, LookupError>;
/// The answers for a flight's keys.
type Outcome = Arc<Vec<Found>>;

/// A key's place in a query that is under way.
#[derive(Debug)]
pub(crate) struct Seat {
    place: usize,
    outcome: watch::Receiver<Option<Outcome>>,
    /// Whether the query was under way before.
    pub(crate) is_shared: bool,
}

impl Seat {
    /// Waits for the answer: not longer than until the time of whoever came first is over. `None`: the task is gone.
    pub(crate) async fn answer(&mut self) -> Option<Found> {
        let outcome = self.outcome.wait_for(Option::is_some).await.ok()?;
        outcome.as_ref().and_then(|found| found.get(self.place).cloned())
    }
}

#[derive(Debug, Default)]
struct Flights {
    next: u64,
    by_key: HashMap<Arc<[u8]>, Listed>,
}

/// Where a key is under way. Holds no receiver: a flight sees by its receivers whether anybody waits.
#[derive(Debug)]
struct Listed {
    flight: u64,
    place: usize,
    sender: Arc<watch::Sender<Option<Outcome>>>,
}

impl Listed {
    fn seat(&self, is_shared: bool) -> Seat {
        Seat { place: self.place, outcome: self.sender.subscribe(), is_shared }
    }
}

/// What all clones of a lookup share.
#[derive(Debug)]
pub(crate) struct Tower {
    pub(crate) config: PostgresLookupConfig,
    pub(crate) plan: Arc<Plan>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) cache: Option<Cache>,
    pub(crate) counters: Arc<Counters>,
    flights: Mutex<Flights>,
    /// Whether answers may be kept: not while nobody hears what becomes invalid.
    is_heard: Mutex<bool>,
}

impl Tower {
    pub(crate) fn new(
        config: PostgresLookupConfig,
        plan: Arc<Plan>,
        lines: Arc<Lines>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        let cache =
            config.cache.map(|cache| Cache::new(cache, Arc::clone(&config.clock), Arc::clone(&counters)));
        let is_heard = Mutex::new(config.invalidation_channel.is_none());
        Arc::new(Self { config, plan, lines, cache, counters, flights: Mutex::default(), is_heard })
    }

    // Nothing panics while it is held.
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every key on its way, and returns their seats in order.
    pub(crate) fn board(self: &Arc<Self>, keys: &[&Key], deadline: Instant) -> Vec<Seat> {
        let mut seats = Vec::with_capacity(keys.len());
        let mut departures: Vec<Departure> = Vec::new();
        {
            let mut flights = self.flights();
            for key in keys {
                if let Some(listed) = flights.by_key.get(&key.canonical) {
                    self.counters.coalesced.fetch_add(1, Relaxed);
                    seats.push(listed.seat(true));
                    continue;
                }
                let departure = match departures.last_mut() {
                    Some(last) if last.keys.len() < self.config.keys_per_query => last,
                    _ => {
                        flights.next += 1;
                        departures.push(Departure::new(flights.next));
                        // It was pushed just now.
                        let Some(last) = departures.last_mut() else { continue };
                        last
                    }
                };
                let listed = Listed {
                    flight: departure.flight,
                    place: departure.keys.len(),
                    sender: Arc::clone(&departure.sender),
                };
                seats.push(listed.seat(false));
                departure.keys.push((*key).clone());
                flights.by_key.insert(Arc::clone(&key.canonical), listed);
            }
        }
        for departure in departures {
            tokio::spawn(Task::new(Arc::clone(self), departure, deadline).run());
        }
        seats
    }

    /// Makes one key invalid.
    pub(crate) fn invalidate(&self, key: &[u8]) {
        let mut flights = self.flights();
        flights.by_key.remove(key);
        self.counters.invalidated.fetch_add(1, Relaxed);
        if let Some(cache) = &self.cache {
            cache.forget(key);
        }
    }

    /// Makes everything invalid.
    pub(crate) fn clear(&self) {
        let mut flights = self.flights();
        flights.by_key.clear();
        self.counters.cleared.fetch_add(1, Relaxed);
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Says whether it is heard what becomes invalid; what was read before is invalid either way.
    pub(crate) fn set_heard(&self, is_heard: bool) {
        *self.is_heard.lock().unwrap_or_else(PoisonError::into_inner) = is_heard;
        self.clear();
    }

    pub(crate) fn is_heard(&self) -> bool {
        *self.is_heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Departure {
    flight: u64,
    keys: Vec<Key>,
    sender: Arc<watch::Sender<Option<Outcome>>>,
}

impl Departure {
    fn new(flight: u64) -> Self {
        Self { flight, keys: Vec::new(), sender: Arc::new(watch::Sender::new(None)) }
    }
}

/// A flight's own task.
struct Task {
    tower: Arc<Tower>,
    flight: u64,
    keys: Vec<Key>,
    sender: Arc<watch::Sender<Option<Outcome>>>,
    deadline: Instant,
    asked: Timestamp,
    /// How often something was sent.
    attempts: u32,
    found: Vec<Option<Found>>,
}

/// Whatever happens to the task, nobody boards it any more.
impl Drop for Task {
    fn drop(&mut self) {
        self.land(None);
    }
}

/// Why a query has no answer.
enum Unanswered {
    /// Its time is over, or nobody waits.
    GivenUp,
    Failed(Failure),
    NotSent(LookupError),
}

impl Task {
    fn new(tower: Arc<Tower>, departure: Departure, deadline: Instant) -> Self {
        let Departure { flight, keys, sender } = departure;
        let (asked, found) = (tower.config.clock.now(), vec![None; keys.len()]);
        Self { tower, flight, keys, sender, deadline, asked, attempts: 0, found }
    }

    async fn run(mut self) {
        // Worked off from the end.
        let mut ranges = Vec::new();
        ranges.push(0..self.keys.len());
        while let Some(range) = ranges.pop() {
            match self.ask(range.clone()).await {
                Ok(()) => {}
                Err(Unanswered::Failed(failure)) if is_for_one(&failure) && range.len() > 1 => {
                    // One key is at fault, and the others are not: look for it by halves.
                    let middle = range.start + range.len() / 2;
                    ranges.push(middle..range.end);
                    ranges.push(range.start..middle);
                }
                Err(unanswered) => self.fail(range, unanswered),
            }
        }
        let target = &self.tower.plan.target;
        let stopped = || Err(LookupError::Stopped { target: Arc::clone(target) });
        let outcome: Outcome =
            Arc::new(self.found.drain(..).map(|found| found.unwrap_or_else(stopped)).collect());
        self.land(Some(&outcome));
        self.sender.send_replace(Some(outcome));
    }

    /// Takes its keys from the table, and keeps the answers of those that were still there.
    fn land(&mut self, outcome: Option<&Outcome>) {
        let tower = &self.tower;
        let may_keep = tower.cache.is_some() && tower.is_heard();
        let mut flights = tower.flights();
        for (place, key) in self.keys.drain(..).enumerate() {
            let is_ours = flights.by_key.get(&key.canonical).is_some_and(|seat| seat.flight == self.flight);
            if !is_ours {
                continue;
            }
            flights.by_key.remove(&key.canonical);
            if let (Some(cache), Some(Ok(rows)), true) =
                (&tower.cache, outcome.and_then(|outcome| outcome.get(place)), may_keep)
            {
                cache.put(&key.canonical, rows, self.asked);
            }
        }
    }

    fn fail(&mut self, range: Range<usize>, unanswered: Unanswered) {
        let target = &self.tower.plan.target;
        let error = match unanswered {
            Unanswered::GivenUp => LookupError::Timeout {
                target: Arc::clone(target),
                within: self.tower.config.timeout,
                attempts: self.attempts,
            },
            Unanswered::Failed(failure) => LookupError::server(target, failure),
            Unanswered::NotSent(error) => error,
        };
        for found in &mut self.found[range] {
            *found = Some(Err(error.clone()));
        }
    }

    /// Asks about some keys until there is an answer, or sending again is of no use.
    async fn ask(&mut self, range: Range<usize>) -> Result<(), Unanswered> {
        let keys = &self.keys[range.clone()];
        let query =
            Query { is_many: keys.len() > 1, parameters: Arc::new(parameters(&self.tower.plan, keys)) };
        let mut renewed = 0;
        let mut pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(500));
        for attempt in 1.. {
            match self.send(&query).await {
                Ok(rows) => {
                    self.distribute(range, query.is_many, &rows);
                    return Ok(());
                }
                Err(Unanswered::Failed(failure)) => match Again::after(&failure) {
                    Again::Yes => {}
                    // Each takes its connection out of use, and those of before the change are no more than this.
                    Again::Renewed if renewed < self.tower.config.connections => renewed += 1,
                    _ => return Err(Unanswered::Failed(failure)),
                },
                Err(unanswered) => return Err(unanswered),
            }
            self.tower.counters.resent.fetch_add(1, Relaxed);
            // At once is tried once only.
            if attempt > 1 && timeout_at(self.deadline, pauses.next()).await.is_err() {
                break;
            }
        }
        Err(Unanswered::GivenUp)
    }

    async fn send(&mut self, query: &Query) -> Result<Vec<tokio_postgres::Row>, Unanswered> {
        // A query that is given up takes its connection out of use.
        if self.sender.is_closed() || Instant::now() >= self.deadline {
            return Err(Unanswered::GivenUp);
        }
        let lines = &self.tower.lines;
        let sending = lines.send(query, self.deadline);
        let mut sent = tokio::select! {
            biased;
            sent = sending => sent.map_err(Unanswered::NotSent)?,
            () = self.sender.closed() => return Err(Unanswered::GivenUp),
        };
        self.attempts += 1;
        let waiting = async {
            tokio::select! {
                biased;
                answer = sent.answer() => Some(answer),
                () = self.sender.closed() => None,
            }
        };
        let Ok(Some(answer)) = timeout_at(self.deadline, waiting).await else {
            lines.retire(&sent.line);
            sent.give_up();
            return Err(Unanswered::GivenUp);
        };
        answer.map_err(|error| {
            let failure = Failure::from(error);
            if Again::after(&failure) == Again::Renewed {
                sent.line.set_stale();
                lines.retire(&sent.line);
            }
            Unanswered::Failed(failure)
        })
    }

    /// Gives each key its rows.
    fn distribute(&mut self, range: Range<usize>, is_many: bool, answers: &[tokio_postgres::Row]) {
        let plan = Arc::clone(&self.tower.plan);
        let mut rows: Vec<Result<Vec<Row>, LookupError>> = range.clone().map(|_| Ok(Vec::new())).collect();
        for answer in answers {
            let place = match is_many {
                // Counted by the server, from one on.
                true => answer.try_get::<_, i64>(0).ok().and_then(|place| usize::try_from(place - 1).ok()),
                false => Some(0),
            };
            let Some(found) = place.and_then(|place| rows.get_mut(place)) else { continue };
            match (plan.row(answer, usize::from(is_many)), &mut *found) {
                (Ok(row), Ok(rows)) => rows.push(row),
                (Err(error), found) => *found = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
        for (place, rows) in range.zip(rows) {
            self.found[place] = Some(rows.and_then(|rows| self.tower.plan.judge(rows.into())));
        }
    }
}

/// Whether a failed query is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// Elsewhere, within the call's own time.
    Yes,
    /// Once for each connection, until one has prepared it anew.
    Renewed,
    No,
}

impl Again {
    fn after(failure: &Failure) -> Self {
        match failure.code.as_deref() {
            // The prepared statement is gone, or the table has changed under it.
            Some("26000" | "0A000") => Self::Renewed,
            // A standby refuses nothing that reads; whoever is refused this way has a query that writes.
            Some("25006") => Self::No,
            _ if failure.class.is_retriable() => Self::Yes,
            _ => Self::No,
        }
    }
}

/// Tells whether one key of many can be the cause.
fn is_for_one(failure: &Failure) -> bool {
    failure.class == ErrorClass::BadRecord
}
