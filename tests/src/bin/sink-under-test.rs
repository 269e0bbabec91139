//! The Postgres sink alone, in a loop that needs neither engine nor bridge: numbered rows from nowhere, until it is
//! killed.
//!
//! `sink-under-test URL` goes on from the positions it claims, as a program should. The other two go wrong on purpose,
//! so that a test can show that such a program is found out:
//!
//! - `sink-under-test URL ahead FILE` goes on from a file that it writes before each commit;
//! - `sink-under-test URL behind FILE` goes on from a file that it writes after each commit.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs};

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, AtomicSink, Batch, BatchBuilder, Change, Keyed, Position, Positions, Record, Row, Shape,
    Sink, SinkContext, SplitId, SplitStart, StreamId, StreamStart, Value,
};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, WriteMode};

/// Also the pipeline's name in the table of positions.
const JOB: &str = "sink";
const STREAM: &str = "numbers";
const SPLITS: u32 = 2;

/// Where the program takes its progress from when it starts.
enum Memory {
    Claimed,
    FileAhead(PathBuf),
    FileBehind(PathBuf),
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "failpoints")]
    let _obedience = levada_testcontainers::crash::obey()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (url, memory) = match words[..] {
        [url] => (url, Memory::Claimed),
        [url, "ahead", file] => (url, Memory::FileAhead(file.into())),
        [url, "behind", file] => (url, Memory::FileBehind(file.into())),
        _ => return Err("usage: sink-under-test URL [ahead|behind FILE]".into()),
    };
    let config = PostgresSinkConfig::from_url(url, TableName::new("log")?, WriteMode::Insert)?;
    let mut sink = PostgresSink::new(config);
    sink.open(SinkContext { job: JOB.to_owned(), subtask: 0, parallelism: 1 }).await?;
    let claimed = next_by_split(&sink.claim(&assignment()).await?);
    println!("claimed");

    let mut next = match &memory {
        Memory::Claimed => claimed.clone(),
        Memory::FileAhead(file) | Memory::FileBehind(file) => remembered(file)?.unwrap_or(claimed.clone()),
    };
    for round in 0_u64.. {
        let (batch, moved) = batch(round, &next, &claimed);
        next.extend(next_by_split(&moved));
        sink.write(batch).await?;
        if let Memory::FileAhead(file) = &memory {
            remember(file, &next)?;
        }
        sink.commit(&moved).await?;
        if let Memory::FileBehind(file) = &memory {
            remember(file, &next)?;
        }
    }
    Ok(())
}

fn assignment() -> Assignment {
    let start = |index| SplitStart { index, start: Position::at(0), earliest: Position::at(0) };
    Assignment {
        splits: (0..SPLITS).map(|index| SplitId::new(STREAM, index)).collect(),
        streams: vec![StreamStart {
            stream: STREAM.into(),
            id: StreamId("1".into()),
            splits: (0..SPLITS).map(start).collect(),
        }],
        ..Assignment::default()
    }
}

fn next_by_split(positions: &Positions) -> BTreeMap<SplitId, u64> {
    positions.iter().map(|(split, position)| (split.clone(), position.next)).collect()
}

/// Makes the rows of a commit: some of each split, and in every third commit of one split only. A split moves beyond
/// what was claimed, or the sink would refuse the commit.
fn batch(
    round: u64,
    next: &BTreeMap<SplitId, u64>,
    claimed: &BTreeMap<SplitId, u64>,
) -> (Batch<Keyed>, Positions) {
    let shape = Shape::new(["split", "n"]);
    let mut builder = BatchBuilder::new();
    let mut changes = Vec::new();
    for (place, (split, from)) in next.iter().enumerate() {
        if round % 3 == 2 && place as u64 == round % 2 {
            continue;
        }
        let number = builder.split(split);
        let until = (from + 1 + from * 7 % 13).max(claimed[split] + 1);
        for offset in *from..until {
            builder.push(number, RawRecord { offset, ..RawRecord::default() });
            let integer = |value: u64| Value::Number(value.to_string().as_str().into());
            let row = Row::new(Arc::clone(&shape), vec![integer(place as u64), integer(offset)]);
            changes.push(Keyed { key: None, change: Change::Upsert(row) });
        }
    }
    let (raw, positions) = builder.finish();
    let (parts, records) = raw.into_parts();
    let keyed = records.into_iter().zip(changes).map(|(record, item)| Record { origin: record.origin, item });
    (parts.with_records(keyed.collect()), positions)
}

/// Reads the file of a program that goes wrong: one number a split. There is none at first.
fn remembered(file: &PathBuf) -> Result<Option<BTreeMap<SplitId, u64>>, Box<dyn Error>> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    let numbers: Vec<u64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    let splits = (0..SPLITS).map(|index| SplitId::new(STREAM, index));
    Ok(Some(splits.zip(numbers).collect()))
}

fn remember(file: &PathBuf, next: &BTreeMap<SplitId, u64>) -> Result<(), Box<dyn Error>> {
    let text: String = next.values().map(|number| format!("{number}\n")).collect();
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, file)?;
    Ok(())
}
