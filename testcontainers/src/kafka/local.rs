//! A broker as a process of this machine.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::broker::SERVER;
use super::format;
use super::node::Node;
use super::start::{Cluster, READY};
use crate::Error;
use crate::cache::Jars;
use crate::error::Doing;
use crate::process::{DataFolder, EndWith, Launch, LocalServer, Ready};
use crate::server::Server;

/// Formats the data folder and says how to start the broker.
pub(super) fn server(
    cluster: &Cluster<'_>,
    node: &Node,
    folder: &DataFolder,
    java: &Path,
    jars: &Jars,
    options: Vec<OsString>,
) -> Result<Box<dyn Server>, Error> {
    let data = folder.data();
    format::format(jars, cluster.builder.is_secured, &cluster.id, node.id, &data)?;
    let file = folder.path().join("server.properties");
    fs::write(&file, cluster.properties(node, &data)).doing("write", &file)?;
    let mut arguments = options;
    arguments.extend(["-cp".into(), jars.class_path()?, "kafka.Kafka".into(), file.into()]);
    let launch = Launch {
        server: SERVER,
        program: java.to_path_buf(),
        arguments,
        folder: folder.path().to_path_buf(),
        log: folder.log(),
        user: None,
        end_with: EndWith::Kill,
    };
    Ok(Box::new(LocalServer::new(launch, Ready::Logs(READY))))
}
