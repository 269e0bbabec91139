//! Running variants in turn, and what each of them cost.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::ClockId;
use serde::{Deserialize, Serialize};

/// What one run of one variant did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Records moved.
    pub records: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Processor seconds of this process.
    pub cpu_seconds: f64,
    /// The most memory this process held, in MiB.
    pub peak_mib: f64,
    /// Processor nanoseconds per record for the part that is looked at by itself; none where nothing is.
    #[serde(default)]
    pub part_ns: f64,
    /// How long each commit took, in milliseconds; none where there is none.
    #[serde(default)]
    pub commit_ms: Vec<f64>,
    /// How long each checkpoint took to become durable, in milliseconds; none where there is none.
    #[serde(default)]
    pub durable_ms: Vec<f64>,
    /// How long each record took on its way, in milliseconds; none where nobody looks.
    #[serde(default)]
    pub latency_ms: Vec<f64>,
}

impl Run {
    /// Returns records per second.
    pub fn rate(&self) -> f64 {
        self.records as f64 / self.seconds
    }

    /// Returns processor seconds per million records.
    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds / self.records as f64 * 1e6
    }
}

/// Measures from its making to [`Stopwatch::stop`].
#[derive(Debug)]
pub struct Stopwatch {
    begun: Instant,
    cpu: Duration,
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self { begun: Instant::now(), cpu: own_cpu() }
    }
}

impl Stopwatch {
    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Ends the measurement.
    pub fn stop(&self, records: u64) -> Run {
        Run {
            records,
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu_seconds: (own_cpu() - self.cpu).as_secs_f64(),
            peak_mib: peak_mib(),
            part_ns: 0.0,
            commit_ms: Vec::new(),
            durable_ms: Vec::new(),
            latency_ms: Vec::new(),
        }
    }
}

/// Returns the processor time of the calling thread so far: what others on the machine do is not in it.
///
/// # Panics
/// Panics if the system has no such clock; Linux has.
pub fn thread_cpu() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("a clock of this thread").into()
}

fn own_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage");
    let time = |value: nix::sys::time::TimeVal| {
        Duration::from_micros((value.tv_sec() * 1_000_000 + value.tv_usec()) as u64)
    };
    time(usage.user_time()) + time(usage.system_time())
}

fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process may read its own status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel tells the peak");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB");
    kib / 1024.0
}

/// Returns the processor seconds that a process and its waited-for children have used so far.
pub fn cpu_of_tree(pid: Option<i32>) -> f64 {
    let Some(pid) = pid else { return 0.0 };
    let own = cpu_of(pid);
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let living: f64 = children.split_whitespace().filter_map(|child| child.parse().ok()).map(cpu_of).sum();
    own + living
}

fn cpu_of(pid: i32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // utime, stime, cutime and cstime, in ticks of 10 ms.
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Runs each variant in a process of its own, in turn, `rounds` times; `arguments` are passed on to it.
///
/// # Errors
/// A variant that cannot be started, or fails.
pub fn alternate(
    variants: &[&str],
    rounds: usize,
    arguments: &[String],
) -> Result<BTreeMap<String, Vec<Run>>, Box<dyn Error>> {
    let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for round in 0..rounds {
        for variant in variants {
            let run = run_variant(variant, arguments)?;
            eprintln!(
                "round {round}: {variant:<12} {:>9.0} records/s, {:.2} CPU s per million, {:.0} MiB",
                run.rate(),
                run.cpu_per_million(),
                run.peak_mib
            );
            runs.entry((*variant).to_owned()).or_default().push(run);
        }
    }
    Ok(runs)
}

fn run_variant(variant: &str, arguments: &[String]) -> Result<Run, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .arg("--variant")
        .arg(variant)
        .args(arguments)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("variant {variant} failed: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().last().ok_or("the variant printed nothing")?;
    Ok(serde_json::from_str(last)?)
}

/// Returns the median of a figure over runs.
pub fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns quantiles of a figure over all runs of a variant as JSON; `None` where there is none.
pub fn quantiles(runs: &[Run], figures: impl Fn(&Run) -> &Vec<f64>) -> Option<serde_json::Value> {
    let mut all: Vec<f64> = runs.iter().flat_map(figures).copied().collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().checked_sub(1)?;
    let at = |q: f64| rounded(all[((all.len() as f64 * q).ceil() as usize).saturating_sub(1).min(last)]);
    Some(serde_json::json!({"count": all.len(), "p50": at(0.5), "p99": at(0.99)}))
}

/// Keeps three digits behind the point.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// Returns what the environment sets, for a short form.
pub fn set<N: std::str::FromStr>(variable: &str, otherwise: N) -> N {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Returns the medians of a variant as JSON.
pub fn summary(runs: &[Run]) -> serde_json::Value {
    serde_json::json!({
        "records_per_s": median(runs, Run::rate).round(),
        "cpu_s_per_million": rounded(median(runs, Run::cpu_per_million)),
        "peak_mib": runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max).round(),
    })
}
