//! Removes what earlier attempts have left.
//!
//! Earlier is what bears the name of a checkpoint below the first one of this attempt. A process that stands still just
//! before it comes here, and wakes up after another has taken over, finds that one's files, and leaves them.
//!
//! A process of an earlier attempt that still runs writes on into files without a name: its next pre-commit notices, and
//! there is nothing left that it could publish. What it begins after the fence it cannot publish either, because its
//! checkpoints are refused by the store; the next fence removes it. What it still commits are transactions of complete
//! checkpoints, and these are the same ones that the later attempt commits: one file, whoever is first.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use levada_core::CheckpointId;
use tracing::info;

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::folder::{self, PENDING};
use super::name::Naming;

/// Removes the waiting files of this job and sink that were named below `first`, but not those in `kept`.
pub(super) fn fenced(
    folder: &Path,
    naming: &Naming,
    first: CheckpointId,
    kept: &BTreeSet<PathBuf>,
) -> Result<(), FileError> {
    let waiting = folder.join(PENDING);
    reached("files::fence").doing("list", &waiting)?;
    for entry in fs::read_dir(&waiting).doing("list", &waiting)? {
        let path = entry.doing("list", &waiting)?.path();
        let checkpoint = path.file_name().and_then(|name| naming.checkpoint_of(name.to_str()?));
        let is_earlier = checkpoint.is_some_and(|checkpoint| checkpoint < first);
        if is_earlier && !kept.contains(&path) && folder::removed(&path).doing("remove", &path)? {
            info!(path = %path.display(), "removed what an earlier attempt left");
        }
    }
    Ok(())
}
