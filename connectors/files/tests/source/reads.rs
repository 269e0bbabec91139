//! What is read, and from where on.

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use levada_core::{
    BatchBuilder, Budget, ErrorClass, Polled, Position, Positions, Source, SourceContext, SplitId,
};
use levada_files::{LineEnd, LineSource, LineSourceConfig};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::scene::{Reader, bounds, context};

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn split(name: &str) -> SplitId {
    SplitId::new(name, 0)
}

#[tokio::test]
async fn files_are_read_to_their_ends_each_line_with_the_byte_it_begins_at() {
    let folder = folder(&[("b.txt", "three\nfour"), ("a.txt", "one\n\ntwo\n"), ("c.txt", "")]);
    let mut reader = Reader::at(LineSourceConfig::folder(folder.path()), &Positions::new()).await.unwrap();
    reader.read_all().await.unwrap();
    let record = |offset, line: &str| (offset, line.to_owned());
    assert_eq!(reader.read[&split("a.txt")], [record(0, "one"), record(4, ""), record(5, "two")]);
    assert_eq!(reader.read[&split("b.txt")], [record(0, "three"), record(6, "four")]);
    let ended: Vec<_> = reader.ended.iter().map(|(split, end)| (&*split.stream, end.next)).collect();
    assert_eq!(ended, [("a.txt", 9), ("b.txt", 10), ("c.txt", 0)]);
    for (split, end) in &reader.ended {
        assert_eq!(reader.assignment.ends.get(split).unwrap().next, end.next, "it was foretold");
    }
}

#[tokio::test]
async fn hidden_files_folders_and_other_suffixes_are_passed_over() {
    let folder = folder(&[("a.txt", "a\n"), (".b.txt", "b\n"), ("c.csv", "c\n")]);
    fs::create_dir(folder.path().join("d.txt")).unwrap();
    let config = LineSourceConfig::folder(folder.path()).suffix(".txt");
    let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
    reader.read_all().await.unwrap();
    assert_eq!(reader.lines(), ["a"]);
}

#[tokio::test]
async fn a_carriage_return_is_kept_unless_asked_otherwise() {
    let folder = folder(&[("a.txt", "one\r\ntwo\n\r\nthree\r")]);
    for (line_end, expected) in [
        (LineEnd::Newline, ["one\r", "two", "\r", "three\r"]),
        (LineEnd::NewlineOrCrLf, ["one", "two", "", "three\r"]),
    ] {
        let config = LineSourceConfig::folder(folder.path()).line_end(line_end);
        let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
        reader.read_all().await.unwrap();
        assert_eq!(reader.lines(), expected);
    }
}

/// What came before it is still read.
#[tokio::test]
async fn a_line_beyond_the_limit_is_an_error_with_its_coordinates() {
    let folder = folder(&[("a.txt", &format!("one\ntwo\n{}\nfour\n", "x".repeat(50)))]);
    for bytes in [1, 7, 1000] {
        let config =
            LineSourceConfig::folder(folder.path()).max_line_bytes(10).batch_bounds(bounds(100, bytes));
        let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
        let error = reader.read_all().await.unwrap_err();
        assert_eq!(error.class, ErrorClass::BadRecord);
        let message = error.to_string();
        assert!(message.contains("line 3 of") && message.contains("a.txt at byte 8"), "{message}");
        assert!(message.contains("10 bytes"), "{message}");
        assert_eq!(reader.lines(), ["one", "two"]);
        assert_eq!(reader.positions.get(&split("a.txt")).unwrap().next, 8);
    }
}

/// A second source starts at each position that the first one ever reported.
#[tokio::test]
async fn reading_goes_on_exactly_from_every_position() {
    let folder = folder(&[("a.txt", "one\n\ntwo\nthree\n\nfour"), ("b.txt", "five\nsix\n")]);
    let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(1, 100));
    let mut first = Reader::at(config.clone(), &Positions::new()).await.unwrap();
    let mut resumed = 0;
    loop {
        let polled = first.poll().await.unwrap();
        let mut second = Reader::at(config.clone(), &first.positions).await.unwrap();
        second.read_all().await.unwrap();
        let mut joined = first.read.clone();
        for (split, lines) in second.read {
            joined.entry(split).or_default().extend(lines);
        }
        let lines: Vec<String> = joined.into_values().flatten().map(|(_, line)| line).collect();
        assert_eq!(lines, ["one", "", "two", "three", "", "four", "five", "six"]);
        resumed += 1;
        if polled == Polled::End {
            break;
        }
    }
    assert_eq!(resumed, 11, "8 lines, 2 ends, the end");
}

/// Positions by hand have no detail.
#[tokio::test]
async fn a_bare_position_is_taken_if_a_line_begins_there() {
    let folder = folder(&[("a.txt", "one\ntwo\n")]);
    let at = |next| [(split("a.txt"), Position::at(next))].into_iter().collect::<Positions>();
    let config = LineSourceConfig::folder(folder.path());
    let mut reader = Reader::at(config.clone(), &at(4)).await.unwrap();
    reader.read_all().await.unwrap();
    assert_eq!(reader.lines(), ["two"]);
    let mut inside = Reader::at(config, &at(2)).await.unwrap();
    assert!(inside.read_all().await.unwrap_err().to_string().contains("byte 2"));
}

#[tokio::test]
async fn a_split_that_rests_gives_nothing_and_goes_on_where_it_was() {
    let folder = folder(&[("a.txt", "1\n2\n3\n"), ("b.txt", "4\n5\n")]);
    let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(1, 100));
    let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
    assert_eq!(reader.poll().await.unwrap(), Polled::Batch);
    reader.source.pause(&[split("a.txt")]).unwrap();
    while !matches!(reader.poll().await.unwrap(), Polled::EndOfSplit(..)) {}
    assert_eq!(reader.lines(), ["1", "4", "5"]);
    reader.source.resume(&[split("a.txt")]).unwrap();
    reader.read_all().await.unwrap();
    assert_eq!(reader.lines(), ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_split_added_again_goes_on_from_the_new_position_and_a_removed_one_gives_nothing() {
    let folder = folder(&[("a.txt", "1\n2\n3\n"), ("b.txt", "4\n")]);
    let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(1, 100));
    let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
    reader.poll().await.unwrap();
    let after_one = reader.positions.get(&split("a.txt")).unwrap().clone();
    reader.poll().await.unwrap();
    reader.source.add(vec![(split("a.txt"), after_one)]).unwrap();
    reader.source.remove(&[split("b.txt")]).unwrap();
    reader.read_all().await.unwrap();
    assert_eq!(reader.lines(), ["1", "2", "2", "3"]);
}

/// Dropped after each number of polls of the future: whatever a blocking thread brings meanwhile is not lost.
#[tokio::test]
async fn dropping_a_poll_loses_nothing() {
    let text: String = (0..200).map(|number| format!("{number}\n")).collect();
    let folder = folder(&[("a.txt", &text)]);
    let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(3, 5));
    let mut reader = Reader::at(config, &Positions::new()).await.unwrap();
    let mut dropped = 0;
    loop {
        let mut out = BatchBuilder::new();
        let polled = {
            let mut poll = pin!(reader.source.poll(&mut out));
            std::future::poll_fn(|cx| Poll::Ready(poll.as_mut().poll(cx))).await
        };
        reader.take(&mut out);
        match polled {
            Poll::Ready(polled) if polled.as_ref().unwrap() == &Polled::End => break,
            Poll::Ready(_) => {}
            Poll::Pending => {
                dropped += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(dropped > 0, "a poll was dropped");
    assert!(reader.lines().into_iter().eq((0..200).map(|number| number.to_string())));
}

/// [SRC-28] the source's part.
#[tokio::test]
async fn a_full_byte_budget_is_waited_for() {
    let folder = folder(&[("a.txt", "one\ntwo\n")]);
    let mut source = LineSource::new(LineSourceConfig::folder(folder.path()).batch_bounds(bounds(1, 100)));
    let budget = Budget::new(4);
    source.open(SourceContext { budget: budget.clone(), ..context(0, 1) }).await.unwrap();
    let mut out = BatchBuilder::new();
    source.poll(&mut out).await.unwrap();
    source.add(vec![(split("a.txt"), Position::at(0))]).unwrap();
    source.poll(&mut out).await.unwrap();
    let first = out.finish();
    assert_eq!(budget.used(), 3);
    let next = tokio::spawn(async move {
        let mut out = BatchBuilder::new();
        source.poll(&mut out).await.unwrap();
        out.len()
    });
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    drop(first);
    assert_eq!(next.await.unwrap(), 1);
}

/// What a reader of the whole file would say, by other means.
fn naive(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reading, stopped and started again anywhere, gives what reading the file whole gives.
    #[test]
    fn lines_are_those_of_the_whole_file_wherever_reading_is_interrupted(
        text in "[ab\r\n]{0,80}",
        records in 1_usize..5,
        bytes in 1_usize..20,
        stops in prop::collection::vec(0_usize..6, 0..4),
    ) {
        let folder = folder(&[("a.txt", &text)]);
        let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(records, bytes));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lines = runtime.block_on(async {
            let (mut lines, mut positions) = (Vec::new(), Positions::new());
            for polls in stops.into_iter().map(Some).chain([None]) {
                let mut reader = Reader::at(config.clone(), &positions).await.unwrap();
                for _ in 0..polls.unwrap_or(usize::MAX) {
                    if reader.poll().await.unwrap() == Polled::End {
                        break;
                    }
                }
                lines.extend(reader.lines().into_iter().map(str::to_owned));
                positions = reader.positions.clone();
            }
            lines
        });
        prop_assert_eq!(lines, naive(&text));
    }
}
