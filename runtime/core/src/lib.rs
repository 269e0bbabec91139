//! The words and contracts that every Levada crate shares.
//!
//! This crate is *not* a runtime: it has no tasks and does no I/O. A connector author depends on it alone; the engine
//! drives what is written against it.
//!
//! ```
//! use levada_core::batch::RawRecord;
//! use levada_core::{BatchBuilder, SplitId};
//!
//! // A source appends what it has read, and its position moves with it.
//! let flights = SplitId::new("flights", 0);
//! let mut builder = BatchBuilder::new();
//! let split = builder.split(&flights);
//! builder.push(split, RawRecord { offset: 41, value: Some(b"LH1234"), ..RawRecord::default() });
//! let (batch, moved) = builder.finish();
//!
//! // A step, or a sink, finds the original bytes and the place of each record.
//! let origin = &batch.records()[0].origin;
//! assert_eq!(batch.value(origin), Some(&b"LH1234"[..]));
//! assert_eq!(batch.coordinates(origin).to_string(), "flights-0@41");
//! assert_eq!(moved.get(&flights).map(|position| position.next), Some(42));
//! ```
//!
//! ```text
//!   Source ──▶ Batch<()> ──▶ map ──▶ Batch<Change> ──▶ AtomicSink
//!      │  positions that moved            │
//!      └───────────▶ CommitPoint ─────────┘   travels in line, behind the records it covers
//! ```
//!
//! * [`value`]: rows and values; numbers keep their text, *absent* is not *null*.
//! * [`arena`]: payload bytes, shared by all records of a batch and counted by the [`budget`].
//! * [`batch`]: records with their coordinates; [`element`]: what travels between tasks.
//! * [`split`]: splits, positions and streams.
//! * [`checkpoint`] and [`state`]: what is stored and when; [`template`]: the contracts of sources and sinks with checkpoints.
//! * [`async_io`]: functions that call other systems.
//! * [`source`] and [`sink`]: the contracts; [`error`]: how a failure is classed.
//! * [`clock`]: time as a value; [`time`]: watermarks, idleness and drift.
#![forbid(unsafe_code)]

pub mod arena;
pub mod async_io;
pub mod batch;
pub mod budget;
pub mod checkpoint;
pub mod clock;
pub mod element;
pub mod error;
pub mod sink;
pub mod source;
mod spares;
pub mod split;
pub mod state;
pub mod template;
pub mod time;
pub mod value;

pub use arena::{Arena, Slice, Text};
pub use batch::{Batch, BatchBuilder, Located, Origin, Record, TimestampKind};
pub use budget::{Budget, Permit};
pub use checkpoint::{Barrier, BarrierKind, CheckpointId};
pub use clock::{Clock, SystemClock, Timestamp};
pub use element::{CommitPoint, Refused, StreamElement, StreamStatus, Tally};
pub use error::{BoxError, ErrorChain, ErrorClass, SinkError, SourceError};
pub use sink::{AtomicSink, BoxAtomicSink, Committed, Pending, Sink, SinkContext, WriteOrder};
pub use source::{Assignment, BoxSource, Polled, Source, SourceContext, SplitStart, StreamStart};
pub use spares::Spares;
pub use split::{Position, Positions, SplitId, StreamId};
pub use state::{Elements, ListState, Spread, State, StateError, Storable};
pub use value::{Change, Keyed, Row, Shape, Value};
