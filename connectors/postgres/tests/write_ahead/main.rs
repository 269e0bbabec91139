//! The write-ahead sink and its markers on a real server.

#[path = "../sink/scene.rs"]
#[allow(dead_code, reason = "shared with the tests of the atomic sink, which use all of it")]
mod scene;

#[allow(dead_code, reason = "shared with the tests of faults")]
mod driven;
mod job;
mod markers;
mod records;
mod segments;
mod tables;
