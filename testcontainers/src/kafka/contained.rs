//! A broker in a container: the image `apache/kafka`, or one that shows as much of its interface.

use std::path::Path;
use std::time::Duration;

use super::broker::SERVER;
use super::node::Node;
use super::security::{USER, scram_configs};
use super::start::{Cluster, READY};
use super::{Kafka, jvm};
use crate::Error;
use crate::docker::{ContainerServer, File, Image, Ready, Spec};
use crate::process::DataFolder;
use crate::server::Server;

/// The volume of the image for data; the image's own default would be lost with the container's file system.
const DATA: &str = "/var/lib/kafka/data";

/// Where the image looks for a configuration that replaces its own.
const PROPERTIES: &str = "/mnt/shared/config/server.properties";

/// How long a start may take: the image formats the data first, with a JVM of its own.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// Says how to start the broker's container.
pub(super) fn server(
    cluster: &Cluster<'_>,
    node: &Node,
    folder: &DataFolder,
) -> Result<Box<dyn Server>, Error> {
    let properties = cluster.properties(node, Path::new(DATA));
    let mut variables = vec![
        ("CLUSTER_ID".to_owned(), cluster.id.clone()),
        ("KAFKA_HEAP_OPTS".to_owned(), format!("-Xmx{}", cluster.builder.heap)),
    ];
    if cluster.builder.for_throughput {
        variables.push(("KAFKA_JVM_PERFORMANCE_OPTS".to_owned(), jvm::THROUGHPUT.to_owned()));
    }
    let spec = Spec {
        server: SERVER,
        image: Image::kafka(&cluster.builder.version)?,
        prefix: "levada-kafka",
        env: variables,
        command: Vec::new(),
        files: vec![File { path: PROPERTIES.to_owned(), contents: properties.into_bytes(), mode: 0o644 }],
        tmpfs: Vec::new(),
        log: folder.log(),
        ready: Ready::Logs(READY),
        patience: START_PATIENCE,
    };
    Ok(Box::new(ContainerServer::new(spec)))
}

/// Makes the user known to a running cluster: the image formats the data itself, without one.
pub(super) fn add_user(kafka: &Kafka) -> Result<(), Error> {
    let address = kafka.broker(1).address();
    for credentials in scram_configs() {
        let command = [
            "/opt/kafka/bin/kafka-configs.sh",
            "--bootstrap-server",
            &address,
            "--alter",
            "--entity-type",
            "users",
            "--entity-name",
            USER,
            "--add-config",
            &credentials,
        ];
        let output = kafka.broker(1).run_inside(&command)?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            let command = "kafka-configs.sh --add-config SCRAM-…".to_owned();
            return Err(Error::Failed { command, status: output.status, output: printed });
        }
    }
    Ok(())
}
