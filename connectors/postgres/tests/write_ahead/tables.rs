//! What an opening says about tables, privileges and versions.

use std::fs;
use std::path::PathBuf;

use levada_engine::driver::{DriverError, SinkDriver};
use levada_postgres::{WriteMode, write_ahead};

use crate::driven::{LOG, context, driver, error_chain, first};
use crate::scene::{Scene, config};

async fn refused(url: &str, table: &str) -> DriverError {
    driver(config(url, table, WriteMode::Insert)).open(context(0, 1, 1), None).await.expect_err("refused")
}

/// Makes a user of the scene's database, and returns the URL with it.
fn user(scene: &Scene) -> String {
    let name = format!("user of {}", scene.database.name());
    let sql = format!("create user \"{name}\" password 'x'; grant insert, select on log to \"{name}\"");
    scene.database.psql(&sql).expect("a user");
    let (_, place) = scene.database.url().split_once('@').expect("user@host");
    format!("postgres://{}:x@{place}", name.replace(' ', "%20"))
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_target_is_named() {
    let scene = Scene::new("");
    let shown = error_chain(&refused(scene.database.url(), "log").await);
    assert!(shown.contains("there is no table \"log\""), "{shown}");
}

/// Where nothing may be created, the statements are shown; they make what an opening needs, once the privileges that the
/// next refusal names are granted.
#[tokio::test(flavor = "multi_thread")]
async fn user_who_may_create_nothing_is_told_the_statements() {
    let scene = Scene::new(LOG);
    let url = user(&scene);
    let shown = error_chain(&refused(&url, "log").await);
    assert!(shown.contains(&write_ahead::ddl()) && shown.contains("42501"), "{shown}");
    scene.database.psql(&write_ahead::ddl()).expect("the statements");

    let name = format!("\"user of {}\"", scene.database.name());
    scene.database.psql(&format!("grant usage on schema levada to {name}")).expect("a grant");
    let shown = error_chain(&refused(&url, "log").await);
    let (_, grants) = shown.split_once("an owner can run:\n").expect("the statements");
    assert!(shown.contains("lacks privileges") && grants.contains(&name), "{shown}");
    scene.database.psql(grants).expect("the statements");
    first(config(&url, "log", WriteMode::Insert)).await.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_unknown_version_are_not_touched() {
    let scene = Scene::new(LOG);
    first(scene.insert("log")).await.close().await;
    scene.database.psql("update levada.markers_meta set version = 2").expect("another version");
    let shown = error_chain(&refused(scene.database.url(), "log").await);
    assert!(shown.contains("levada.markers_meta has version 2, and this program knows version 1"), "{shown}");
}

/// [TPL-19] The layout of version 1, as the catalog shows it. A new version adds a file and keeps this one.
#[tokio::test(flavor = "multi_thread")]
async fn layout_of_version_1() {
    let scene = Scene::new(&write_ahead::ddl());
    let columns = scene.row(
        "select table_name, column_name, data_type, is_nullable, coalesce(column_default, '-')
         from information_schema.columns where table_schema = 'levada' order by table_name, ordinal_position",
    );
    let keys = scene.row(
        "select c.relname, pg_get_constraintdef(k.oid) from pg_constraint as k join pg_class as c on c.oid = k.conrelid
         where k.connamespace = 'levada'::regnamespace and k.contype = 'p' order by 1",
    );
    let version = scene.row("select version from levada.markers_meta");
    let layout = format!("version {version}\n{columns}\n{keys}\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/markers_v1.txt");
    if !path.exists() && std::env::var_os("LEVADA_WRITE_GOLDEN").is_some() {
        fs::write(&path, &layout).expect("written");
    }
    assert_eq!(layout, fs::read_to_string(path).expect("the golden file"));
}
