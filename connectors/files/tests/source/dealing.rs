//! Which subtask reads which file, under which name.

use std::collections::BTreeSet;
use std::fs;

use levada_core::{Position, Positions, Source, SplitId};
use levada_files::{LineSourceConfig, owner_of};

use crate::scene::{Reader, context};

/// [SRC-03] the source's part: every file has one owner, however many subtasks there are.
#[tokio::test]
async fn every_file_is_read_by_one_subtask() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..7).map(|number| folder.path().join(format!("{number}.txt"))).collect();
    for path in &paths {
        fs::write(path, format!("{}\n", path.display())).unwrap();
    }
    for config in [LineSourceConfig::folder(folder.path()), LineSourceConfig::files(&paths)] {
        for parallelism in 1..10 {
            let mut lines = Vec::new();
            for subtask in 0..parallelism {
                let ctx = context(subtask, parallelism);
                let mut reader = Reader::with(config.clone(), ctx, &Positions::new()).await.unwrap();
                reader.read_all().await.unwrap();
                lines.extend(reader.lines().into_iter().map(str::to_owned));
            }
            lines.sort();
            assert!(lines.into_iter().eq(paths.iter().map(|path| path.display().to_string())));
        }
    }
}

#[tokio::test]
async fn listed_files_are_dealt_out_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..7).map(|number| folder.path().join(number.to_string())).collect();
    for path in &paths {
        fs::write(path, "").unwrap();
    }
    let mut shares = Vec::new();
    for subtask in 0..3 {
        let config = LineSourceConfig::files(&paths);
        let reader = Reader::with(config, context(subtask, 3), &Positions::new()).await.unwrap();
        shares.push(reader.assignment.splits.len());
    }
    assert_eq!(shares, [3, 2, 2]);
}

/// A file that appears changes neither the splits of the others nor their owners.
#[tokio::test]
async fn a_file_that_appears_leaves_the_others_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "d"] {
        fs::write(folder.path().join(name), "one\ntwo\n").unwrap();
    }
    let config = LineSourceConfig::folder(folder.path());
    let mut before = Reader::at(config.clone(), &Positions::new()).await.unwrap();
    before.read_all().await.unwrap();
    for name in ["a", "c"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let mut after = Reader::at(config, &before.positions).await.unwrap();
    let splits: BTreeSet<_> = after.assignment.splits.iter().map(SplitId::to_string).collect();
    assert!(splits.into_iter().eq(["a-0", "b-0", "c-0", "d-0"]));
    after.read_all().await.unwrap();
    assert_eq!(after.lines(), ["a", "c"]);
    assert_eq!(["a", "b"].map(|name| owner_of(name, 1)), [0, 0]);
}

#[tokio::test]
async fn a_split_of_another_source_and_a_file_listed_twice_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "").unwrap();
    let mut reader = Reader::at(LineSourceConfig::files([&path]), &Positions::new()).await.unwrap();
    let error = reader.source.add(vec![(SplitId::new("b", 0), Position::at(0))]).unwrap_err();
    assert!(error.to_string().contains("b-0"), "{error}");
    let twice = Reader::at(LineSourceConfig::files([&path, &path]), &Positions::new()).await.err().unwrap();
    assert!(twice.to_string().contains("listed twice"), "{twice}");
}
