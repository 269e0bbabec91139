//! What is stored of a transaction, and all that its commit needs.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use levada_core::{StateError, Storable};

use super::folder::PENDING;

/// Names one transaction of a [`FileSink`](super::FileSink): its folder, its file, and how much was made durable of it.
///
/// It holds the folder's absolute path: a transaction is committed where it was written, also after the sink was
/// configured for another folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHandle {
    pub(super) folder: PathBuf,
    pub(super) file: String,
    pub(super) is_pre_committed: bool,
    /// The file's length, known once it is pre-committed.
    pub(super) bytes: u64,
    pub(super) records: u64,
}

impl FileHandle {
    pub(super) fn new(folder: PathBuf, file: String) -> Self {
        Self { folder, file, is_pre_committed: false, bytes: 0, records: 0 }
    }

    /// Returns where readers find the records once the transaction is committed.
    pub fn target(&self) -> PathBuf {
        self.folder.join(&self.file)
    }

    /// Returns where the records wait for the commit.
    pub fn pending(&self) -> PathBuf {
        self.folder.join(PENDING).join(&self.file)
    }

    /// Returns the number of bytes that were pre-committed; zero before that.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of records that were pre-committed; zero before that.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Tells whether it was pre-committed without a record: there is nothing to publish.
    pub(super) fn is_empty(&self) -> bool {
        self.is_pre_committed && self.bytes == 0
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Prints the file's path and what is in it.
impl fmt::Display for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} records, {} bytes)", self.target().display(), self.records, self.bytes)
    }
}

/// Version 1: a byte that is 1 if it is pre-committed, else 0; bytes, records and the length of the folder's path, each as a
/// number of 8 bytes, big end first; the folder's path; the file's name.
impl Storable for FileHandle {
    const VERSION: u16 = 1;

    fn store(&self, out: &mut Vec<u8>) {
        let folder = self.folder.as_os_str().as_bytes();
        out.push(u8::from(self.is_pre_committed));
        for number in [self.bytes, self.records, folder.len() as u64] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(folder);
        out.extend_from_slice(self.file.as_bytes());
    }

    fn load(version: u16, bytes: &[u8]) -> Result<Self, StateError> {
        if version != Self::VERSION {
            return Err(StateError::new(format!(
                "a file handle of version {version}; up to 1 is understood"
            )));
        }
        loaded(bytes).ok_or_else(|| StateError::new("a stored file handle is cut or damaged"))
    }
}

fn loaded(mut rest: &[u8]) -> Option<FileHandle> {
    let (&flag, tail) = rest.split_first()?;
    rest = tail;
    let is_pre_committed = match flag {
        0 => false,
        1 => true,
        _ => return None,
    };
    let bytes = number(&mut rest)?;
    let records = number(&mut rest)?;
    let length = usize::try_from(number(&mut rest)?).ok()?;
    let (folder, file) = rest.split_at_checked(length)?;
    let folder = PathBuf::from(OsStr::from_bytes(folder));
    let file = str::from_utf8(file).ok()?.to_owned();
    // A name is one name: it must not lead out of the folder.
    let is_name = !file.is_empty() && !file.starts_with('.') && !file.contains('/');
    (is_name && folder.is_absolute()).then_some(FileHandle { folder, file, is_pre_committed, bytes, records })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> FileHandle {
        FileHandle {
            folder: "/data/out".into(),
            file: "a.b.1-2-3.txt".to_owned(),
            is_pre_committed: true,
            bytes: 4096,
            records: 17,
        }
    }

    /// [TPL-19] what an earlier version has stored is read for ever.
    #[test]
    fn a_handle_is_stored_as_the_golden_file_says() {
        let golden = include_bytes!("../../tests/golden/file_handle.v1");
        let mut stored = Vec::new();
        handle().store(&mut stored);
        assert_eq!(stored, golden);
        assert_eq!(FileHandle::load(1, golden), Ok(handle()));
    }

    /// [TPL-19]
    #[test]
    fn a_cut_handle_and_a_later_version_are_refused() {
        let mut stored = Vec::new();
        handle().store(&mut stored);
        for length in 0..25 + "/data/out".len() + 1 {
            assert!(FileHandle::load(1, &stored[..length]).is_err(), "{length} bytes");
        }
        assert!(FileHandle::load(2, &stored).expect_err("later").to_string().contains("version 2"));
    }

    #[test]
    fn a_handle_that_leads_out_of_its_folder_is_refused() {
        for file in ["../x", "a/b", "..", ""] {
            let mut stored = Vec::new();
            FileHandle { file: file.to_owned(), ..handle() }.store(&mut stored);
            assert!(FileHandle::load(1, &stored).is_err(), "{file}");
        }
    }
}
