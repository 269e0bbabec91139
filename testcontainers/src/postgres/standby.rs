//! Streaming standbys: a second server that follows the first one, and takes over.
//!
//! ```text
//!  primary ──pg_basebackup──▶ copy of its data ──start──▶ standby        once
//!     └──────────────── write-ahead log, streamed ───────────┘           from then on; a slot keeps what is not yet there
//! ```

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Postgres;
use super::handle::{PASSWORD, SERVER, USER};
use super::psql;
use super::secured::Secrets;
use super::start::{Origin, start_from};
use crate::Error;
use crate::cache::give;
use crate::error::Doing;
use crate::names::unique_name;
use crate::process::User;
use crate::programs::{pg_basebackup, run_to_end};
use crate::provider::Provider;
use crate::wait::wait_for;

/// How long a standby may take from its start until it streams, and until it is what commits wait for. It takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a promotion may take: the standby first replays what it has.
const PROMOTION_SECONDS: u32 = 60;

/// The setting that names whom commits wait for.
const SYNCHRONOUS: &str = "synchronous_standby_names";

impl Postgres {
    /// Starts a hot standby of this server and returns when it streams: a server of its own, with a port and a folder of its
    /// own and the settings of this one, that replays what this one writes and answers queries meanwhile. Commits do not wait
    /// for it: what it has not received when this server dies is lost by its promotion.
    ///
    /// It can be hurt as any other server. While it is away, this server keeps what it has not received (a replication slot),
    /// as long as this server lives.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the words of `psql` or `pg_basebackup` when this server gives no copy of itself, for instance
    /// because it is down; [`Error::Refused`] unless both are processes of this machine; [`Error::NotReady`] when the copy does not stream within a minute; otherwise as
    /// [`PostgresBuilder::start`](super::PostgresBuilder::start).
    pub fn standby(&self) -> Result<Postgres, Error> {
        self.start_standby(&unique_name("levada_standby"))
    }

    /// The same as [`standby`](Postgres::standby), but commits on this server wait until the standby has them
    /// (`synchronous_standby_names`). Returns when they do.
    ///
    /// Commits wait for the newest synchronous standby alone, and for ever when it is away. A wait that is given up
    /// (`pg_cancel_backend`, `statement_timeout`) is a commit with a warning, not an error.
    ///
    /// # Errors
    ///
    /// As [`standby`](Postgres::standby); [`Error::Refused`] when this server is a standby itself, whose commits are its
    /// primary's; [`Error::NotReady`] too when this server does not come to wait for the standby, as
    /// when the builder set `synchronous_standby_names`.
    pub fn synchronous_standby(&self) -> Result<Postgres, Error> {
        if self.psql("SELECT pg_is_in_recovery()")? == "t" {
            // The setting would take effect with its promotion: every commit would wait for a server that is gone.
            return Err(Error::Refused { what: "a synchronous standby is one of a primary" });
        }
        let name = unique_name("levada_standby");
        let standby = self.start_standby(&name)?;
        match self.wait_for(&standby, &name) {
            Ok(()) => Ok(standby),
            Err(error) => {
                // Commits would wait for ever for a standby that goes with this error, which is what the caller must hear.
                self.psql(&format!("ALTER SYSTEM RESET {SYNCHRONOUS}")).ok();
                self.psql("SELECT pg_reload_conf()").ok();
                Err(error)
            }
        }
    }

    /// Makes commits on this server wait for a standby.
    fn wait_for(&self, standby: &Postgres, name: &str) -> Result<(), Error> {
        // Two calls, because the first statement refuses to be in a transaction with others.
        self.psql(&format!("ALTER SYSTEM SET {SYNCHRONOUS} = '{name}'"))?;
        self.psql("SELECT pg_reload_conf()")?;
        self.wait_until_seen(standby, name, "sync_state", "sync")
    }

    /// Makes a primary of a standby, and returns when it accepts writes. What it has received is replayed first.
    ///
    /// Nothing tells the old primary. One that still runs, or is restarted as it is, accepts writes too: that is a split
    /// brain, and neither ever learns what was written to the other. Leave it dead, or take a new standby of the new primary.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the server's words when it is no standby or is down; [`Error::TimedOut`] after a minute.
    pub fn promote(&self) -> Result<(), Error> {
        match self.psql(&format!("SELECT pg_promote(true, {PROMOTION_SECONDS})"))?.as_str() {
            "t" => Ok(()),
            _ => Err(Error::TimedOut {
                what: "the promotion of a standby".to_owned(),
                after: Duration::from_secs(PROMOTION_SECONDS.into()),
            }),
        }
    }

    /// Starts a standby that this server knows by this name, for an application and for a slot.
    fn start_standby(&self, name: &str) -> Result<Postgres, Error> {
        if Provider::chosen()? != Provider::Process {
            return Err(Error::Refused { what: "a standby needs the provider `process`" });
        }
        self.psql(&format!("SELECT pg_create_physical_replication_slot('{name}', true)"))?;
        let started = self.start_copy(name).and_then(|standby| {
            self.wait_until_seen(&standby, name, "state", "streaming")?;
            Ok(standby)
        });
        if started.is_err() {
            // Nobody will come for what the slot keeps. Best effort: the cause is what the caller must hear.
            self.psql(&format!("SELECT pg_drop_replication_slot('{name}')")).ok();
        }
        started
    }

    fn start_copy(&self, name: &str) -> Result<Postgres, Error> {
        let make_data = |data: &Path, user: Option<User>| copy_primary(&self.address(), name, data, user);
        let authority = self.secrets.as_ref().map(Secrets::authority);
        start_from(&Origin { builder: &self.builder, authority, make_data: &make_data })
    }

    /// Waits until this server sees the standby in that state (a column of `pg_stat_replication`).
    fn wait_until_seen(
        &self,
        standby: &Postgres,
        name: &str,
        column: &str,
        state: &str,
    ) -> Result<(), Error> {
        let look = format!("SELECT {column} FROM pg_stat_replication WHERE application_name = '{name}'");
        let seen = wait_for(PATIENCE, || match self.psql(&look) {
            Ok(seen) => (seen == state).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        // The standby goes with the failure, so its log must be in it.
        seen.unwrap_or_else(|| {
            Err(Error::NotReady { server: SERVER, after: PATIENCE, log: standby.log_tail() })
        })
    }
}

/// Copies the data of a running server into a new folder, so that a server started on it follows the other.
fn copy_primary(primary: &str, name: &str, data: &Path, user: Option<User>) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(data).doing("create the folder", data)?;
    give(data, user)?;
    let (host, port) = primary.split_once(':').unwrap_or((primary, ""));
    let mut copy = Command::new(pg_basebackup()?);
    // All but the data goes into the standby's `primary_conninfo` too (`--write-recovery-conf`).
    copy.args(["--dbname", &format!("host={host} port={port} user={USER} application_name={name}")]);
    copy.args(["--slot", name, "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--no-password"]);
    copy.arg("--pgdata").arg(data).env("PGPASSWORD", PASSWORD);
    copy.env(psql::TIMEOUT, psql::PATIENCE);
    // It must not look into the home of whoever runs the tests, which the user that it runs as may not enter.
    copy.env("HOME", data).current_dir(data);
    if let Some(user) = user {
        copy.uid(user.uid).gid(user.gid);
    }
    run_to_end("pg_basebackup", &mut copy)?;
    forget_synchronous_standby(data)
}

/// Removes from copied settings whom the primary waits for: after a promotion commits would wait for it for ever.
fn forget_synchronous_standby(data: &Path) -> Result<(), Error> {
    let path = data.join("postgresql.auto.conf");
    let settings = fs::read_to_string(&path).doing("read", &path)?;
    // Written in place, so the file keeps its owner and permissions.
    fs::write(&path, without_setting(&settings, SYNCHRONOUS)).doing("write", &path)
}

fn without_setting(settings: &str, name: &str) -> String {
    let sets_other = |line: &&str| line.split([' ', '=']).next() != Some(name);
    settings.lines().filter(sets_other).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::without_setting;

    #[test]
    fn only_the_named_setting_is_forgotten() {
        let settings = "# by ALTER SYSTEM\nsynchronous_standby_names = 'a'\nprimary_slot_name = 'b'\n";
        assert_eq!(
            without_setting(settings, "synchronous_standby_names"),
            "# by ALTER SYSTEM\nprimary_slot_name = 'b'\n"
        );
    }
}
