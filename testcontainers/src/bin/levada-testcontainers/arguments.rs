//! The arguments, understood.

use std::ffi::OsString;

use levada_testcontainers::run::Needs;

pub(crate) const USAGE: &str = "\
usage: levada-testcontainers run [--kafka] [--postgres] -- COMMAND [ARGUMENT]...
       levada-testcontainers prepare [--kafka] [--postgres]

run      starts the servers, exports LEVADA_KAFKA_BOOTSTRAP and LEVADA_POSTGRES_URL, runs COMMAND,
         stops the servers and exits as COMMAND did (125: a server or COMMAND could not be started)
prepare  fetches and makes what starts need, once per machine

Without --kafka and --postgres both are meant.";

#[derive(Debug)]
pub(crate) enum Request {
    Help,
    Prepare(Needs),
    Run(Needs, Vec<OsString>),
}

pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let verb = arguments.next().ok_or("a verb is missing")?;
    let mut needs = Needs { kafka: false, postgres: false };
    let mut separated = false;
    for argument in arguments.by_ref() {
        match argument.to_str() {
            Some("--kafka") => needs.kafka = true,
            Some("--postgres") => needs.postgres = true,
            Some("--help") => return Ok(Request::Help),
            Some("--") => {
                separated = true;
                break;
            }
            _ => return Err(format!("{} is not understood", argument.display())),
        }
    }
    if !needs.kafka && !needs.postgres {
        needs = Needs { kafka: true, postgres: true };
    }
    let command: Vec<OsString> = arguments.collect();
    match verb.to_str() {
        Some("help" | "--help" | "-h") => Ok(Request::Help),
        Some("prepare") if !separated => Ok(Request::Prepare(needs)),
        Some("run") if !command.is_empty() => Ok(Request::Run(needs, command)),
        Some("run") => Err("run needs -- and a command".to_owned()),
        _ => Err(format!("{} is not understood", verb.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, parse};

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split(' ').map(Into::into))
    }

    #[test]
    fn options_after_the_separator_belong_to_the_command() {
        let Ok(Request::Run(needs, command)) = parsed("run --kafka -- cargo test --postgres") else {
            panic!()
        };
        assert!(needs.kafka && !needs.postgres);
        assert_eq!(command, ["cargo", "test", "--postgres"]);
    }

    #[test]
    fn without_options_both_servers_are_meant() {
        let Ok(Request::Prepare(needs)) = parsed("prepare") else { panic!() };
        assert!(needs.kafka && needs.postgres);
    }

    #[test]
    fn a_run_without_a_command_is_refused() {
        assert!(parsed("run --kafka").is_err());
        assert!(parsed("run --kafka --").is_err());
        assert!(parsed("walk -- x").is_err());
    }
}
