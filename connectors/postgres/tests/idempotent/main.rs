//! The idempotent sink on a real server.

#[path = "../sink/scene.rs"]
#[allow(dead_code, reason = "shared with the tests of the atomic sink, which use all of it")]
mod scene;

use std::time::Duration;

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Keyed, Timestamp};
use levada_postgres::{PostgresSinkConfig, PostgresUpsert, WriteMode};
use levada_testcontainers::{Action, Cut, Direction, Trigger};

use scene::{Scene, batch, config, context, number, text, upsert};

const DELAYS: &str =
    "create table delays (carrier text, flight_date date, minutes int, primary key (carrier, flight_date))";
const ROWS: &str = "select carrier, flight_date, minutes from delays order by 1, 2";

fn keyed(config: PostgresSinkConfig) -> PostgresSinkConfig {
    config.key(["flight_date", "carrier"])
}

async fn opened(config: PostgresSinkConfig) -> PostgresUpsert {
    let mut sink = PostgresUpsert::new(config);
    sink.open(context()).await.expect("open");
    sink
}

fn delay(carrier: &str, date: &str, minutes: u64) -> Keyed {
    let key = [("carrier", text(carrier)), ("flight_date", text(date))];
    upsert(&key, &[("minutes", number(&minutes.to_string()))])
}

async fn write(sink: &mut PostgresUpsert, changes: &[Keyed]) {
    let ctx = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(0) };
    sink.upsert(batch(0, changes.to_vec()).0, &ctx).await.expect("upsert");
}

/// [TPL-05] a replay from anywhere ends in the same rows; on the way readers may see older values.
#[tokio::test(flavor = "multi_thread")]
async fn replays_converge() {
    let scene = Scene::new(DELAYS);
    let changes: Vec<Keyed> = (0..40)
        .map(|n| delay(["AA", "UA", "DL"][n % 3], ["2026-01-01", "2026-01-02"][n % 2], n as u64))
        .collect();
    let mut sink = opened(keyed(scene.upsert("delays"))).await;
    write(&mut sink, &changes).await;
    assert!(scene.rows(ROWS).is_empty(), "nothing is sent before a flush");
    sink.flush().await.expect("flush");
    let rows = scene.rows(ROWS);
    assert_eq!(rows.len(), 6);
    for begin in [0, 7, 39] {
        let mut again = opened(keyed(scene.upsert("delays"))).await;
        let half = (begin + 40) / 2;
        write(&mut again, &changes[begin..half]).await;
        again.flush().await.expect("flush");
        if begin == 0 {
            assert_ne!(scene.rows(ROWS), rows, "older values, for a while");
        }
        write(&mut again, &changes[half..]).await;
        again.flush().await.expect("flush");
        again.close().await;
        assert_eq!(scene.rows(ROWS), rows, "from {begin}");
    }
}

/// [TPL-05] the answer to COMMIT is lost: written again, and the same.
#[tokio::test(flavor = "multi_thread")]
async fn flush_whose_answer_is_lost_is_written_again() {
    let scene = Scene::new(DELAYS);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let config = keyed(config(&cut.url(scene.database.url()), "delays", WriteMode::Upsert));
    let mut sink = opened(config).await;
    write(&mut sink, &[delay("AA", "2026-01-01", 5)]).await;
    let lost = cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    sink.flush().await.expect("flush");
    lost.wait(Duration::from_secs(10)).expect("the answer was on its way");
    assert_eq!(sink.stats().reconnects, 1);
    assert_eq!(scene.rows(ROWS), ["AA|2026-01-01|5"]);
}

/// [TPL-05]
#[tokio::test(flavor = "multi_thread")]
async fn many_changes_are_sent_before_the_checkpoint() {
    let scene = Scene::new(DELAYS);
    let mut sink = PostgresUpsert::new(keyed(scene.upsert("delays"))).rows_per_flush(2);
    sink.open(context()).await.expect("open");
    write(&mut sink, &[delay("AA", "2026-01-01", 1)]).await;
    assert!(scene.rows(ROWS).is_empty());
    write(&mut sink, &[delay("UA", "2026-01-01", 1)]).await;
    assert_eq!(scene.rows(ROWS).len(), 2);
}

/// [TPL-05] A mode that repeats is refused, and a record at fault is named.
#[tokio::test(flavor = "multi_thread")]
async fn inserts_are_refused_and_bad_records_are_named() {
    let scene = Scene::new(DELAYS);
    let error = PostgresUpsert::new(scene.insert("delays")).open(context()).await.expect_err("repeats");
    assert!(error.to_string().contains("needs the mode upsert"), "{error}");
    scene.database.psql("alter table delays add check (minutes < 100)").expect("a constraint");
    let mut sink = opened(keyed(scene.upsert("delays"))).await;
    write(&mut sink, &[delay("AA", "2026-01-01", 1), delay("UA", "2026-01-01", 100)]).await;
    let error = sink.flush().await.expect_err("refused");
    assert!(error.to_string().starts_with("record orders-0@1: "), "{error}");
}
