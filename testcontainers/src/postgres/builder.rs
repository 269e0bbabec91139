//! What can be chosen before a server starts.

use std::collections::BTreeMap;

use super::Postgres;
use super::secured::Tls;
use super::start::start;
use crate::Error;

/// Chooses how a Postgres server starts; made by [`Postgres::builder`].
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    /// Server settings that replace ours.
    pub(super) settings: BTreeMap<String, String>,
    /// The major version, if not the newest that is installed.
    pub(super) version: Option<String>,
    /// Extensions to create.
    pub(super) extensions: Vec<String>,
    /// The size of the data's own disk, in bytes.
    pub(super) disk: Option<u64>,
    /// Whether TLS is spoken.
    pub(super) tls: Tls,
}

impl PostgresBuilder {
    pub(super) fn new() -> PostgresBuilder {
        PostgresBuilder {
            settings: BTreeMap::new(),
            version: None,
            extensions: Vec::new(),
            disk: None,
            tls: Tls::Off,
        }
    }

    /// Sets a server setting (a line of `postgresql.conf`); replaces the default of Postgres or of this crate.
    ///
    /// The address, the port and where sockets and shared memory live are this crate's own: they cannot be replaced.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> PostgresBuilder {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Sets the major version, such as `"15"`: of the packages that are installed side by side, or the tag of the image.
    /// Unless set, it is the server in the path, else the newest that is installed; the image's tag is 17 then.
    #[must_use]
    pub fn version(mut self, major: impl Into<String>) -> PostgresBuilder {
        self.version = Some(major.into());
        self
    }

    /// Creates an extension in the first database and in the template of those to come, such as `"postgis"`. Its files
    /// must be installed beside the server.
    #[must_use]
    pub fn extension(mut self, name: impl Into<String>) -> PostgresBuilder {
        self.extensions.push(name.into());
        self
    }

    /// Gives the data a disk of its own of so many bytes, which can be filled ([`Postgres::fill_disk`]). It is a `tmpfs`, so
    /// only root may. A new server takes 40 MB, of which 16 MB are the first segment of its log, and the next segment 16 MB
    /// more: 64 MB are enough to fill, to free and to go on.
    #[must_use]
    pub fn disk(mut self, bytes: u64) -> PostgresBuilder {
        self.disk = Some(bytes);
        self
    }

    /// Adds TLS with certificates of an authority of the test's own: with the password ([`Postgres::tls_url`]), or with a
    /// client certificate instead of one ([`Postgres::certificate_url`]). Connections in the clear stay possible.
    #[must_use]
    pub fn secured(mut self) -> PostgresBuilder {
        self.tls = self.tls.max(Tls::Offered);
        self
    }

    /// The same as [`secured`](PostgresBuilder::secured), and refuses every connection in the clear. A client that speaks no
    /// TLS does not get in by [`Postgres::url`] then.
    #[must_use]
    pub fn refusing_plaintext(mut self) -> PostgresBuilder {
        self.tls = Tls::Required;
        self
    }

    /// Starts the server and returns when it accepts connections.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when PostgreSQL is not installed; [`Error::Refused`] when servers are somebody else's
    /// (`LEVADA_PROVIDER=external`), or for what a container cannot have; [`Error::NeedsRoot`] for a
    /// [`disk`](PostgresBuilder::disk); otherwise what went wrong, with the end of the server's log.
    pub fn start(self) -> Result<Postgres, Error> {
        start(&self)
    }
}
