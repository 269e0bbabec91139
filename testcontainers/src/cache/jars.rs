//! Apache Kafka: the jars that the checked-in pom names, and a formatted folder to start brokers from.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{entry, folder};
use crate::Error;
use crate::error::Doing;
use crate::programs::{java, maven, run_to_end};

/// The artifacts and their versions.
const POM: &str = include_str!("../../kafka/pom.xml");

/// The version of the broker, in the name of the cache entry.
pub(crate) const VERSION: &str = "4.3.0";

/// The cache entry with the jars.
#[derive(Clone, Debug)]
pub(crate) struct Jars {
    folder: PathBuf,
}

impl Jars {
    /// Returns the class path: every jar by name, in a fixed order, because a class archive is bound to it.
    pub(crate) fn class_path(&self) -> Result<OsString, Error> {
        let lib = self.folder.join("lib");
        let mut jars = Vec::new();
        for entry in fs::read_dir(&lib).doing("list", &lib)? {
            jars.push(entry.doing("list", &lib)?.path());
        }
        jars.sort_unstable();
        let mut class_path = OsString::new();
        for jar in jars {
            if !class_path.is_empty() {
                class_path.push(":");
            }
            class_path.push(jar);
        }
        Ok(class_path)
    }

    /// Returns the file that a formatted Kafka folder starts from: the feature levels of this version.
    pub(crate) fn bootstrap_checkpoint(&self) -> PathBuf {
        self.folder.join("formatted/bootstrap.checkpoint")
    }
}

/// Returns the jars, fetching them if this machine does not have them yet.
pub(crate) fn jars() -> Result<Jars, Error> {
    let name = format!("kafka-{VERSION}");
    let mut made = entry(&name, fill)?;
    let sealed_pom = made.join("pom.xml");
    // Another release of this crate may name other artifacts for the same broker: then ours are fetched anew.
    if fs::read_to_string(&sealed_pom).doing("read", &sealed_pom)? != POM {
        fs::remove_file(made.join("MANIFEST")).doing("remove the seal of", &made)?;
        made = entry(&name, fill)?;
    }
    Ok(Jars { folder: made })
}

fn fill(unsealed: &Path) -> Result<(), Error> {
    let java = java()?;
    let maven = maven()?;
    let pom = unsealed.join("pom.xml");
    fs::write(&pom, POM).doing("write", &pom)?;
    let mut fetch = Command::new(maven);
    // Strict checksums: a download that differs from what the repository announces is an error, not a warning.
    fetch.args([
        "--quiet",
        "--batch-mode",
        "--strict-checksums",
        "dependency:copy-dependencies",
        "--file",
    ]);
    fetch
        .arg(&pom)
        .arg(format!("-DoutputDirectory={}", unsealed.join("lib").display()));
    run_to_end("mvn dependency:copy-dependencies", &mut fetch)?;
    format(&java, unsealed)
}

/// Formats a folder once; brokers start from copies of it, which saves each of them the start of a second JVM.
fn format(java: &Path, unsealed: &Path) -> Result<(), Error> {
    let properties = unsealed.join("format.properties");
    let formatted = unsealed.join("formatted");
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n\
         listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n",
        formatted.display()
    );
    fs::write(&properties, text).doing("write", &properties)?;
    let jars = Jars {
        folder: unsealed.to_path_buf(),
    };
    let mut format = Command::new(java);
    format
        .args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-cp"])
        .arg(jars.class_path()?);
    format.args([
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        "levadaFormattedOnce000",
        "--config",
    ]);
    format.arg(&properties);
    run_to_end("kafka.tools.StorageTool format", &mut format)?;
    Ok(())
}

/// Returns where archives of loaded classes are kept: outside the sealed entry, which they would break.
pub(crate) fn archive_folder() -> Result<PathBuf, Error> {
    Ok(folder()?.join(format!("kafka-{VERSION}-classes")))
}
