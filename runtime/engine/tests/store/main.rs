//! The checkpoint store, in memory and in a directory.

mod crash;
mod disk;
mod golden;
mod leases;
mod parts;
mod places;
mod recovery;
mod savepoints;
