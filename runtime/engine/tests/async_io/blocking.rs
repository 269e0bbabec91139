//! A client that only blocks.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use futures_util::StreamExt as _;
use futures_util::stream;
use levada_core::ErrorClass;
use levada_core::async_io::{AsyncFunction, AsyncSettings, CallError};
use levada_engine::async_io::{Blocking, BlockingSettings, over};

use crate::scripted::promptly;

/// [ASY-01] as many calls at once as there are threads, each with one client of its own for all its calls.
#[tokio::test]
async fn calls_run_on_threads_with_a_client_each() {
    let together = Arc::new(Barrier::new(3));
    let made = Arc::new(AtomicUsize::new(0));
    let clients = Arc::new(Mutex::new(BTreeSet::new()));
    let (connected, used) = (Arc::clone(&made), Arc::clone(&clients));
    let blocking = Blocking::new(
        BlockingSettings::threads(3),
        move |thread| {
            connected.fetch_add(1, Ordering::Relaxed);
            Ok(thread)
        },
        move |client: &mut usize, number: &u64| {
            // Passed only if three calls run at once.
            together.wait();
            used.lock().unwrap().insert(*client);
            Ok(vec![*number + 1])
        },
    );
    let outputs = over(stream::iter(0..30_u64), blocking, AsyncSettings::new()).unwrap();
    let outputs: Vec<_> = promptly(outputs.map(Result::unwrap).collect::<Vec<_>>()).await;
    assert_eq!(outputs, (1..=30).collect::<Vec<_>>());
    assert_eq!(made.load(Ordering::Relaxed), 3);
    assert_eq!(*clients.lock().unwrap(), BTreeSet::from([0, 1, 2]));
}

/// A client that has lost its connection, or has panicked in a call, is made anew.
#[tokio::test]
async fn client_that_is_broken_is_made_anew() {
    let made = Arc::new(AtomicUsize::new(0));
    let connected = Arc::clone(&made);
    let blocking = Blocking::new(
        BlockingSettings::threads(1),
        move |_| Ok(connected.fetch_add(1, Ordering::Relaxed)),
        |client: &mut usize, what: &&str| match *what {
            "lost" => Err(CallError::new(ErrorClass::Reconnect, "connection lost")),
            "panic" => panic!("on purpose"),
            _ => Ok(vec![*client]),
        },
    );
    let call = |what| {
        let called = blocking.call(Arc::new(what));
        async move { promptly(called).await.map_err(|error| error.to_string()) }
    };
    assert_eq!(call("well").await, Ok(vec![0]));
    assert_eq!(call("lost").await, Err("connection lost".to_owned()));
    assert_eq!(call("well").await, Ok(vec![1]));
    assert_eq!(call("panic").await, Err("the blocking call panicked".to_owned()));
    assert_eq!(call("well").await, Ok(vec![2]));
}

/// [ASY-06] [ASY-15] an answer that nobody waits for any more is counted; a call that nobody waits for is not made.
#[tokio::test]
async fn late_answer_of_a_thread_is_counted() {
    let (begun, begins) = std::sync::mpsc::channel();
    let go_on = Arc::new(Barrier::new(2));
    let waits = Arc::clone(&go_on);
    let blocking = Blocking::new(
        BlockingSettings::threads(1),
        |_| Ok(()),
        move |(), number: &u64| {
            begun.send(*number).unwrap();
            waits.wait();
            Ok(vec![*number])
        },
    );
    let first = blocking.call(Arc::new(1));
    let dropped_before = blocking.call(Arc::new(2));
    let last = blocking.call(Arc::new(3));
    assert_eq!(begins.recv().unwrap(), 1);
    drop((first, dropped_before));
    go_on.wait();
    assert_eq!(begins.recv().unwrap(), 3);
    go_on.wait();
    assert_eq!(promptly(last).await.unwrap(), [3]);
    assert_eq!(blocking.late_results(), 1);
}
