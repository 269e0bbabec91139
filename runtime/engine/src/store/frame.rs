//! The line in front of every entry that tells whole ones from torn ones.
//!
//! `levada-store 1 LENGTH CHECKSUM` and a line feed, then LENGTH bytes. The checksum covers the line before it, too, and
//! the line has exactly one spelling, so that no bit of it can change unnoticed.

use thiserror::Error;

/// Format version of the line and of the JSON behind it.
const VERSION: u32 = 1;
const MAGIC: &str = "levada-store";
/// Longer than any line of this format or a later one.
const LONGEST_LINE: usize = 128;

/// What is wrong with a stored piece.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// It does not begin as a piece of the store does.
    #[error("does not begin as a piece of a store does")]
    NotOurs,
    /// It ends early or late.
    #[error("has {found} bytes, {expected} were written")]
    Length {
        /// Bytes as announced.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Its bytes are not those that were written.
    #[error("does not match its checksum")]
    Checksum,
    /// A later version of the program wrote it.
    #[error("has format version {0}, up to {VERSION} is understood")]
    LaterVersion(u32),
    /// It is whole, but does not say what it should.
    #[error("cannot be understood: {0}")]
    Content(String),
}

fn head(version: &str, length: usize, payload: &[u8]) -> String {
    let covered = format!("{MAGIC} {version} {length}");
    let mut sum = crc32fast::Hasher::new();
    sum.update(covered.as_bytes());
    sum.update(payload);
    format!("{covered} {:08x}\n", sum.finalize())
}

/// Puts the line in front.
pub(crate) fn wrap(payload: &[u8]) -> Vec<u8> {
    let mut framed = head(&VERSION.to_string(), payload.len(), payload).into_bytes();
    framed.extend_from_slice(payload);
    framed
}

/// Checks the line and returns what is behind it.
pub(crate) fn unwrap(framed: &[u8]) -> Result<&[u8], Flaw> {
    let line_end = framed.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n').ok_or(Flaw::NotOurs)?;
    let (line, payload) = framed.split_at(line_end + 1);
    let line = str::from_utf8(line).map_err(|_| Flaw::NotOurs)?;
    let mut words = line.trim_end_matches('\n').split(' ');
    let (Some(MAGIC), Some(version), Some(length)) = (words.next(), words.next(), words.next()) else {
        return Err(Flaw::NotOurs);
    };
    let expected: u64 = length.parse().map_err(|_| Flaw::NotOurs)?;
    let found = payload.len() as u64;
    if expected != found {
        return Err(Flaw::Length { expected, found });
    }
    if head(version, payload.len(), payload) != line {
        return Err(Flaw::Checksum);
    }
    match version.parse() {
        Ok(VERSION) => Ok(payload),
        Ok(later) => Err(Flaw::LaterVersion(later)),
        Err(_) => Err(Flaw::NotOurs),
    }
}

#[cfg(test)]
mod tests {
    use super::{Flaw, head, unwrap, wrap};

    const PAYLOAD: &[u8] = b"{\"number\":7}";

    /// [CHK-08] A torn entry is told at whatever byte it was torn.
    #[test]
    fn every_truncation_is_told() {
        let whole = wrap(PAYLOAD);
        assert_eq!(unwrap(&whole), Ok(PAYLOAD));
        for length in 0..whole.len() {
            assert!(unwrap(&whole[..length]).is_err(), "{length} bytes passed");
        }
        let longer = [whole.as_slice(), b" "].concat();
        assert_eq!(unwrap(&longer), Err(Flaw::Length { expected: 12, found: 13 }));
    }

    /// [CHK-08] A corrupt entry is told whatever byte and bit is wrong.
    #[test]
    fn every_changed_byte_is_told() {
        let whole = wrap(PAYLOAD);
        for place in 0..whole.len() {
            for change in 1..=u8::MAX {
                let mut changed = whole.clone();
                changed[place] ^= change;
                assert!(unwrap(&changed).is_err(), "byte {place} changed by {change:#x} passed");
            }
        }
    }

    /// [CHK-09]
    #[test]
    fn a_later_format_is_named_and_not_taken_for_damage() {
        let mut later = head("2", PAYLOAD.len(), PAYLOAD).into_bytes();
        later.extend_from_slice(PAYLOAD);
        assert_eq!(unwrap(&later), Err(Flaw::LaterVersion(2)));
    }
}
