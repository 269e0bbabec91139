//! The one thing that a killed Postgres leaves outside its folder: a segment of System V shared memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Removes the segment of a server that was killed and not started again. One that ended by itself has removed it, and with
/// it the lock file that names it. (The reaper does the same for a server whose test process is gone.)
pub(super) fn release(data: &Path) {
    let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    if let Some(segment) = segment_of(&lock) {
        let mut remove = Command::new("ipcrm");
        remove.args(["-m", segment]).stdout(Stdio::null()).stderr(Stdio::null());
        // A start that failed early names a segment that does not exist.
        remove.status().ok();
    }
}

/// Returns the id of the segment: the second number of line 7 of the lock file (`miscadmin.h`, LOCK_FILE_LINE_SHMEM_KEY).
fn segment_of(lock: &str) -> Option<&str> {
    lock.lines().nth(6)?.split_ascii_whitespace().nth(1)
}

#[cfg(test)]
mod tests {
    use super::segment_of;

    #[test]
    fn the_segment_is_the_second_number_of_the_seventh_line() {
        let lock = "4711\n/data\n1700000000\n20001\n\n127.0.0.1\n 123456  17\nready   \n";
        assert_eq!(segment_of(lock), Some("17"));
        assert_eq!(segment_of("4711\n/data\n"), None);
    }
}
