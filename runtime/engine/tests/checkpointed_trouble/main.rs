//! Jobs with checkpoints in trouble: full disks, damaged stores, several owners, panics, and interruptions at any moment.

#[allow(dead_code)]
#[path = "../checkpointed/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../store/small_disk.rs"]
mod small_disk;
#[allow(dead_code)]
#[path = "../checkpointed/target.rs"]
mod target;

mod damage;
mod disk;
mod edges;
mod heavy;
mod interrupts;
mod journal;
mod owners;
mod panics;
