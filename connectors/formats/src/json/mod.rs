//! JSON without a schema, decoded into rows that borrow the payload.
//!
//! ```text
//!   payload (a slice of the batch's arena)
//!      │  one pass; each byte is checked once: grammar, UTF-8, depth
//!      ▼
//!   names ──▶ shape of the row before? ──yes──▶ the same `Arc<Shape>`
//!      │                          └────no───▶ a known shape, or a new one
//!   values ──▶ numbers and plain strings: subslices of the payload
//!              strings with escapes: text of their own
//! ```
//!
//! The parser is our own because the value of a number here is its *text*: `serde_json` hands out numbers as doubles
//! or 64-bit integers, and its way around that (a raw value per field) reads nested documents once per level and
//! knows no byte positions. The tests hold the parser against `serde_json`: the same documents are accepted, with the
//! same content.

mod decode;
mod error;
mod shapes;

pub use error::{JsonError, JsonReason};

use levada_core::{Row, Slice, Value};

use decode::Document;
use shapes::Shapes;

/// What a document may cost before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// The longest document in bytes, and with it the longest string.
    pub max_bytes: usize,
    /// How deep objects and lists may nest; a flat object has depth 1. Values above [`JsonLimits::DEEPEST`] count as
    /// that, because whoever walks through a nested value does so by recursion.
    pub max_depth: usize,
}

impl JsonLimits {
    /// The deepest nesting that any limit allows: it fits a thread's stack of 2 MiB with room to spare.
    pub const DEEPEST: usize = 512;
}

impl Default for JsonLimits {
    /// 64 MiB and 128 levels.
    fn default() -> Self {
        Self { max_bytes: 64 << 20, max_depth: 128 }
    }
}

/// Decodes JSON documents. Keep one for a stream of records: it remembers their shapes, so that rows of the same names
/// in the same order share one [`Shape`](levada_core::Shape).
///
/// A failed document leaves no trace in the decoder.
#[derive(Debug, Default)]
pub struct JsonDecoder {
    limits: JsonLimits,
    shapes: Shapes,
}

impl JsonDecoder {
    /// Makes a decoder that knows no shape yet.
    pub fn new(limits: JsonLimits) -> Self {
        Self { limits, shapes: Shapes::default() }
    }

    /// Decodes a document that is an object.
    ///
    /// # Errors
    /// Tells what is wrong and where, and never repeats any of the payload. A document that is valid but no object is
    /// [`JsonReason::NotAnObject`], with the position of what is there instead.
    pub fn decode_row(&mut self, payload: &Slice) -> Result<Row, JsonError> {
        self.decode(payload, |document| document.object_only())
    }

    /// Decodes any document: an object as [`Value::Row`], as keys may also be single values.
    ///
    /// # Errors
    /// Tells what is wrong and where, and never repeats any of the payload.
    pub fn decode_value(&mut self, payload: &Slice) -> Result<Value, JsonError> {
        self.decode(payload, |document| document.value())
    }

    fn decode<T>(
        &mut self,
        payload: &Slice,
        parse: impl FnOnce(&mut Document<'_>) -> Result<T, JsonError>,
    ) -> Result<T, JsonError> {
        let bytes = payload.as_bytes();
        if bytes.len() > self.limits.max_bytes {
            let reason = JsonReason::TooLarge { bytes: bytes.len(), limit: self.limits.max_bytes };
            return Err(JsonError::new(self.limits.max_bytes, reason));
        }
        let max_depth = self.limits.max_depth.min(JsonLimits::DEEPEST);
        let mut document = Document::new(payload, max_depth, &mut self.shapes);
        parse(&mut document)
            .and_then(|decoded| document.finish().map(|()| decoded))
            .map_err(|error| error.or_invalid_utf8(bytes))
    }
}
