//! What a life of the program under test is told.

use std::path::PathBuf;

use super::Target;

/// The arguments of `checkpointed-under-test`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What it writes to.
    pub target: Target,
    /// The addresses of the brokers.
    pub brokers: String,
    /// The topic.
    pub topic: String,
    /// Where checkpoints, output and markers are.
    pub home: PathBuf,
    /// Subtasks.
    pub parallelism: u32,
    /// Whether it ends where the topic ends when it starts.
    pub until_now: bool,
    /// Whether it takes the store from a process that lives.
    pub takes_over: bool,
    /// Whether it goes on after a failure that is none of the process.
    pub restarts: bool,
}

const UNTIL_NOW: &str = "--until-now";
const TAKES_OVER: &str = "--take-over";
const RESTARTS: &str = "--restarts";

impl Told {
    /// Returns the arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            self.target.to_string(),
            self.brokers.clone(),
            self.topic.clone(),
            self.home.display().to_string(),
            self.parallelism.to_string(),
        ];
        let flags = [(self.until_now, UNTIL_NOW), (self.takes_over, TAKES_OVER), (self.restarts, RESTARTS)];
        let given = flags.into_iter().filter(|(is_given, _)| *is_given);
        arguments.extend(given.map(|(_, flag)| flag.to_owned()));
        arguments
    }

    /// Reads the arguments.
    ///
    /// # Errors
    /// What is missing or not understood.
    pub fn of(arguments: &[String]) -> Result<Self, String> {
        let [target, brokers, topic, home, parallelism, flags @ ..] = arguments else {
            return Err(format!(
                "TARGET BROKERS TOPIC HOME PARALLELISM [{UNTIL_NOW}] [{TAKES_OVER}] [{RESTARTS}]"
            ));
        };
        let known = [UNTIL_NOW, TAKES_OVER, RESTARTS];
        if let Some(unknown) = flags.iter().find(|flag| !known.contains(&flag.as_str())) {
            return Err(format!("{unknown:?} is no flag"));
        }
        let is_given = |flag: &str| flags.iter().any(|given| given == flag);
        Ok(Self {
            target: target.parse()?,
            brokers: brokers.clone(),
            topic: topic.clone(),
            home: home.into(),
            parallelism: parallelism.parse().map_err(|_| format!("{parallelism:?} is no parallelism"))?,
            until_now: is_given(UNTIL_NOW),
            takes_over: is_given(TAKES_OVER),
            restarts: is_given(RESTARTS),
        })
    }
}
