//! What the write-ahead sink of Postgres has written.

use std::collections::BTreeMap;

use levada_testcontainers::{Database, Postgres};

use super::{Fed, Verdict};

/// Judges a table without a key, where every value that is written twice shows.
#[derive(Debug)]
pub struct Rows {
    database: Database,
}

impl Rows {
    /// Makes a database with the empty table.
    ///
    /// # Panics
    /// Panics if there is no server.
    pub fn empty() -> Self {
        let database = Postgres::database().expect("a database");
        database.psql("CREATE TABLE log (key text NOT NULL, n bigint NOT NULL)").expect("a table");
        Self { database }
    }

    /// Returns the address of the database.
    pub fn url(&self) -> &str {
        self.database.url()
    }

    /// Looks for values that are there twice. Which ones are still to come is known at the end only: after a change of
    /// parallelism, segments of one subtask may be sent by several.
    ///
    /// # Errors
    /// One of them.
    pub fn look(&self) -> Verdict {
        let sql = "SELECT key, n FROM log GROUP BY key, n HAVING count(*) > 1 LIMIT 1";
        match self.database.psql(sql)?.trim() {
            "" => Ok(()),
            found => Err(format!("{found} is doubled").into()),
        }
    }

    /// Judges everything, when the job has come to its end.
    ///
    /// # Errors
    /// What is lost or doubled.
    pub fn judge_all(&self, fed: &Fed) -> Verdict {
        self.look()?;
        // Without repeats, as many values as the last one says are all up to it.
        let text = self.database.psql("SELECT key, count(*), max(n) + 1 FROM log GROUP BY key")?;
        let mut found = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split('|').collect();
            let [key, count, up_to] = words[..] else {
                return Err(format!("three columns were asked for: {line:?}").into());
            };
            if count != up_to {
                return Err(format!("{count} values of {key} are there, up to number {up_to}").into());
            }
            found.insert(key.to_owned(), count.parse()?);
        }
        fed.compare(&found)
    }
}
