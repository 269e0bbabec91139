//! The pipeline file: YAML in, a typed pipeline out, or everything that is wrong with it.

mod enrich;
mod fields;
mod interpolate;
mod kafka;
mod key;
mod pipeline;
mod postgres;
mod time;
mod watching;
mod yaml;

pub(crate) use interpolate::interpolate;

pub use enrich::{CachePart, EnrichPart, Found, Miss, Rows, StepOrder};
pub use fields::{ConfigError, ConfigErrors};
pub use kafka::{KafkaPart, Poison, StartFrom};
pub use key::{KeyFormat, KeyFrom};
pub use pipeline::{Pipeline, load, parse};
pub use postgres::{ColumnPart, PostgresPart, TableMode, Tombstones, Unit};
pub use time::{EventTimePart, TimeField, TimeFrom, WatermarkPart, WithoutTime};
pub use watching::{DEFAULT_HTTP, DEFAULT_LOG_EVERY};
