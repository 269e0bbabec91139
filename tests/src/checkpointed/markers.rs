//! The marker files of the committer of files, read by a reader of its own: a mistake that writer and reader share would
//! hide itself.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Checkpoint (attempt and sequence) and subtask that a segment is named by; ordered as segments are sent.
pub(super) type Name = (u64, u64, u32);

/// Where the markers of the job of `home` are.
pub(super) fn folder(home: &Path) -> PathBuf {
    home.join("markers")
}

/// Reads the markers of every writer: all those that no writer has forgotten yet.
pub(super) fn read(home: &Path) -> io::Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    let folder = folder(home).join("loop").join("appended");
    if !folder.exists() {
        return Ok(names);
    }
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What is unfinished has a suffix.
        let Some((subtask, Ok(_))) = name.split_once(".by-").map(|(of, by)| (of, by.parse::<u32>())) else {
            continue;
        };
        let subtask = subtask.parse().map_err(io::Error::other)?;
        let text = fs::read_to_string(&path)?;
        let checkpoints = text.lines().filter_map(|line| line.split_once('-'));
        for (attempt, sequence) in checkpoints {
            let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
            names.insert((number(attempt)?, number(sequence)?, subtask));
        }
    }
    Ok(names)
}
