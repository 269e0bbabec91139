//! The pipeline file: YAML in, a typed pipeline out, or everything that is wrong with it.

mod fields;
mod interpolate;
mod pipeline;
mod yaml;

pub use fields::{ConfigError, ConfigErrors};
pub use pipeline::{
    ColumnPart, KafkaPart, KeyFormat, KeyFrom, Pipeline, PostgresPart, StartFrom, TableMode, Tombstones,
    Unit, load, parse,
};
