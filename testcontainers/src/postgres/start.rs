//! Starting a server: from the cache to the first connection.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::database::with_database;
use super::handle::{Postgres, SERVER};
use super::initialise::initialised;
use super::secured::{CERTIFICATE_USER, Secrets, Tls, write_rules};
use super::settings::local_settings;
use super::user::server_user;
use super::{PostgresBuilder, psql, quoted};
use crate::Error;
use crate::cache::{copy_folder, give};
use crate::logs::Log;
use crate::process::{DataFolder, EndWith, Launch, LocalServer, Port, Ready, User, on_free_ports};
use crate::programs::{postgres_folder, postgres_folder_of};
use crate::provider::Provider;
use crate::server::Server;
use crate::tls::Authority;

/// Makes a data folder, which does not exist yet, as that user's.
pub(super) type MakeData<'a> = &'a dyn Fn(&Path, Option<User>) -> Result<(), Error>;

/// What a server is made from.
pub(super) struct Origin<'a> {
    pub(super) builder: &'a PostgresBuilder,
    /// Who issues the certificates of a server that speaks TLS.
    pub(super) authority: Option<Arc<Authority>>,
    pub(super) make_data: MakeData<'a>,
}

/// Makes sure that an initialised data folder is in the cache.
pub(crate) fn prepare() -> Result<(), Error> {
    initialised(&postgres_folder()?).map(|_| ())
}

pub(super) fn start(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    let postgres = start_by_provider(builder)?;
    for extension in &builder.extensions {
        let create = format!("CREATE EXTENSION IF NOT EXISTS {}", quoted(extension));
        postgres.psql(&create)?;
        psql::psql(&with_database(postgres.url(), "template1"), &create)?;
    }
    Ok(postgres)
}

fn start_by_provider(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    match Provider::chosen()? {
        Provider::Process => start_locally(builder),
        #[cfg(feature = "docker")]
        Provider::Docker => on_free_ports(|| super::contained::start(builder)),
        #[cfg(not(feature = "docker"))]
        Provider::Docker => Err(Provider::without_containers()),
        Provider::External => {
            Err(Error::Refused { what: "a server of one's own cannot be had from an external provider" })
        }
    }
}

fn start_locally(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    let template = initialised(&programs_of(builder)?)?;
    let authority = match builder.tls {
        Tls::Off => None,
        Tls::Offered | Tls::Required => Some(Arc::new(Authority::new()?)),
    };
    let make_data = |data: &Path, user: Option<User>| copy_folder(&template, data, user);
    let postgres = start_from(&Origin { builder, authority, make_data: &make_data })?;
    if builder.tls != Tls::Off {
        postgres.psql(&format!("CREATE ROLE {CERTIFICATE_USER} LOGIN SUPERUSER"))?;
    }
    Ok(postgres)
}

/// Finds the server of the version that was asked for.
fn programs_of(builder: &PostgresBuilder) -> Result<PathBuf, Error> {
    match &builder.version {
        Some(version) => postgres_folder_of(version),
        None => postgres_folder(),
    }
}

/// Starts a local server on data of its own.
pub(super) fn start_from(origin: &Origin<'_>) -> Result<Postgres, Error> {
    let programs = programs_of(origin.builder)?;
    on_free_ports(|| start_once(origin, &programs))
}

fn start_once(origin: &Origin<'_>, programs: &Path) -> Result<Postgres, Error> {
    let builder = origin.builder;
    let user = server_user()?;
    let folder = DataFolder::create_with_disk("postgres", builder.disk)?;
    let port = Port::reserve()?;
    let data = folder.data();
    give(folder.path(), user)?;
    (origin.make_data)(&data, user)?;
    write_rules(&data, builder.tls)?;
    let secrets = match &origin.authority {
        Some(authority) => Some(Secrets::write(folder.path(), Arc::clone(authority), user)?),
        None => None,
    };
    let lock = data.join("postmaster.pid");
    let mut arguments = vec![OsString::from("-D"), data.into()];
    for setting in local_settings(builder, port.number(), secrets.as_ref()) {
        arguments.extend(["-c".into(), setting.into()]);
    }
    let launch = Launch {
        server: SERVER,
        program: programs.join("postgres"),
        arguments,
        folder: folder.path().to_path_buf(),
        log: folder.log(),
        user,
        end_with: EndWith::Quit,
    };
    let log = Log::whole(SERVER, launch.log.clone());
    let server = Box::new(LocalServer::new(launch, Ready::Postmaster(lock)));
    server.start()?;
    Ok(Postgres::new(server, log, folder, port, builder.clone(), secrets))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{Error, Postgres};

    /// [TST-01] It is what other ports are tried for.
    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let server = Postgres::start().unwrap();
        server.kill();
        let address = server.address();
        let somebody = TcpListener::bind(address).unwrap();
        let taken = server.restart().unwrap_err();
        assert!(matches!(taken, Error::PortTaken { .. }), "{taken}");
        drop(somebody);
        server.restart().unwrap();
        let other = Postgres::builder().setting("max_connections", "many").start().unwrap_err();
        assert!(matches!(other, Error::EndedEarly { .. }), "{other}");
    }
}
