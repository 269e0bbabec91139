//! Making a data folder that the broker accepts as formatted.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::cache::Jars;
use crate::error::Doing;
use crate::names::random_kafka_id;

/// Fills an empty data folder: the feature levels from the cache, and identities of its own.
///
/// Every broker is another cluster, so that positions of one are never taken for positions of another.
pub(super) fn format(jars: &Jars, data: &Path) -> Result<(), Error> {
    fs::create_dir(data).doing("create the folder", data)?;
    let checkpoint = jars.bootstrap_checkpoint();
    fs::copy(&checkpoint, data.join("bootstrap.checkpoint")).doing("copy", &checkpoint)?;
    let identities = data.join("meta.properties");
    let text = format!(
        "version=1\nnode.id=1\ncluster.id={}\ndirectory.id={}\n",
        random_kafka_id(),
        random_kafka_id()
    );
    fs::write(&identities, text).doing("write", &identities)
}
