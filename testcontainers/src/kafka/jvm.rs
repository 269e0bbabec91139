//! The options of the JVM.

use std::ffi::OsString;
use std::path::Path;

use super::KafkaBuilder;

/// Returns the options that every JVM of ours gets: it leaves no file outside `folder`, not even when it is killed.
pub(super) fn contained(folder: &Path) -> Vec<OsString> {
    let mut temporary = OsString::from("-Djava.io.tmpdir=");
    temporary.push(folder);
    vec!["-XX:-UsePerfData".into(), temporary]
}

/// The collector of a broker that is to run fast; all compilers are on unless told otherwise.
pub(super) const THROUGHPUT: &str = "-XX:+UseParallelGC";

/// Returns the options that make a JVM start fast and stay small.
pub(super) fn quick() -> Vec<OsString> {
    vec!["-XX:TieredStopAtLevel=1".into(), "-XX:+UseSerialGC".into()]
}

/// Returns the options that take loaded classes from an archive.
pub(super) fn archived(archive: &Path) -> [OsString; 3] {
    let mut option = OsString::from("-XX:SharedArchiveFile=");
    option.push(archive);
    // An archive that does not fit is passed over in silence.
    ["-Xshare:auto".into(), "-Xlog:cds=off".into(), option]
}

/// Returns the options of a broker.
pub(super) fn broker(builder: &KafkaBuilder, folder: &Path, class_archive: Option<&Path>) -> Vec<OsString> {
    let mut options = contained(folder);
    if builder.for_throughput {
        options.push(THROUGHPUT.into());
    } else {
        options.extend(quick());
    }
    options.push(format!("-Xmx{}", builder.heap).into());
    options.extend(class_archive.into_iter().flat_map(archived));
    options.push("-Dorg.slf4j.simpleLogger.showDateTime=true".into());
    options.push("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS".into());
    // A thousand lines of configuration would push everything else out of the end of the log.
    options.push("-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn".into());
    options
}
