//! TLS for Postgres: who is let in how, and what a client needs for it.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Postgres;
use super::handle::{PASSWORD, USER};
use crate::Error;
use crate::cache::give;
use crate::error::Doing;
use crate::names::unique_name;
use crate::process::User;
use crate::tls::{Authority, ClientFiles, write_private};

/// Who shows a certificate instead of a password. A user of its own, because a server takes the first rule that names a user.
pub(super) const CERTIFICATE_USER: &str = "levada_certificate";

/// Whether a server speaks TLS; each includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tls {
    Off,
    Offered,
    Required,
}

/// The certificates of a server.
#[derive(Debug)]
pub(super) struct Secrets {
    /// Shared with the server's standbys: who trusts the one trusts the other.
    authority: Arc<Authority>,
    client: ClientFiles,
    folder: PathBuf,
}

impl Secrets {
    /// Issues certificates for a server and its client into the server's folder. The server's key is given to the user that
    /// it runs as: Postgres reads no key that is somebody else's.
    pub(super) fn write(
        folder: &Path,
        authority: Arc<Authority>,
        user: Option<User>,
    ) -> Result<Secrets, Error> {
        let client = ClientFiles::write(folder, &authority, CERTIFICATE_USER)?;
        let server = authority.for_server()?;
        let secrets = Secrets { authority, client, folder: folder.to_path_buf() };
        let [certificate, key, trusted] = secrets.server_files();
        write_private(&certificate, &server.certificate)?;
        write_private(&key, &server.key)?;
        write_private(&trusted, secrets.authority.certificate())?;
        [certificate, key, trusted].iter().try_for_each(|path| give(path, user))?;
        Ok(secrets)
    }

    /// The server's certificate, its key, and whose clients it trusts. Not in the data folder, which a standby copies.
    fn server_files(&self) -> [PathBuf; 3] {
        ["server.pem", "server.key", "trusted.pem"].map(|name| self.folder.join(name))
    }

    pub(super) fn settings(&self) -> [String; 4] {
        let [certificate, key, trusted] = self.server_files();
        [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
            format!("ssl_ca_file={}", trusted.display()),
        ]
    }

    pub(super) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Issues a certificate for another user, into a folder of its own.
    fn issue(&self, user: &str) -> Result<ClientFiles, Error> {
        let folder = self.folder.join(unique_name("client"));
        DirBuilder::new().mode(0o700).create(&folder).doing("create the folder", &folder)?;
        ClientFiles::write(&folder, &self.authority, user)
    }
}

/// Replaces the rules by which a server lets clients in.
pub(super) fn write_rules(data: &Path, tls: Tls) -> Result<(), Error> {
    let path = data.join("pg_hba.conf");
    // The file is there already, so it keeps its owner and permissions.
    fs::write(&path, rules(tls)).doing("write", &path)
}

/// Returns the text of `pg_hba.conf`; the first line that fits a connection decides.
fn rules(tls: Tls) -> String {
    let plaintext = match tls {
        Tls::Off | Tls::Offered => "",
        Tls::Required => "hostnossl all,replication all 127.0.0.1/32 reject\n",
    };
    let certificate = match tls {
        Tls::Off => String::new(),
        Tls::Offered | Tls::Required => format!("hostssl all {CERTIFICATE_USER} 127.0.0.1/32 cert\n"),
    };
    format!("{plaintext}{certificate}host all,replication all 127.0.0.1/32 scram-sha-256\n")
}

impl Postgres {
    /// Returns the URL for a client that speaks TLS, checks the server's certificate and name, and shows the password.
    ///
    /// The parameters are libpq's (`sslmode=verify-full`, `sslrootcert`). A client with other words for them takes
    /// [`url`](Postgres::url) and [`client_files`](Postgres::client_files).
    ///
    /// ```no_run
    /// # use levada_testcontainers::Postgres;
    /// let postgres = Postgres::builder().secured().start()?;
    /// println!("psql '{}'", postgres.tls_url()?);
    /// # Ok::<(), levada_testcontainers::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the server was not started [`secured`](super::PostgresBuilder::secured).
    pub fn tls_url(&self) -> Result<String, Error> {
        let files = self.client_files()?;
        let user = format!("{USER}:{PASSWORD}");
        Ok(self.verified_url(&user, &[("sslrootcert", &files.authority)]))
    }

    /// Returns the URL for a client that speaks TLS and shows a certificate instead of a password. Its user,
    /// `levada_certificate`, is a superuser as the other one is.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the server was not started [`secured`](super::PostgresBuilder::secured).
    pub fn certificate_url(&self) -> Result<String, Error> {
        let files = self.client_files()?;
        let parameters =
            [("sslrootcert", &files.authority), ("sslcert", &files.certificate), ("sslkey", &files.key)];
        Ok(self.verified_url(CERTIFICATE_USER, &parameters.map(|(name, path)| (name, path.as_path()))))
    }

    /// Returns the files that a TLS client needs. The certificate is that of the user `levada_certificate`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the server was not started [`secured`](super::PostgresBuilder::secured).
    pub fn client_files(&self) -> Result<&ClientFiles, Error> {
        self.secrets().map(|secrets| &secrets.client)
    }

    /// Issues a certificate for another user, whether the server knows one of that name or not, and returns the files. The
    /// server asks `levada_certificate` alone for a certificate.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the server was not started [`secured`](super::PostgresBuilder::secured);
    /// [`Error::Certificate`] for a name that no certificate can hold.
    pub fn issue_client_files(&self, user: &str) -> Result<ClientFiles, Error> {
        self.secrets()?.issue(user)
    }

    fn secrets(&self) -> Result<&Secrets, Error> {
        self.secrets.as_ref().ok_or(Error::Refused { what: "TLS needs the builder's `secured`" })
    }

    fn verified_url(&self, user: &str, files: &[(&str, &Path)]) -> String {
        let mut url = format!("postgres://{user}@{}/postgres?sslmode=verify-full", self.address());
        for (name, path) in files {
            url.push_str(&format!("&{name}={}", percent_encoded(path)));
        }
        url
    }
}

/// Writes a path as the value of a URL's parameter (RFC 3986): what is neither unreserved nor a slash is encoded.
fn percent_encoded(path: &Path) -> String {
    let mut encoded = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(*byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Tls, percent_encoded, rules};

    #[test]
    fn a_path_in_a_url_means_itself() {
        assert_eq!(percent_encoded(Path::new("/tmp/levada_1/a.pem")), "/tmp/levada_1/a.pem");
        assert_eq!(percent_encoded(Path::new("/my tmp/a&b=%")), "/my%20tmp/a%26b%3D%25");
    }

    /// The first rule that fits decides.
    #[test]
    fn plaintext_is_refused_before_anything_lets_it_in() {
        assert!(rules(Tls::Required).starts_with("hostnossl all,replication all 127.0.0.1/32 reject\n"));
        assert!(!rules(Tls::Offered).contains("reject"));
        assert_eq!(rules(Tls::Off), "host all,replication all 127.0.0.1/32 scram-sha-256\n");
    }
}
