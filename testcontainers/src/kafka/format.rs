//! Making a data folder that a broker accepts as formatted.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::cache::Jars;
use crate::error::Doing;
use crate::names::random_kafka_id;

/// Fills the data folder of one node: the feature levels and the user from the cache, and an identity of its own.
pub(super) fn format(
    jars: &Jars,
    with_user: bool,
    cluster_id: &str,
    node: usize,
    data: &Path,
) -> Result<(), Error> {
    fs::create_dir(data).doing("create the folder", data)?;
    let checkpoint = jars.bootstrap_checkpoint(with_user);
    fs::copy(&checkpoint, data.join("bootstrap.checkpoint")).doing("copy", &checkpoint)?;
    let identities = data.join("meta.properties");
    let directory = random_kafka_id();
    let text = format!("version=1\nnode.id={node}\ncluster.id={cluster_id}\ndirectory.id={directory}\n");
    fs::write(&identities, text).doing("write", &identities)
}
