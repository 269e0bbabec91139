//! DescribeConfigs of brokers: the limits that our own settings must keep to.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResponse;
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::retry::Call;

/// The number of brokers among the kinds of things that have settings.
const BROKER: i8 = 4;

/// Settings of one broker, by name. `None` for one that it keeps secret.
pub type Settings = BTreeMap<String, Option<String>>;

impl ProtocolClient {
    /// Asks every broker for these settings of its own, such as `transaction.max.timeout.ms`. One that a broker does not
    /// know is left out of its answer.
    ///
    /// # Errors
    /// [`ProtocolError`], also when a single broker cannot be asked; a refusal where we may not describe the cluster's
    /// configuration.
    pub async fn broker_settings(
        &self,
        names: &[&str],
        within: Duration,
    ) -> Result<BTreeMap<i32, Settings>, ProtocolError> {
        let mut call = Call::new(format!("DescribeConfigs of {}", names.join(", ")), within);
        loop {
            match self.broker_settings_once(names, &call).await {
                Ok(settings) => return Ok(settings),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    async fn broker_settings_once(
        &self,
        names: &[&str],
        call: &Call,
    ) -> Result<BTreeMap<i32, Settings>, ProtocolError> {
        let cluster = self.read_cluster(&[], call).await?.complete()?;
        let mut settings = BTreeMap::new();
        for &broker in cluster.brokers.keys() {
            let answer = self.ask_broker(broker, &request(broker, names), call).await?;
            settings.insert(broker, read(answer, call)?);
        }
        Ok(settings)
    }
}

fn request(broker: i32, names: &[&str]) -> DescribeConfigsRequest {
    let names = names.iter().map(|name| StrBytes::from_string((*name).to_owned()));
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(StrBytes::from_string(broker.to_string()))
        .with_configuration_keys(Some(names.collect()));
    DescribeConfigsRequest::default().with_resources(vec![resource])
}

fn read(answer: DescribeConfigsResponse, call: &Call) -> Result<Settings, ProtocolError> {
    let mut settings = Settings::new();
    for told in answer.results {
        if let Some(code) = ErrorCode::of(told.error_code) {
            let message = told.error_message.map(|message| message.to_string());
            return Err(ProtocolError::Refused { request: call.told.clone(), code, message });
        }
        let pairs = told.configs.into_iter();
        settings.extend(pairs.map(|told| (told.name.to_string(), told.value.map(|value| value.to_string()))));
    }
    Ok(settings)
}
