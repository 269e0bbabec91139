//! The checkpoint store, in memory, in a directory, and on an S3 server where `.ci/s3/run` started one.

mod crash;
mod disk;
mod golden;
mod leases;
mod parts;
mod places;
mod recovery;
mod s3;
mod savepoints;
mod small_disk;
