//! Starting a server: from the cache to the first connection.

use std::ffi::OsString;
use std::path::Path;

use super::PostgresBuilder;
use super::handle::{Postgres, SERVER};
use super::initialise::initialised;
use super::user::server_user;
use crate::Error;
use crate::cache::{copy_folder, give};
use crate::logs::Log;
use crate::process::{DataFolder, EndWith, Launch, LocalServer, Port, Ready};
use crate::programs::postgres_folder;
use crate::provider::Provider;
use crate::server::Server;

/// How often another port is tried when somebody took ours between the look and the bind.
const PORT_ATTEMPTS: usize = 5;

/// Settings for tests; a builder may replace them.
pub(super) const FOR_TESTS: &[(&str, &str)] = &[
    // The servers are killed, the machine is not: what a killed server had written is in the page cache.
    ("fsync", "off"),
    ("max_connections", "200"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] %d "),
];

/// Makes sure that an initialised data folder is in the cache.
pub(crate) fn prepare() -> Result<(), Error> {
    initialised(&postgres_folder()?).map(|_| ())
}

pub(super) fn start(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    match Provider::chosen()? {
        Provider::Process => start_locally(builder),
        #[cfg(feature = "docker")]
        Provider::Docker => super::contained::start(builder),
        #[cfg(not(feature = "docker"))]
        Provider::Docker => {
            Err(Error::Refused { what: "containers need the feature `docker` of levada-testcontainers" })
        }
        Provider::External => {
            Err(Error::Refused { what: "a server of one's own cannot be had from an external provider" })
        }
    }
}

fn start_locally(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    let programs = postgres_folder()?;
    let template = initialised(&programs)?;
    let mut attempt = 1;
    loop {
        match start_once(builder, &programs, &template) {
            Err(Error::PortTaken { .. }) if attempt < PORT_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn start_once(builder: &PostgresBuilder, programs: &Path, template: &Path) -> Result<Postgres, Error> {
    let user = server_user()?;
    let folder = DataFolder::create_with_disk("postgres", builder.disk)?;
    let port = Port::reserve()?;
    let data = folder.data();
    copy_folder(template, &data, user)?;
    give(folder.path(), user)?;
    let lock = data.join("postmaster.pid");
    let mut arguments = vec![OsString::from("-D"), data.into()];
    for setting in settings(builder, port.number()) {
        arguments.extend(["-c".into(), setting.into()]);
    }
    let launch = Launch {
        server: SERVER,
        program: programs.join("postgres"),
        arguments,
        folder: folder.path().to_path_buf(),
        log: folder.path().join("server.log"),
        user,
        end_with: EndWith::Quit,
    };
    let log = Log::whole(SERVER, launch.log.clone());
    let server = Box::new(LocalServer::new(launch, Ready::Postmaster(lock)));
    server.start()?;
    Ok(Postgres::new(server, log, folder, port))
}

/// Returns the settings as `name=value`, later ones winning.
fn settings(builder: &PostgresBuilder, port: u16) -> Vec<String> {
    let mut settings: Vec<String> = FOR_TESTS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    settings.extend(builder.settings.iter().map(|(name, value)| format!("{name}={value}")));
    settings.extend([
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "unix_socket_directories=".to_owned(),
        // In the data folder, so that nothing stays behind in /dev/shm after a kill.
        "dynamic_shared_memory_type=mmap".to_owned(),
        // Our log is its standard error.
        "logging_collector=off".to_owned(),
    ]);
    settings
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{Error, Postgres};

    /// [TST-01] Somebody may take a port between our look and the bind: then other ports are tried.
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
