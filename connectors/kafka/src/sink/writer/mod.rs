//! Writing in two phases without an engine: prepare, note the handle, commit, also after a crash in between.
//!
//! This is *not* a sink for jobs (that is [`two_phase`](super::two_phase), on the same machinery), and it stores nothing: where
//! handles are kept, in a row of a database or in a file, is the program's own affair.
//!
//! ```text
//!   new(config, prefix, name, attempt)                      nothing is connected to
//!     │
//!   resolve(handles that are noted) ── verify all ─▶ commit all, or roll back all, or an error that names each ─▶ fence
//!     │
//!     ├──▶ begin ─▶ send … ─▶ prepare ─▶ handle ──▶ the program notes it, durably ──┬─▶ commit(handle) ─▶ strikes it out
//!     │               │          └─▶ none: nothing was sent                         └─▶ abort(handle)
//!     │               └─ error ─▶ discard ─▶ begin
//!     │
//!     └── a crash, wherever: the next process calls resolve with what is noted, and an attempt above
//! ```
//!
//! | killed | what is noted | what the next `resolve` does |
//! |---|---|---|
//! | before `prepare` returns, or before the handle is noted | nothing | aborts it: the program writes its records again |
//! | behind that, before or in the middle of `commit` | the handle | commits it, if it is not committed already |
//! | behind `commit`, before the handle is struck out | the handle | finds it committed, and changes nothing |
//! | in the middle of `resolve` | the same as before | the same |
//!
//! So the records belong to whatever is written together with the handle: a position in the input, a row, a message id. That is
//! what makes two systems agree: *the note of the handle is the commit, everything behind it can be repeated.*
//!
//! ```no_run
//! use levada_kafka::sink::producing::{KafkaSinkConfig, Message};
//! use levada_kafka::sink::writer::{TransactionHandle, TransactionalWriter};
//!
//! # struct Notes;
//! # impl Notes {
//! #     async fn next_attempt(&self) -> std::io::Result<u64> { Ok(1) }
//! #     async fn handles(&self) -> std::io::Result<Vec<TransactionHandle>> { Ok(vec![]) }
//! #     async fn note(&self, _: u64, _: &TransactionHandle) -> std::io::Result<()> { Ok(()) }
//! #     async fn strike_out(&self, _: &TransactionHandle) -> std::io::Result<()> { Ok(()) }
//! # }
//! # async fn write(notes: Notes, orders: Vec<(u64, String)>) -> Result<(), Box<dyn std::error::Error>> {
//! let attempt = notes.next_attempt().await?; // higher than in any run before
//! let config = KafkaSinkConfig::new("localhost:9092").topics(["orders"]);
//! let mut writer = TransactionalWriter::new(config, "shop", "orders", attempt)?;
//! let resolution = writer.resolve(&notes.handles().await?).await?;
//! println!("{resolution}"); // and strike them out; those that were rolled back are written again
//! for (position, order) in orders {
//!     writer.begin().await?;
//!     writer.send(&Message::to("orders").value(order.as_bytes())).await?;
//!     if let Some(handle) = writer.prepare().await? {
//!         notes.note(position, &handle).await?; // both in one write, which fails if there is a later attempt
//!         writer.commit(&handle).await?;
//!         notes.strike_out(&handle).await?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Killed in between
//!
//! A program that starts itself, kills the other one with `kill -9` between the two phases, and commits in its place:
//!
//! ```standalone_crate
//! use std::io::{BufRead as _, BufReader};
//! use std::process::{Command, Stdio};
//!
//! use futures_util::StreamExt as _;
//! use levada_core::time::WatermarkStrategy;
//! use levada_kafka::sink::producing::{KafkaSinkConfig, Message};
//! use levada_kafka::sink::writer::{TransactionHandle, TransactionalWriter};
//! use levada_kafka::{KafkaSourceConfig, KafkaStream, StreamItem};
//! use levada_testcontainers::{Kafka, unique_name};
//!
//! type Outcome = Result<(), Box<dyn std::error::Error>>;
//!
//! #[tokio::main]
//! async fn main() -> Outcome {
//!     match (std::env::var("BOOTSTRAP"), std::env::var("TOPIC")) {
//!         (Ok(bootstrap), Ok(topic)) => first_phase(&bootstrap, &topic).await,
//!         _ => second_phase(Kafka::shared()?.bootstrap(), &unique_name("orders")).await,
//!     }
//! }
//!
//! fn writer(bootstrap: &str, topic: &str, attempt: u64) -> Result<TransactionalWriter, Box<dyn std::error::Error>> {
//!     Ok(TransactionalWriter::new(KafkaSinkConfig::new(bootstrap), "shop", topic, attempt)?)
//! }
//!
//! async fn first_phase(bootstrap: &str, topic: &str) -> Outcome {
//!     let mut writer = writer(bootstrap, topic, 1)?;
//!     writer.resolve(&[]).await?;
//!     writer.begin().await?;
//!     writer.send(&Message::to(topic).value(b"4711")).await?;
//!     let handle = writer.prepare().await?.expect("one message was sent");
//!     // This is where the order is decided on.
//!     std::fs::write(std::env::temp_dir().join(topic), handle.to_bytes())?;
//!     println!("noted");
//!     std::future::pending().await
//! }
//!
//! async fn second_phase(bootstrap: &str, topic: &str) -> Outcome {
//!     Kafka::shared()?.create_topic(topic, 1)?;
//!     let mut other = Command::new(std::env::current_exe()?)
//!         .envs([("BOOTSTRAP", bootstrap), ("TOPIC", topic)])
//!         .stdout(Stdio::piped())
//!         .spawn()?;
//!     let mut told = String::new();
//!     BufReader::new(other.stdout.take().expect("piped")).read_line(&mut told)?;
//!     other.kill()?; // SIGKILL
//!     other.wait()?;
//!     assert_eq!(told, "noted\n");
//!
//!     let note = std::env::temp_dir().join(topic);
//!     let handle = TransactionHandle::from_bytes(&std::fs::read(&note)?)?;
//!     let mut writer = writer(bootstrap, topic, 2)?;
//!     let resolution = writer.resolve(&[handle]).await?;
//!     assert_eq!(resolution.to_string(), "1 transaction with 1 record committed, 0 of them before");
//!     std::fs::remove_file(&note)?;
//!
//!     // Read as any reader of committed data does.
//!     let config = KafkaSourceConfig::new(bootstrap, [topic]);
//!     let mut orders = KafkaStream::open(config, WatermarkStrategy::none()).await?;
//!     loop {
//!         if let StreamItem::Record(order) = orders.next().await.expect("it has no end")? {
//!             assert_eq!(order.value(), Some(&b"4711"[..]));
//!             return Ok(());
//!         }
//!     }
//! }
//! ```
//!
//! # What it asks for
//!
//! **Attempts.** Transactional ids are made of prefix, name and attempt. An attempt that brokers have seen is refused, and so is
//! one below: a second process can thus not end what the first one has prepared, other than by `resolve`, which decides over it.
//! A process that stood still meanwhile can publish nothing that is not noted. What it *notes* nobody here can prevent: the
//! note must be refused once there is a later attempt (`UPDATE … WHERE attempt = …`, a put on a condition).
//!
//! **Order.** Prepared transactions are committed oldest first and aborted newest first: readers never see a message and miss one
//! that was prepared before it.
//!
//! **Rights.** WRITE on transactional ids with the prefix, READ on groups with the prefix (each transaction has a marker in it: an
//! offset of a group named like its id, which decides where a coordinator has forgotten a transaction), WRITE and READ on the topics;
//! ALTER on the cluster where Kafka has left out a commit marker, which is written in its place then.

mod decide;
mod error;
mod misuse;
mod resolution;
mod resolve;
mod running;
mod writing;

pub use error::WriterError;
pub use misuse::Misuse;
pub use resolution::{Decided, Resolution};
pub use writing::TransactionalWriter;

pub use super::recovery::{TornPolicy, TransactionHandle};
