//! Finds the files, and deals them out.
//!
//! Each file is a stream of one split: `SplitId { stream: the file's name, index: 0 }`. Numbers by sorted order would change
//! when a file appears.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use levada_core::SplitId;

use super::config::Files;
use super::error::ReadError;

/// A file to be read up to its present end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) split: SplitId,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// The subtask that reads it.
    pub(super) owner: u32,
}

/// Returns the subtask of `parallelism` that reads a file of a folder.
///
/// It depends on the file's name alone: subtasks that list a folder while a file appears in it must not both take it, or
/// leave it to each other. Files are spread evenly only if there are many. The hash is 32-bit FNV-1a, as for the topics of
/// Kafka. A `parallelism` of zero counts as one.
pub fn owner_of(file: &str, parallelism: u32) -> u32 {
    let hash =
        file.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash % parallelism.max(1)
}

/// Lists all files, of all subtasks, in the order of their names.
pub(super) fn found(files: &Files, parallelism: u32) -> Result<Vec<Found>, ReadError> {
    let mut found = match files {
        Files::Folder { path, suffix } => in_folder(path, suffix, parallelism)?,
        Files::List(paths) => listed(paths, parallelism)?,
    };
    found.sort_by(|a, b| a.split.cmp(&b.split));
    Ok(found)
}

fn in_folder(folder: &Path, suffix: &str, parallelism: u32) -> Result<Vec<Found>, ReadError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|cause| ReadError::io("list", folder, cause))? {
        let entry = entry.map_err(|cause| ReadError::io("list", folder, cause))?;
        let path = entry.path();
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || !name.as_encoded_bytes().ends_with(suffix.as_bytes())
        {
            continue;
        }
        let metadata = looked_at(&path)?;
        if !metadata.is_file() {
            continue;
        }
        let name = name.to_str().ok_or_else(|| ReadError::Name(path.clone()))?;
        let owner = owner_of(name, parallelism);
        found.push(Found { split: SplitId::new(name, 0), path, bytes: metadata.len(), owner });
    }
    Ok(found)
}

/// The list is the same in every subtask, so it can be dealt out in turn.
fn listed(paths: &[PathBuf], parallelism: u32) -> Result<Vec<Found>, ReadError> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (path, owner) in paths.iter().zip((0..parallelism.max(1)).cycle()) {
        let metadata = looked_at(path)?;
        if !metadata.is_file() {
            return Err(ReadError::NotAFile(path.clone()));
        }
        let name = path.to_str().ok_or_else(|| ReadError::Name(path.clone()))?;
        if !seen.insert(name) {
            return Err(ReadError::Twice(name.to_owned()));
        }
        found.push(Found { split: SplitId::new(name, 0), path: path.clone(), bytes: metadata.len(), owner });
    }
    Ok(found)
}

fn looked_at(path: &Path) -> Result<Metadata, ReadError> {
    fs::metadata(path).map_err(|cause| ReadError::io("look at", path, cause))
}
