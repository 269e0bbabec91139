//! Starting a cluster: from the cache to the first answer.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use super::broker::{Broker, SERVER};
use super::handle::Kafka;
use super::node::Node;
use super::security::Secrets;
use super::{KafkaBuilder, format, jvm, properties};
use crate::Error;
use crate::cache::{DEFAULT_VERSION, Jars, class_archive, jars};
use crate::error::Doing;
use crate::logs::Log;
use crate::names::random_kafka_id;
use crate::process::{DataFolder, EndWith, Launch, LocalServer, Ready};
use crate::programs::java;
use crate::provider::Provider;

/// How often other ports are tried when somebody took ours between the look and the bind.
const PORT_ATTEMPTS: usize = 5;

/// What a broker logs when it serves clients.
const READY: &str = "Kafka Server started";

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
        Provider::Docker => Err(Error::Refused { what: "containers" }),
        Provider::External => {
            Err(Error::Refused { what: "a broker of one's own is not to be had from an external provider" })
        }
    }
}

fn start_locally(builder: &KafkaBuilder) -> Result<Kafka, Error> {
    let java = java()?;
    let jars = jars(&builder.version)?;
    // Without the archive a broker starts more slowly, which is no reason to fail a test.
    let archive = archive_of(&java, &jars).ok();
    let options = |folder: &Path| jvm::broker(builder, folder, archive.as_deref());
    let mut attempt = 1;
    loop {
        match start_once(builder, &java, &jars, &options) {
            Err(Error::PortTaken { .. }) if attempt < PORT_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

/// Returns the class archive, recording it with a broker that is started for nothing else.
fn archive_of(java: &Path, jars: &Jars) -> Result<PathBuf, Error> {
    class_archive(java, jars, |path| {
        let builder = Kafka::builder();
        let mut archive = OsString::from("-XX:ArchiveClassesAtExit=");
        archive.push(path);
        let recorder = start_once(&builder, java, jars, &|folder| {
            let mut options = jvm::broker(&builder, folder, None);
            options.extend([archive.clone(), "-Xlog:cds=off".into(), "-Xlog:cds+dynamic=off".into()]);
            options
        })?;
        recorder.stop()
    })
}

fn start_once(
    builder: &KafkaBuilder,
    java: &Path,
    jars: &Jars,
    options: &dyn Fn(&Path) -> Vec<OsString>,
) -> Result<Kafka, Error> {
    let mut nodes = Vec::new();
    for id in 1..=builder.brokers {
        nodes.push(Node::reserve(id, &builder.listeners())?);
    }
    let voters: Vec<String> =
        nodes.iter().map(|node| format!("{}@127.0.0.1:{}", node.id, node.controller.number())).collect();
    // The first broker's folder holds what belongs to all of them.
    let mut folders = Vec::new();
    for _ in &nodes {
        folders.push(DataFolder::create_with_disk("kafka", builder.disk)?);
    }
    let secrets = match folders.first() {
        Some(folder) if builder.is_secured => Some(Secrets::new(folder.path())?),
        _ => None,
    };
    // Every cluster is another one, so that positions of one are never taken for positions of another.
    let cluster_id = random_kafka_id();
    let mut brokers = Vec::new();
    for (mut node, folder) in nodes.into_iter().zip(folders) {
        let cut = node.put_cut_in_front()?;
        let data = folder.data();
        format::format(jars, builder.is_secured, &cluster_id, node.id, &data)?;
        let file = folder.path().join("server.properties");
        let text = properties::text(&builder.properties, &node, &voters, &data, secrets.as_ref());
        fs::write(&file, text).doing("write", &file)?;
        let mut arguments = options(folder.path());
        arguments.extend(["-cp".into(), jars.class_path()?, "kafka.Kafka".into(), file.into()]);
        let launch = Launch {
            server: SERVER,
            program: java.to_path_buf(),
            arguments,
            folder: folder.path().to_path_buf(),
            log: folder.path().join("server.log"),
            user: None,
            end_with: EndWith::Kill,
        };
        let log = Log::whole(SERVER, launch.log.clone());
        let server = Box::new(LocalServer::new(launch, Ready::Logs(READY)));
        brokers.push(Broker::new(server, log, folder, node, cut));
    }
    start_all(&brokers)?;
    Ok(Kafka::new(brokers, secrets))
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

    /// [TST-01] Somebody may take a port between our look and the bind: then other ports are tried.
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
