//! How long starts take. A test binary of its own: nothing else of ours runs beside it.

use std::time::{Duration, Instant};

use levada_testcontainers::{Error, Kafka, Postgres};

/// The shortest of three: a busy machine may delay one, a start that is too slow is slow every time.
fn shortest_of_three<T>(mut start: impl FnMut() -> Result<T, Error>) -> Result<Duration, Error> {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        let server = start()?;
        shortest = shortest.min(started.elapsed());
        drop(server);
    }
    Ok(shortest)
}

/// [TST-08] Kafka within 15 seconds, Postgres within 3, once cached.
#[test]
fn cold_starts_keep_their_bounds() -> Result<(), Error> {
    Kafka::prepare()?;
    Postgres::prepare()?;
    let kafka = shortest_of_three(Kafka::start)?;
    let postgres = shortest_of_three(Postgres::start)?;
    println!("cold start: Kafka {kafka:?}, Postgres {postgres:?}");
    assert!(kafka < Duration::from_secs(15), "{kafka:?}");
    assert!(postgres < Duration::from_secs(3), "{postgres:?}");
    Ok(())
}
