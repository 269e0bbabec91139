//! The first connection: tables of our own, and the target as the catalog describes it.

use std::time::Duration;

use levada_core::{ErrorClass, SinkError};
use tokio::time::Instant;

use super::backoff::Pauses;
use super::catalog::{self, Target, Unfit};
use super::layout::Layout;
use super::session::Session;
use super::writer::Writer;

impl Writer {
    /// Connects under a name, makes the tables of `layout` if they are missing, and reads the target.
    ///
    /// A server that is away is waited for, within a limit: a wrong address looks the same.
    pub(crate) async fn open(
        &mut self,
        application_name: String,
        layout: Option<&Layout>,
    ) -> Result<(), SinkError> {
        self.application_name = application_name;
        let deadline = Instant::now() + self.config.open_timeout;
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            let failure = match self.try_open(layout).await {
                Ok(target) => {
                    self.aim(target);
                    self.recovered();
                    return Ok(());
                }
                Err(Unfit::Wrong(error)) => return Err(error),
                Err(Unfit::Failed(failure)) => failure,
            };
            let may_pass = matches!(failure.class, ErrorClass::Reconnect | ErrorClass::Retry);
            if !may_pass || Instant::now() >= deadline {
                return Err(failure.during(format!("opening {} in Postgres", self.config.table)));
            }
            self.lost(&failure);
            pauses.next().await;
        }
    }

    async fn try_open(&mut self, layout: Option<&Layout>) -> Result<Target, Unfit> {
        let config = &self.config;
        let session = Session::connect(&config.connection, config.limits(), &self.application_name).await?;
        if let Some(layout) = layout {
            layout.ensure(&session).await?;
        }
        let target = catalog::read(&session, &self.config).await?;
        self.session = Some(session);
        Ok(target)
    }
}
