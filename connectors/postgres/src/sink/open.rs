//! The first connection: the positions table, and the target as the catalog describes it.

use std::time::Duration;

use levada_core::{ErrorClass, SinkError};
use tokio::time::Instant;
use tracing::info;

use super::backoff::Pauses;
use super::catalog::{self, Target, Unfit};
use super::error::Failure;
use super::session::Session;
use super::{Job, PostgresSink, ddl, sql};

impl PostgresSink {
    /// Connects, makes the positions table if it is missing, and reads the target.
    ///
    /// A server that is away is waited for, within a limit: a wrong address looks the same.
    pub(super) async fn open_target(&mut self, job: &Job) -> Result<Target, SinkError> {
        let deadline = Instant::now() + self.config.open_timeout;
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            let failure = match self.try_open(job).await {
                Ok(target) => {
                    self.recovered();
                    return Ok(target);
                }
                Err(Unfit::Wrong(error)) => return Err(error),
                Err(Unfit::Failed(failure)) => failure,
            };
            let may_pass = matches!(failure.class, ErrorClass::Reconnect | ErrorClass::Retry);
            if !may_pass || Instant::now() >= deadline {
                return Err(failure.during(format!("opening {} in Postgres", self.config.table)));
            }
            self.lost(&failure);
            pauses.next().await;
        }
    }

    async fn try_open(&mut self, job: &Job) -> Result<Target, Unfit> {
        let session = Session::connect(&self.config, &job.application_name).await?;
        make_positions(&session).await?;
        let target = catalog::read(&session, &self.config).await?;
        self.session = Some(session);
        Ok(target)
    }
}

async fn make_positions(session: &Session) -> Result<(), Unfit> {
    let client = &session.client;
    let (schema, positions, meta): (bool, bool, bool) = {
        let row = client.query_one(sql::FIND_POSITIONS, &[]).await?;
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)
    };
    if !(positions && meta) {
        let result = create(session, schema).await;
        if let Err(failure) = result {
            session.roll_back().await;
            if failure.is("42501") {
                let statements = ddl();
                return Err(Unfit::Wrong(failure.during(format!(
                    "the table of positions is missing and may not be created by this user; an owner of the database \
                     can run:\n{statements}"
                ))));
            }
            return Err(failure.into());
        }
    }
    let row = client.query_one(sql::READ_VERSION, &[]).await?;
    let version: Option<i32> = row.try_get(0)?;
    if version != Some(sql::POSITIONS_VERSION) {
        let found = version.map_or("none".to_owned(), |version| version.to_string());
        return Err(Unfit::Wrong(SinkError::new(
            ErrorClass::Fatal,
            format!(
                "levada.meta has version {found}, and this program knows version {}: run the program that made it, or a \
                 newer one",
                sql::POSITIONS_VERSION
            ),
        )));
    }
    Ok(())
}

/// Creates under a lock: `if not exists` alone does not keep two who create at once from failing.
async fn create(session: &Session, has_schema: bool) -> Result<(), Failure> {
    let client = &session.client;
    client.batch_execute(sql::BEGIN).await?;
    client.query("select pg_advisory_xact_lock($1)", &[&sql::DDL_LOCK]).await?;
    // Making a schema asks for a privilege even where the schema is there.
    if !has_schema {
        client.batch_execute(sql::POSITIONS_SCHEMA).await?;
    }
    client.batch_execute(sql::POSITIONS_TABLES).await?;
    client.batch_execute(sql::COMMIT).await?;
    info!("table levada.positions created");
    Ok(())
}
