//! The quickstart's flights and tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use levada_examples::FlightRecord;
use levada_testcontainers::Database;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads a file of the quickstart.
///
/// # Panics
/// Panics if it is not there.
pub fn quickstart_file(name: &str) -> String {
    read(&root().join("examples/quickstart").join(name))
}

/// Reads the SQL of a second opinion.
///
/// # Panics
/// Panics if it is not there.
pub fn oracle(name: &str) -> String {
    read(&root().join("tests/oracle").join(name))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads the flights of January 2013.
///
/// # Panics
/// Panics if the file is damaged.
pub fn january() -> Vec<FlightRecord> {
    levada_examples::flights(&root().join("examples/data/flights-2013-01.csv.gz")).expect("flights")
}

/// Fills the tables of airlines, airports and planes.
///
/// # Panics
/// Panics if the database refuses.
pub fn load_tables(database: &Database) {
    for table in ["airlines", "airports", "planes"] {
        let copy = format!(
            "gzip -dc examples/data/{table}.csv.gz | psql \"$0\" --no-psqlrc --quiet --set ON_ERROR_STOP=1 \
             --command \"COPY {table} FROM STDIN WITH (FORMAT csv, HEADER, NULL 'NA')\""
        );
        let mut bash = Command::new("bash");
        bash.current_dir(root()).args(["-o", "pipefail", "-c", &copy, database.url()]);
        assert!(bash.status().expect("bash").success(), "{table}");
    }
}
