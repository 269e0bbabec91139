//! State outside of manifests: written in chunks, read in chunks, checked on the way.

use std::fmt;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use levada_core::{CheckpointId, State};
use object_store::path::Path;
use object_store::{PutPayload, WriteMultipart};
use serde::{Deserialize, Serialize};

use super::Store;
use super::backend::{Backend, unavailable};
use super::codec;
use super::error::StoreError;
use super::frame::Flaw;
use super::log::{Damage, Piece};
use super::manifest::Stored;
use crate::failpoint::fail_point;

/// Bytes of one chunk: above the least that S3 takes (5 MiB).
const CHUNK: usize = 8 << 20;
/// Chunks under way at once: the next is sent while one is written, and memory stays bounded.
const CHUNKS_UNDER_WAY: usize = 2;

/// The folder that parts lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartHome {
    /// That of a checkpoint, which retention deletes.
    Checkpoint(CheckpointId),
    /// That of a savepoint, by its name, which only people delete.
    Savepoint(String),
    /// That of the pieces that states refer to, which retention deletes when no checkpoint names them any more.
    Pieces,
}

/// Names a part and tells what must be in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// Its name: below `parts` for that of a checkpoint, in the savepoint's folder for that of a savepoint, so that the
    /// folder can be moved.
    pub name: String,
    /// Its size in bytes.
    pub length: u64,
    /// The CRC-32 of its bytes.
    pub checksum: u32,
}

impl PartHome {
    /// Names a new part here. Random, so that no two tries of a subtask write to one object.
    fn new_name(&self) -> String {
        let unique = format!("{:032x}", rand::random::<u128>());
        match self {
            PartHome::Checkpoint(id) => format!("{id}/{unique}"),
            PartHome::Savepoint(_) | PartHome::Pieces => unique,
        }
    }

    pub(crate) fn path(&self, backend: &Backend, name: &str) -> Path {
        let folder = match self {
            PartHome::Checkpoint(_) => backend.path(&["parts"]),
            PartHome::Savepoint(savepoint) => backend.path(&["savepoints", savepoint]),
            PartHome::Pieces => backend.path(&["pieces"]),
        };
        name.split('/').fold(folder, |path, segment| path.join(segment))
    }
}

/// Writes one part. Nothing exists under its name until [`PartWriter::finish`]. Dropped before, it leaves nothing in a
/// directory; in a cloud, chunks that the bucket's own rule for unfinished uploads removes.
pub struct PartWriter {
    backend: Backend,
    path: Path,
    name: String,
    length: u64,
    sum: crc32fast::Hasher,
    /// What was written while it was too little for an upload in chunks.
    small: Vec<Bytes>,
    upload: Option<WriteMultipart>,
}

impl fmt::Debug for PartWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartWriter").field("name", &self.name).field("length", &self.length).finish()
    }
}

impl PartWriter {
    /// Adds bytes, without copying them; waits while two chunks are under way.
    ///
    /// # Errors
    /// The part cannot be written; it will not exist. Not cancel safe: drop the writer after a dropped future.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.sum.update(&bytes);
        self.length += bytes.len() as u64;
        if self.upload.is_none() && self.length <= CHUNK as u64 {
            self.small.push(bytes);
            return Ok(());
        }
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let begun = self.backend.begin(&self.path).await?;
                let upload = none.insert(WriteMultipart::new_with_chunk_size(begun, CHUNK));
                self.small.drain(..).for_each(|earlier| upload.put(earlier));
                upload
            }
        };
        while !bytes.is_empty() {
            fail_point!("store::part::between_chunks");
            let capacity = upload.wait_for_capacity(CHUNKS_UNDER_WAY).await;
            capacity.map_err(unavailable("write", &self.path))?;
            upload.put(bytes.split_to(bytes.len().min(CHUNK)));
        }
        Ok(())
    }

    /// Completes the part.
    ///
    /// # Errors
    /// The part cannot be written; it may be left over, and retention removes it.
    pub async fn finish(self) -> Result<PartRef, StoreError> {
        fail_point!("store::part::before_complete");
        let written = match self.upload {
            Some(upload) => upload.finish().await.map(drop),
            None => self.backend.create(&self.path, self.small.into_iter().collect::<PutPayload>()).await,
        };
        written.map_err(unavailable("write", &self.path))?;
        fail_point!("store::part::after");
        Ok(PartRef { name: self.name, length: self.length, checksum: self.sum.finalize() })
    }
}

/// Reads one part and checks it.
pub struct PartReader {
    chunks: BoxStream<'static, object_store::Result<Bytes>>,
    path: Path,
    part: PartRef,
    read: u64,
    sum: crc32fast::Hasher,
}

impl fmt::Debug for PartReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartReader").field("part", &self.part).field("read", &self.read).finish()
    }
}

impl PartReader {
    /// Returns the next bytes, or `None` after the last. What was returned is to be believed only after `None`. Cancel
    /// safe.
    ///
    /// # Errors
    /// The part is damaged, or cannot be read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let chunk = self.chunks.next().await.transpose().map_err(unavailable("read", &self.path))?;
        let Some(chunk) = chunk else {
            return match std::mem::take(&mut self.sum).finalize() == self.part.checksum {
                true => Ok(None),
                false => Err(damage(&self.part, Flaw::Checksum)),
            };
        };
        self.sum.update(&chunk);
        self.read += chunk.len() as u64;
        Ok(Some(chunk))
    }
}

fn damage(part: &PartRef, flaw: Flaw) -> StoreError {
    Damage::new(None, Piece::Part(part.name.clone()), flaw).into()
}

impl Store {
    /// Begins a part.
    ///
    /// It must be complete before the entry that names it is appended.
    pub fn part_writer(&self, home: &PartHome) -> PartWriter {
        self.part_writer_named(home, home.new_name())
    }

    fn part_writer_named(&self, home: &PartHome, name: String) -> PartWriter {
        let path = home.path(&self.backend, &name);
        let (backend, sum) = (self.backend.clone(), crc32fast::Hasher::new());
        PartWriter { backend, path, name, length: 0, sum, small: Vec::new(), upload: None }
    }

    /// Writes a part that is in memory already; a large one in chunks, without a copy of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn put_part(&self, home: &PartHome, bytes: Bytes) -> Result<PartRef, StoreError> {
        fail_point!("store::part::before");
        let mut writer = self.part_writer(home);
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Writes a piece of state that no checkpoint names yet; one from `covered_by` on will.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn put_piece(&self, covered_by: CheckpointId, bytes: Bytes) -> Result<PartRef, StoreError> {
        fail_point!("store::piece::before");
        let name = format!("{covered_by}/{:032x}", rand::random::<u128>());
        let mut writer = self.part_writer_named(&PartHome::Pieces, name);
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Begins to read a part.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is missing or of another size; or it cannot be read.
    pub async fn part_reader(&self, home: &PartHome, part: &PartRef) -> Result<PartReader, StoreError> {
        let path = home.path(&self.backend, &part.name);
        let found = self.backend.stream(&path).await?.ok_or_else(|| damage(part, Flaw::Missing))?;
        if found.meta.size != part.length {
            return Err(damage(part, Flaw::Length { expected: part.length, found: found.meta.size }));
        }
        let (chunks, part) = (Backend::chunks(found), part.clone());
        Ok(PartReader { chunks, path, part, read: 0, sum: crc32fast::Hasher::new() })
    }

    /// Reads a part into memory.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is not what was written; or it cannot be read.
    pub async fn get_part(&self, home: &PartHome, part: &PartRef) -> Result<Vec<u8>, StoreError> {
        let mut reader = self.part_reader(home, part).await?;
        // The length was compared with the object's: no allocation on the word of a manifest alone.
        let mut bytes = Vec::with_capacity(usize::try_from(part.length).unwrap_or_default());
        while let Some(chunk) = reader.next().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Writes the state of a subtask: into the manifest if it is small, else as a part, without a copy of the whole.
    ///
    /// # Errors
    /// The part cannot be written.
    pub async fn put_state(&self, home: &PartHome, state: &State) -> Result<Stored, StoreError> {
        if let Some(stored) = Stored::inline(state) {
            return Ok(stored);
        }
        fail_point!("store::part::before");
        let mut writer = self.part_writer(home);
        for piece in codec::pieces(state) {
            writer.write(piece).await?;
        }
        writer.finish().await.map(Stored::Part)
    }

    /// Reads the state of a subtask; `home` is that of its manifest. The elements are slices of one buffer, which stays in
    /// memory as long as one of them.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it is not what was written; or it cannot be read.
    pub async fn get_state(&self, home: &PartHome, stored: &Stored) -> Result<State, StoreError> {
        let (bytes, piece) = match stored {
            Stored::Nothing => return Ok(State::new()),
            Stored::Inline(bytes) => (bytes.clone(), Piece::Entry),
            Stored::Part(part) => (self.get_part(home, part).await?, Piece::Part(part.name.clone())),
        };
        codec::decode(bytes.into())
            .map_err(|error| Damage::new(None, piece, Flaw::Content(error.to_string())).into())
    }
}
