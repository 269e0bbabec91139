//! Starting a pooler.

use super::PgBouncerBuilder;
use super::handle::{PgBouncer, SERVER};
use super::settings;
use crate::Error;
use crate::cache::give;
use crate::logs::Log;
use crate::postgres::{PASSWORD, USER, server_user};
use crate::process::{DataFolder, EndWith, Launch, LocalServer, Port, Ready, on_free_ports};
use crate::programs::pgbouncer;
use crate::server::Server;
use crate::tls::write_private;

/// What a pooler logs when it listens.
const READY: &str = "process up: PgBouncer";

pub(super) fn start(builder: &PgBouncerBuilder) -> Result<PgBouncer, Error> {
    let program = pgbouncer()?;
    on_free_ports(|| {
        let user = server_user()?;
        let folder = DataFolder::create("pgbouncer")?;
        let port = Port::reserve()?;
        let users = folder.path().join("users.txt");
        // The password itself and not what the server keeps of it: the pooler must show it there.
        write_private(&users, &format!("\"{USER}\" \"{PASSWORD}\"\n"))?;
        let file = folder.path().join("pgbouncer.ini");
        write_private(&file, &settings::text(&builder.settings, &builder.server, port.number(), &users))?;
        [&users, &file].into_iter().try_for_each(|path| give(path, user))?;
        give(folder.path(), user)?;
        let launch = Launch {
            server: SERVER,
            program: program.clone(),
            arguments: vec![file.into()],
            folder: folder.path().to_path_buf(),
            log: folder.log(),
            user,
            end_with: EndWith::Kill,
        };
        let log = Log::whole(SERVER, launch.log.clone());
        let server = Box::new(LocalServer::new(launch, Ready::Logs(READY)));
        server.start()?;
        Ok(PgBouncer::new(server, log, folder, port))
    })
}
