//! The transactional file sink, on real file systems.

mod crashes;
mod leftovers;
mod readers;
mod scene;
mod trouble;
mod verbs;
