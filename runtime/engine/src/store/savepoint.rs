//! Savepoints: checkpoints that people keep.

use std::collections::BTreeSet;

use levada_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::Store;
use super::backend::{is_taken, unavailable};
use super::entry::milliseconds;
use super::error::StoreError;
use super::frame::{self, Flaw};
use super::lease::Lease;
use super::log::{Damage, Piece};
use super::manifest::Manifest;
use crate::failpoint::fail_point;

const FOLDER: &str = "savepoints";
const MANIFEST: &str = "manifest";
const CONTINUED: &str = "continued";

/// Who went on from a savepoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// The job.
    pub owner: String,
    /// The attempt.
    pub attempt: u64,
    /// When, by the job's clock.
    #[serde(with = "milliseconds")]
    pub at: Timestamp,
}

/// A savepoint, every piece of which was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Savepoint {
    /// What it consists of.
    pub manifest: Manifest,
    /// Who went on from it first. Whoever does so again publishes again what that one has published.
    pub continued: Option<Continued>,
}

impl Savepoint {
    /// Tells whether going on from it needs `--allow-replay`.
    pub fn needs_replay(&self) -> bool {
        self.continued.is_some()
    }
}

impl Lease {
    /// Completes a savepoint, all of whose parts were written to its home: in the log, then in its own folder. Returns its
    /// entry's number.
    ///
    /// The log comes first: a process that was taken over must not complete a savepoint. After a crash in between, the log
    /// goes on from it, and its folder is no savepoint.
    ///
    /// # Errors
    /// As [`Lease::complete`]. Tried again after an error, it says so again in the log, which does no harm.
    pub async fn complete_savepoint(
        &mut self,
        name: &str,
        mut manifest: Manifest,
    ) -> Result<u64, StoreError> {
        manifest.savepoint = Some(name.to_owned());
        let number = self.complete(manifest.clone()).await?;
        fail_point!("store::savepoint::before_manifest");
        let backend = &self.store().backend;
        let path = backend.path(&[FOLDER, name, MANIFEST]);
        let json = serde_json::to_vec_pretty(&manifest).map_err(StoreError::Encode)?;
        backend.overwrite(&path, frame::wrap(&json).into()).await.map_err(unavailable("write", &path))?;
        fail_point!("store::savepoint::after_manifest");
        Ok(number)
    }
}

impl Store {
    /// Reads a savepoint, every piece of it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a piece is missing or corrupt; or the store cannot be read.
    pub async fn savepoint(&self, name: &str) -> Result<Savepoint, StoreError> {
        let mut manifest = self.read_manifest(name).await?;
        // The folder may have been copied under another name.
        manifest.savepoint = Some(name.to_owned());
        if let Some(damage) = self.damages_of(None, &manifest).await?.into_iter().next() {
            return Err(damage.into());
        }
        Ok(Savepoint { manifest, continued: self.read_continued(name).await? })
    }

    async fn read_manifest(&self, name: &str) -> Result<Manifest, StoreError> {
        let damaged = |flaw| Damage::new(None, Piece::Savepoint(name.to_owned()), flaw);
        let path = self.backend.path(&[FOLDER, name, MANIFEST]);
        let framed = self.backend.read(&path).await?.ok_or_else(|| damaged(Flaw::Missing))?;
        let json = frame::unwrap(&framed).map_err(damaged)?;
        let read = serde_json::from_slice(json);
        read.map_err(|error| damaged(Flaw::Content(error.to_string())).into())
    }

    async fn read_continued(&self, name: &str) -> Result<Option<Continued>, StoreError> {
        let damaged = |flaw| Damage::new(None, Piece::Savepoint(name.to_owned()), flaw);
        let path = self.backend.path(&[FOLDER, name, CONTINUED]);
        let Some(framed) = self.backend.read(&path).await? else { return Ok(None) };
        let json = frame::unwrap(&framed).map_err(damaged)?;
        let continued = serde_json::from_slice(json);
        continued.map(Some).map_err(|error| damaged(Flaw::Content(error.to_string())).into())
    }

    /// Returns where a savepoint is, for people: the store's place and the folder below it.
    pub fn savepoint_location(&self, name: &str) -> String {
        format!("{}/{}", self.backend.place().trim_end_matches('/'), [FOLDER, name].join("/"))
    }

    /// Returns the names of the pieces that savepoints refer to. The manifest of one that cannot be read may refer to any,
    /// so it is an error.
    pub(crate) async fn pieces_of_savepoints(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut pieces = BTreeSet::new();
        for name in self.savepoints().await? {
            let manifest = self.read_manifest(&name).await?;
            pieces.extend(manifest.pieces().map(|piece| piece.name.clone()));
        }
        Ok(pieces)
    }

    /// Marks a savepoint as continued from; the first mark stays. Returns it.
    ///
    /// To be called before the first checkpoint after the restore is completed: nothing has been published until then, and
    /// a crash before it may start from the savepoint again.
    ///
    /// # Errors
    /// The store cannot be used.
    pub async fn mark_continued(&self, name: &str, by: &Continued) -> Result<Continued, StoreError> {
        let path = self.backend.path(&[FOLDER, name, CONTINUED]);
        let json = serde_json::to_vec(by).map_err(StoreError::Encode)?;
        match self.backend.create(&path, frame::wrap(&json).into()).await {
            Err(error) if !is_taken(&error) => Err(unavailable("mark", &path)(error)),
            _ => Ok(self.read_continued(name).await?.unwrap_or_else(|| by.clone())),
        }
    }

    /// Returns the names of the savepoints, sorted.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn savepoints(&self) -> Result<Vec<String>, StoreError> {
        let folder = self.backend.path(&[FOLDER]);
        let mut names = Vec::new();
        for object in self.backend.list(FOLDER).await? {
            let Some(mut segments) = object.location.prefix_match(&folder) else { continue };
            if let (Some(name), Some(file)) = (segments.next(), segments.next())
                && file.as_ref() == MANIFEST
            {
                names.push(name.as_ref().to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}
