//! Writes records into the file of an open transaction.
//!
//! Lines are collected in memory and written in blocks at a known place. A block that could not be written (a full disk)
//! stays collected and is written to the same place with the next call: nothing twice, nothing missing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use levada_core::{Batch, BoxError, SinkError};

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::handle::FileHandle;
use super::lines::Lines;
use crate::blocking;

/// The open end of a transaction.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) file: Arc<File>,
    /// Lines that are not in the file yet.
    buffer: Vec<u8>,
    /// Bytes in the file.
    pub(super) written: u64,
    pub(super) records: u64,
    /// Whether the buffer is with a blocking thread. Found set by a later call, the future that waited for it was dropped.
    is_away: bool,
}

impl Writer {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, buffer: Vec::new(), written: 0, records: 0, is_away: false }
    }

    /// Collects the lines of a batch: of all its records, or of none.
    pub(super) fn collect<T>(
        &mut self,
        lines: &mut impl Lines<T>,
        batch: &Batch<T>,
    ) -> Result<(), SinkError> {
        let start = self.buffer.len();
        for record in batch.records() {
            if let Err(cause) = lines.line(&record.item, &mut self.buffer) {
                self.buffer.truncate(start);
                let place = batch.coordinates(&record.origin);
                return Err(bad_record(place, cause));
            }
            self.buffer.push(b'\n');
        }
        self.records += batch.len() as u64;
        Ok(())
    }

    pub(super) fn collected(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away
    }

    /// Writes what is collected.
    pub(super) async fn flush(&mut self, handle: &FileHandle) -> Result<(), FileError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let file = Arc::clone(&self.file);
        let place = self.written;
        self.is_away = true;
        let work = blocking::started(move || {
            let outcome = reached("files::write").and_then(|()| file.write_all_at(&buffer, place));
            (buffer, outcome)
        });
        let (buffer, outcome): (Vec<u8>, io::Result<()>) =
            blocking::ended(work.await).doing("write", handle.pending())?;
        self.is_away = false;
        self.buffer = buffer;
        outcome.doing("write", handle.pending())?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

// The cause comes from the caller's encoder; the message of our own does not repeat it.
fn bad_record(place: levada_core::batch::Coordinates, cause: BoxError) -> SinkError {
    SinkError::bad_record(place, "cannot be written as a line").caused_by(cause)
}
