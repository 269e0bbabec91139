//! What an earlier run can still do, and what is left of it.

use std::sync::Arc;
use std::time::Duration;

use levada_core::SystemClock;
use levada_kafka::protocol::State;
use levada_kafka::sink::producing::Message;
use levada_kafka::sink::recovery::TransactionNaming;
use levada_kafka::sink::two_phase::Resolver;
use levada_kafka::sink::writer::Decided;

use super::support::{Topic, both};

/// [KSK-28] [KSK-17] what no handle names is aborted at the start, open or prepared; a neighbour whose name begins alike is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_noted_is_aborted_at_the_next_start() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let mut neighbour = topic.named("orders-2", 1);
    neighbour.resolve(&[]).await.expect("nothing to resolve");
    let of_neighbour = topic.prepared(&mut neighbour, "the neighbour's").await;
    let noted = topic.prepared(&mut writer, "noted").await;
    let forgotten = topic.prepared(&mut writer, "forgotten").await;
    writer.begin().await.expect("begun");
    topic.send(&writer, 0, "open").await;
    let resolution = topic.writer(2).resolve(std::slice::from_ref(&noted)).await.expect("resolved");
    assert_eq!(resolution.decided, Decided::Committed);
    assert_eq!(topic.state(&forgotten.transactional_id).await, Some(State::Empty), "aborted by a new epoch");
    assert_eq!(topic.state(&of_neighbour.transactional_id).await, Some(State::Ongoing));
    neighbour.commit(&of_neighbour).await.expect("committed");
    assert_eq!(topic.read().await, both(&["the neighbour's", "noted"]));
}

/// [KSK-28] [KSK-16] a run that stood still while another one took over: it cannot prepare what it has open, its commit of what
/// was rolled back says that it is lost, and its commit of what was committed changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_wakes_up_behind_a_takeover_publishes_nothing() {
    for is_noted in [true, false] {
        let topic = Topic::new().await;
        let mut sleeper = topic.started().await;
        let handle = topic.prepared(&mut sleeper, "prepared").await;
        sleeper.begin().await.expect("begun");
        topic.send(&sleeper, 0, "open").await;
        let noted = if is_noted { vec![handle.clone()] } else { vec![] };
        topic.writer(2).resolve(&noted).await.expect("resolved");
        // Whether the first message was on its way before the takeover decides who notices first.
        let late = Message::to(&topic.name).partition(1).value(b"late");
        drop(sleeper.send(&late).await);
        sleeper.prepare().await.expect_err("its transaction was ended");
        let committed = sleeper.commit(&handle).await;
        assert_eq!(committed.is_ok(), is_noted, "{committed:?}");
        assert!(is_noted || committed.expect_err("aborted").is_lost());
        let seen = if is_noted { both(&["prepared"]) } else { vec![] };
        assert_eq!(topic.read().await, seen);
    }
}

/// [KSK-28] [KSK-09] a handle whose transaction was committed long ago, and whose id has another one now: it is found to be
/// committed, and the other one is not touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_handle_ends_nothing_of_a_later_transaction() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let stale = topic.prepared(&mut writer, "1").await;
    writer.commit(&stale).await.expect("committed");
    let current = loop {
        let next = topic.prepared(&mut writer, "later").await;
        if next.transactional_id == stale.transactional_id {
            break next;
        }
        writer.commit(&next).await.expect("committed");
    };
    assert_eq!(current.epoch, stale.epoch + 1);
    let naming = TransactionNaming::new(&topic.name, "orders", "writer").expect("a name");
    let resolver = Resolver::new(topic.admin.clone(), naming, Arc::new(SystemClock), Duration::from_secs(10));
    resolver.commit(&stale).await.expect("its marker tells that it is committed");
    resolver.abort(&stale).await.expect_err("it is visible");
    assert_eq!(topic.state(&current.transactional_id).await, Some(State::Ongoing));
    // At a start the same; the other one is not noted, and ended.
    let resolution = topic.writer(2).resolve(std::slice::from_ref(&stale)).await.expect("resolved");
    assert_eq!(resolution.to_string(), "1 transaction with 2 records committed, 1 of them before");
}
