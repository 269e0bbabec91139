//! The engine against a plain loop: source, map and null sink in batches, the loop calling the same closures over the
//! same batches.
//!
//! Records of 100 bytes, 4096 in a batch; `fill` copies them into the batch's arena, as a source does, `map` reads a number
//! out of each, and the sink adds the numbers up. The loop keeps nothing between `map` and the sink; the engine makes
//! a batch of it and carries it to another task, on another thread if one is free: what that costs on a busy machine is told
//! by the ratio of processor times. Beside it: an exchange by key, how long a checkpoint of an idle job of four
//! splits takes, and what restoring a union list of 1 GiB takes, in time and in memory.

mod idle;
mod load;
mod restore;

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;
use levada_benches::measure;
use measure::Run;
use tokio::runtime::{Builder, Runtime};

#[derive(Parser)]
struct Arguments {
    /// Seconds that a run lasts at least.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Checkpoints of the idle job.
    #[arg(long, default_value_t = 400)]
    checkpoints: usize,
    /// MiB of the union list that is restored.
    #[arg(long, default_value_t = 1024)]
    state_mib: usize,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    /// The folder of a checkpoint store: for the program's own use.
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
    /// Subtasks that are restored: for the program's own use.
    #[arg(long, hide = true, default_value_t = 4)]
    subtasks: u32,
}

/// Those that count for the ratio.
const ENGINE: [&str; 2] = ["engine", "checkpoints"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match &arguments.variant {
        Some(variant) => {
            let run = run(variant, &arguments, &runtime()?)?;
            println!("{}", serde_json::to_string(&run)?);
            Ok(())
        }
        None => compare(&arguments),
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn run(variant: &str, arguments: &Arguments, runtime: &Runtime) -> Result<Run, Box<dyn Error>> {
    let seconds = arguments.seconds;
    let folder = || arguments.folder.clone().ok_or("a checkpoint store has a folder");
    let size = restore::Size { mib: arguments.state_mib, subtasks: arguments.subtasks };
    match variant {
        "plain" => Ok(load::plain(seconds)),
        "engine" => runtime.block_on(load::engine(seconds, None)),
        "checkpoints" => runtime.block_on(load::engine(seconds, Some(load::EACH_SECOND))),
        "exchange" => runtime.block_on(load::exchange(seconds)),
        "store" => runtime.block_on(restore::store(&folder()?, size)),
        "restore" => runtime.block_on(restore::restore(&folder()?, size)),
        other => Err(format!("there is no variant {other}").into()),
    }
}

fn compare(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let passed_on = ["--seconds".to_owned(), arguments.seconds.to_string()];
    let variants = ["engine", "plain", "checkpoints", "exchange"];
    let runs = measure::alternate(&variants, arguments.rounds, &passed_on)?;
    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);
    let cpu = |variant: &str| measure::median(&runs[variant], Run::cpu_per_million);
    let ratio = ENGINE.iter().map(|variant| rate(variant) / rate("plain")).fold(f64::INFINITY, f64::min);
    let durations = runtime()?.block_on(idle::checkpoints(arguments.checkpoints))?;
    let restored = [2, 4].map(|subtasks| restore::measure(arguments.state_mib, subtasks));
    let [of_two, of_four] = restored;
    println!(
        "{}",
        serde_json::json!({
            "name": "engine",
            "ratio": rounded(ratio),
            "plain": measure::summary(&runs["plain"]),
            "engine": measure::summary(&runs["engine"]),
            "checkpoints": measure::summary(&runs["checkpoints"]),
            "beside": {
                "cpu_ratio": rounded(cpu("plain") / cpu("engine")),
                "exchange": measure::summary(&runs["exchange"]),
                "exchange_ratio": rounded(rate("exchange") / rate("plain")),
                "idle_checkpoint": durations,
                "restore": {"state_mib": arguments.state_mib, "subtasks_2": of_two?, "subtasks_4": of_four?},
            },
        })
    );
    Ok(())
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}
