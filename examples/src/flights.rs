//! Real flights as Kafka records: what the quickstart replays and the end-to-end tests read.

use std::fs::File;
use std::io;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

/// A flight as a Kafka record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightRecord {
    /// Carrier, flight number, origin and date, unique within January 2013.
    pub key: String,
    /// The flight as a JSON object; what is unknown is null.
    pub value: String,
}

/// Columns that hold whole numbers.
const NUMBERS: [&str; 9] = [
    "flight",
    "sched_dep_time",
    "dep_time",
    "dep_delay",
    "sched_arr_time",
    "arr_time",
    "arr_delay",
    "air_time",
    "distance",
];

/// Reads flights from a gzipped CSV file, in the order of the file.
///
/// # Errors
/// What is wrong with the file.
pub fn flights(file: &Path) -> io::Result<Vec<FlightRecord>> {
    let mut reader = csv::Reader::from_reader(GzDecoder::new(File::open(file)?));
    let names = reader.headers()?.clone();
    let mut flights = Vec::new();
    for row in reader.records() {
        flights.push(flight(&names, &row?)?);
    }
    Ok(flights)
}

fn flight(names: &csv::StringRecord, row: &csv::StringRecord) -> io::Result<FlightRecord> {
    let field = |name: &str| {
        let place = names.iter().position(|candidate| candidate == name);
        place.and_then(|place| row.get(place)).ok_or_else(|| io::Error::other(format!("no column {name:?}")))
    };
    let part = |name: &str| -> io::Result<u32> { field(name)?.parse().map_err(io::Error::other) };
    let date = format!("{:04}-{:02}-{:02}", part("year")?, part("month")?, part("day")?);
    let mut value = Map::new();
    for name in ["carrier", "origin", "dest", "tailnum", "time_hour"] {
        let text = field(name)?;
        value.insert(name.to_owned(), if text == "NA" { Value::Null } else { text.into() });
    }
    for name in NUMBERS {
        let number = match field(name)? {
            "NA" => Value::Null,
            text => text.parse::<i64>().map_err(io::Error::other)?.into(),
        };
        value.insert(name.to_owned(), number);
    }
    let key = format!("{}-{}-{}-{date}", field("carrier")?, field("flight")?, field("origin")?);
    value.insert("flight_date".to_owned(), date.into());
    Ok(FlightRecord { key, value: Value::Object(value).to_string() })
}
