//! Starting a cluster: from the cache to the first answer.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;

use super::broker::{Broker, SERVER};
use super::handle::Kafka;
use super::node::Node;
use super::security::Secrets;
use super::{KafkaBuilder, jvm, local, properties};
use crate::Error;
use crate::cache::{DEFAULT_VERSION, Jars, class_archive, jars};
use crate::logs::Log;
use crate::names::random_kafka_id;
use crate::process::{DataFolder, on_free_ports};
use crate::programs::java;
use crate::provider::Provider;
use crate::server::Server;

/// What a broker logs when it serves clients.
pub(super) const READY: &str = "Kafka Server started";

/// Fetches the jars, formats a folder and archives the classes, as far as this has not been done on this machine.
pub(crate) fn prepare() -> Result<(), Error> {
    let java = java()?;
    let jars = jars(DEFAULT_VERSION)?;
    archive_of(&java, &jars).map(|_| ())
}

pub(super) fn start(builder: &KafkaBuilder) -> Result<Kafka, Error> {
    if ![1, 3].contains(&builder.brokers) {
        return Err(Error::Refused { what: "a cluster has 1 or 3 brokers" });
    }
    match Provider::chosen()? {
        Provider::Process => start_locally(builder),
        #[cfg(feature = "docker")]
        Provider::Docker => start_in_containers(builder),
        #[cfg(not(feature = "docker"))]
        Provider::Docker => Err(Provider::without_containers()),
        Provider::External => {
            Err(Error::Refused { what: "a broker of one's own cannot be had from an external provider" })
        }
    }
}

fn start_locally(builder: &KafkaBuilder) -> Result<Kafka, Error> {
    let java = java()?;
    let jars = jars(&builder.version)?;
    // Without the archive a broker starts more slowly, which is no reason to fail a test.
    let archive = archive_of(&java, &jars).ok();
    let options = |folder: &Path| jvm::broker(builder, folder, archive.as_deref());
    on_free_ports(|| {
        start_once(builder, &|cluster, node, folder| {
            local::server(cluster, node, folder, &java, &jars, options(folder.path()))
        })
    })
}

#[cfg(feature = "docker")]
fn start_in_containers(builder: &KafkaBuilder) -> Result<Kafka, Error> {
    if builder.disk.is_some() {
        return Err(Error::Refused { what: "a disk of its own needs the provider `process`" });
    }
    let kafka = on_free_ports(|| start_once(builder, &super::contained::server))?;
    if builder.is_secured {
        super::contained::add_user(&kafka)?;
    }
    Ok(kafka)
}

/// Returns the class archive, recording it with a broker that is started for nothing else.
fn archive_of(java: &Path, jars: &Jars) -> Result<PathBuf, Error> {
    class_archive(java, jars, |path| {
        let builder = Kafka::builder();
        let mut archive = OsString::from("-XX:ArchiveClassesAtExit=");
        archive.push(path);
        let options = |folder: &Path| {
            let mut options = jvm::broker(&builder, folder, None);
            options.extend([archive.clone(), "-Xlog:cds=off".into(), "-Xlog:cds+dynamic=off".into()]);
            options
        };
        let recorder = on_free_ports(|| {
            start_once(&builder, &|cluster, node, folder| {
                local::server(cluster, node, folder, java, jars, options(folder.path()))
            })
        })?;
        recorder.stop()
    })
}

/// What the brokers of a cluster have in common.
pub(super) struct Cluster<'a> {
    pub(super) builder: &'a KafkaBuilder,
    /// Every cluster is another one, so that positions of one are never taken for positions of another.
    pub(super) id: String,
    voters: Vec<String>,
    secrets: Option<Secrets>,
}

impl Cluster<'_> {
    /// Returns the text of a node's `server.properties`; `data` is the folder as the broker sees it.
    pub(super) fn properties(&self, node: &Node, data: &Path) -> String {
        properties::text(&self.builder.properties, node, &self.voters, data, self.secrets.as_ref())
    }
}

/// Makes a server of a provider for a node, not started yet. It logs to the folder's log.
type MakeServer<'a> = dyn Fn(&Cluster<'_>, &Node, &DataFolder) -> Result<Box<dyn Server>, Error> + 'a;

fn start_once(builder: &KafkaBuilder, make_server: &MakeServer<'_>) -> Result<Kafka, Error> {
    let mut nodes = Vec::new();
    let mut folders = Vec::new();
    for id in 1..=builder.brokers {
        nodes.push(Node::reserve(id, &builder.listeners())?);
        folders.push(DataFolder::create_with_disk("kafka", builder.disk)?);
    }
    let voters =
        nodes.iter().map(|node| format!("{}@127.0.0.1:{}", node.id, node.controller.number())).collect();
    // The first broker's folder holds what belongs to all of them.
    let secrets = match folders.first() {
        Some(folder) if builder.is_secured => Some(Secrets::new(folder.path())?),
        _ => None,
    };
    let cluster = Cluster { builder, id: random_kafka_id(), voters, secrets };
    let mut brokers = Vec::new();
    for (mut node, folder) in nodes.into_iter().zip(folders) {
        let cut = node.put_cut_in_front()?;
        let server = make_server(&cluster, &node, &folder)?;
        let log = Log::whole(SERVER, folder.log());
        brokers.push(Broker::new(server, log, folder, node, cut));
    }
    start_all(&brokers)?;
    Ok(Kafka::new(brokers, cluster.secrets))
}

/// Starts brokers side by side: none of several is ready before most of them run.
pub(super) fn start_all(brokers: &[Broker]) -> Result<(), Error> {
    thread::scope(|scope| {
        let starting: Vec<_> = brokers.iter().map(|broker| scope.spawn(|| broker.start())).collect();
        let mut outcome = Ok(());
        for start in starting {
            match start.join() {
                Ok(started) => outcome = outcome.and(started),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{Error, Kafka};

    /// [TST-01] It is what other ports are tried for.
    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let server = Kafka::start().unwrap();
        server.kill();
        let address = server.bootstrap();
        let somebody = TcpListener::bind(address).unwrap();
        let taken = server.restart().unwrap_err();
        assert!(matches!(taken, Error::PortTaken { .. }), "{taken}");
        drop(somebody);
        server.restart().unwrap();
        let other = Kafka::builder().property("num.io.threads", "many").start().unwrap_err();
        assert!(matches!(other, Error::EndedEarly { .. }), "{other}");
    }
}
