//! What a position says beyond its byte: the line's number, and a fingerprint of what stands before it.
//!
//! The fingerprint covers the first 4096 and the last 256 bytes before the position. A file that was copied or moved keeps
//! it; one that was replaced by other data does not, unless it differs only in between.

use levada_core::{Position, StateError};

const VERSION: u8 = 1;
const HEAD: usize = 4096;
const TAIL: usize = 256;

/// The line's number where it is not known: behind a position that somebody wrote by hand.
const UNKNOWN_LINE: u64 = u64::MAX;

/// How many bytes of the head and of the tail stand before a position.
pub(super) fn windows(next: u64) -> (usize, usize) {
    let before = |most: usize| usize::try_from(next).map_or(most, |next| next.min(most));
    (before(HEAD), before(TAIL))
}

/// Where a file is read, and what was seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) next: u64,
    pub(super) line: Option<u64>,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Mark {
    /// Makes the mark of a place from the bytes before it.
    pub(super) fn new(next: u64, line: Option<u64>, head: Vec<u8>, tail: Vec<u8>) -> Self {
        Self { next, line, head, tail }
    }

    /// Moves on past bytes with so many lines in them.
    pub(super) fn pass(&mut self, bytes: &[u8], lines: u64) {
        self.next += bytes.len() as u64;
        self.line = self.line.map(|line| line + lines);
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        let last = &bytes[bytes.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(last);
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let bytes = self.head.iter().chain(&self.tail);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    pub(super) fn position(&self) -> Position {
        let mut detail = Vec::with_capacity(17);
        detail.push(VERSION);
        detail.extend_from_slice(&self.line.unwrap_or(UNKNOWN_LINE).to_be_bytes());
        detail.extend_from_slice(&self.fingerprint().to_be_bytes());
        Position { next: self.next, detail: detail.into() }
    }
}

/// What a stored position's detail says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) line: Option<u64>,
    pub(super) fingerprint: Option<u64>,
}

/// Reads a position's detail; one without is the file's start, or was written by hand.
pub(super) fn stored(position: &Position) -> Result<Stored, StateError> {
    let detail = &position.detail;
    match detail.split_first() {
        None => Ok(Stored { line: (position.next == 0).then_some(0), fingerprint: None }),
        Some((&VERSION, rest)) => {
            let numbers =
                rest.split_first_chunk::<8>().and_then(|(line, rest)| Some((line, rest.try_into().ok()?)));
            let (line, fingerprint) = numbers.ok_or_else(|| {
                StateError::new(format!("its detail has {} bytes, expected 17", detail.len()))
            })?;
            let line = Some(u64::from_be_bytes(*line)).filter(|line| *line != UNKNOWN_LINE);
            Ok(Stored { line, fingerprint: Some(u64::from_be_bytes(fingerprint)) })
        }
        Some((version, _)) => {
            Err(StateError::new(format!("its detail is of version {version}, up to 1 is understood")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start() -> Mark {
        Mark::new(0, Some(0), Vec::new(), Vec::new())
    }

    /// [TPL-19] positions that were stored are read for ever.
    #[test]
    fn a_position_is_stored_as_the_golden_bytes_say() {
        // The fingerprint was computed by another program: FNV-1a, 64 bit, of head and tail.
        let mut mark = start();
        mark.pass(b"one\ntwo\n", 2);
        let golden = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0x0b, 0xde, 0xd5, 0x6d, 0x88, 0xdb, 0x84, 0xa1];
        assert_eq!(mark.position().detail.as_ref(), golden);
        let read = stored(&mark.position()).expect("its own");
        assert_eq!(read, Stored { line: Some(2), fingerprint: Some(mark.fingerprint()) });
    }

    #[test]
    fn a_detail_that_is_cut_or_of_a_later_version_is_refused() {
        let position = |detail: &[u8]| Position { next: 5, detail: detail.into() };
        assert!(stored(&position(&[1, 0, 0])).is_err());
        assert!(stored(&position(&[1; 18])).is_err());
        assert!(stored(&position(&[9; 17])).expect_err("later").to_string().contains("version 9"));
    }

    proptest! {
        /// However a file was cut into pieces, the mark of a place is the same.
        #[test]
        fn the_mark_of_a_place_does_not_depend_on_how_one_came_there(
            bytes in prop::collection::vec(any::<u8>(), 0..6000),
            pieces in prop::collection::vec(1_usize..700, 1..20),
        ) {
            let mut in_pieces = start();
            let mut rest = bytes.as_slice();
            for piece in pieces.iter().cycle() {
                let (piece, tail) = rest.split_at((*piece).min(rest.len()));
                in_pieces.pass(piece, 0);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            let (head, tail) = windows(bytes.len() as u64);
            let at_once = Mark::new(
                bytes.len() as u64,
                Some(0),
                bytes[..head].to_vec(),
                bytes[bytes.len() - tail..].to_vec(),
            );
            prop_assert_eq!(in_pieces, at_once);
        }
    }
}
