//! The children of a process, read from `/proc`.

use std::fs;

use super::identity::{Identity, read_stat};

/// Returns the children that a process has now. Stop the process first if it must not start new ones meanwhile.
pub(super) fn children_of(parent: Identity) -> Vec<Identity> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter_map(|pid| {
            let stat = read_stat(pid)?;
            (stat.parent == parent.pid).then_some(Identity { pid, started: stat.started })
        })
        .collect()
}
