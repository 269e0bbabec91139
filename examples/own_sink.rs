//! A two-phase sink of one's own, over SQLite: `cargo run -p levada-examples --bin own_sink`.
//! A row waits with `visible = 0` for the commit of its transaction, whose handle is its name.
use std::error::Error;
use std::path::PathBuf;

use levada_core::template::{TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, ErrorClass, SinkContext, SinkError};
use levada_engine::{Job, driver::TwoPhaseOptions, store::Store};
use rusqlite::{Connection, params_from_iter};

type Done = Result<(), SinkError>;

#[derive(Debug)]
pub(crate) struct OwnSink(pub(crate) PathBuf);

impl OwnSink {
    /// Runs a statement for each row in one durable transaction, where it may block; counts what it changed.
    async fn run(&self, sql: &'static str, rows: Vec<Vec<String>>) -> Result<usize, SinkError> {
        let database = self.0.clone();
        let run = move || -> rusqlite::Result<usize> {
            let mut connection = Connection::open(database)?;
            let transaction = connection.transaction()?;
            let changed = rows.into_iter().map(|row| transaction.execute(sql, params_from_iter(row)));
            let changed = changed.sum::<rusqlite::Result<usize>>()?;
            transaction.commit().map(|()| changed)
        };
        let ran = tokio::task::spawn_blocking(run).await.expect("it does not panic");
        ran.map_err(|cause| SinkError::new(ErrorClass::Retry, sql).caused_by(cause))
    }
}

impl TwoPhaseCommitSink<String> for OwnSink {
    type Handle = String;
    async fn open(&mut self, _: SinkContext) -> Done {
        let create = "create table if not exists lines (tx text, line text, visible integer default 0)";
        self.run(create, vec![vec![]]).await.map(drop)
    }
    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        Ok(name.to_string())
    }
    async fn write(&mut self, tx: &mut String, batch: Batch<String>, _: &WriteContext) -> Done {
        let rows = batch.records().iter().map(|record| vec![tx.clone(), record.item.clone()]).collect();
        self.run("insert into lines (tx, line) values (?1, ?2)", rows).await.map(drop)
    }
    async fn pre_commit(&mut self, _: &mut String) -> Done {
        Ok(()) // what was written is durable already
    }
    async fn commit(&mut self, tx: &String) -> Done {
        if std::env::args().any(|argument| argument == "crash") {
            std::process::abort(); // the crash that this program shows
        }
        match self.run("update lines set visible = 1 where tx = ?1", vec![vec![tx.clone()]]).await? {
            0 => Err(SinkError::new(ErrorClass::Fatal, format!("the rows of {tx} are gone"))),
            _ => Ok(()),
        }
    }
    async fn abort(&mut self, tx: &String) -> Done {
        self.run("delete from lines where tx = ?1 and visible = 0", vec![vec![tx.clone()]]).await.map(drop)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().len() > 1 {
        let job = Job::new("own").source_function("numbers", |_| levada_examples::Numbers::up_to(5));
        let job = job.map("line", |input| Ok(format!("line {}", input.item())));
        let job = job.two_phase_sink("out", TwoPhaseOptions::default(), |_| OwnSink("lines".into()));
        return job.run(Store::open_folder("checkpoints").await?).await.map(drop).map_err(Into::into);
    }
    let (folder, itself) = (tempfile::tempdir()?, std::env::current_exe()?);
    for life in ["crash", "recover"] {
        std::process::Command::new(&itself).arg(life).current_dir(&folder).status()?;
        let database = Connection::open(folder.path().join("lines"))?;
        let count = "select sum(visible) || ' of ' || count(*) from lines";
        let seen: String = database.query_one(count, [], |row| row.get(0))?;
        println!("{life}: a reader sees {seen} lines");
    }
    Ok(())
}
