//! The rooms and the arrows between them, held against the README's table and the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace's root")
}

/// Reads the table under "allowed arrows" of the README: room, arrows, arrows of tests.
fn table() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let (_, after) = readme.split_once("<!-- arrows -->").expect("the README marks its table of arrows");
    let names = |cell: &str| -> BTreeSet<String> {
        cell.split(',')
            .map(|name| name.trim().trim_matches('`').to_owned())
            .filter(|name| name != "–")
            .collect()
    };
    after
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            let room = cells[0].trim().trim_matches('`').to_owned();
            (room, (names(cells[1]), names(cells[2])))
        })
        .collect()
}

#[test]
fn every_arrow_between_rooms_is_in_the_readme() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let table = table();
    let members: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    assert_eq!(members, table.keys().cloned().collect(), "rooms of the workspace and of the README's table");

    for package in &metadata.packages {
        let arrows = |is_test: bool| -> BTreeSet<String> {
            let of_kind = package.dependencies.iter().filter(|dependency| {
                (dependency.kind == DependencyKind::Development) == is_test
                    && members.contains(&dependency.name)
            });
            of_kind.map(|dependency| dependency.name.clone()).collect()
        };
        let (allowed, allowed_in_tests) = &table[&*package.name];
        assert_eq!(&arrows(false), allowed, "arrows of {}", package.name);
        assert_eq!(&arrows(true), allowed_in_tests, "arrows of {} in tests", package.name);
    }
}

/// Returns the crates that a member of the workspace is built from when somebody depends on it.
fn built_from(package: &str, features: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(root()).args(["tree", "--locked", "--edges", "normal,build"]);
    tree.args(["--prefix", "none", "--format", "{p}", "--package", package, "--features", features]);
    let listed = tree.output().expect("cargo tree");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let lines = String::from_utf8(listed.stdout).expect("names");
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Crates that speak to Kafka, to Postgres or HTTP, or encrypt it. `http` is not among them: the words of the protocol as
/// types, which `object_store` has in every build.
const SPEAKS_TO_SERVERS: [&str; 15] = [
    "rdkafka",
    "rdkafka-sys",
    "kafka-protocol",
    "tokio-postgres",
    "postgres-protocol",
    "hyper",
    "hyper-util",
    "reqwest",
    "h2",
    "axum",
    "tower-http",
    "rustls",
    "ring",
    "aws-lc-sys",
    "openssl-sys",
];

/// The engine alone brings checkpoints to memory and directories; a cloud comes with its feature.
#[test]
fn the_engine_alone_brings_no_client_of_any_server() {
    let speaks = |features| -> Vec<&str> {
        let built = built_from("levada-engine", features);
        assert!(built.contains("object_store") && built.contains("levada-core"), "{built:?}");
        SPEAKS_TO_SERVERS.into_iter().filter(|name| built.contains(*name)).collect()
    };
    assert_eq!(speaks(""), [""; 0]);
    for cloud in ["s3", "gcs", "azure"] {
        assert!(speaks(cloud).contains(&"reqwest"), "what is looked for is found with the feature {cloud:?}");
    }
}

/// The guarantees table, and the page on exactly-once, name the tests behind their cells: they must be there.
#[test]
fn tests_named_in_the_documents_exist() {
    let sources = sources();
    for (document, least) in [("README.md", 6), ("docs/exactly-once.md", 20)] {
        let text = fs::read_to_string(root().join(document)).expect("a document");
        let named: Vec<(&str, &str)> = text
            .split('`')
            .filter_map(|code| code.split_once("::"))
            .filter(|(file, name)| !name.contains(':') && file.starts_with(char::is_lowercase))
            .collect();
        assert!(named.len() >= least, "{document} names tests: {named:?}");
        for (file, name) in named {
            // A test target is a file, or a folder, in the `tests` of some room.
            let is_of_target = |path: &str| {
                path.ends_with(&format!("/tests/{file}.rs")) || path.contains(&format!("/tests/{file}/"))
            };
            let is_there = |(path, text): &(String, String)| {
                is_of_target(path) && text.contains(&format!("fn {name}()"))
            };
            assert!(sources.iter().any(is_there), "{document} names {file}::{name}, which is not there");
        }
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != ".git") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let relative = |path: &PathBuf| path.strip_prefix(&root).expect("below the root").display().to_string();
    let read = |path: &PathBuf| (relative(path), fs::read_to_string(path).expect("a source file"));
    files.iter().map(read).collect()
}

/// The one module with `unsafe`.
const UNSAFE_MODULE: &str = "connectors/kafka/src/source/events.rs";

#[test]
fn unsafe_stands_in_one_module_only() {
    let mut with_proof = 0;
    for (path, text) in sources() {
        let blocks = text.matches("unsafe {").count() + text.matches("unsafe fn").count();
        if path == UNSAFE_MODULE {
            with_proof = text.matches("// SAFETY:").count();
            assert!(with_proof >= text.matches("unsafe {").count(), "each unsafe block has its proof");
        } else if path != "tests/tests/layering.rs" {
            assert_eq!(blocks, 0, "unsafe code in {path}");
            assert!(!text.contains("allow(unsafe_code)"), "{path} allows unsafe code");
        }
    }
    assert!(with_proof > 0, "{UNSAFE_MODULE} was looked at");
}

#[test]
fn sql_is_put_together_in_one_module_only() {
    let verbs = ["insert into ", "delete from ", "update ", "select "];
    let mut looked_at = 0;
    for (path, text) in sources() {
        if !path.starts_with("connectors/postgres/src") || path.ends_with("/sql.rs") {
            continue;
        }
        looked_at += 1;
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            let formats = line.contains("format!(\"") && verbs.iter().any(|verb| line.contains(verb));
            assert!(!formats, "{path}:{}: SQL is put together outside sql.rs", number + 1);
        }
    }
    assert!(looked_at > 5, "the Postgres crate was looked at");
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    let empty_words = ["common", "utils", "helpers", "types", "misc"];
    for (path, _) in sources() {
        let words: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
        assert!(!words.iter().any(|word| empty_words.contains(word)), "{path}");
    }
}

#[test]
fn every_member_takes_the_lints_of_the_workspace() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    for package in metadata.packages {
        let manifest = fs::read_to_string(&package.manifest_path).expect("a manifest");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package.name);
    }
}
