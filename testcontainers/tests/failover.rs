//! A standby that follows and takes over: what survives the primary, and what does not.

mod clients;
mod observe;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use clients::postgres::connect;
use levada_testcontainers::{Error, Postgres, wait_until};
use observe::is_alive;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
const COUNT: &str = "SELECT count(*) FROM rows";

/// Waits until a standby has replayed everything that the primary has written.
fn wait_for_replay(primary: &Postgres, standby: &Postgres) {
    let written = primary.psql("SELECT pg_current_wal_lsn()").unwrap();
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
    wait_until(PATIENCE, "the replay", || standby.psql(&replayed).unwrap() == "t").unwrap();
}

/// Cuts a standby off without hurting it: from then on it receives nothing.
fn stop_receiver(primary: &Postgres, standby: &Postgres) {
    standby.psql("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    standby.psql("SELECT pg_reload_conf()").unwrap();
    let gone = || primary.psql("SELECT count(*) FROM pg_stat_replication").unwrap() == "0";
    wait_until(PATIENCE, "the end of the stream", gone).unwrap();
}

/// [TST-04]
#[test]
fn a_standby_follows_its_primary_and_takes_no_writes() -> Result<(), Error> {
    let primary = Postgres::start()?;
    primary.psql("CREATE TABLE rows AS SELECT 1 AS id")?;
    let standby = primary.standby()?;
    assert_ne!(primary.address(), standby.address());
    assert_eq!(standby.psql("SELECT pg_is_in_recovery()")?, "t");
    assert_eq!(standby.psql(COUNT)?, "1", "what was there before");
    primary.psql("INSERT INTO rows VALUES (2)")?;
    wait_for_replay(&primary, &standby);
    assert_eq!(standby.psql(COUNT)?, "2", "what came after");
    let refusal = standby.psql("INSERT INTO rows VALUES (3)").unwrap_err();
    assert!(refusal.to_string().contains("read-only transaction"), "{refusal}");
    assert_eq!(primary.psql("SELECT sync_state FROM pg_stat_replication")?, "async");
    Ok(())
}

/// [TST-04] Whichever way the standby went and however much it missed.
#[test]
fn a_standby_that_was_away_catches_up() -> Result<(), Error> {
    let primary = Postgres::start()?;
    primary.psql("CREATE TABLE rows (id int)")?;
    let standby = primary.standby()?;
    let kill = || standby.kill();
    let stop = || standby.stop().unwrap();
    let immediate = || standby.stop_immediate().unwrap();
    let ends: [(&str, &dyn Fn()); 3] = [("kill", &kill), ("stop", &stop), ("immediate", &immediate)];
    for (number, (name, end)) in ends.into_iter().enumerate() {
        end();
        assert_eq!(standby.pid(), None);
        primary.psql(&format!("INSERT INTO rows VALUES ({number})"))?;
        // Checkpoints would remove the log that the standby lacks, if nothing held it.
        primary.psql("SELECT pg_switch_wal()")?;
        primary.psql("CHECKPOINT")?;
        standby.restart()?;
        wait_for_replay(&primary, &standby);
        assert_eq!(standby.psql(COUNT)?, (number + 1).to_string(), "{name}");
    }
    standby.pause()?;
    primary.psql("INSERT INTO rows VALUES (4)")?;
    standby.resume()?;
    wait_for_replay(&primary, &standby);
    assert_eq!(standby.psql(COUNT)?, "4");
    Ok(())
}

/// [TST-04] A primary that comes back is followed again.
#[test]
fn a_standby_outlives_a_restart_of_its_primary() -> Result<(), Error> {
    let primary = Postgres::start()?;
    primary.psql("CREATE TABLE rows (id int)")?;
    let standby = primary.standby()?;
    primary.kill();
    assert_eq!(standby.psql("SELECT pg_is_in_recovery()")?, "t");
    primary.restart()?;
    primary.psql("INSERT INTO rows VALUES (1)")?;
    wait_for_replay(&primary, &standby);
    assert_eq!(standby.psql(COUNT)?, "1");
    Ok(())
}

/// [TST-04] Its commits are its primary's: it has standbys of its own, none of which anybody waits for.
#[test]
fn a_standby_has_standbys_but_no_synchronous_one() -> Result<(), Error> {
    let primary = Postgres::start()?;
    let standby = primary.standby()?;
    let refused = standby.synchronous_standby().unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    let last = standby.standby()?;
    primary.psql("CREATE TABLE rows (id int); INSERT INTO rows VALUES (1)")?;
    wait_for_replay(&primary, &last);
    assert_eq!(last.psql(COUNT)?, "1");
    primary.kill();
    standby.promote()?;
    assert_eq!(standby.psql("SHOW synchronous_standby_names")?, "");
    Ok(())
}

/// [TST-04] A replay that stands still is what a reader of a lagging standby sees; a promotion ends it.
#[test]
fn a_paused_replay_hides_rows_and_loses_none() -> Result<(), Error> {
    let primary = Postgres::start()?;
    primary.psql("CREATE TABLE rows (id int)")?;
    let standby = primary.synchronous_standby()?;
    wait_for_replay(&primary, &standby);
    standby.psql("SELECT pg_wal_replay_pause()")?;
    let state = "SELECT pg_get_wal_replay_pause_state()";
    wait_until(PATIENCE, "the pause", || standby.psql(state).unwrap() == "paused")?;
    primary.psql("INSERT INTO rows VALUES (1)")?;
    assert_eq!(standby.psql(COUNT)?, "0");
    primary.kill();
    standby.promote()?;
    assert_eq!(standby.psql(COUNT)?, "1");
    Ok(())
}

/// Inserts rows 1, 2, … until the server is gone; `acknowledged` is the last one that it has confirmed.
async fn insert_until_the_end(url: String, acknowledged: &AtomicI64) {
    let client = connect(&url).await.unwrap();
    for id in 1_i64.. {
        if client.execute("INSERT INTO rows VALUES ($1)", &[&id]).await.is_err() {
            return;
        }
        acknowledged.store(id, Ordering::SeqCst);
    }
}

/// [TST-04]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_synchronous_primary_acknowledged_survives_its_death() {
    static ACKNOWLEDGED: AtomicI64 = AtomicI64::new(0);
    let primary = Postgres::start().unwrap();
    primary.psql("CREATE TABLE rows (id bigint)").unwrap();
    let standby = primary.synchronous_standby().unwrap();
    let writer = tokio::spawn(insert_until_the_end(primary.url().to_owned(), &ACKNOWLEDGED));
    wait_until(PATIENCE, "200 rows", || ACKNOWLEDGED.load(Ordering::SeqCst) >= 200).unwrap();
    primary.kill();
    writer.await.unwrap();
    standby.promote().unwrap();
    let acknowledged = ACKNOWLEDGED.load(Ordering::SeqCst);
    let found: i64 = standby.psql(COUNT).unwrap().parse().unwrap();
    // The last one may have arrived without its acknowledgement.
    assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged} acknowledged, {found} found");
    // The new primary waits for nobody: it has no standby.
    let client = connect(standby.url()).await.unwrap();
    timeout(PATIENCE, client.batch_execute("INSERT INTO rows VALUES (0)")).await.unwrap().unwrap();
}

/// [TST-04] The counter-test: without synchronous replication the same end of the primary loses what it had acknowledged.
#[tokio::test]
async fn what_an_asynchronous_primary_acknowledged_is_lost_with_it() {
    let primary = Postgres::start().unwrap();
    primary.psql("CREATE TABLE rows (id bigint)").unwrap();
    let standby = primary.standby().unwrap();
    primary.psql("INSERT INTO rows VALUES (1)").unwrap();
    wait_for_replay(&primary, &standby);
    stop_receiver(&primary, &standby);
    primary.psql("INSERT INTO rows VALUES (2), (3)").unwrap();
    assert_eq!(primary.psql(COUNT).unwrap(), "3", "all acknowledged and visible");
    primary.kill();
    standby.promote().unwrap();
    assert_eq!(standby.psql("SELECT id FROM rows").unwrap(), "1", "the fault does not bite");
}

/// [TST-04] The same cut under synchronous replication: nothing is acknowledged, so nothing acknowledged is lost.
#[tokio::test]
async fn a_synchronous_primary_without_its_standby_acknowledges_nothing() {
    let primary = Postgres::start().unwrap();
    primary.psql("CREATE TABLE rows (id bigint)").unwrap();
    let standby = primary.synchronous_standby().unwrap();
    primary.psql("INSERT INTO rows VALUES (1)").unwrap();
    stop_receiver(&primary, &standby);
    let client = connect(primary.url()).await.unwrap();
    let insert = client.batch_execute("INSERT INTO rows VALUES (2)");
    tokio::pin!(insert);
    assert!(timeout(Duration::from_millis(500), &mut insert).await.is_err(), "acknowledged by nobody");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    assert_eq!(primary.psql(waiting).unwrap(), "1");
    primary.kill();
    insert.await.unwrap_err();
    standby.promote().unwrap();
    assert_eq!(standby.psql("SELECT id FROM rows").unwrap(), "1");
}

/// [TST-04] A promoted standby is a primary like any other: killed, restarted, with a standby of its own.
#[test]
fn a_promoted_standby_is_a_primary() -> Result<(), Error> {
    let first = Postgres::start()?;
    first.psql("CREATE TABLE rows (id int)")?;
    // The copy for the second one is made while the first server waits for the one before.
    let earlier = first.synchronous_standby()?;
    let second = first.synchronous_standby()?;
    drop(earlier);
    first.psql("INSERT INTO rows VALUES (1)")?;
    first.kill();
    second.promote()?;
    assert_eq!(second.psql("SHOW synchronous_standby_names")?, "", "commits wait for one who is gone");
    second.psql("INSERT INTO rows VALUES (2)")?;
    second.kill();
    second.restart()?;
    assert_eq!(second.psql("SELECT pg_is_in_recovery()")?, "f");
    let third = second.synchronous_standby()?;
    second.psql("INSERT INTO rows VALUES (3)")?;
    second.kill();
    third.promote()?;
    assert_eq!(third.psql(COUNT)?, "3");
    Ok(())
}

/// [TST-04] What fails says why.
#[test]
fn a_primary_is_not_promoted_and_a_dead_one_has_no_standby() -> Result<(), Error> {
    let primary = Postgres::start()?;
    let refusal = primary.promote().unwrap_err();
    assert!(refusal.to_string().contains("recovery is not in progress"), "{refusal}");
    primary.kill();
    let refusal = primary.standby().unwrap_err();
    assert!(refusal.to_string().contains("Connection refused"), "{refusal}");
    Ok(())
}

/// [TST-04] A failed standby leaves no slot, for which the primary would keep its log for ever.
#[test]
fn a_standby_that_cannot_be_had_leaves_no_slot() -> Result<(), Error> {
    let primary = Postgres::builder().setting("max_wal_senders", "0").start()?;
    let refusal = primary.standby().unwrap_err();
    assert!(refusal.to_string().contains("pg_basebackup"), "{refusal}");
    assert_eq!(primary.psql("SELECT count(*) FROM pg_replication_slots")?, "0");
    Ok(())
}

/// [TST-05]
#[test]
fn a_dropped_standby_leaves_nothing() -> Result<(), Error> {
    let primary = Postgres::start()?;
    let standby = primary.standby()?;
    let (pid, folder) = (standby.pid().unwrap(), standby.folder().to_path_buf());
    let segment = observe::segment_of(&folder);
    assert!(is_alive(pid) && observe::segment_exists(&segment));
    drop(standby);
    assert!(!is_alive(pid));
    assert!(!folder.exists());
    assert!(!observe::segment_exists(&segment));
    assert_eq!(primary.psql("SELECT 1")?, "1", "the primary is hurt");
    Ok(())
}
