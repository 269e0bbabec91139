//! Three sinks under the same failures, side by side: print, write-ahead, transactional files.
//!
//! ```text
//! cargo run -p levada-examples --bin write_ahead_stdout
//! ```
//!
//! The job counts four numbers further in each life, then a checkpoint is taken. The program starts each life as a process
//! of its own, and reads what it prints. Two of the lives die on purpose.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use levada_core::template::{Segment, WriteAheadSink};
use levada_core::{SinkContext, SinkError};
use levada_engine::driver::{FileCommitter, Retry, TwoPhaseOptions};
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Job};
use levada_examples::Numbers;
use levada_files::{FileSink, FileSinkConfig};
use nix::sys::signal::{Signal, raise};

const SINKS: [&str; 3] = ["print", "write-ahead", "files"];
const PER_LIFE: u64 = 4;
/// The number behind which each life dies: 7 is the last one of a segment, 9 is in the midst of one.
const LIVES: [Option<u64>; 4] = [None, Some(7), Some(9), None];

const EXPLANATION: &str = "
print        Repeats everything since the last complete checkpoint.
write-ahead  Prints a segment when its checkpoint is complete, then notes that in a marker. Two windows are left:
             life 2 died when the segment was printed and had no marker yet, life 3 in the midst of printing.
             Each time the next life prints that segment again, from its beginning. Nothing else is repeated.
files        Repeat nothing: what a life that died has written becomes visible as a whole or not at all.";

/// Dies as by `kill -9`: nothing is closed, nothing is said.
fn die_at(dies_at: Option<u64>, number: u64) {
    if dies_at == Some(number) {
        raise(Signal::SIGKILL).expect("a process may kill itself");
    }
}

/// Prints whole segments, each once its checkpoint is complete.
#[derive(Debug)]
struct WriteAheadStdout {
    dies_at: Option<u64>,
}

impl WriteAheadSink<u64> for WriteAheadStdout {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn send(&mut self, segment: &Segment<u64>) -> Result<bool, SinkError> {
        for number in &segment.records {
            println!("{number}");
            die_at(self.dies_at, *number);
        }
        Ok(true)
    }
}

fn job(sink: &str, folder: &Path, up_to: u64, dies_at: Option<u64>) -> CheckpointedJob {
    let numbers = Job::new(sink).source_function("numbers", move |_| Numbers::up_to(up_to));
    let (markers, out) = (folder.join("markers"), FileSinkConfig::new(folder.join("out"), "numbers"));
    match sink {
        "print" => numbers.for_each("print", move |record, _| {
            println!("{}", record.item);
            die_at(dies_at, record.item);
            Ok(())
        }),
        "write-ahead" => numbers.write_ahead_sink("stdout", Retry::default(), move |_| {
            (WriteAheadStdout { dies_at }, FileCommitter::new(&markers))
        }),
        _ => numbers
            .map("line", move |input| {
                die_at(dies_at, *input.item());
                Ok(input.item().to_string())
            })
            .two_phase_sink("files", TwoPhaseOptions::default(), move |_| FileSink::new(out.clone())),
    }
}

/// Runs one life as a process, and returns what it has put out: printed, or as files that a reader finds.
fn live(sink: &str, folder: &Path, life: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let child =
        Command::new(std::env::current_exe()?).arg(sink).arg(folder).arg(life.to_string()).output()?;
    if child.status.success() == LIVES[life].is_some() {
        let said = String::from_utf8_lossy(&child.stderr);
        return Err(format!("{sink}, life {}: {}: {said}", life + 1, child.status).into());
    }
    Ok(String::from_utf8(child.stdout)?.lines().map(str::to_owned).collect())
}

/// Reads the files of a folder in the order of their names, which is that of their transactions.
fn read_files(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let paths =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<BTreeSet<_>>>()?;
    let texts = paths.iter().filter(|path| path.is_file()).map(fs::read_to_string);
    Ok(texts.collect::<Result<String, _>>()?.lines().map(str::to_owned).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [sink, folder, life] = &arguments[..] {
        let (folder, life) = (Path::new(folder), life.parse::<usize>()?);
        let store = Store::open_folder(folder.join("checkpoints")).await?;
        job(sink, folder, PER_LIFE * (life as u64 + 1), LIVES[life]).run(store).await?;
        return Ok(());
    }
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?];
    let mut put_out = [Vec::new(), Vec::new(), Vec::new()];
    print_row("", SINKS.map(str::to_owned));
    for (life, dies_at) in LIVES.iter().enumerate() {
        let mut cells = [const { String::new() }; 3];
        for (place, sink) in SINKS.iter().enumerate() {
            let (folder, so_far) = (folders[place].path(), &mut put_out[place]);
            let before = so_far.len();
            fs::create_dir_all(folder.join("out"))?;
            so_far.extend(live(sink, folder, life)?);
            so_far.extend(read_files(&folder.join("out"))?.into_iter().skip(before));
            cells[place] = so_far[before..].join(" ");
        }
        let end = dies_at.map_or("ends well".to_owned(), |number| format!("dies behind {number}"));
        print_row(&format!("life {}, {end}", life + 1), cells);
    }
    print_row("repeated", put_out.map(|numbers| repeated(&numbers).join(" ")));
    println!("{EXPLANATION}");
    Ok(())
}

fn repeated(numbers: &[String]) -> Vec<&str> {
    let again = (0..numbers.len()).filter(|&place| numbers[..place].contains(&numbers[place]));
    again.map(|place| numbers[place].as_str()).collect()
}

fn print_row(title: &str, cells: [String; 3]) {
    let row = format!("{title:24}{:32}{:32}{}", cells[0], cells[1], cells[2]);
    println!("{}", row.trim_end());
}
