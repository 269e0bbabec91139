//! A Postgres server that speaks TLS, as libpq sees it.

mod clients;

use std::path::Path;
use std::sync::OnceLock;

use clients::postgres::psql;
use levada_testcontainers::{Error, Postgres};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// The server of the tests that do not hurt it. Never dropped: it is ended after the last test.
fn secured() -> &'static Postgres {
    static SECURED: OnceLock<Postgres> = OnceLock::new();
    SECURED.get_or_init(|| Postgres::builder().secured().start().unwrap())
}

/// How the connection of a query is encrypted and who is on its other end.
const HOW: &str = "SELECT ssl, current_user FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// The URL with which `user` of `server` shows this certificate, and trusts that authority.
fn url(server: &Postgres, user: &str, authority: &Path, certificate: Option<(&Path, &Path)>) -> String {
    let mut url = format!(
        "postgres://{user}@{}/postgres?sslmode=verify-full&sslrootcert={}",
        server.address(),
        authority.display()
    );
    // Files that do not exist, so that none of the machine's user is taken.
    let (certificate, key) =
        certificate.unwrap_or((Path::new("/none/client.pem"), Path::new("/none/client.key")));
    url.push_str(&format!("&sslcert={}&sslkey={}", certificate.display(), key.display()));
    url
}

/// [TST-01]
#[test]
fn a_password_over_verified_tls_is_let_in() -> Result<(), Error> {
    let postgres = secured();
    assert_eq!(psql(&postgres.tls_url()?, HOW).unwrap(), "t|levada");
    let wrong = postgres.tls_url()?.replace("levada-secret", "wrong");
    let refusal = psql(&wrong, HOW).unwrap_err();
    assert!(refusal.contains("password authentication failed"), "{refusal}");
    Ok(())
}

/// [TST-01]
#[test]
fn a_client_that_trusts_another_authority_does_not_connect() -> Result<(), Error> {
    let (postgres, other) = (secured(), Postgres::builder().secured().start()?);
    let stranger = &other.client_files()?.authority;
    let refusal = psql(&url(postgres, "levada:levada-secret", stranger, None), HOW).unwrap_err();
    assert!(refusal.contains("certificate verify failed"), "{refusal}");
    Ok(())
}

/// [TST-01]
#[test]
fn a_client_certificate_is_let_in_without_a_password() -> Result<(), Error> {
    let postgres = secured();
    assert_eq!(psql(&postgres.certificate_url()?, HOW).unwrap(), "t|levada_certificate");
    Ok(())
}

/// [TST-01]
#[test]
fn whoever_must_show_a_certificate_is_refused_without_it() -> Result<(), Error> {
    let postgres = secured();
    let authority = &postgres.client_files()?.authority;
    let refusal = psql(&url(postgres, "levada_certificate", authority, None), HOW).unwrap_err();
    assert!(refusal.contains("connection requires a valid client certificate"), "{refusal}");
    let in_the_clear =
        format!("postgres://levada_certificate@{}/postgres?sslmode=disable", postgres.address());
    let refusal = psql(&in_the_clear, HOW).unwrap_err();
    assert!(refusal.contains("no password supplied"), "{refusal}");
    Ok(())
}

/// [TST-01]
#[test]
fn a_certificate_for_somebody_else_is_refused() -> Result<(), Error> {
    let postgres = secured();
    let somebody = postgres.issue_client_files("somebody")?;
    let shown = Some((somebody.certificate.as_path(), somebody.key.as_path()));
    let refusal = psql(&url(postgres, "levada_certificate", &somebody.authority, shown), HOW).unwrap_err();
    assert!(refusal.contains("certificate authentication failed"), "{refusal}");
    // The common name is all that is wrong with it: one issued in the same way for the right name is let in.
    let right = postgres.issue_client_files("levada_certificate")?;
    let shown = Some((right.certificate.as_path(), right.key.as_path()));
    let answer = psql(&url(postgres, "levada_certificate", &right.authority, shown), HOW);
    assert_eq!(answer.unwrap(), "t|levada_certificate");
    Ok(())
}

/// [TST-01]
#[test]
fn a_certificate_of_another_authority_is_refused() -> Result<(), Error> {
    let (postgres, other) = (secured(), Postgres::builder().secured().start()?);
    let forged = other.client_files()?;
    let shown = Some((forged.certificate.as_path(), forged.key.as_path()));
    let authority = &postgres.client_files()?.authority;
    let refusal = psql(&url(postgres, "levada_certificate", authority, shown), HOW).unwrap_err();
    assert!(refusal.contains("unknown ca"), "{refusal}");
    assert!(postgres.logs().contains("could not accept SSL connection"), "{}", postgres.logs());
    Ok(())
}

/// [TST-01]
#[tokio::test]
async fn plaintext_is_refused_only_where_it_was_asked_for() {
    let offering = secured();
    drop(tokio_postgres::connect(offering.url(), NoTls).await.unwrap());
    let requiring = Postgres::builder().refusing_plaintext().start().unwrap();
    let refusal = tokio_postgres::connect(requiring.url(), NoTls).await.err().unwrap();
    assert_eq!(refusal.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{refusal}");
    assert_eq!(psql(&requiring.tls_url().unwrap(), HOW).unwrap(), "t|levada");
    assert_eq!(psql(&requiring.certificate_url().unwrap(), HOW).unwrap(), "t|levada_certificate");
    // What this crate itself asks the server passes too.
    assert_eq!(requiring.psql(HOW).unwrap(), "t|levada");
}

/// [TST-01]
#[test]
fn a_server_that_was_not_secured_speaks_no_tls() -> Result<(), Error> {
    let (plain, secured) = (Postgres::start()?, secured());
    assert!(matches!(plain.tls_url(), Err(Error::Refused { .. })));
    assert!(matches!(plain.certificate_url(), Err(Error::Refused { .. })));
    let authority = &secured.client_files()?.authority;
    let refusal = psql(&url(&plain, "levada:levada-secret", authority, None), HOW).unwrap_err();
    assert!(refusal.contains("server does not support SSL"), "{refusal}");
    Ok(())
}

/// [TST-01] The server's key must be the server's; a restart reads it again.
#[test]
fn tls_survives_a_kill_and_restart() -> Result<(), Error> {
    let postgres = Postgres::builder().secured().start()?;
    postgres.kill();
    postgres.restart()?;
    assert_eq!(psql(&postgres.tls_url()?, HOW).unwrap(), "t|levada");
    assert_eq!(psql(&postgres.certificate_url()?, HOW).unwrap(), "t|levada_certificate");
    Ok(())
}

/// [TST-01]
#[test]
fn a_standby_is_trusted_like_its_primary() -> Result<(), Error> {
    let primary = Postgres::builder().refusing_plaintext().start()?;
    let standby = primary.standby()?;
    let trusted = &primary.client_files()?.authority;
    assert_eq!(psql(&url(&standby, "levada:levada-secret", trusted, None), HOW).unwrap(), "t|levada");
    assert_eq!(psql(&standby.certificate_url()?, HOW).unwrap(), "t|levada_certificate");
    let refusal = psql(&format!("{}?sslmode=disable", standby.url()), HOW).unwrap_err();
    assert!(refusal.contains("rejects connection"), "{refusal}");
    Ok(())
}
