//! Why a document was refused, and where.

use thiserror::Error;

/// A payload is no JSON document, or none within the limits.
///
/// It holds no part of the payload: row values must not reach a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{reason} at byte {position}")]
#[non_exhaustive]
pub struct JsonError {
    /// The byte of the payload, counted from 0, that the reason is about; the payload's length at its end.
    pub position: usize,
    /// What is wrong there.
    pub reason: JsonReason,
}

/// What is wrong with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JsonReason {
    /// The document is longer than the limit. The position is the limit.
    #[error("document of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The object or list that begins here nests deeper than the limit.
    #[error("nesting is deeper than the limit of {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The bytes stop being UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// The document is not an object, and only an object becomes a row.
    #[error("expected an object but found a value of class {found}")]
    NotAnObject {
        /// What is there instead: `null`, `boolean`, `number`, `text` or `list`.
        found: &'static str,
    },
    /// The document ends too early; an empty payload does so at byte 0.
    #[error("unexpected end of the document")]
    UnexpectedEnd,
    /// Something else had to come here.
    #[error("expected {expected}")]
    Expected {
        /// What had to come.
        expected: &'static str,
    },
    /// A control character that a string holds only as an escape.
    #[error("unescaped control character in a string")]
    ControlCharacter,
    /// A backslash with something after it that is no escape.
    #[error("invalid escape in a string")]
    InvalidEscape,
    /// Half of a surrogate pair: no character.
    #[error("lone surrogate in a string")]
    LoneSurrogate,
    /// There is more after the end of the document.
    #[error("trailing bytes after the document")]
    TrailingBytes,
}

impl JsonError {
    pub(super) fn new(position: usize, reason: JsonReason) -> Self {
        Self { position, reason }
    }

    /// Names broken UTF-8 outside of strings for what it is.
    ///
    /// The parser checks the encoding of strings alone, as no byte above 127 is grammatical elsewhere.
    pub(super) fn or_invalid_utf8(self, payload: &[u8]) -> Self {
        let is_grammatical = matches!(self.reason, JsonReason::Expected { .. } | JsonReason::TrailingBytes);
        match std::str::from_utf8(payload) {
            Err(broken) if is_grammatical && broken.valid_up_to() == self.position => {
                Self::new(self.position, JsonReason::InvalidUtf8)
            }
            _ => self,
        }
    }
}
