//! A transactional file sink whose process dies between the two phases of its commit.
//!
//! ```text
//! cargo run -p levada-examples --bin transactional_files
//! ```
//!
//! The program starts itself as a child, for one life each. The first life dies by SIGKILL when the checkpoint is complete
//! and its file is not published yet. The second life finds the file's handle in the checkpoint, and publishes it before
//! it reads on. A reader of the folder never sees half a file, nor one that is not committed.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, SinkContext, SinkError};
use levada_engine::Job;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_examples::Numbers;
use levada_files::{FileHandle, FileSink, FileSinkConfig};
use nix::sys::signal::{Signal, raise};

/// A file sink, and the crash that this program is about.
#[derive(Debug)]
struct Mortal {
    files: FileSink<String>,
    dies: bool,
}

impl TwoPhaseCommitSink<String> for Mortal {
    type Handle = FileHandle;

    async fn commit(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        if self.dies {
            // Pre-committed, the checkpoint complete, and not committed yet.
            raise(Signal::SIGKILL).expect("a process may kill itself");
        }
        self.files.commit(handle).await
    }

    // Everything else is the file sink's.

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.files.open(ctx).await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<FileHandle, SinkError> {
        self.files.begin(name).await
    }

    async fn write(
        &mut self,
        handle: &mut FileHandle,
        batch: Batch<String>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.files.write(handle, batch, ctx).await
    }

    async fn pre_commit(&mut self, handle: &mut FileHandle) -> Result<(), SinkError> {
        self.files.pre_commit(handle).await
    }

    async fn abort(&mut self, handle: &FileHandle) -> Result<(), SinkError> {
        self.files.abort(handle).await
    }

    async fn inspect(&mut self, handles: &[FileHandle]) -> Result<Option<Vec<Fate>>, SinkError> {
        self.files.inspect(handles).await
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[FileHandle]) -> Result<(), SinkError> {
        self.files.fence(first, kept).await
    }

    async fn close(&mut self) {
        self.files.close().await;
    }
}

/// Writes numbers below `up_to` that no checkpoint covers yet.
async fn live(folder: &Path, up_to: u64, dies: bool) -> Result<(), Box<dyn Error>> {
    let config = FileSinkConfig::new(folder.join("out"), "lines").suffix(".txt");
    let job = Job::new("files")
        .source_function("numbers", move |_| Numbers::up_to(up_to))
        .map("line", |input| Ok(format!("line {}", input.item())))
        .two_phase_sink("lines", TwoPhaseOptions::default(), move |_| Mortal {
            files: FileSink::new(config.clone()),
            dies,
        });
    job.run(Store::open_folder(folder.join("checkpoints")).await?).await?;
    Ok(())
}

/// Shows what a reader finds, and what waits where no reader looks.
fn show(moment: &str, out: &Path) -> Result<(), Box<dyn Error>> {
    println!("{moment}");
    for (what, folder) in [("visible", out.to_owned()), ("waiting", out.join(".pending"))] {
        let files = contents(&folder)?;
        println!("  {what}: {}", if files.is_empty() { "nothing".to_owned() } else { files.join(" | ") });
    }
    Ok(())
}

/// Returns the lines of each file, in the order of the files' names. A folder that is not there has none.
fn contents(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let entries = if folder.exists() { fs::read_dir(folder)?.collect() } else { Vec::new() };
    let mut paths =
        entries.into_iter().map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    let texts = paths.iter().filter(|path| path.is_file()).map(fs::read_to_string);
    texts.map(|text| Ok(text?.trim_end().replace('\n', ", "))).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [folder, up_to, end] = &arguments[..] {
        return live(Path::new(folder), up_to.parse()?, end == "dies").await;
    }
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    fs::create_dir(&out)?;
    show("before", &out)?;
    for (up_to, end, moment) in [
        ("3", "dies", "killed in its first commit"),
        ("3", "ends", "started again, with nothing new to read"),
        ("5", "ends", "and again, with two lines more"),
    ] {
        let life = Command::new(std::env::current_exe()?).arg(folder.path()).args([up_to, end]).status()?;
        if life.success() != (end == "ends") {
            return Err(format!("{moment}: {life}").into());
        }
        show(moment, &out)?;
    }
    Ok(())
}
