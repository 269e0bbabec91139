//! A client that can only block, asked from an async step: SQLite, on threads of its own.
//!
//! ```text
//! cargo run -p levada-examples --bin async_blocking_sqlite
//! ```
//!
//! The futures of an async step run in its one task, and a query of SQLite would hold all of them up. `Blocking` has a bounded
//! number of threads instead. Each makes a connection with its first call and keeps it, and with it the prepared statement:
//! SQLite itself tells how often that has run. More calls than threads wait for one, within their own time.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::async_io::{AsyncSettings, CallError, Called};
use levada_engine::Job;
use levada_engine::async_io::{Blocking, BlockingSettings};
use levada_engine::store::Store;
use levada_examples::Numbers;
use rusqlite::{Connection, OpenFlags, OptionalExtension, StatementStatus};

const THREADS: usize = 3;
const NUMBERS: u64 = 40;
const PLANES: &str = "
    create table planes (id integer primary key, model text not null);
    insert into planes values (0, 'A320'), (1, 'B737'), (2, 'E190'), (3, 'CRJ-200')";
const LOOKUP: &str = "select model from planes where id = ?1";

/// What a thread has: its connection, which also keeps the statement that was prepared on it.
struct Client {
    thread: usize,
    connection: Connection,
}

/// A plane that is not in the table is an answer, no error.
#[derive(Debug)]
struct Answer {
    plane: u64,
    model: Option<String>,
    thread: usize,
    /// How often the prepared statement of the thread has run by now.
    runs: i32,
}

/// Called by each thread once, and again after an error of class `Reconnect`.
fn connect(database: &Path, thread: usize) -> Result<Client, CallError> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.map_err(failed("open the planes"))?;
    Ok(Client { thread, connection })
}

/// Blocks, as it may on this thread.
fn look_up(client: &mut Client, plane: u64) -> rusqlite::Result<Answer> {
    // Prepared by the connection's first call, and found again by all others.
    let mut statement = client.connection.prepare_cached(LOOKUP)?;
    let model = statement.query_row([plane.cast_signed()], |row| row.get(0)).optional()?;
    Ok(Answer { plane, model, thread: client.thread, runs: statement.get_status(StatementStatus::Run) })
}

fn failed(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> CallError {
    move |cause| CallError::new(ErrorClass::Retry, doing).caused_by(cause)
}

fn client(database: PathBuf) -> Blocking<u64, Answer> {
    Blocking::new(
        BlockingSettings::threads(THREADS),
        move |thread| connect(&database, thread),
        // Four planes that are there, and one that is not.
        |client: &mut Client, number: &u64| -> Called<Answer> {
            Ok(vec![look_up(client, number % 5).map_err(failed("look a plane up"))?])
        },
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("planes");
    Connection::open(&database)?.execute_batch(PLANES)?;

    // By thread: how many calls it has answered, and what its statement says.
    let threads: Arc<Mutex<BTreeMap<usize, (u64, i32)>>> = Arc::default();
    let seen = Arc::clone(&threads);
    let job = Job::new("planes")
        .source_function("numbers", |_| Numbers::up_to(NUMBERS))
        .async_map("plane", client(database), AsyncSettings::new().ordered().timeout(Duration::from_secs(5)))
        .for_each("print", move |record, _| {
            let Answer { plane, model, thread, runs } = &record.item;
            println!("plane {plane}: {}", model.as_deref().unwrap_or("not in the table"));
            let mut seen = seen.lock().expect("nobody panics");
            let (calls, most) = seen.entry(*thread).or_default();
            (*calls, *most) = (*calls + 1, (*most).max(*runs));
            Ok(())
        });
    job.run(Store::open("memory:").await?).await?;
    for (thread, (calls, runs)) in &*threads.lock().expect("nobody panics") {
        println!("thread {thread}: {calls} calls, {runs} runs of one prepared statement");
    }
    Ok(())
}
