//! Apache Kafka: the jars that the checked-in pom names, and a formatted folder to start brokers from.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::entry;
use crate::Error;
use crate::error::Doing;
use crate::kafka::scram_records;
use crate::programs::{java, maven, run_to_end};

/// The artifacts and their versions.
const POM: &str = include_str!("../../kafka/pom.xml");

/// The version of the broker unless another one is asked for: what the pom says.
pub(crate) const DEFAULT_VERSION: &str = "4.3.0";

/// The formatted folders in the entry. Another layout needs another name of the entry.
const FORMATTED: &str = "formatted";
const FORMATTED_WITH_USER: &str = "formatted-with-user";
const LAYOUT: u32 = 2;

/// The cache entry with the jars.
#[derive(Clone, Debug)]
pub(crate) struct Jars {
    folder: PathBuf,
}

impl Jars {
    /// Returns the class path: every jar by name, in a fixed order, because a class archive is bound to it.
    pub(crate) fn class_path(&self) -> Result<OsString, Error> {
        let lib = self.lib();
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

    /// Returns the folder that the jars are in.
    pub(super) fn lib(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// Returns the folder for archives of loaded classes: beside the sealed entry, which a new file would break.
    pub(super) fn archives(&self) -> PathBuf {
        let mut path = self.folder.clone().into_os_string();
        path.push(".classes");
        PathBuf::from(path)
    }

    /// Returns the file that a formatted Kafka folder starts from: the feature levels of this version, and the user's
    /// credentials if the cluster is to have one.
    pub(crate) fn bootstrap_checkpoint(&self, with_user: bool) -> PathBuf {
        self.folder.join(if with_user { FORMATTED_WITH_USER } else { FORMATTED }).join("bootstrap.checkpoint")
    }
}

/// Returns the jars of a version, fetching them if this machine does not have them yet.
pub(crate) fn jars(version: &str) -> Result<Jars, Error> {
    Ok(Jars { folder: entry(&entry_name(version), |unsealed| fill(version, unsealed))? })
}

/// Returns the name of the cache entry: another pom is another entry, even for the same version of Kafka.
fn entry_name(version: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (POM, LAYOUT).hash(&mut hasher);
    format!("kafka-{version}-{:016x}", hasher.finish())
}

fn fill(version: &str, unsealed: &Path) -> Result<(), Error> {
    let java = java()?;
    let maven = maven()?;
    let pom = unsealed.join("pom.xml");
    fs::write(&pom, POM.replace(DEFAULT_VERSION, version)).doing("write", &pom)?;
    let mut fetch = Command::new(maven);
    // Strict checksums: a download that differs from what the repository announces is an error, not a warning.
    fetch.args([
        "--quiet",
        "--batch-mode",
        "-Dstyle.color=never",
        "--strict-checksums",
        "dependency:copy-dependencies",
        "--file",
    ]);
    fetch.arg(&pom).arg(format!("-DoutputDirectory={}", unsealed.join("lib").display()));
    eprintln!("fetching Apache Kafka {version}, once for this machine");
    run_to_end("mvn dependency:copy-dependencies", &mut fetch)?;
    format(&java, unsealed, FORMATTED, &[])?;
    let user: Vec<String> = scram_records().flat_map(|record| ["--add-scram".to_owned(), record]).collect();
    format(&java, unsealed, FORMATTED_WITH_USER, &user)
}

/// Formats a folder once; brokers start from copies of it, which saves each of them the start of a second JVM.
fn format(java: &Path, unsealed: &Path, name: &str, options: &[String]) -> Result<(), Error> {
    let properties = unsealed.join("format.properties");
    let formatted = unsealed.join(name);
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n\
         listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n",
        formatted.display()
    );
    fs::write(&properties, text).doing("write", &properties)?;
    let jars = Jars { folder: unsealed.to_path_buf() };
    let mut format = Command::new(java);
    format.args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-cp"]).arg(jars.class_path()?);
    format.args(["kafka.tools.StorageTool", "format", "--cluster-id", "levadaFormattedOnce000", "--config"]);
    format.arg(&properties).args(options);
    run_to_end("kafka.tools.StorageTool format", &mut format)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_VERSION, POM};

    /// [TST-01] Another version is put in its place.
    #[test]
    fn the_default_version_is_the_one_that_the_pom_names() {
        assert!(POM.contains(DEFAULT_VERSION));
    }
}
