//! Who runs the servers, and how that is chosen.

use std::fmt;
use std::sync::OnceLock;

use crate::{Error, programs, variable};

/// The variable that chooses.
const VARIABLE: &str = "LEVADA_PROVIDER";

/// Who runs the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// This crate, as processes of this machine: Apache Kafka from Maven Central, the PostgreSQL that is installed.
    Process,
    /// A container engine on this machine, with the stock images or those that the environment names.
    Docker,
    /// Somebody else: their addresses are in the environment. They are used and never ended, hurt or emptied.
    External,
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provider::Process => "process",
            Provider::Docker => "docker",
            Provider::External => "external",
        })
    }
}

impl Provider {
    /// Returns who runs the servers of this process. The first call prints it on standard error.
    ///
    /// `LEVADA_PROVIDER` decides (`process`, `docker` or `external`). Without it, servers are local processes, unless Java
    /// or PostgreSQL is missing and this crate was built with the feature `docker`: then they are containers.
    ///
    /// Exported addresses (`LEVADA_KAFKA_BOOTSTRAP`, `LEVADA_POSTGRES_URL`) name the *shared* servers under every provider;
    /// under `external` there are no others.
    ///
    /// # Errors
    ///
    /// [`Error::Variable`] when it names no provider.
    pub fn chosen() -> Result<Provider, Error> {
        static CHOSEN: OnceLock<Provider> = OnceLock::new();
        if let Some(provider) = CHOSEN.get() {
            return Ok(*provider);
        }
        let (provider, reason) = choose(variable::text(VARIABLE)?.as_deref(), is_missing_program)?;
        Ok(*CHOSEN.get_or_init(|| {
            eprintln!("levada-testcontainers: provider {provider} ({reason})");
            provider
        }))
    }

    /// Makes the error for containers that this build cannot start.
    #[cfg(not(feature = "docker"))]
    pub(crate) fn without_containers() -> Error {
        Error::Refused { what: "containers need the feature `docker` of levada-testcontainers" }
    }
}

/// Decides, and says why.
fn choose(asked: Option<&str>, is_missing: impl Fn() -> bool) -> Result<(Provider, &'static str), Error> {
    match asked {
        Some("process") => Ok((Provider::Process, "as LEVADA_PROVIDER says")),
        Some("docker") => Ok((Provider::Docker, "as LEVADA_PROVIDER says")),
        Some("external") => Ok((Provider::External, "as LEVADA_PROVIDER says")),
        Some(_) => {
            Err(Error::Variable { variable: VARIABLE, reason: "it is none of process, docker, external" })
        }
        None if cfg!(feature = "docker") && is_missing() => {
            Ok((Provider::Docker, "Java or PostgreSQL is not installed"))
        }
        None => Ok((Provider::Process, "by default")),
    }
}

fn is_missing_program() -> bool {
    programs::java().is_err() || programs::postgres_folder().is_err()
}

#[cfg(test)]
mod tests {
    use super::{Provider, choose};

    /// [TST-02]
    #[test]
    fn the_environment_decides_then_what_is_installed() {
        let chosen = |asked, is_missing| choose(asked, || is_missing).map(|(provider, _)| provider);
        assert_eq!(chosen(Some("docker"), false).unwrap(), Provider::Docker);
        assert_eq!(chosen(Some("external"), false).unwrap(), Provider::External);
        assert_eq!(chosen(Some("process"), true).unwrap(), Provider::Process);
        assert_eq!(chosen(None, false).unwrap(), Provider::Process);
        let fallback = if cfg!(feature = "docker") { Provider::Docker } else { Provider::Process };
        assert_eq!(chosen(None, true).unwrap(), fallback);
        chosen(Some("podman"), false).unwrap_err();
    }
}
