//! A database of one's own on the shared server.

use super::psql;
use super::shared::SharedPostgres;
use crate::Error;
use crate::names::unique_name;

/// An empty database on the shared server; made by [`Postgres::database`](super::Postgres::database).
///
/// When it is dropped, its connections are ended and the database with them.
#[derive(Debug)]
pub struct Database {
    name: String,
    url: String,
    server: SharedPostgres,
}

impl Database {
    pub(super) fn create(server: SharedPostgres) -> Result<Database, Error> {
        let name = unique_name("levada");
        let url = with_database(server.url(), &name);
        server.psql(&format!("CREATE DATABASE {name}"))?;
        Ok(Database { name, url, server })
    }

    /// Returns the URL of this database, with user and password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the name of this database; it needs no quotes in SQL.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shared server that it is on.
    #[must_use]
    pub fn server(&self) -> &SharedPostgres {
        &self.server
    }

    /// Runs SQL in this database through `psql`; see [`Postgres::psql`](super::Postgres::psql).
    ///
    /// # Errors
    ///
    /// As [`Postgres::psql`](super::Postgres::psql).
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        psql::psql(&self.url, sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: at the end of the run the server's folder goes with everything in it.
        self.server.psql(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).ok();
    }
}

/// Replaces the database in a URL, keeping its parameters.
pub(super) fn with_database(url: &str, database: &str) -> String {
    let (address, parameters) = url.split_at(url.find('?').unwrap_or(url.len()));
    let authority = address.find("://").map_or(0, |scheme| scheme + 3);
    let end = address[authority..].find('/').map_or(address.len(), |slash| authority + slash);
    format!("{}/{database}{parameters}", &address[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn only_the_database_of_a_url_is_replaced() {
        assert_eq!(with_database("postgres://u:p@h:1/postgres", "d"), "postgres://u:p@h:1/d");
        assert_eq!(
            with_database("postgres://u:p@h:1/a?sslmode=disable", "d"),
            "postgres://u:p@h:1/d?sslmode=disable"
        );
        assert_eq!(with_database("postgres://u:p@h:1", "d"), "postgres://u:p@h:1/d");
    }
}
