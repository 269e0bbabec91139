//! A lookup in hashes of Redis, many calls at once over one connection.
//!
//! ```text
//! cargo run -p levada-examples --bin async_redis -- redis://127.0.0.1/
//! ```
//!
//! The program writes a few airlines first, each a hash `levada_example:airline:CODE`. A code goes to the server as an argument of
//! its own, never as part of a command's text. Calls in flight are bounded by the step's capacity, and each by its timeout. That an
//! airline is not there is an answer with a type. A server that is away is an error, is tried again, and never looks like a miss:
//! the program has the server close its connection once, under the calls that are on their way.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::async_io::{AsyncFunction, AsyncSettings, CallError, Called, RetryStrategy};
use levada_engine::Job;
use levada_engine::store::Store;
use levada_examples::Numbers;
use redis::aio::ConnectionManager;
use redis::{AsyncCommands, ErrorKind, RedisError};

const AIRLINES: [(&str, &str, &str); 3] =
    [("LH", "Lufthansa", "Germany"), ("TP", "TAP Air Portugal", "Portugal"), ("AF", "Air France", "France")];
/// What is asked for: one that is not there, and one that reads like commands.
const CODES: [&str; 5] = ["LH", "XX", "TP", "AF\r\nFLUSHALL\r\n", "AF"];

#[derive(Debug)]
enum Airline {
    Known { name: String, country: String },
    Unknown,
}

/// One connection for all calls: the manager sends them without waiting for answers, and connects again when it is lost.
struct Airlines {
    connection: ConnectionManager,
    /// Whether the connection was lost on purpose already.
    lost: Arc<AtomicBool>,
}

fn key(code: &str) -> String {
    format!("levada_example:airline:{code}")
}

impl AsyncFunction<String> for Airlines {
    type Output = (String, Airline);

    /// Each subtask asks before its first call whether there is anybody.
    async fn open(&self) -> Result<(), CallError> {
        self.connection.clone().ping::<()>().await.map_err(failed)
    }

    fn call(&self, code: Arc<String>) -> impl Future<Output = Called<Self::Output>> + Send + 'static {
        let (mut connection, lost) = (self.connection.clone(), Arc::clone(&self.lost));
        async move {
            if *code == "TP" && !lost.swap(true, Ordering::Relaxed) {
                lose(&mut connection).await.map_err(failed)?;
            }
            let fields: (Option<String>, Option<String>) =
                connection.hmget(key(&code), &["name", "country"]).await.map_err(failed)?;
            let airline = match fields {
                (Some(name), Some(country)) => Airline::Known { name, country },
                (None, None) => Airline::Unknown,
                _ => return Err(CallError::bad_record("the airline's hash lacks a field")),
            };
            Ok(vec![((*code).clone(), airline)])
        }
    }
}

/// Has the server close the connection that this comes by.
async fn lose(connection: &mut ConnectionManager) -> Result<(), RedisError> {
    let id: u64 = redis::cmd("CLIENT").arg("ID").query_async(connection).await?;
    redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).arg("SKIPME").arg("no").exec_async(connection).await
}

/// Says whose fault it is: what the server holds under this key, or nothing of this record's.
fn failed(cause: RedisError) -> CallError {
    let class = match cause.kind() {
        ErrorKind::UnexpectedReturnType => ErrorClass::BadRecord,
        _ if cause.code() == Some("WRONGTYPE") => ErrorClass::BadRecord,
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => ErrorClass::Fatal,
        _ => ErrorClass::Retry,
    };
    CallError::new(class, "look an airline up in Redis").caused_by(cause)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("which server? redis://HOST/")?;
    let mut connection = redis::Client::open(url)?.get_connection_manager().await?;
    for (code, name, country) in AIRLINES {
        let () = connection.hset_multiple(key(code), &[("name", name), ("country", country)]).await?;
    }
    let settings = AsyncSettings::new()
        .ordered()
        // So few that numbers wait while the connection is lost: once the input has ended, a call that fails is not made again.
        .capacity(4)
        .timeout(Duration::from_secs(2))
        .retry(RetryStrategy::Fixed { delay: Duration::from_millis(50), retries: 20 });
    let job = Job::new("airlines")
        .source_function("numbers", |_| Numbers::up_to(2 * CODES.len() as u64))
        .map("code", |input| Ok(CODES[*input.item() as usize % CODES.len()].to_owned()))
        .async_map("airline", Airlines { connection, lost: Arc::default() }, settings)
        .for_each("print", |record, _| {
            match &record.item {
                (code, Airline::Known { name, country }) => println!("{code:?}: {name}, {country}"),
                (code, Airline::Unknown) => println!("{code:?}: no such airline"),
            }
            Ok(())
        });
    let mut job = job.start(Store::open("memory:").await?)?;
    job.wait().await?;
    let retries: u64 = job.calls().snapshot().iter().map(|step| step.metrics.retries).sum();
    println!("some calls were made again: {}", retries > 0);
    Ok(())
}
