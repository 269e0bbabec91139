//! Log lines on standard error, and the progress bar beside them.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use levada_core::ErrorChain;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;

/// The variable that filters log lines, in the form of the `tracing` crates.
const FILTER_VARIABLE: &str = "LEVADA_LOG";
/// The filter where there is none.
const FILTER: &str = "info";

/// Starts logging, and returns the progress bar: a hidden one where nobody would see it.
pub(crate) fn start(format: LogFormat, is_bounded: bool) -> ProgressBar {
    let is_seen = is_bounded && format == LogFormat::Human && io::stderr().is_terminal();
    let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    bar.set_style(style("looking for the ends of the partitions"));

    let words = env::var_os(FILTER_VARIABLE).map(|words| words.to_string_lossy().into_owned());
    let told = words.map(|words| (EnvFilter::try_new(&words), words));
    let (filter, wrong) = match told {
        Some((Ok(filter), _)) => (filter, None),
        Some((Err(error), words)) => (EnvFilter::new(FILTER), Some((error, words))),
        None => (EnvFilter::new(FILTER), None),
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(BesideBar(bar.clone()));
    match format {
        LogFormat::Human => lines.with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    if let Some((error, words)) = wrong {
        tracing::warn!(error = %ErrorChain(&error), "{FILTER_VARIABLE} is no filter: {words:?}; it is {FILTER:?} instead");
    }
    bar
}

/// Shows how far a bounded run is.
pub(crate) fn show_progress(bar: &ProgressBar, total: u64, done: u64) {
    if total > 0 && bar.length() == Some(0) {
        bar.set_style(style("{bar:40} {percent}% {human_pos} of {human_len} offsets, {rate}, {eta} left"));
    }
    bar.set_length(total);
    bar.set_position(done);
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // What cannot be drawn is not drawn; the next picture comes soon.
        let _ = write!(out, "{:.0}/s", state.per_sec());
    })
}

/// Writes lines above the bar instead of through it.
struct BesideBar(ProgressBar);

impl<'a> MakeWriter<'a> for BesideBar {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter(self.0.clone())
    }
}

struct LineWriter(ProgressBar);

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write_all(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
