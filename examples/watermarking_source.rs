//! A source that tells time itself: a timestamp for each reading, a watermark for each sensor, and which of them is asleep.
//!
//! ```text
//! cargo run -p levada-examples --bin watermarking_source
//! ```
//!
//! A watermark w promises: no reading with a time up to w follows. Each sensor makes its own promise, in a split of its own;
//! the smallest of them is the job's. A sensor that sleeps is left out, so the watermark goes on without it; what it brings
//! when it wakes up may be late then, and leaves by a side output.

use std::error::Error;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{SourceContext, SourceError, State, Timestamp};
use levada_engine::Job;
use levada_engine::store::Store;

const SENSORS: [&str; 2] = ["thermometer", "barometer"];

/// What a sensor does. It is a number of [`SENSORS`], and of its split.
#[derive(Debug, Clone, Copy)]
enum Does {
    Measures(u32, i64),
    Sleeps(u32),
    Ends(u32),
}

use Does::{Ends, Measures, Sleeps};

const DAY: [Does; 11] = [
    Measures(0, 1),
    Measures(1, 2), // now both have promised something: 1
    Measures(0, 3), // 2
    Sleeps(1),      // 3: nobody waits for the barometer
    Measures(0, 5), // 5
    Measures(1, 4), // too late; the barometer counts again, and nothing is taken back
    Measures(0, 8),
    Measures(1, 7), // 7
    Ends(1),        // 8: nobody waits for it any more
    Measures(0, 9), // 9
    Ends(0),
];

#[derive(Debug, Clone)]
struct Reading {
    sensor: &'static str,
    at: i64,
}

#[derive(Debug)]
struct Sensors {
    next: usize,
}

impl SourceFunction for Sensors {
    type Item = Reading;

    async fn open(&mut self, _ctx: SourceContext, _restored: &State) -> Result<(), SourceError> {
        Ok(())
    }

    /// Both are waited for from the start, though the barometer is the second to speak.
    fn splits(&self) -> Option<Vec<u32>> {
        Some(vec![0, 1])
    }

    async fn next(&mut self, out: &mut Emit<'_, Reading>) -> Result<Next, SourceError> {
        let Some(does) = DAY.get(self.next) else { return Ok(Next::End) };
        self.next += 1;
        match *does {
            Measures(number, at) => {
                let mut sensor = out.split(number);
                sensor.record_at(Reading { sensor: SENSORS[number as usize], at }, Timestamp(at));
                // A sensor measures in order, so it can promise at once. A record ends its sleep, too.
                sensor.watermark(Timestamp(at));
            }
            Sleeps(number) => out.split(number).idle(),
            Ends(number) => out.split(number).end(),
        }
        Ok(Next::More)
    }
}

/// Prints a reading, and the watermark that its sink has seen before it.
fn print(line: &str, reading: &Reading, watermark: Timestamp) {
    match watermark {
        Timestamp::MIN => println!("{line}: {} at {}, no watermark yet", reading.sensor, reading.at),
        Timestamp(watermark) => {
            println!("{line}: {} at {}, watermark {watermark}", reading.sensor, reading.at)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let job = Job::new("sensors")
        .source_function("sensors", |_subtask| Sensors { next: 0 })
        .late_side_output("late", |late| {
            late.for_each("print late", |reading, ctx| {
                print("late", &reading.item, ctx.watermark);
                Ok(())
            })
        })
        .for_each("print", |reading, ctx| {
            print("on time", &reading.item, ctx.watermark);
            Ok(())
        });
    let mut job = job.start(Store::open("memory:").await?)?;
    job.wait().await?;
    // What metrics are made of: splits, watermarks, and what was late.
    for stage in job.time().snapshot().stages {
        println!("{}: {} late", stage.uid, stage.late);
    }
    Ok(())
}
