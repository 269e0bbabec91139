//! PgBouncer in front of Postgres: what passes, and what a client must not rely on.

mod observe;

use std::sync::Arc;
use std::time::Duration;

use levada_testcontainers::{Error, PgBouncer, PoolMode, Postgres, unique_name, wait_until};
use observe::{is_alive, is_root, listens};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection and what it was notified of.
struct Session {
    client: Client,
    notified: UnboundedReceiver<String>,
}

impl Session {
    async fn open(url: &str) -> Result<Session, tokio_postgres::Error> {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (notify, notified) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    notify.send(notification.payload().to_owned()).ok();
                }
            }
        });
        Ok(Session { client, notified })
    }

    /// The first value of the last row; simple queries, which prepare nothing.
    async fn ask(&self, sql: &str) -> Result<String, tokio_postgres::Error> {
        let messages = timeout(PATIENCE, self.client.simple_query(sql)).await.unwrap()?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(rows.last().unwrap_or_default().to_owned())
    }

    /// The SQLSTATE of a statement that fails.
    async fn refusal(&self, sql: &str) -> SqlState {
        self.ask(sql).await.unwrap_err().code().unwrap().clone()
    }
}

/// Two clients at a pooler of their own. While `other` is in a transaction it holds the one session that was there.
struct Pair {
    one: Session,
    other: Session,
    // After the sessions: what a failing test shows is not about their ends.
    _pooler: PgBouncer,
    _postgres: Postgres,
}

async fn pair(mode: PoolMode) -> Pair {
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::builder(&postgres).pool_mode(mode).start().unwrap();
    let one = Session::open(pooler.url()).await.unwrap();
    let other = Session::open(pooler.url()).await.unwrap();
    Pair { one, other, _pooler: pooler, _postgres: postgres }
}

/// [TST-01]
#[tokio::test]
async fn a_query_passes_in_transaction_mode_with_password_and_size() {
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::builder(&postgres).pool_size(1).start().unwrap();
    let session = Session::open(pooler.url()).await.unwrap();
    session.ask("CREATE TABLE rows AS SELECT 7 AS id").await.unwrap();
    assert_eq!(postgres.psql("SELECT id FROM rows").unwrap(), "7", "it is another server");
    let backend = session.ask("SELECT pg_backend_pid()").await.unwrap();
    let second = Session::open(pooler.url()).await.unwrap();
    assert_eq!(second.ask("SELECT pg_backend_pid()").await.unwrap(), backend, "one session for both");
    let wrong = pooler.url().replace("levada-secret", "wrong");
    assert!(Session::open(&wrong).await.is_err(), "any password is good enough");
    // Somebody of whom only the server knows.
    postgres.psql("CREATE ROLE guest LOGIN PASSWORD 'of the guest'").unwrap();
    let guest = pooler.url().replace("levada:levada-secret", "guest:of%20the%20guest");
    assert_eq!(Session::open(&guest).await.unwrap().ask("SELECT current_user").await.unwrap(), "guest");
}

/// [TST-01] A client that relies on the state of its session works in session mode …
#[tokio::test]
async fn session_state_is_kept_in_session_mode() {
    let mut pair = pair(PoolMode::Session).await;
    let (one, other) = (&mut pair.one, &mut pair.other);
    leave_state_behind(one).await;
    other.ask("BEGIN").await.unwrap();
    assert_eq!(one.ask("SHOW search_path").await.unwrap(), "mine");
    assert_eq!(one.ask("EXECUTE seven").await.unwrap(), "7");
    assert_eq!(one.ask("SELECT id FROM scratch").await.unwrap(), "8");
    assert_eq!(other.ask("SELECT pg_try_advisory_lock(9)").await.unwrap(), "f");
    other.ask("NOTIFY news, 'extra'").await.unwrap();
    other.ask("COMMIT").await.unwrap();
    assert_eq!(timeout(PATIENCE, one.notified.recv()).await.unwrap().unwrap(), "extra");
}

/// [TST-01] … and in transaction mode loses it to whoever comes next.
#[tokio::test]
async fn session_state_is_lost_in_transaction_mode() {
    let mut pair = pair(PoolMode::Transaction).await;
    let (one, other) = (&mut pair.one, &mut pair.other);
    leave_state_behind(one).await;
    // The other client now has the session that the first one prepared.
    other.ask("BEGIN").await.unwrap();
    assert_ne!(one.ask("SHOW search_path").await.unwrap(), "mine");
    assert_eq!(one.refusal("EXECUTE seven").await, SqlState::INVALID_SQL_STATEMENT_NAME);
    assert_eq!(one.refusal("SELECT id FROM scratch").await, SqlState::UNDEFINED_TABLE);
    assert_eq!(other.ask("EXECUTE seven").await.unwrap(), "7");
    assert_eq!(other.ask("SELECT id FROM scratch").await.unwrap(), "8");
    // The lock keeps nobody out who gets the same session, and keeps out its owner.
    assert_eq!(other.ask("SELECT pg_try_advisory_lock(9)").await.unwrap(), "t");
    assert_eq!(one.ask("SELECT pg_try_advisory_lock(9)").await.unwrap(), "f");
    // So with what the first one wanted to hear.
    other.ask("NOTIFY news, 'extra'").await.unwrap();
    other.ask("COMMIT").await.unwrap();
    assert_eq!(timeout(PATIENCE, other.notified.recv()).await.unwrap().unwrap(), "extra");
    one.ask("SELECT 1").await.unwrap();
    assert!(one.notified.try_recv().is_err());
}

/// Everything that a session can hold beyond a transaction.
async fn leave_state_behind(session: &Session) {
    for statement in [
        "SET search_path = mine",
        "PREPARE seven AS SELECT 7",
        "CREATE TEMPORARY TABLE scratch AS SELECT 8 AS id",
        "SELECT pg_advisory_lock(9)",
        "LISTEN news",
    ] {
        session.ask(statement).await.unwrap();
    }
}

/// [TST-01] The same needs, met within a transaction each.
#[tokio::test]
async fn a_client_that_keeps_to_its_transaction_works_in_transaction_mode() {
    let pair = pair(PoolMode::Transaction).await;
    let (one, other) = (&pair.one, &pair.other);
    one.ask("SELECT 1").await.unwrap();
    other.ask("BEGIN").await.unwrap();
    for round in 0..3 {
        one.ask("BEGIN; SET LOCAL search_path = mine").await.unwrap();
        one.ask("CREATE TEMPORARY TABLE scratch ON COMMIT DROP AS SELECT 8 AS id").await.unwrap();
        one.ask("SELECT pg_advisory_xact_lock(9)").await.unwrap();
        assert_eq!(one.ask("SHOW search_path").await.unwrap(), "mine", "round {round}");
        assert_eq!(one.ask("SELECT id FROM scratch").await.unwrap(), "8");
        assert_eq!(other.ask("SELECT pg_try_advisory_xact_lock(9)").await.unwrap(), "f");
        one.ask("COMMIT").await.unwrap();
    }
    assert_eq!(other.ask("SELECT pg_try_advisory_xact_lock(9)").await.unwrap(), "t");
}

/// [TST-01] What most drivers do unasked: a statement prepared in the protocol, executed later.
#[tokio::test]
async fn a_statement_prepared_by_the_driver_is_lost_in_transaction_mode() {
    let pair = pair(PoolMode::Transaction).await;
    let (one, other) = (&pair.one, &pair.other);
    let statement = one.client.prepare("SELECT 7").await.unwrap();
    assert_eq!(one.client.query_one(&statement, &[]).await.unwrap().get::<_, i32>(0), 7);
    other.ask("BEGIN").await.unwrap();
    let refusal = one.client.query_one(&statement, &[]).await.unwrap_err();
    assert_eq!(refusal.code(), Some(&SqlState::INVALID_SQL_STATEMENT_NAME), "{refusal}");
}

/// [TST-04]
#[tokio::test]
async fn a_killed_pooler_cuts_its_clients_and_comes_back() {
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::start(&postgres).unwrap();
    let session = Session::open(pooler.url()).await.unwrap();
    session.ask("BEGIN").await.unwrap();
    let pid = pooler.pid().unwrap();
    pooler.kill();
    assert!(!is_alive(pid));
    assert_eq!(pooler.pid(), None);
    assert!(session.ask("SELECT 1").await.is_err());
    assert!(!listens(&pooler.address()));
    assert!(matches!(pooler.pause(), Err(Error::NotRunning { server: "PgBouncer" })));
    assert_eq!(postgres.psql("SELECT 1").unwrap(), "1", "the server is hurt");
    pooler.restart().unwrap();
    assert_eq!(Session::open(pooler.url()).await.unwrap().ask("SELECT 7").await.unwrap(), "7");
}

/// [TST-04]
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stopped_pooler_lets_transactions_end() {
    let postgres = Postgres::start().unwrap();
    postgres.psql("CREATE TABLE rows (id int)").unwrap();
    let pooler = Arc::new(PgBouncer::start(&postgres).unwrap());
    let session = Session::open(pooler.url()).await.unwrap();
    session.ask("BEGIN; INSERT INTO rows VALUES (1)").await.unwrap();
    let stopping = Arc::clone(&pooler);
    let stop = tokio::task::spawn_blocking(move || stopping.stop());
    wait_until(PATIENCE, "the request", || pooler.logs().contains("shutting down")).unwrap();
    session.ask("COMMIT").await.unwrap();
    timeout(PATIENCE, stop).await.unwrap().unwrap().unwrap();
    assert_eq!(postgres.psql("SELECT count(*) FROM rows").unwrap(), "1");
    assert!(!listens(&pooler.address()));
}

/// [TST-04]
#[tokio::test]
async fn a_paused_pooler_passes_nothing_until_it_goes_on() {
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::start(&postgres).unwrap();
    let session = Session::open(pooler.url()).await.unwrap();
    pooler.pause().unwrap();
    let answer = session.ask("SELECT 7");
    tokio::pin!(answer);
    assert!(
        timeout(Duration::from_millis(300), &mut answer).await.is_err(),
        "a paused pooler passed a query"
    );
    pooler.resume().unwrap();
    assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap(), "7");
}

/// [TST-04] The pooler stays when the server goes, and finds it again.
#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::start(&postgres).unwrap();
    let session = Session::open(pooler.url()).await.unwrap();
    session.ask("SELECT 1").await.unwrap();
    postgres.kill();
    postgres.restart().unwrap();
    let again = Session::open(pooler.url()).await.unwrap();
    assert_eq!(again.ask("SELECT 7").await.unwrap(), "7");
    assert!(listens(&pooler.address()));
}

/// [TST-01] PgBouncer refuses to be root; whoever runs the tests, the pooler does.
#[test]
fn the_pooler_never_runs_as_root() -> Result<(), Error> {
    let postgres = Postgres::start()?;
    let pooler = PgBouncer::start(&postgres)?;
    assert!(!is_root(pooler.pid().unwrap()));
    Ok(())
}

/// [TST-01] A server that refuses plaintext is reached by TLS; towards the pooler the client needs none.
#[tokio::test]
async fn a_server_that_refuses_plaintext_is_reached() {
    let postgres = Postgres::builder().refusing_plaintext().start().unwrap();
    let pooler = PgBouncer::start(&postgres).unwrap();
    let session = Session::open(pooler.url()).await.unwrap();
    let tls = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(session.ask(tls).await.unwrap(), "t");
}

/// [TST-01]
#[test]
fn a_bad_setting_fails_the_start_with_the_pooler_s_words() {
    let postgres = Postgres::start().unwrap();
    let name = unique_name("no_such_setting");
    let error = PgBouncer::builder(&postgres).setting(&name, "1").start().unwrap_err();
    assert!(matches!(error, Error::EndedEarly { .. }));
    assert!(error.to_string().contains(&name), "{error}");
}

/// [TST-05]
#[test]
fn a_dropped_pooler_leaves_nothing() -> Result<(), Error> {
    let postgres = Postgres::start()?;
    let pooler = PgBouncer::start(&postgres)?;
    let (pid, folder, address) = (pooler.pid().unwrap(), pooler.folder().to_path_buf(), pooler.address());
    assert!(is_alive(pid) && listens(&address));
    drop(pooler);
    assert!(!is_alive(pid) && !listens(&address));
    assert!(!folder.exists());
    assert_eq!(postgres.psql("SELECT 1")?, "1", "the server is hurt");
    Ok(())
}
