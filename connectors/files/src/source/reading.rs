//! One file that is read: where it stands, and what was read ahead of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_core::batch::RawRecord;
use levada_core::{BatchBuilder, Position, SplitId};

use super::cut::{Cut, Rules};
use super::error::ReadError;
use super::mark::{self, Mark};

/// A file, open at a line's start.
#[derive(Debug)]
pub(super) struct Reading {
    file: Arc<File>,
    path: PathBuf,
    mark: Mark,
    /// The file's length when the source was opened: where reading ends.
    end: u64,
    /// Bytes from the mark on; `taken` of them were handed on since the last read.
    buffer: Vec<u8>,
    taken: usize,
}

/// What a file has to offer next.
#[derive(Debug)]
pub(super) enum Offer {
    Lines(Cut),
    /// More of the file must be read first.
    More,
    End,
}

impl Reading {
    /// Opens a file at a position, and makes sure that it is the file that the position was stored for.
    pub(super) fn opened(path: &Path, position: &Position, end: u64) -> Result<Self, ReadError> {
        let next = position.next;
        let stored = mark::stored(position).map_err(|cause| ReadError::Detail {
            path: path.into(),
            position: next,
            cause,
        })?;
        let file = File::open(path).map_err(|cause| ReadError::io("open", path, cause))?;
        let found = file.metadata().map_err(|cause| ReadError::io("look at", path, cause))?.len();
        // It may have shrunk since the position was stored, or since the source was opened.
        if next.max(end) > found.min(end) {
            return Err(ReadError::Shrank {
                path: path.into(),
                position: next.max(end),
                found: found.min(end),
            });
        }
        let (head, tail) = mark::windows(next);
        let head = bytes_at(&file, 0, head).map_err(|cause| ReadError::io("read", path, cause))?;
        let tail =
            bytes_at(&file, next - tail as u64, tail).map_err(|cause| ReadError::io("read", path, cause))?;
        let is_inside = next < end && tail.last().is_some_and(|&byte| byte != b'\n');
        let mark = Mark::new(next, stored.line, head, tail);
        if let Some(stored) = stored.fingerprint
            && stored != mark.fingerprint()
        {
            let (stored, found) = (format!("{stored:016x}"), format!("{:016x}", mark.fingerprint()));
            return Err(ReadError::Replaced { path: path.into(), position: next, stored, found });
        }
        if is_inside {
            return Err(ReadError::InsideLine { path: path.into(), position: next });
        }
        Ok(Self { file: Arc::new(file), path: path.into(), mark, end, buffer: Vec::new(), taken: 0 })
    }

    pub(super) fn position(&self) -> Position {
        self.mark.position()
    }

    /// Drops what was read ahead; it is read again when it is asked for.
    pub(super) fn rest(&mut self) {
        self.buffer = Vec::new();
        self.taken = 0;
    }

    pub(super) fn offer(&self, rules: &Rules) -> Result<Offer, ReadError> {
        if self.mark.next == self.end {
            return Ok(Offer::End);
        }
        let ahead = &self.buffer[self.taken..];
        let is_last = self.mark.next + ahead.len() as u64 == self.end;
        let cut = rules.cut(ahead, is_last);
        match (cut.lines.is_empty(), cut.is_too_long) {
            (false, _) => Ok(Offer::Lines(cut)),
            (true, false) => Ok(Offer::More),
            (true, true) => Err(ReadError::TooLong {
                path: self.path.clone(),
                line: self.mark.line,
                offset: self.mark.next,
                limit: rules.max_line_bytes,
            }),
        }
    }

    /// Appends the lines of an offer, and the position behind them.
    pub(super) fn append(&mut self, split: &SplitId, cut: &Cut, out: &mut BatchBuilder) {
        let number = out.split(split);
        let ahead = &self.buffer[self.taken..];
        for line in &cut.lines {
            let offset = self.mark.next + line.start as u64;
            let value = Some(&ahead[line.start..line.content]);
            out.push(number, RawRecord { offset, value, ..RawRecord::default() });
        }
        let passed = cut.lines.last().map_or(0, |line| line.next);
        self.mark.pass(&ahead[..passed], cut.lines.len() as u64);
        self.taken += passed;
        out.advance(number, self.mark.position());
    }

    /// Returns what reads the next piece, for a blocking thread.
    pub(super) fn piece(&self, bytes: usize) -> Piece {
        let place = self.mark.next + (self.buffer.len() - self.taken) as u64;
        let left = usize::try_from(self.end - place).unwrap_or(usize::MAX);
        Piece {
            file: Arc::clone(&self.file),
            path: self.path.clone(),
            place,
            bytes: bytes.min(left),
            end: self.end,
        }
    }

    pub(super) fn take(&mut self, piece: Vec<u8>) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(&piece);
    }
}

/// A piece of a file that is to be read.
#[derive(Debug)]
pub(super) struct Piece {
    file: Arc<File>,
    path: PathBuf,
    place: u64,
    bytes: usize,
    end: u64,
}

impl Piece {
    /// Reads it. Blocks.
    pub(super) fn read(self) -> Result<Vec<u8>, ReadError> {
        match bytes_at(&self.file, self.place, self.bytes) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                let found = self.file.metadata().map_or(self.place, |metadata| metadata.len());
                Err(ReadError::Shrank { path: self.path, position: self.end, found })
            }
            read => read.map_err(|cause| ReadError::io("read", self.path, cause)),
        }
    }
}

fn bytes_at(file: &File, place: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, place)?;
    Ok(read)
}
