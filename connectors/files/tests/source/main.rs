//! The source of lines, on real files.

mod changes;
mod dealing;
mod reads;
mod scene;
