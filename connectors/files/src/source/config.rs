//! What a source of lines is told.

use std::path::PathBuf;

/// What ends a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LineEnd {
    /// A newline alone: a carriage return before it belongs to the record.
    #[default]
    Newline,
    /// A newline, and a carriage return before it if there is one.
    NewlineOrCrLf,
}

/// How large a batch grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// The most records of a batch.
    pub records: usize,
    /// The batch is full when its lines have so many bytes; one line may exceed them. Also how much is read at once, ahead
    /// of the byte budget.
    pub bytes: usize,
}

impl Default for BatchBounds {
    fn default() -> Self {
        Self { records: 4096, bytes: 1 << 20 }
    }
}

/// Which files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Files {
    Folder { path: PathBuf, suffix: String },
    List(Vec<PathBuf>),
}

/// Everything a [`LineSource`](super::LineSource) is told before it is opened.
#[derive(Debug, Clone)]
pub struct LineSourceConfig {
    pub(super) files: Files,
    pub(super) line_end: LineEnd,
    pub(super) max_line_bytes: usize,
    pub(super) bounds: BatchBounds,
}

impl LineSourceConfig {
    /// Reads the files that stand in `folder` when the source is opened: regular ones, not hidden, not those of folders
    /// in it. A split is named by its file's name.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self::of(Files::Folder { path: folder.into(), suffix: String::new() })
    }

    /// Reads these files, all of which must be there. A split is named by its path as it is written here.
    pub fn files<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self::of(Files::List(paths.into_iter().map(Into::into).collect()))
    }

    fn of(files: Files) -> Self {
        Self { files, line_end: LineEnd::default(), max_line_bytes: 16 << 20, bounds: BatchBounds::default() }
    }

    /// Leaves out files of a folder whose names do not end with `suffix`; files that are listed are all read.
    #[must_use]
    pub fn suffix(mut self, wanted: impl Into<String>) -> Self {
        if let Files::Folder { suffix, .. } = &mut self.files {
            *suffix = wanted.into();
        }
        self
    }

    /// Sets what ends a line; default a newline alone.
    #[must_use]
    pub fn line_end(mut self, line_end: LineEnd) -> Self {
        self.line_end = line_end;
        self
    }

    /// Sets the longest line, in bytes without its end; a longer one is an error. Default 16 MiB.
    #[must_use]
    pub fn max_line_bytes(mut self, bytes: usize) -> Self {
        self.max_line_bytes = bytes;
        self
    }

    /// Bounds the batches.
    #[must_use]
    pub fn batch_bounds(mut self, bounds: BatchBounds) -> Self {
        self.bounds = bounds;
        self
    }
}
