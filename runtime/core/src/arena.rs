//! Payload bytes, owned once per batch.
//!
//! A batch copies the bytes of all its records into one [`Arena`]; records and values refer to it by [`Slice`]. The
//! arena holds the batch's [`Permit`] in the byte budget, which therefore returns when the last slice is dropped,
//! wherever that slice has travelled.

use std::fmt;
use std::str::Utf8Error;
use std::sync::Arc;

use crate::budget::Permit;
use crate::spares::Lent;

/// Owns the bytes that slices refer to, and their share of the byte budget.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Lent<u8>,
    /// Held for its `Drop`: the share returns with the last slice.
    _permit: Option<Permit>,
}

impl Arena {
    /// The largest arena: positions in it are 32 bit.
    pub const MAX_BYTES: usize = u32::MAX as usize;

    /// Freezes `bytes` together with the permit that accounts for them.
    ///
    /// Bytes past [`Arena::MAX_BYTES`] are unreachable by slices; builders stop before that size.
    pub fn new(bytes: Vec<u8>, permit: Option<Permit>) -> Arc<Self> {
        Self::lent(bytes.into(), permit)
    }

    pub(crate) fn lent(bytes: Lent<u8>, permit: Option<Permit>) -> Arc<Self> {
        Arc::new(Self { bytes, _permit: permit })
    }

    /// Returns all bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Returns the bytes of `span`, which must have been made for this arena.
    ///
    /// # Panics
    /// Panics if the span reaches past the end.
    pub fn get(&self, span: Span) -> &[u8] {
        &self.bytes()[span.start as usize..span.start as usize + span.len as usize]
    }
}

/// Where bytes stand in an arena. Meaningless without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Names `len` bytes from `start`. Both are below [`Arena::MAX_BYTES`].
    pub fn new(start: usize, len: usize) -> Self {
        debug_assert!(start + len <= Arena::MAX_BYTES);
        Self { start: start as u32, len: len as u32 }
    }

    /// Returns the number of bytes.
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Tells whether it names no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the position of the first byte.
    pub fn start(self) -> usize {
        self.start as usize
    }
}

/// Bytes of an arena, kept alive by this handle. Cloning costs one reference count.
#[derive(Clone)]
pub struct Slice {
    arena: Arc<Arena>,
    span: Span,
}

impl Slice {
    /// Refers to `span` of `arena`.
    pub fn new(arena: &Arc<Arena>, span: Span) -> Self {
        debug_assert!(span.start() + span.len() <= arena.bytes().len());
        Self { arena: Arc::clone(arena), span }
    }

    /// Makes a slice of its own arena, outside any budget: for bytes that a step computed.
    pub fn owned(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let span = Span::new(0, bytes.len());
        Self { arena: Arena::new(bytes, None), span }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.arena.get(self.span)
    }

    /// Returns the part that `inner` names, counted from this slice's own start.
    ///
    /// # Panics
    /// Panics if `inner` reaches past the end of this slice.
    pub fn subslice(&self, inner: Span) -> Self {
        assert!(inner.start() + inner.len() <= self.span.len(), "subslice past the end of its slice");
        Self {
            arena: Arc::clone(&self.arena),
            span: Span::new(self.span.start() + inner.start(), inner.len()),
        }
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Slice {}

// Row values never reach a log by accident: `Debug` tells the size alone.
impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.span.len())
    }
}

/// A slice known to be UTF-8.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Slice);

impl Text {
    /// Checks `slice` and keeps it as text.
    ///
    /// # Errors
    /// Tells where the bytes stop being UTF-8.
    pub fn new(slice: Slice) -> Result<Self, Utf8Error> {
        std::str::from_utf8(slice.as_bytes())?;
        Ok(Self(slice))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        // Checked at construction and immutable since: the fallback is never taken. Checking again is the price of a
        // crate without `unsafe`; it is a few nanoseconds for the short texts that rows hold.
        std::str::from_utf8(self.0.as_bytes()).unwrap_or_default()
    }

    /// Returns the bytes behind the text.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Slice::owned(text.into_bytes()))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Slice::owned(text.as_bytes()))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.span.len())
    }
}
