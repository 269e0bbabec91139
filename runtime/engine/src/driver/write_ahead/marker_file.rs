//! A committer that keeps markers in small files.
//!
//! ```text
//! FOLDER/JOB/UID/3.by-0.from-4-17    markers of segments that subtask 3 took and subtask 0 sent, in an opening whose first
//!                                    possible checkpoint was 4-17
//!
//! levada markers 1
//! 4-17                       attempt and sequence of a checkpoint, one a line, rising
//! 4-18
//! end 2                      how many there are
//! ```
//! A file has one writer: after a change of parallelism the segments of one subtask may be sent by several. For the same
//! reason each marker is listed, and not only the last.
//!
//! And a file has one opening: a write that was under way when its task was cancelled, or its process stopped, may come to its
//! rename when a later opening has written long since. It replaces a file of its own then, and no marker of the later one. The
//! later one takes over what the files of earlier openings of its subtask list, and deletes them with its first commit.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use levada_core::template::{CheckpointCommitter, Marker};
use levada_core::{CheckpointId, ErrorClass, SinkContext, SinkError};
use tokio::task::spawn_blocking;

use crate::failpoint::fail_point;

const FIRST_LINE: &str = "levada markers 1";

/// What the name of a file that is being written ends with.
const UNFINISHED: &str = ".new";

/// Remembers in a folder which segments were sent: a file is written beside the old one, made durable and renamed, so that
/// a crash at any step leaves the old one or the new one.
///
/// For one process at a time, as the store of checkpoints sees to; one that was stopped and wakes up later takes no marker
/// away from the others. The folder must outlive the process. A commit that was dropped before it returned may still be
/// under way: its committer is not to be used again.
#[derive(Debug)]
pub struct FileCommitter {
    folder: PathBuf,
    /// Whose files are written, once it is known.
    writer: Writer,
    /// What is known of each series of segments, read when the first of them is asked for.
    series: HashMap<Series, Markers>,
}

/// The segments of one sink subtask.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Series {
    job: String,
    uid: String,
    subtask: u32,
}

/// One opening of one subtask. Its files have no other writer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Writer {
    subtask: u32,
    /// The first checkpoint of the opening; none when nobody told, as in files of earlier versions.
    first: Option<CheckpointId>,
}

#[derive(Debug, Clone, Default)]
struct Markers {
    /// In this subtask's own files, also those of its earlier openings.
    ours: BTreeSet<CheckpointId>,
    /// In the files of others, as they were when they were read.
    others: BTreeSet<CheckpointId>,
    /// Files of earlier openings of this subtask: what they list goes into the next file.
    superseded: Vec<PathBuf>,
}

impl FileCommitter {
    /// Keeps markers in `folder`, which is created when the first marker is.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), writer: Writer::default(), series: HashMap::new() }
    }

    async fn markers(&mut self, marker: &Marker) -> Result<&mut Markers, SinkError> {
        let Marker { job, uid, subtask, .. } = marker;
        let series = Series { job: job.clone(), uid: uid.clone(), subtask: *subtask };
        if !self.series.contains_key(&series) {
            let (folder, writer, wanted) = (series.folder(&self.folder), self.writer, series.subtask);
            let read = off_thread("read markers", move || read_whole_series(&folder, wanted, writer)).await?;
            self.series.insert(series.clone(), read);
        }
        Ok(self.series.entry(series).or_default())
    }
}

impl Series {
    fn folder(&self, folder: &Path) -> PathBuf {
        folder.join(file_name(&self.job)).join(file_name(&self.uid))
    }
}

impl CheckpointCommitter for FileCommitter {
    async fn open(&mut self, ctx: &SinkContext) -> Result<(), SinkError> {
        self.writer = Writer { subtask: ctx.subtask, first: None };
        self.series.clear();
        Ok(())
    }

    /// Keeps what earlier openings may still write apart from what this one does. They are not kept from it: a segment that
    /// one of them has sent is noted by it.
    async fn fence(&mut self, _uid: &str, first: CheckpointId) -> Result<(), SinkError> {
        self.writer.first = Some(first);
        self.series.clear();
        Ok(())
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        let markers = self.markers(marker).await?;
        Ok(markers.ours.contains(&marker.checkpoint) || markers.others.contains(&marker.checkpoint))
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let mut ours = self.markers(marker).await?.ours.clone();
        ours.insert(marker.checkpoint);
        let text = print(&ours);
        let Marker { job, uid, subtask, .. } = marker.clone();
        let folder = Series { job, uid, subtask }.folder(&self.folder);
        let path = folder.join(name_of(subtask, self.writer));
        off_thread("write a marker", move || write_durably(&folder, &path, &text)).await?;
        let markers = self.markers(marker).await?;
        markers.ours = ours;
        let superseded = std::mem::take(&mut markers.superseded);
        if !superseded.is_empty() {
            let deleted = move || {
                delete_all(&superseded);
                Ok(())
            };
            off_thread("delete old markers", deleted).await?;
        }
        Ok(())
    }

    async fn forget(&mut self, markers: &[Marker]) -> Result<(), SinkError> {
        for marker in markers {
            // The file follows with the next commit.
            self.markers(marker).await?.ours.remove(&marker.checkpoint);
        }
        Ok(())
    }
}

/// Runs file operations where they may block.
async fn off_thread<R: Send + 'static>(
    step: &'static str,
    run: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> Result<R, SinkError> {
    match spawn_blocking(run).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(SinkError::new(ErrorClass::Fatal, step).caused_by(error))
        }
        Ok(Err(error)) => Err(SinkError::new(ErrorClass::Retry, step).caused_by(error)),
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(stopped) => Err(SinkError::new(ErrorClass::Fatal, step).caused_by(stopped)),
        },
    }
}

/// Makes one file name of any text, and never the same of two.
fn file_name(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut name = String::from(if text.is_empty() { "%" } else { "" });
    for byte in text.bytes() {
        match plain(byte) {
            true => name.push(byte as char),
            false => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

fn name_of(subtask: u32, writer: Writer) -> String {
    let plain = format!("{subtask}.by-{}", writer.subtask);
    writer.first.map_or(plain.clone(), |first| format!("{plain}.from-{first}"))
}

/// Reads the files of one series, whoever wrote them. Another subtask may be deleting files of its earlier openings: what
/// they listed is in a new one by then, which the reading may have passed, so it begins again.
fn read_whole_series(folder: &Path, subtask: u32, writer: Writer) -> io::Result<Markers> {
    loop {
        match read_series(folder, subtask, writer) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
    }
}

fn read_series(folder: &Path, subtask: u32, writer: Writer) -> io::Result<Markers> {
    let mut markers = Markers::default();
    let files = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(markers),
        files => files?,
    };
    for file in files {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        let whole = name.strip_suffix(UNFINISHED).unwrap_or(&name);
        let Some(by) = writer_in(whole, subtask) else { continue };
        if by.subtask == writer.subtask && by.first < writer.first {
            markers.superseded.push(file.path());
        }
        // What a crash left unfinished counts for nothing.
        if whole != name {
            continue;
        }
        let found = parse(&fs::read_to_string(file.path())?).ok_or_else(|| damaged(&file.path()))?;
        match by.subtask == writer.subtask && by.first <= writer.first {
            true => markers.ours.extend(found),
            false => markers.others.extend(found),
        }
    }
    Ok(markers)
}

/// Returns who writes the file, if it is one of the subtask's.
fn writer_in(name: &str, of_subtask: u32) -> Option<Writer> {
    let (of, by) = name.split_once(".by-")?;
    let (subtask, first) = match by.split_once(".from-") {
        Some((subtask, first)) => (subtask, Some(parse_checkpoint(first)?)),
        None => (by, None),
    };
    let subtask = subtask.parse().ok()?;
    (of.parse() == Ok(of_subtask)).then_some(Writer { subtask, first })
}

/// Deletes files that say nothing new. One that stays is read again by the next opening, which does no harm.
fn delete_all(files: &[PathBuf]) {
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %file.display(), %error, "markers of an earlier opening are left behind");
            }
            _ => {}
        }
    }
}

fn damaged(path: &Path) -> io::Error {
    let message = format!("{} is no list of markers, or a damaged one", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn print(markers: &BTreeSet<CheckpointId>) -> String {
    let lines = markers.iter().map(|checkpoint| format!("{checkpoint}\n")).collect::<String>();
    format!("{FIRST_LINE}\n{lines}end {}\n", markers.len())
}

fn parse(text: &str) -> Option<BTreeSet<CheckpointId>> {
    let mut lines = text.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let last = lines.next_back()?;
    let markers = lines.map(parse_checkpoint).collect::<Option<BTreeSet<_>>>()?;
    (last == format!("end {}", markers.len()) && text.ends_with('\n')).then_some(markers)
}

fn parse_checkpoint(line: &str) -> Option<CheckpointId> {
    let (attempt, sequence) = line.split_once('-')?;
    Some(CheckpointId::new(attempt.parse().ok()?, sequence.parse().ok()?))
}

/// Replaces a file: returns when the new content survives a loss of power.
fn write_durably(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fail_point!(blocking "marker_file::before_write");
    create_durably(folder)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    loop {
        let mut file = File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fail_point!(blocking "marker_file::before_rename");
        match fs::rename(&unfinished, path) {
            // A later opening took it for what a crash had left. The segment is sent all the same.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => break renamed?,
        }
    }
    File::open(folder)?.sync_all()?;
    fail_point!(blocking "marker_file::after_rename");
    Ok(())
}

/// Creates a folder and those above it; each is known to its parent for good.
fn create_durably(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    create_durably(parent)?;
    match fs::create_dir(folder) {
        // Another subtask was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    File::open(parent)?.sync_all()
}
