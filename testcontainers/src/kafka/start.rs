//! Starting a broker: from the cache to the first answer.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::handle::{Kafka, SERVER};
use super::{KafkaBuilder, format, jvm, properties};
use crate::Error;
use crate::cache::{Jars, class_archive, jars};
use crate::error::Doing;
use crate::logs::Log;
use crate::process::{DataFolder, EndWith, Launch, Port, ServerProcess, ended_early};
use crate::programs::java;
use crate::wait::wait_for;

/// How long a broker may take until it serves clients. It takes two to five seconds; this is patience for a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// How often other ports are tried when somebody took ours between the look and the bind.
const PORT_ATTEMPTS: usize = 5;

/// What the broker logs when it serves clients.
const READY: &str = "Kafka Server started";

/// Fetches the jars, formats a folder and archives the classes, as far as this has not been done on this machine.
pub(crate) fn prepare() -> Result<(), Error> {
    let java = java()?;
    let jars = jars()?;
    archive_of(&java, &jars).map(|_| ())
}

pub(super) fn start(builder: &KafkaBuilder) -> Result<Kafka, Error> {
    let java = java()?;
    let jars = jars()?;
    // Without the archive the broker starts more slowly, which is no reason to fail a test.
    let archive = archive_of(&java, &jars).ok();
    let mut attempt = 1;
    loop {
        match start_once(builder, &java, &jars, |folder| jvm::broker(builder, folder, archive.as_deref())) {
            Err(Error::PortTaken { .. }) if attempt < PORT_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

/// Returns the class archive, recording it with a broker that is started for nothing else.
fn archive_of(java: &Path, jars: &Jars) -> Result<PathBuf, Error> {
    class_archive(java, jars, |path| {
        let builder = Kafka::builder();
        let mut option = OsString::from("-XX:ArchiveClassesAtExit=");
        option.push(path);
        let recorder = start_once(&builder, java, jars, |folder| {
            let mut options = jvm::broker(&builder, folder, None);
            options.extend([option, "-Xlog:cds=off".into(), "-Xlog:cds+dynamic=off".into()]);
            options
        })?;
        recorder.stop()
    })
}

fn start_once(
    builder: &KafkaBuilder,
    java: &Path,
    jars: &Jars,
    options: impl FnOnce(&Path) -> Vec<OsString>,
) -> Result<Kafka, Error> {
    let folder = DataFolder::create("kafka")?;
    let (broker, controller) = (Port::reserve()?, Port::reserve()?);
    let data = folder.path().join("data");
    format::format(jars, &data)?;
    let file = folder.path().join("server.properties");
    let text = properties::text(&builder.properties, broker.number(), controller.number(), &data);
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
    let process = launch_ready(&launch)?;
    Ok(Kafka::new(launch, process, folder, broker, controller))
}

/// Spawns the broker and waits until it serves clients.
pub(super) fn launch_ready(launch: &Launch) -> Result<ServerProcess, Error> {
    // A restart appends to the log of the start before it.
    let log = Log::from_now(SERVER, launch.log.clone());
    let mut process = launch.spawn()?;
    let outcome = wait_for(START_DEADLINE, || match process.ended() {
        Some(status) => Some(Err(ended_early(SERVER, status, &log))),
        None => log.read().contains(READY).then_some(Ok(())),
    });
    match outcome {
        Some(result) => result.map(|()| process),
        None => Err(Error::NotReady { server: SERVER, after: START_DEADLINE, log: log.tail() }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{Error, Kafka, launch_ready};

    /// [TST-01] Somebody may take a port between our look and the bind: then other ports are tried.
    #[test]
    fn a_taken_port_is_told_from_other_failures() {
        let server = Kafka::start().unwrap();
        server.kill();
        let address = server.bootstrap();
        let somebody = TcpListener::bind(address).unwrap();
        let taken = launch_ready(&server.launch).unwrap_err();
        assert!(matches!(taken, Error::PortTaken { .. }), "{taken}");
        drop(somebody);
        server.restart().unwrap();
        let other = Kafka::builder().property("num.io.threads", "many").start().unwrap_err();
        assert!(matches!(other, Error::EndedEarly { .. }), "{other}");
    }
}
