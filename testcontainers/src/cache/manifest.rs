//! The seal of a cache entry: every file with its size, written last.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::error::Doing;

const NAME: &str = "MANIFEST";

/// Seals a folder.
pub(super) fn write(folder: &Path) -> Result<(), Error> {
    let path = folder.join(NAME);
    let lines = list(folder).doing("list", folder)?;
    fs::write(&path, lines).doing("write", &path)
}

/// Tells whether a folder is sealed and still holds exactly what it was sealed with.
pub(super) fn matches(folder: &Path) -> bool {
    match (fs::read_to_string(folder.join(NAME)), list(folder)) {
        (Ok(sealed), Ok(found)) => sealed == found,
        _ => false,
    }
}

/// Lists the files below a folder, sorted, one `SIZE PATH` per line; the seal itself is not listed.
fn list(folder: &Path) -> std::io::Result<String> {
    let mut lines = Vec::new();
    collect(folder, Path::new(""), &mut lines)?;
    lines.sort_unstable();
    Ok(lines.concat())
}

fn collect(root: &Path, below: &Path, lines: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            collect(root, &path, lines)?;
        } else if path != Path::new(NAME) {
            lines.push(format!("{} {}\n", metadata.len(), path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{matches, write};

    /// [TST-03]
    #[test]
    fn a_folder_is_whole_only_with_all_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jar");
        fs::write(&file, "1234").unwrap();
        assert!(!matches(folder.path()), "not sealed yet");
        write(folder.path()).unwrap();
        assert!(matches(folder.path()));
        fs::write(&file, "123").unwrap();
        assert!(!matches(folder.path()), "a byte is missing");
        fs::write(&file, "1234").unwrap();
        fs::write(folder.path().join("b.jar"), "").unwrap();
        assert!(!matches(folder.path()), "a file too many would be on the class path");
    }
}
