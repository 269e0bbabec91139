//! The lookup against a real server.

mod cached;
mod connections;
mod finds;
mod model;
mod scene;
mod values;
