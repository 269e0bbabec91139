//! Taking splits over: fence first, then read.
//!
//! ```text
//!  begin
//!    first claim of a run?  ── advisory lock, draw a number higher than all before
//!    splits without a row?  ── advisory lock, look again, store starts (all splits of a stream in one step)
//!    select … for update    ── in key order; an owner in mid commit is waited for, so his fate is sealed here
//!    a later run was here?  ── fenced: of processes that start together, one gets everything
//!    ours already?          ── only at our own epoch, else fenced
//!    epoch + 1, owner, pid  ── from here on every commit of an earlier owner fails
//!  commit
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levada_core::error::Owner;
use levada_core::{Position, SinkError, SplitId, StreamStart};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::config::PostgresSinkConfig;
use super::error::{Failure, fatal};
use super::session::{Session, answered};
use super::sql;

/// How long a look at what holds a claim up may take; the claim stands still meanwhile.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// A split as this sink holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) epoch: i64,
    pub(crate) position: Position,
}

/// A row of the positions table.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) split: SplitId,
    pub(crate) position: Position,
    stream_id: String,
    pub(crate) epoch: i64,
    owner: String,
    owner_backend: Option<i32>,
    updated_at: String,
    run: i64,
}

impl Stored {
    fn of(row: &tokio_postgres::Row) -> Result<Self, Failure> {
        let stream: String = row.try_get(0)?;
        let index: i32 = row.try_get(1)?;
        let next: i64 = row.try_get(2)?;
        let detail: Vec<u8> = row.try_get(3)?;
        Ok(Self {
            // Written by this crate from unsigned numbers.
            split: SplitId::new(stream, index.cast_unsigned()),
            position: Position { next: next.cast_unsigned(), detail: detail.into() },
            stream_id: row.try_get(4)?,
            epoch: row.try_get(5)?,
            owner: row.try_get(6)?,
            owner_backend: row.try_get(7)?,
            updated_at: row.try_get(8)?,
            run: row.try_get(9)?,
        })
    }

    pub(crate) fn owner(&self) -> Owner {
        let name = if self.owner.is_empty() { "nobody" } else { &self.owner };
        Owner { name: name.to_owned(), since: self.updated_at.clone() }
    }
}

/// Splits as the two array parameters that every statement about them takes.
#[derive(Debug, Default)]
pub(crate) struct SplitArrays {
    pub(crate) streams: Vec<String>,
    pub(crate) indexes: Vec<i32>,
}

impl SplitArrays {
    pub(crate) fn of<'a>(splits: impl IntoIterator<Item = &'a SplitId>) -> Self {
        let mut arrays = Self::default();
        for split in splits {
            arrays.streams.push(split.stream.to_string());
            arrays.indexes.push(split.index.cast_signed());
        }
        arrays
    }
}

/// Under which number a claim is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunNumber {
    /// A new one, higher than all before.
    Draw,
    /// That of this run. A later run that was here first keeps what it has.
    Drawn(i64),
    /// None: whoever claims again was given the splits, or holds them.
    None,
}

/// What a claim is to achieve.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) pipeline: &'a str,
    pub(crate) owner: &'a str,
    /// The streams whose starts may have to be stored; none when a connection is made anew.
    pub(crate) streams: &'a [StreamStart],
    pub(crate) splits: BTreeSet<SplitId>,
    pub(crate) run: RunNumber,
    /// What this sink holds already.
    pub(crate) held: &'a BTreeMap<SplitId, Held>,
    /// The backends of this sink's own earlier attempts at this claim, whose outcome it may not have learned.
    pub(crate) attempts: &'a [i32],
}

/// What a claim came to.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The rows as they are now, this owner's epoch in them.
    pub(crate) stored: Vec<Stored>,
    /// The number under which they were claimed.
    pub(crate) run: Option<i64>,
}

/// Why a claim did not succeed.
#[derive(Debug)]
pub(crate) enum Unclaimed {
    Failed(Failure),
    Refused(SinkError),
}

impl From<Failure> for Unclaimed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<tokio_postgres::Error> for Unclaimed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SinkError> for Unclaimed {
    fn from(error: SinkError) -> Self {
        Self::Refused(error)
    }
}

/// Claims, and looks after a while who is in the way. Returns also how many backends were ended.
pub(crate) async fn claim(
    session: &mut Session,
    config: &PostgresSinkConfig,
    application_name: &str,
    claim: &Claim<'_>,
) -> (Result<Claimed, Unclaimed>, u64) {
    let backend = session.backend;
    let mut watch = Watch { config, application_name, session: None, seen: String::new(), terminated: 0 };
    // The server bounds each of the two waits for locks; a server that does not answer at all is bounded here.
    let within = session.patience.saturating_add(config.claim_timeout.saturating_mul(2));
    let started = Instant::now();
    let result = {
        let mut attempt = pin!(attempt(session, config, claim));
        loop {
            match timeout(config.claim_patience, &mut attempt).await {
                Ok(result) => break result,
                Err(_) if started.elapsed() > within => break Err(Failure::silence(within).into()),
                Err(_still_waiting) => watch.look(backend, claim).await,
            }
        }
    };
    if result.is_err() {
        session.roll_back().await;
    }
    let result = match result {
        // The claim's own limit: now the wait itself is the error.
        Err(Unclaimed::Failed(failure)) if failure.is("55P03") && !watch.seen.is_empty() => {
            let message = format!(
                "claiming {} splits waited {} s for other transactions on their positions: {}",
                claim.splits.len(),
                config.claim_timeout.as_secs(),
                watch.seen
            );
            Err(Unclaimed::Refused(failure.during(message)))
        }
        other => other,
    };
    (result, watch.terminated)
}

async fn attempt(
    session: &mut Session,
    config: &PostgresSinkConfig,
    claim: &Claim<'_>,
) -> Result<Claimed, Unclaimed> {
    let arrays = SplitArrays::of(&claim.splits);
    session.client.batch_execute(&sql::begin_waiting(config.claim_timeout)).await?;
    let run = match claim.run {
        RunNumber::Draw => Some(draw(session, claim.pipeline).await?),
        RunNumber::Drawn(run) => Some(run),
        RunNumber::None => None,
    };
    store_starts(session, claim).await?;

    let lock = session.prepare(sql::LOCK_POSITIONS).await?;
    let rows = session.client.query(&lock, &[&claim.pipeline, &arrays.streams, &arrays.indexes]).await?;
    let mut stored = Vec::with_capacity(rows.len());
    for row in &rows {
        stored.push(Stored::of(row)?);
    }
    check(claim, run, &stored)?;

    let take = session.prepare(sql::TAKE_POSITIONS).await?;
    let taken = session
        .client
        .execute(&take, &[&claim.pipeline, &arrays.streams, &arrays.indexes, &claim.owner, &run.unwrap_or(0)])
        .await?;
    if taken != stored.len() as u64 {
        return Err(fatal(format!("{taken} of {} position rows could be updated", stored.len())).into());
    }
    session.client.batch_execute(sql::COMMIT).await?;
    for row in &mut stored {
        row.epoch += 1;
    }
    Ok(Claimed { stored, run })
}

/// Draws a number under the pipeline's lock, which is held until the claim that stores it is committed.
async fn draw(session: &mut Session, pipeline: &str) -> Result<i64, Unclaimed> {
    let lock = session.prepare(sql::LOCK_PIPELINE).await?;
    session.client.query(&lock, &[&pipeline]).await?;
    let next = session.prepare(sql::NEXT_RUN).await?;
    Ok(session.client.query_one(&next, &[&pipeline]).await?.try_get(0)?)
}

/// Judges locked rows: every split has one, of the right stream, and what we hold is still ours.
fn check(claim: &Claim<'_>, run: Option<i64>, stored: &[Stored]) -> Result<(), SinkError> {
    for split in &claim.splits {
        let Some(row) = stored.iter().find(|row| row.split == *split) else {
            return Err(fatal(format!(
                "split {split} of pipeline {:?} has no row in levada.positions: it was removed, or the stream does not \
                 list the split",
                claim.pipeline
            )));
        };
        if let Some(stream) = claim.streams.iter().find(|stream| stream.stream == split.stream) {
            check_stream_id(claim.pipeline, stream, &row.stream_id)?;
        }
        let Some(held) = claim.held.get(split) else {
            match run {
                Some(run) if row.run > run => return Err(SinkError::fenced(split.clone(), row.owner())),
                _ => continue,
            }
        };
        let is_own_attempt = row.owner == claim.owner
            && row.epoch > held.epoch
            && row.owner_backend.is_some_and(|backend| claim.attempts.contains(&backend));
        if row.epoch != held.epoch && !is_own_attempt {
            return Err(SinkError::fenced(split.clone(), row.owner()));
        }
    }
    Ok(())
}

fn check_stream_id(pipeline: &str, stream: &StreamStart, stored: &str) -> Result<(), SinkError> {
    if *stream.id.0 == *stored {
        return Ok(());
    }
    Err(fatal(format!(
        "stream {:?} is {} now, but the positions stored for pipeline {pipeline:?} belong to {stored}: the stream was \
         made anew, or this is another cluster, and the positions mean nothing in it; connect to the stream they belong \
         to, or start over by deleting the rows of this pipeline and stream from levada.positions",
        &*stream.stream, stream.id,
    )))
}

/// Makes sure that every split of every stream has a row.
///
/// The first claim of a stream stores the configured start of all its splits at once, so that "latest" is one moment.
/// A split that appeared later starts at its beginning.
async fn store_starts(session: &mut Session, claim: &Claim<'_>) -> Result<(), Unclaimed> {
    if claim.streams.is_empty() || missing(session, claim).await?.is_empty() {
        return Ok(());
    }
    let lock = session.prepare(sql::LOCK_PIPELINE).await?;
    session.client.query(&lock, &[&claim.pipeline]).await?;
    // Whoever held the lock may have stored them; a statement of its own sees that.
    let missing = missing(session, claim).await?;
    let mut splits = SplitArrays::default();
    let (mut next, mut details, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (stream, split, position) in &missing {
        splits.streams.push(stream.stream.to_string());
        splits.indexes.push(split.cast_signed());
        next.push(position.next.cast_signed());
        details.push(&*position.detail);
        ids.push(&*stream.id.0);
    }
    let store = session.prepare(sql::STORE_STARTS).await?;
    session
        .client
        .execute(&store, &[&claim.pipeline, &splits.streams, &splits.indexes, &next, &details, &ids])
        .await?;
    info!(pipeline = claim.pipeline, splits = missing.len(), "start positions stored");
    Ok(())
}

async fn missing<'a>(
    session: &mut Session,
    claim: &Claim<'a>,
) -> Result<Vec<(&'a StreamStart, u32, Position)>, Unclaimed> {
    let streams: Vec<&str> = claim.streams.iter().map(|stream| &*stream.stream).collect();
    let known = session.prepare(sql::KNOWN_SPLITS).await?;
    let mut splits_of: BTreeMap<Arc<str>, BTreeSet<u32>> = BTreeMap::new();
    for row in session.client.query(&known, &[&claim.pipeline, &streams]).await? {
        let (stream, split, stored_id): (String, i32, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if let Some(start) = claim.streams.iter().find(|start| *start.stream == *stream) {
            check_stream_id(claim.pipeline, start, &stored_id)?;
        }
        splits_of.entry(stream.into()).or_default().insert(split.cast_unsigned());
    }
    let mut missing = Vec::new();
    for stream in claim.streams {
        let known = splits_of.get(&stream.stream);
        for split in &stream.splits {
            match known {
                None => missing.push((stream, split.index, split.start.clone())),
                Some(known) if known.contains(&split.index) => {}
                Some(_) => missing.push((stream, split.index, split.earliest.clone())),
            }
        }
    }
    Ok(missing)
}

/// Looks from a second connection at who holds a claim up.
#[derive(Debug)]
struct Watch<'a> {
    config: &'a PostgresSinkConfig,
    application_name: &'a str,
    session: Option<Session>,
    /// Whom it saw last and did not end.
    seen: String,
    terminated: u64,
}

impl Watch<'_> {
    /// Ends the backends of recorded owners, and remembers everybody else for the message.
    ///
    /// Its own failure is logged only: the claim goes on waiting, and that has a limit.
    async fn look(&mut self, backend: i32, claim: &Claim<'_>) {
        let looked = answered(LOOK_WITHIN, Box::pin(self.try_look(backend, claim))).await;
        if let Err(failure) = looked {
            self.session = None;
            warn!(error = %failure.cause, "cannot look at what holds the claim up");
        }
    }

    async fn try_look(&mut self, backend: i32, claim: &Claim<'_>) -> Result<(), Failure> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(
                Session::connect(&self.config.connection, self.config.limits(), self.application_name)
                    .await?,
            ),
        };
        let arrays = SplitArrays::of(&claim.splits);
        let ours = our_prefix(claim.pipeline);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&backend, &claim.pipeline, &arrays.streams, &arrays.indexes, &ours];
        let blockers = session.client.query(sql::BLOCKERS, &parameters).await?;
        self.seen.clear();
        for row in blockers {
            let (pid, user, application): (i32, String, String) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let age: f64 = row.try_get(3)?;
            let is_recorded_owner: bool = row.try_get(4)?;
            if is_recorded_owner {
                warn!(
                    pid,
                    user, application, age, "ending the backend of an earlier owner that holds positions"
                );
                match session.client.query(sql::TERMINATE, &[&pid]).await {
                    Ok(_) => self.terminated += 1,
                    Err(error) => warn!(pid, error = %Failure::from(error).cause, "cannot end it"),
                }
            }
            let blocker = format!(
                "pid {pid}, user {user:?}, application {application:?}, in transaction for {age:.0} s"
            );
            if !is_recorded_owner {
                warn!(pid, user, application, age, "a claim waits for a transaction of somebody else");
            }
            if !self.seen.is_empty() {
                self.seen.push_str("; ");
            }
            self.seen.push_str(&blocker);
        }
        Ok(())
    }
}

/// What the application name of every backend of this pipeline begins with.
///
/// The server cuts names after 63 bytes and replaces what is not ASCII; for such names only the first word is asked for.
fn our_prefix(pipeline: &str) -> String {
    match pipeline.len() <= 40 && pipeline.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        true => format!("levada/{pipeline}/"),
        false => "levada/".to_owned(),
    }
}

/// Reads positions without a lock.
pub(crate) async fn read(
    session: &Session,
    pipeline: &str,
    splits: &SplitArrays,
) -> Result<Vec<Stored>, Failure> {
    let rows =
        session.client.query(sql::READ_POSITIONS, &[&pipeline, &splits.streams, &splits.indexes]).await?;
    rows.iter().map(Stored::of).collect()
}
