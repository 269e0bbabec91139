//! The pipeline file: YAML in, a typed pipeline out, or everything that is wrong with it.

mod fields;
mod interpolate;
mod pipeline;
mod time;
mod watching;
mod yaml;

pub(crate) use interpolate::interpolate;

pub use fields::{ConfigError, ConfigErrors};
pub use pipeline::{
    ColumnPart, KafkaPart, KeyFormat, KeyFrom, Pipeline, Poison, PostgresPart, StartFrom, TableMode,
    Tombstones, Unit, load, parse,
};
pub use time::{EventTimePart, TimeField, TimeFrom, WatermarkPart, WithoutTime};
pub use watching::{DEFAULT_HTTP, DEFAULT_LOG_EVERY};
