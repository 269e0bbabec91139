//! The source of lines: each file is a split, each line a record.
//!
//! ```text
//!   open: list the files ──▶ Assigned ──▶ add(position) ──▶ open at the position, is it the same file?
//!                                                                  │
//!              poll: read a piece on a blocking thread ──▶ cut into lines ──▶ records, and the position behind them
//! ```
//!
//! * `find`: which files, and whose. `mark`: what a position says. `cut`: bytes into lines. `reading`: one open file.
//!
//! # Splits and positions
//! A split is `SplitId { stream: the file's name, index: 0 }`, so it stays the same when other files appear or go. Its
//! position's `next` is a byte: where the next line begins. A record's offset is the byte at which its line begins. The
//! position's detail holds the line's number, for messages, and a fingerprint of what stands before it, so that a file that
//! was replaced is noticed. A position without detail is taken, and checked to be a line's start only.
//!
//! # End
//! Each file is read up to the length it had when the source was opened. A file that still grows there may be cut inside of
//! its last line; that piece is a record, and a later run that finds the rest behind it refuses to guess.

mod config;
mod cut;
mod error;
mod find;
mod mark;
mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{
    Assignment, BatchBuilder, Budget, Polled, Position, Source, SourceContext, SourceError, SplitId,
    SplitStart, StreamId, StreamStart,
};
use tokio::task::JoinHandle;

pub use config::{BatchBounds, LineEnd, LineSourceConfig};
pub use find::owner_of;

use crate::blocking;
use cut::Rules;
use error::ReadError;
use find::Found;
use reading::{Offer, Reading};

/// Reads text files line by line, to their ends.
///
/// The subtask of a file of a folder is [`owner_of`] its name; listed files are dealt out in turn. After
/// [`open`](Source::open), the first poll returns [`Polled::Assigned`]; splits are read once they have been added, one after
/// the other in the order of their names. A subtask without a file returns [`Polled::End`] at once. Its calls need a tokio
/// runtime around them, for its blocking threads.
///
/// Hand an empty builder to each poll: a builder holds the permit of one batch. Dropping the future of a poll loses nothing.
///
/// Ahead of the byte budget it holds one piece of a file, of the size of a batch or of the longest line.
#[derive(Debug)]
pub struct LineSource {
    config: LineSourceConfig,
    running: Option<Running>,
}

/// A source that is open.
#[derive(Debug)]
struct Running {
    rules: Rules,
    budget: Budget,
    files: BTreeMap<SplitId, File>,
    /// Told by the first poll.
    assignment: Option<Assignment>,
    unended: BTreeSet<SplitId>,
    added: BTreeMap<SplitId, Added>,
    resting: BTreeSet<SplitId>,
    last_reading: u64,
    /// What a blocking thread is at. Kept here and not in the future of a poll, which may be dropped.
    work: Option<Work>,
}

/// A file of this subtask.
#[derive(Debug)]
struct File {
    path: PathBuf,
    end: u64,
}

/// A split that is read.
#[derive(Debug)]
struct Added {
    /// Changed whenever what a blocking thread brings must be dropped.
    number: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    At(Position),
    Open(Box<Reading>),
}

enum Work {
    Open(SplitId, u64, JoinHandle<Result<Reading, ReadError>>),
    Read(SplitId, u64, JoinHandle<Result<Vec<u8>, ReadError>>),
    /// Waits until there is room in the byte budget.
    Room(JoinHandle<()>),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Open(split, ..) => write!(f, "Open({split})"),
            Work::Read(split, ..) => write!(f, "Read({split})"),
            Work::Room(_) => f.write_str("Room"),
        }
    }
}

impl LineSource {
    /// Makes a source; no file is looked at before it is opened.
    pub fn new(config: LineSourceConfig) -> Self {
        Self { config, running: None }
    }

    fn running(&mut self) -> Result<&mut Running, ReadError> {
        self.running.as_mut().ok_or(ReadError::NotOpen)
    }

    fn rules(&self) -> Result<Rules, ReadError> {
        let LineSourceConfig { line_end, max_line_bytes, bounds, .. } = self.config;
        match bounds.records > 0 && bounds.bytes > 0 {
            true => Ok(Rules { line_end, max_line_bytes, bounds }),
            false => Err(ReadError::Bounds),
        }
    }
}

impl Source for LineSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        let rules = self.rules()?;
        let files = self.config.files.clone();
        let work = blocking::started(move || find::found(&files, ctx.parallelism));
        let found =
            blocking::ended(work.await).map_err(|cause| ReadError::io("list", "the files", cause))??;
        let mine = found.into_iter().filter(|file| file.owner == ctx.subtask).collect();
        self.running = Some(Running::new(rules, ctx.budget, mine));
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        let running = self.running()?;
        loop {
            if let Some(assignment) = running.assignment.take() {
                return Ok(Polled::Assigned(assignment));
            }
            running.worked().await?;
            if running.unended.is_empty() {
                return Ok(Polled::End);
            }
            match running.step(out)? {
                Step::Done(polled) => return Ok(polled),
                Step::Working => {}
                // Only `add` or `resume` change that, and they need this future to be dropped.
                Step::Nothing => std::future::pending().await,
            }
        }
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        let running = self.running()?;
        for (split, position) in splits {
            if !running.files.contains_key(&split) {
                return Err(ReadError::Unknown(split).into());
            }
            let added = Added { number: running.next_reading(), state: State::At(position) };
            running.unended.insert(split.clone());
            running.added.insert(split, added);
        }
        Ok(())
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let running = self.running()?;
        for split in splits {
            running.unended.remove(split);
            running.added.remove(split);
            running.resting.remove(split);
        }
        Ok(())
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let running = self.running()?;
        for split in splits {
            running.resting.insert(split.clone());
            let number = running.next_reading();
            if let Some(added) = running.added.get_mut(split) {
                added.number = number;
                if let State::Open(reading) = &mut added.state {
                    reading.rest();
                }
            }
        }
        Ok(())
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let running = self.running()?;
        for split in splits {
            running.resting.remove(split);
        }
        Ok(())
    }

    async fn close(&mut self) {
        self.running = None;
    }
}

/// What a step of a poll came to.
enum Step {
    Done(Polled),
    /// A blocking thread is at work.
    Working,
    /// Every split rests, or was not added yet.
    Nothing,
}

impl Running {
    fn new(rules: Rules, budget: Budget, found: Vec<Found>) -> Self {
        let assignment = (!found.is_empty()).then(|| assignment_of(&found));
        let unended = found.iter().map(|file| file.split.clone()).collect();
        let files =
            found.into_iter().map(|file| (file.split, File { path: file.path, end: file.bytes })).collect();
        Self {
            rules,
            budget,
            files,
            assignment,
            unended,
            added: BTreeMap::new(),
            resting: BTreeSet::new(),
            last_reading: 0,
            work: None,
        }
    }

    fn next_reading(&mut self) -> u64 {
        self.last_reading += 1;
        self.last_reading
    }

    /// Waits for the blocking thread, if one is at work, and takes what it brings.
    async fn worked(&mut self) -> Result<(), ReadError> {
        // The work is taken out only when it has ended: until then, dropping the future leaves it for the next poll.
        match &mut self.work {
            None => {}
            Some(Work::Room(handle)) => {
                let outcome = handle.await;
                self.work = None;
                blocking::ended(outcome)
                    .map_err(|cause| ReadError::io("wait for", "room in memory", cause))?;
            }
            Some(Work::Open(split, number, handle)) => {
                let (split, number, outcome) = (split.clone(), *number, handle.await);
                self.work = None;
                let opened = self.brought(&split, number, outcome)?;
                if let Some((added, reading)) = opened {
                    added.state = State::Open(Box::new(reading));
                }
            }
            Some(Work::Read(split, number, handle)) => {
                let (split, number, outcome) = (split.clone(), *number, handle.await);
                self.work = None;
                if let Some((added, piece)) = self.brought(&split, number, outcome)?
                    && let State::Open(reading) = &mut added.state
                {
                    reading.take(piece);
                }
            }
        }
        Ok(())
    }

    /// Returns what a thread brought with the split it is for; nothing, not even its error, if the split was removed, added
    /// anew or paused meanwhile.
    fn brought<V>(
        &mut self,
        split: &SplitId,
        number: u64,
        outcome: Result<Result<V, ReadError>, tokio::task::JoinError>,
    ) -> Result<Option<(&mut Added, V)>, ReadError> {
        let path = self.files.get(split).map(|file| file.path.clone()).unwrap_or_default();
        let outcome = blocking::ended(outcome).map_err(|cause| ReadError::io("read", path, cause))?;
        match self.added.get_mut(split).filter(|added| added.number == number) {
            Some(added) => Ok(Some((added, outcome?))),
            None => Ok(None),
        }
    }

    /// Takes the first file that can be read one step further, without waiting.
    fn step(&mut self, out: &mut BatchBuilder) -> Result<Step, ReadError> {
        let (unended, resting) = (&self.unended, &self.resting);
        let is_read = |split: &SplitId| unended.contains(split) && !resting.contains(split);
        let Some((split, added)) = self.added.iter_mut().find(|(split, _)| is_read(split)) else {
            return Ok(Step::Nothing);
        };
        let (split, number) = (split.clone(), added.number);
        let reading = match &mut added.state {
            State::Open(reading) => reading,
            State::At(position) => {
                let file = self.files.get(&split).ok_or_else(|| ReadError::Unknown(split.clone()))?;
                let (path, position, end) = (file.path.clone(), position.clone(), file.end);
                let work = blocking::started(move || Reading::opened(&path, &position, end));
                self.work = Some(Work::Open(split, number, work));
                return Ok(Step::Working);
            }
        };
        match reading.offer(&self.rules)? {
            Offer::Lines(cut) => {
                let Some(permit) = self.budget.try_acquire(cut.bytes) else {
                    self.work = Some(Work::Room(room(self.budget.clone(), cut.bytes)));
                    return Ok(Step::Working);
                };
                reading.append(&split, &cut, out);
                out.hold(permit);
                Ok(Step::Done(Polled::Batch))
            }
            Offer::More => {
                let piece = reading.piece(self.rules.bounds.bytes);
                self.work = Some(Work::Read(split, number, blocking::started(move || piece.read())));
                Ok(Step::Working)
            }
            Offer::End => {
                let end = reading.position();
                let in_batch = out.split(&split);
                out.advance(in_batch, end.clone());
                self.unended.remove(&split);
                self.added.remove(&split);
                Ok(Step::Done(Polled::EndOfSplit(split, end)))
            }
        }
    }
}

/// Waits a while for room of so many bytes; whoever asked looks again.
fn room(budget: Budget, bytes: usize) -> JoinHandle<()> {
    // Bounded, so that a source that was dropped does not leave a thread behind for ever.
    const PATIENCE: Duration = Duration::from_millis(100);
    blocking::started(move || {
        budget.wait_below(budget.limit().saturating_sub(bytes), PATIENCE);
    })
}

fn assignment_of(found: &[Found]) -> Assignment {
    let stream_of = |file: &Found| StreamStart {
        stream: Arc::clone(&file.split.stream),
        // A file's name is all its identity; that its content is the same, the fingerprint in the position tells.
        id: StreamId(Arc::clone(&file.split.stream)),
        splits: vec![SplitStart { index: 0, start: Position::at(0), earliest: Position::at(0) }],
    };
    Assignment {
        splits: found.iter().map(|file| file.split.clone()).collect(),
        streams: found.iter().map(stream_of).collect(),
        ends: found.iter().map(|file| (file.split.clone(), Position::at(file.bytes))).collect(),
    }
}
