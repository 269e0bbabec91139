//! A write-ahead sink that appends its segments to a file a subtask.
//!
//! ```text
//! opened unmarked                   a sink began to write here; what stands before it ended with a segment without marker
//! segment 4 17 3 1700000000000 2    checkpoint 4-17, of subtask 3, with its time and the number of its records
//! key-1 15 …
//! key-9 3 …
//! end 4 17 3
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use levada_core::template::{Segment, WriteAheadSink};
use levada_core::{ErrorClass, SinkContext, SinkError};

use super::markers::{self, Name};

/// The fail point between the two halves of a segment.
pub const FAIL_POINTS: &[&str] = &["appended::between_halves"];

/// Every so many segments one is not taken: it must wait for the next notification.
const REFUSED: u64 = 9;

/// Appends segments, each in two halves and then synced, to `HOME/out/SUBTASK`.
#[derive(Debug)]
pub struct AppendingSink {
    home: PathBuf,
    file: Option<File>,
    asked: u64,
}

impl AppendingSink {
    /// Makes a sink; the folder of its output must exist.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), file: None, asked: 0 }
    }

    fn opened(&mut self, subtask: u32) -> io::Result<()> {
        let path = self.home.join("out").join(subtask.to_string());
        let mut file = File::options().create(true).append(true).open(&path)?;
        let last = last_segment(&fs::read_to_string(&path)?);
        // Whoever judges looks at the markers when a process has ended; of what happens inside of one this tells.
        let is_marked = match last {
            Some(last) => markers::read(&self.home)?.contains(&last),
            None => true,
        };
        // The first line feed ends a line that is torn.
        file.write_all(if is_marked { b"\nopened marked\n" } else { b"\nopened unmarked\n" })?;
        self.file = Some(file);
        Ok(())
    }

    fn append(&mut self, segment: &Segment<String>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("the sink is not open")) };
        let text = printed(segment);
        let (first, second) = text.split_at(text.len() / 2);
        file.write_all(first.as_bytes())?;
        #[cfg(feature = "failpoints")]
        fail::eval(FAIL_POINTS[0], |_| ());
        file.write_all(second.as_bytes())?;
        file.sync_data()
    }
}

impl WriteAheadSink<String> for AppendingSink {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.opened(ctx.subtask).map_err(failed)
    }

    /// Blocks its thread: so no cancellation falls into the middle of a segment.
    async fn send(&mut self, segment: &Segment<String>) -> Result<bool, SinkError> {
        self.asked += 1;
        if self.asked.is_multiple_of(REFUSED) {
            return Ok(false);
        }
        self.append(segment).map_err(failed)?;
        Ok(true)
    }
}

fn failed(error: io::Error) -> SinkError {
    SinkError::new(ErrorClass::Fatal, "append to the file").caused_by(error)
}

fn printed(segment: &Segment<String>) -> String {
    let checkpoint = segment.marker.checkpoint;
    let name = format!("{} {} {}", checkpoint.attempt, checkpoint.sequence, segment.marker.subtask);
    let mut text = format!("segment {name} {} {}\n", segment.time.0, segment.records.len());
    for record in &segment.records {
        text.push_str(record);
        text.push('\n');
    }
    text.push_str(&format!("end {name}\n"));
    text
}

fn last_segment(text: &str) -> Option<Name> {
    name(text.lines().rev().find_map(|line| line.strip_prefix("segment "))?)
}

/// Reads the name at the beginning of what follows `segment` or `end`.
pub(super) fn name(words: &str) -> Option<Name> {
    let mut words = words.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}
