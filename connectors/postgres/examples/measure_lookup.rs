use levada_core::Value;
use levada_postgres::lookup::*;
use levada_postgres::quote::TableName;
use levada_testcontainers::{Cut, Postgres};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

async fn unbatched(lookup: &PostgresLookup, records: usize, in_flight: usize) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..in_flight {
        let (lookup, next) = (lookup.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= records {
                    return;
                }
                let found = lookup.get(&[Value::Int(n as i64)]).await.unwrap();
                assert_eq!(found.len(), 1);
            }
        }));
    }
    for t in tasks {
        t.await.unwrap();
    }
    records as f64 / start.elapsed().as_secs_f64()
}
async fn batched(lookup: &PostgresLookup, records: usize, in_flight: usize, size: usize) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..in_flight {
        let (lookup, next) = (lookup.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let n = next.fetch_add(size, Ordering::Relaxed);
                if n >= records {
                    return;
                }
                let keys: Vec<[Value; 1]> =
                    (n..(n + size).min(records)).map(|n| [Value::Int(n as i64)]).collect();
                for found in lookup.get_many(&keys).await {
                    assert_eq!(found.unwrap().len(), 1);
                }
            }
        }));
    }
    for t in tasks {
        t.await.unwrap();
    }
    records as f64 / start.elapsed().as_secs_f64()
}
#[tokio::main]
async fn main() {
    let records: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(300_000);
    let database = Postgres::database().unwrap();
    database.psql(&format!("create table t(k int primary key, name text, amount numeric); insert into t select g, 'name of '||g, g*1.5 from generate_series(0,{}) g; analyze t", records)).unwrap();
    let cut = Cut::to(database.url()).unwrap();
    cut.delay(Duration::from_micros(2500));
    let config = PostgresLookupConfig::by_table(
        cut.url(database.url()).parse().unwrap(),
        TableName::new("t").unwrap(),
        ["k"],
    )
    .columns(["name"]);
    let lookup = PostgresLookup::open(config).await.unwrap();
    let mut times = Vec::new();
    for n in 0..1000 {
        let s = Instant::now();
        lookup.get(&[Value::Int(n)]).await.unwrap();
        times.push(s.elapsed());
    }
    times.sort();
    let l = times[500].as_secs_f64();
    println!("L {:.3} ms, bound {:.0}/s, 0.9: {:.0}/s", l * 1e3, 100.0 / l, 90.0 / l);
    for _ in 0..2 {
        let u = unbatched(&lookup, records, 100).await;
        println!("unbatched {u:.0}/s ratio {:.3}", u * l / 100.0);
        let b = batched(&lookup, records, 16, 500).await;
        println!("batched {b:.0}/s  x{:.2} of unbatched", b / u);
    }
    println!("{:?} {:?}", lookup.stats(), lookup.census());
}
