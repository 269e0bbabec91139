//! Whether a cluster can do what recovery needs, before anything is written.

use std::time::Duration;

use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, DescribeConfigsRequest, DescribeProducersRequest, DescribeTransactionsRequest,
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ListTransactionsRequest, MetadataRequest,
    OffsetFetchRequest, TxnOffsetCommitRequest,
};

use super::client::ProtocolClient;
use super::cluster::Cluster;
use super::connection::Connection;
use super::error::ProtocolError;
use super::retry::Call;

impl ProtocolClient {
    /// Connects to every broker, with the security settings that everything else uses, and looks whether it speaks all that
    /// this client may ask it for.
    ///
    /// # Errors
    /// [`ProtocolError::Unsupported`] names the broker, the request, what is spoken of it and what it is needed for;
    /// otherwise why a broker cannot be reached.
    pub async fn check_brokers(&self, within: Duration) -> Result<Cluster, ProtocolError> {
        let mut call = Call::new("ApiVersions", within);
        loop {
            match self.check_brokers_once(&call).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    async fn check_brokers_once(&self, call: &Call) -> Result<Cluster, ProtocolError> {
        let cluster = self.read_cluster(&[], call).await?.complete()?;
        for broker in cluster.brokers.values() {
            let connection = self.connected(broker, call).await?;
            speaks_all(&connection)?;
            self.put_back(connection);
        }
        Ok(cluster)
    }
}

/// The newest requests first: they say best what is wrong with a broker that is too old.
fn speaks_all(connection: &Connection) -> Result<(), ProtocolError> {
    connection.speaks::<DescribeTransactionsRequest>()?;
    connection.speaks::<ListTransactionsRequest>()?;
    connection.speaks::<DescribeProducersRequest>()?;
    connection.speaks::<EndTxnRequest>()?;
    connection.speaks::<InitProducerIdRequest>()?;
    connection.speaks::<AddOffsetsToTxnRequest>()?;
    connection.speaks::<TxnOffsetCommitRequest>()?;
    connection.speaks::<OffsetFetchRequest>()?;
    connection.speaks::<DescribeConfigsRequest>()?;
    connection.speaks::<FindCoordinatorRequest>()?;
    connection.speaks::<MetadataRequest>()
}
