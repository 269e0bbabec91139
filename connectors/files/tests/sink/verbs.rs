//! Each verb, and its repetitions.

use std::fs;

use levada_core::template::{Fate, TwoPhaseCommitSink};
use levada_core::{BoxError, ErrorChain, ErrorClass};
use levada_files::{FileSink, FileSinkConfig};

use crate::scene::{CTX, Scene, batch, context, lines, name, opened, pre_committed, stored_and_loaded};

/// [TPL-16]
#[tokio::test]
async fn records_are_invisible_until_the_commit_and_then_all_there() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    sink.write(&mut handle, lines(&["a", "b"]), &CTX).await.unwrap();
    sink.write(&mut handle, lines(&["", "c"]), &CTX).await.unwrap();
    assert_eq!(scene.visible().len(), 0);
    sink.pre_commit(&mut handle).await.unwrap();
    assert_eq!(scene.visible().len(), 0);
    assert_eq!((handle.records(), handle.bytes()), (4, 7));
    sink.commit(&handle).await.unwrap();
    assert_eq!(scene.visible(), [handle.target()]);
    assert_eq!(scene.text(), "a\nb\n\nc\n");
    assert_eq!(scene.waiting().len(), 0);
}

/// [TPL-10] [TPL-16]
#[tokio::test]
async fn a_commit_can_be_repeated_by_anybody_who_has_the_handle() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    drop(sink);
    let mut another = scene.sink().await;
    for _ in 0..3 {
        another.commit(&handle).await.unwrap();
        scene.sink().await.commit(&handle).await.unwrap();
        assert_eq!(scene.text(), "a\n");
    }
}

/// [TPL-10] a later configuration does not strand what an earlier one has pre-committed.
#[tokio::test]
async fn a_handle_is_committed_where_it_was_written() {
    let (before, after) = (Scene::new(), Scene::new());
    let handle = pre_committed(&mut before.sink().await, name(1, 1, 0), &["a"]).await;
    after.sink().await.commit(&handle).await.unwrap();
    assert_eq!((before.text().as_str(), after.text().as_str()), ("a\n", ""));
}

/// [TPL-10] commit is idempotent, also when two processes do it in the same moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_of_one_handle_at_the_same_time_all_succeed() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    for sequence in 1..50 {
        let handle = pre_committed(&mut sink, name(1, sequence, 0), &["a"]).await;
        let mut commits = Vec::new();
        for _ in 0..4 {
            let (mut other, handle) = (scene.sink().await, handle.clone());
            commits.push(tokio::spawn(async move { other.commit(&handle).await }));
        }
        for commit in commits {
            commit.await.unwrap().unwrap();
        }
    }
    assert_eq!(scene.text(), "a\n".repeat(49));
}

/// [TPL-10]
#[tokio::test]
async fn an_abort_removes_and_can_be_repeated_and_may_be_of_the_unknown() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    sink.write(&mut handle, lines(&["a"]), &CTX).await.unwrap();
    for _ in 0..2 {
        sink.abort(&handle).await.unwrap();
        scene.sink().await.abort(&handle).await.unwrap();
    }
    assert_eq!((scene.visible().len(), scene.waiting().len()), (0, 0));
    let error = sink.write(&mut handle, lines(&["b"]), &CTX).await.unwrap_err();
    assert!(error.to_string().contains("is not open"), "{error}");
}

#[tokio::test]
async fn an_abort_leaves_what_is_published() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    sink.commit(&handle).await.unwrap();
    sink.abort(&handle).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

#[tokio::test]
async fn a_pre_commit_can_be_repeated_but_not_begin_a_transaction() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    sink.pre_commit(&mut handle).await.unwrap();
    scene.sink().await.pre_commit(&mut handle).await.unwrap();
    let mut open = sink.begin(&name(1, 2, 0)).await.unwrap();
    let error = scene.sink().await.pre_commit(&mut open).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fatal);
}

#[tokio::test]
async fn what_was_never_pre_committed_cannot_be_committed() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    sink.write(&mut handle, lines(&["a"]), &CTX).await.unwrap();
    let error = sink.commit(&stored_and_loaded(&handle)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fatal);
    assert!(error.to_string().contains("never pre-committed"), "{error}");
    assert_eq!(scene.visible().len(), 0);
}

/// [TPL-14] should a driver begin one all the same: readers get no file without a record.
#[tokio::test]
async fn a_transaction_without_a_record_publishes_nothing() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    sink.write(&mut handle, lines(&[]), &CTX).await.unwrap();
    sink.pre_commit(&mut handle).await.unwrap();
    let handle = stored_and_loaded(&handle);
    for _ in 0..2 {
        scene.sink().await.commit(&handle).await.unwrap();
    }
    assert_eq!((scene.visible().len(), scene.waiting().len()), (0, 0));
    let fates = sink.inspect(std::slice::from_ref(&handle)).await.unwrap();
    assert_eq!(fates, Some(vec![Fate::Committed]));
}

/// [TPL-13] a loss is told with the handle and its counts.
#[tokio::test]
async fn a_transaction_whose_file_is_gone_is_lost_and_named() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a", "b"]).await;
    fs::remove_file(handle.pending()).unwrap();
    let error = sink.commit(&handle).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fatal);
    let message = error.to_string();
    assert!(
        message.contains("is lost") && message.contains(&handle.target().display().to_string()),
        "{message}"
    );
    assert!(message.contains("2 records, 4 bytes"), "{message}");
}

/// [TPL-16] nothing is overwritten; once the other file is away, the commit succeeds.
#[tokio::test]
async fn another_file_of_the_name_is_never_replaced() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    fs::write(handle.target(), "b\n").unwrap();
    let error = sink.commit(&handle).await.unwrap_err();
    assert!(error.to_string().contains("another file has its name"), "{error}");
    assert_eq!(scene.text(), "b\n");
    fs::remove_file(handle.target()).unwrap();
    sink.commit(&handle).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

#[tokio::test]
async fn a_file_of_another_length_is_not_published() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["abc"]).await;
    fs::write(handle.pending(), "ab").unwrap();
    let error = sink.commit(&handle).await.unwrap_err();
    assert!(error.to_string().contains("damaged") && error.to_string().contains("has 2 bytes"), "{error}");
    assert_eq!(scene.visible().len(), 0);
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_at_the_beginning() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let handle = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    let error = scene.sink().await.begin(&name(1, 1, 0)).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    sink.commit(&handle).await.unwrap();
    assert!(sink.begin(&name(1, 1, 0)).await.is_err());
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16] what a reader gets who reads the files by name.
#[tokio::test]
async fn files_read_by_name_give_each_subtasks_records_in_order() {
    let scene = Scene::new();
    let mut expected = String::new();
    for (attempt, sequence) in [(1, 9), (1, 10), (2, 1), (10, 1)] {
        for subtask in [0, 2, 10] {
            let line = format!("{subtask}: {attempt}-{sequence}");
            let mut sink = scene.sink().await;
            let handle = pre_committed(&mut sink, name(attempt, sequence, subtask), &[&line]).await;
            sink.commit(&handle).await.unwrap();
            expected += &line;
            expected += "\n";
        }
    }
    assert_eq!(scene.text(), expected);
}

#[tokio::test]
async fn blocks_of_any_size_make_the_same_file() {
    for buffer_bytes in [0, 1, 5, 1 << 20] {
        let scene = Scene::new();
        let mut sink = opened(scene.config().buffer_bytes(buffer_bytes)).await.unwrap();
        let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
        for line in ["one", "two", "", "three"] {
            sink.write(&mut handle, lines(&[line, line]), &CTX).await.unwrap();
        }
        sink.pre_commit(&mut handle).await.unwrap();
        sink.commit(&handle).await.unwrap();
        assert_eq!(scene.text(), "one\none\ntwo\ntwo\n\n\nthree\nthree\n");
    }
}

#[tokio::test]
async fn bytes_and_whatever_an_encoder_makes_lines_of_are_written() {
    let scene = Scene::new();
    let mut bytes = FileSink::<Vec<u8>>::new(scene.config());
    bytes.open(context("job", 0)).await.unwrap();
    let mut handle = bytes.begin(&name(1, 1, 0)).await.unwrap();
    bytes.write(&mut handle, batch(vec![b"x\xff".to_vec()]), &CTX).await.unwrap();
    bytes.pre_commit(&mut handle).await.unwrap();
    bytes.commit(&handle).await.unwrap();
    assert_eq!(fs::read(handle.target()).unwrap(), b"x\xff\n");

    let doubled = |number: &u32, out: &mut Vec<u8>| -> Result<(), BoxError> {
        out.extend_from_slice((2 * number).to_string().as_bytes());
        Ok(())
    };
    let mut numbers = FileSink::with_lines(scene.config(), doubled);
    numbers.open(context("job", 0)).await.unwrap();
    let mut handle = numbers.begin(&name(1, 2, 0)).await.unwrap();
    numbers.write(&mut handle, batch(vec![21]), &CTX).await.unwrap();
    numbers.pre_commit(&mut handle).await.unwrap();
    numbers.commit(&handle).await.unwrap();
    assert_eq!(fs::read(handle.target()).unwrap(), b"42\n");
}

#[tokio::test]
async fn a_record_with_a_newline_is_refused_by_its_coordinates_and_its_batch_not_taken() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
    let error = sink.write(&mut handle, lines(&["a", "b\nc"]), &CTX).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::BadRecord);
    let chain = ErrorChain(&error).to_string();
    assert!(chain.contains("flights-0@1") && chain.contains("newline") && !chain.contains("b\nc"), "{chain}");
    sink.write(&mut handle, lines(&["a"]), &CTX).await.unwrap();
    sink.pre_commit(&mut handle).await.unwrap();
    sink.commit(&handle).await.unwrap();
    assert_eq!((scene.text().as_str(), handle.records()), ("a\n", 1));
}

/// [TPL-12] the sink's part: what a coordinator is told after a crash.
#[tokio::test]
async fn inspection_tells_pending_committed_and_unknown_apart() {
    let scene = Scene::new();
    let mut sink = scene.sink().await;
    let pending = pre_committed(&mut sink, name(1, 1, 0), &["a"]).await;
    let committed = pre_committed(&mut sink, name(1, 2, 0), &["a"]).await;
    sink.commit(&committed).await.unwrap();
    let between = pre_committed(&mut sink, name(1, 3, 0), &["a"]).await;
    fs::hard_link(between.pending(), between.target()).unwrap();
    let gone = pre_committed(&mut sink, name(1, 4, 0), &["a"]).await;
    sink.abort(&gone).await.unwrap();
    let open = sink.begin(&name(1, 5, 0)).await.unwrap();
    let fates = scene.sink().await.inspect(&[pending, committed, between, gone, open]).await.unwrap();
    let expected = [Fate::Pending, Fate::Committed, Fate::Committed, Fate::Unknown, Fate::Aborted];
    assert_eq!(fates.as_deref(), Some(&expected[..]));
}

#[tokio::test]
async fn a_sink_that_is_not_open_and_names_that_cannot_be_are_refused() {
    let scene = Scene::new();
    let mut sink = FileSink::<String>::new(scene.config());
    assert!(sink.begin(&name(1, 1, 0)).await.unwrap_err().to_string().contains("not open"));
    assert!(sink.open(context("", 0)).await.unwrap_err().to_string().contains("job's name"));
    assert!(sink.open(context(&"x".repeat(250), 0)).await.unwrap_err().to_string().contains("255"));
    let mut sink = FileSink::<String>::new(FileSinkConfig::new(scene.folder(), ""));
    assert!(sink.open(context("job", 0)).await.unwrap_err().to_string().contains("uid"));
    let mut sink = FileSink::<String>::new(scene.config().suffix("/x"));
    assert!(sink.open(context("job", 0)).await.unwrap_err().to_string().contains("slash"));
}
