//! Files that are not what they were when their position was stored.

use std::fs;
use std::path::PathBuf;

use levada_core::{ErrorClass, Positions};
use levada_files::LineSourceConfig;
use tempfile::TempDir;

use crate::scene::{Reader, bounds};

struct Stopped {
    _folder: TempDir,
    path: PathBuf,
    config: LineSourceConfig,
    positions: Positions,
}

/// Reads `polls` batches of one line of a file and stops.
async fn stopped(text: &str, polls: usize) -> Stopped {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    fs::write(&path, text).unwrap();
    let config = LineSourceConfig::folder(folder.path()).batch_bounds(bounds(1, 1000));
    let mut reader = Reader::at(config.clone(), &Positions::new()).await.unwrap();
    for _ in 0..polls {
        reader.poll().await.unwrap();
    }
    Stopped { _folder: folder, path, config, positions: reader.positions.clone() }
}

impl Stopped {
    /// Goes on; returns the lines, or what stands in the way.
    async fn resumed(&self) -> Result<Vec<String>, String> {
        let mut reader =
            Reader::at(self.config.clone(), &self.positions).await.map_err(|error| error.to_string())?;
        match reader.read_all().await {
            Ok(()) => Ok(reader.lines().into_iter().map(str::to_owned).collect()),
            Err(error) => {
                assert_eq!(error.class, ErrorClass::Fatal);
                Err(error.to_string())
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_shrank_is_an_error_that_names_both_lengths() {
    let stopped = stopped("one\ntwo\nthree\n", 2).await;
    fs::write(&stopped.path, "one\n").unwrap();
    let error = stopped.resumed().await.unwrap_err();
    assert!(error.contains("shrank") && error.contains("4 bytes") && error.contains("byte 8"), "{error}");
}

#[tokio::test]
async fn a_file_that_was_replaced_is_an_error_that_names_both_fingerprints() {
    let long = "0123456789\n".repeat(1000);
    for (before, after) in [
        ("one\ntwo\nthree\n".to_owned(), "uno\ntwo\nthree\n".to_owned()),
        (long.clone(), format!("x{}", &long[1..])),
        (long.clone(), long.replacen("0123456789\n", "0123456780\n", 500)),
    ] {
        let stopped = stopped(&before, 500.min(before.lines().count() - 1)).await;
        fs::write(&stopped.path, after).unwrap();
        let error = stopped.resumed().await.unwrap_err();
        assert!(error.contains("was replaced") && error.contains("a.txt"), "{error}");
        let is_print = |word: &str| {
            word.trim_end_matches(',').len() == 16
                && word.trim_end_matches(',').bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        assert_eq!(error.split(' ').filter(|word| is_print(word)).count(), 2, "{error}");
    }
}

/// A copy in another place (a restored backup) is the same file.
#[tokio::test]
async fn a_file_that_was_copied_is_still_the_same() {
    let stopped = stopped("one\ntwo\nthree\n", 2).await;
    let copy = stopped.path.with_extension("copy");
    fs::copy(&stopped.path, &copy).unwrap();
    fs::rename(&copy, &stopped.path).unwrap();
    assert_eq!(stopped.resumed().await.unwrap(), ["three"]);
}

#[tokio::test]
async fn a_file_that_grew_by_whole_lines_is_read_on() {
    let stopped = stopped("one\ntwo\n", 5).await;
    fs::write(&stopped.path, "one\ntwo\nthree\n").unwrap();
    assert_eq!(stopped.resumed().await.unwrap(), ["three"]);
}

/// Its beginning was a record already; the rest must not become another.
#[tokio::test]
async fn a_last_line_that_was_continued_is_an_error() {
    let stopped = stopped("one\ntw", 5).await;
    assert_eq!(stopped.resumed().await.unwrap(), Vec::<String>::new());
    fs::write(&stopped.path, "one\ntwo\nthree\n").unwrap();
    let error = stopped.resumed().await.unwrap_err();
    assert!(error.contains("without a newline") && error.contains("byte 6"), "{error}");
}

#[tokio::test]
async fn a_position_that_cannot_be_understood_is_named() {
    let mut stopped = stopped("one\ntwo\n", 1).await;
    let (split, mut position) = stopped.positions.clone().into_iter().next().unwrap();
    position.detail = vec![9].into();
    stopped.positions.set(split, position);
    let error = stopped.resumed().await.unwrap_err();
    assert!(error.contains("position 4") && error.contains("a.txt"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.txt");
    let error = Reader::at(LineSourceConfig::files([&missing]), &Positions::new()).await.err().unwrap();
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}
