//! A server in a container: the image `postgres`, or one that shows as much of its interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::PostgresBuilder;
use super::handle::{PASSWORD, Postgres, SERVER, USER};
use super::secured::Tls;
use super::settings::settings;
use crate::Error;
use crate::docker::{ContainerServer, Image, Ready, Spec};
use crate::logs::Log;
use crate::process::{DataFolder, Port};
use crate::server::Server;

/// How long a start may take: the image initialises the data first.
const START_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn start(builder: &PostgresBuilder) -> Result<Postgres, Error> {
    if builder.disk.is_some() || builder.tls != Tls::Off {
        return Err(Error::Refused { what: "TLS and a disk of its own need the provider `process`" });
    }
    let folder = DataFolder::create("postgres")?;
    let port = Port::reserve()?;
    let number = port.number();
    let mut command = Vec::new();
    for setting in settings(builder, number) {
        command.extend(["-c".to_owned(), setting]);
    }
    let variables = [
        ("POSTGRES_USER", USER),
        ("POSTGRES_PASSWORD", PASSWORD),
        ("POSTGRES_DB", "postgres"),
        ("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --no-locale --no-sync --auth-host=scram-sha-256"),
    ];
    let log = folder.log();
    let spec = Spec {
        server: SERVER,
        image: Image::postgres(builder.version.as_deref())?,
        prefix: "levada-postgres",
        env: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        command,
        files: Vec::new(),
        // Containers share the machine's network, not its file system: each has its local socket for itself.
        tmpfs: vec!["/var/run/postgresql".to_owned()],
        log: log.clone(),
        ready: Ready::Answers(Arc::new(move || asks_for_a_password(number))),
        patience: START_PATIENCE,
    };
    let server = Box::new(ContainerServer::new(spec));
    server.start()?;
    Ok(Postgres::new(server, Log::whole(SERVER, log), folder, port, builder.clone(), None))
}

/// Tells whether a server takes connections on a port: one that is starting or recovering answers with an error where it
/// would ask for a password later. (The image runs another server first, which listens on its local socket only.)
fn asks_for_a_password(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        server.set_read_timeout(Some(Duration::from_secs(2)))?;
        server.write_all(&startup_message())?;
        let mut kind = [0];
        server.read_exact(&mut kind)?;
        Ok(kind == *b"R")
    };
    ask().unwrap_or(false)
}

/// Returns a StartupMessage of protocol 3.0: its length, the version, and the user's name (Postgres manual, 55.7).
fn startup_message() -> Vec<u8> {
    let parameters = format!("user\0{USER}\0database\0postgres\0\0");
    // A few dozen bytes.
    let length = 8 + parameters.len() as u32;
    [&length.to_be_bytes()[..], &0x0003_0000_u32.to_be_bytes()[..], parameters.as_bytes()].concat()
}
