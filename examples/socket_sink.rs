//! A sink that writes lines to a TCP peer, with the three times that a sink is told.
//!
//! ```text
//! cargo run -p levada-examples --bin socket_sink                       plays the peer as well, which hangs up once
//! cargo run -p levada-examples --bin socket_sink -- HOST:PORT STORE    a peer of yours, a folder for the checkpoints
//! ```
//!
//! **What it promises.** That a write to a socket succeeds says that the kernel has the bytes; what the peer has read of
//! them is unknown. So the sink keeps its lines until the peer says that it has them: in front of each checkpoint it sends
//! `confirm`, and the peer answers `ok`. When the connection breaks, it connects again with back-off and sends all lines
//! again that are not confirmed. When the peer stays away, the job ends with an error, no checkpoint covers those lines, and
//! the next start reads them again. At least once, in short: the peer may see lines twice, and none is left out.

use std::error::Error;
use std::io;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder, Sleeper, TokioSleeper};
use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, ErrorChain, ErrorClass, SinkContext, SinkError, Timestamp};
use levada_engine::Job;
use levada_engine::store::Store;
use levada_examples::{Numbers, play_peer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// How often a connection is tried again, and how long an answer may take.
const ATTEMPTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(10);
/// So many lines are confirmed before their checkpoint: they are held in memory.
const MOST_UNCONFIRMED: usize = 1000;

#[derive(Debug)]
struct SocketSink {
    peer: String,
    connection: Option<BufStream<TcpStream>>,
    unconfirmed: Vec<String>,
    /// How many of these went through this connection.
    sent: usize,
}

impl SocketSink {
    fn new(peer: String) -> Self {
        Self { peer, connection: None, unconfirmed: Vec::new(), sent: 0 }
    }

    /// Sends what this connection has not carried yet, and has it confirmed if that is asked for.
    async fn send(&mut self, confirm: bool) -> io::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                self.sent = 0;
                none.insert(BufStream::new(TcpStream::connect(&self.peer).await?))
            }
        };
        connection.write_all(self.unconfirmed[self.sent..].concat().as_bytes()).await?;
        self.sent = self.unconfirmed.len();
        if !confirm {
            return connection.flush().await;
        }
        connection.write_all(b"confirm\n").await?;
        connection.flush().await?;
        let mut answer = String::new();
        connection.read_line(&mut answer).await?;
        if answer != "ok\n" {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (self.unconfirmed, self.sent) = (Vec::new(), 0);
        Ok(())
    }

    /// Does so again with each new connection, until it works or the attempts are used up.
    async fn insist(&mut self, confirm: bool) -> Result<(), SinkError> {
        let mut pauses =
            ExponentialBuilder::new().with_max_times(ATTEMPTS).with_min_delay(PATIENCE / 200).build();
        loop {
            let sent = timeout(PATIENCE, self.send(confirm)).await;
            let Err(error) = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) else {
                return Ok(());
            };
            self.connection = None;
            let Some(pause) = pauses.next() else {
                let (peer, lines) = (&self.peer, self.unconfirmed.len());
                let message =
                    format!("{peer} is gone after {ATTEMPTS} more attempts, {lines} lines are unconfirmed");
                return Err(SinkError::new(ErrorClass::Reconnect, message).caused_by(error));
            };
            println!("sink: the connection is lost, trying again");
            TokioSleeper.sleep(pause).await;
        }
    }
}

fn shown(time: Option<Timestamp>) -> String {
    time.map_or("none".to_owned(), |time| time.to_string())
}

impl IdempotentSink<u64> for SocketSink {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, ctx: &WriteContext) -> Result<(), SinkError> {
        for record in batch.records() {
            // The record's own time comes with the record, the other two with the call.
            let (time, now) = (record.timestamp(), ctx.processing_time);
            let watermark = Some(ctx.watermark).filter(|watermark| watermark.0 > i64::MIN);
            let (time, watermark) = (shown(time), shown(watermark));
            self.unconfirmed.push(format!("{} time={time} watermark={watermark} now={now}\n", record.item));
        }
        self.insist(self.unconfirmed.len() >= MOST_UNCONFIRMED).await
    }

    /// Returns when the peer has everything: then the checkpoint may cover it.
    async fn flush(&mut self) -> Result<(), SinkError> {
        if self.unconfirmed.is_empty() { Ok(()) } else { self.insist(true).await }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (peer, store) = if let (Some(peer), Some(folder)) = (arguments.next(), arguments.next()) {
        (peer, Store::open_folder(folder).await?)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let peer = listener.local_addr()?.to_string();
        tokio::spawn(play_peer(listener));
        (peer, Store::open("memory:").await?)
    };
    let job = Job::new("socket")
        .source_function("numbers", |_| Numbers::up_to(10))
        .idempotent_sink("peer", move |_| SocketSink::new(peer.clone()));
    if let Err(error) = job.run(store).await {
        eprintln!("{}", ErrorChain(&error));
        std::process::exit(1);
    }
    Ok(())
}
