//! The tables of our own: made on demand under a lock, and never written in a version that this program does not know.

use levada_core::{ErrorClass, SinkError};
use tracing::info;

use super::catalog::Unfit;
use super::error::Failure;
use super::session::Session;
use super::sql;

/// Tables that belong together and have one version.
#[derive(Debug)]
pub(crate) struct Layout {
    /// What they are, for messages.
    pub(crate) what: &'static str,
    /// Finds out whether the schema is there, and whether all tables are.
    pub(crate) find: &'static str,
    /// Makes the tables, in a schema that is there.
    pub(crate) tables: &'static str,
    /// Reads the version.
    pub(crate) read_version: &'static str,
    /// The table that it stands in.
    pub(crate) versioned_in: &'static str,
    /// The version that this program reads and writes.
    pub(crate) version: i32,
    /// What it needs to be allowed, where a lack of it is not noticed in time otherwise.
    pub(crate) privileges: Option<Privileges>,
}

/// What a user must be allowed on tables that are there.
#[derive(Debug)]
pub(crate) struct Privileges {
    /// Tells the user's quoted name, and whether it is allowed everything.
    pub(crate) ask: &'static str,
    /// What grants it, with `{user}` for the name.
    pub(crate) grant: &'static str,
}

impl Privileges {
    async fn check(&self, session: &Session, what: &str) -> Result<(), Unfit> {
        let row = session.client.query_one(self.ask, &[]).await?;
        let (user, is_allowed): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
        if is_allowed {
            return Ok(());
        }
        let statements = self.grant.replace("{user}", &user);
        let message =
            format!("user {user} lacks privileges on the table of {what}; an owner can run:\n{statements}");
        Err(Unfit::Wrong(SinkError::new(ErrorClass::Fatal, message)))
    }
}

impl Layout {
    /// Returns the statements that make everything, for a database in which nothing may be created.
    pub(crate) fn ddl(&self) -> String {
        format!("{}{}", sql::SCHEMA, self.tables)
    }

    /// Makes the tables if they are missing, and checks their version.
    pub(crate) async fn ensure(&self, session: &Session) -> Result<(), Unfit> {
        let client = &session.client;
        let row = client.query_one(self.find, &[]).await?;
        let (schema, tables): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !tables {
            let result = self.create(session, schema).await;
            if let Err(failure) = result {
                session.roll_back().await;
                if failure.is("42501") {
                    let (what, statements) = (self.what, self.ddl());
                    return Err(Unfit::Wrong(failure.during(format!(
                        "the table of {what} is missing and may not be created by this user; an owner of the database \
                         can run:\n{statements}"
                    ))));
                }
                return Err(failure.into());
            }
        }
        if let Some(privileges) = &self.privileges {
            privileges.check(session, self.what).await?;
        }
        let row = client.query_one(self.read_version, &[]).await?;
        let version: Option<i32> = row.try_get(0)?;
        if version != Some(self.version) {
            let found = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(Unfit::Wrong(SinkError::new(
                ErrorClass::Fatal,
                format!(
                    "{} has version {found}, and this program knows version {}: run the program that made it, or a newer \
                     one",
                    self.versioned_in, self.version
                ),
            )));
        }
        Ok(())
    }

    /// Creates under a lock: `if not exists` alone does not keep two who create at once from failing.
    async fn create(&self, session: &Session, has_schema: bool) -> Result<(), Failure> {
        let client = &session.client;
        client.batch_execute(sql::BEGIN).await?;
        client.query("select pg_advisory_xact_lock($1)", &[&sql::DDL_LOCK]).await?;
        // Making a schema asks for a privilege even where the schema is there.
        if !has_schema {
            client.batch_execute(sql::SCHEMA).await?;
        }
        client.batch_execute(self.tables).await?;
        client.batch_execute(sql::COMMIT).await?;
        info!("table of {} created", self.what);
        Ok(())
    }
}
