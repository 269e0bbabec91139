//! The upserts.

use crate::program::run;

/// [TPL-05] an own UPDATE-then-INSERT: old values for a while, and the same end.
#[test]
fn update_then_insert_converges_after_failures() {
    let out = run(env!("CARGO_BIN_EXE_idempotent_upsert"), &[]);
    let at = |moment: &str, hour: u32| {
        let (_, after) = out.split_once(moment).expect(moment);
        let row = format!("station 0, hour {hour}: ");
        after.split_once(&row).and_then(|(_, value)| value.lines().next()).expect("a row").to_owned()
    };
    assert_eq!(at("on to 14, then a failure", 1), "14");
    assert_eq!(at("older values are back", 1), "8");
    assert_eq!(at("again from 8 to the end", 1), "14");
    assert_eq!(at("again from 8 to the end", 2), "22");
    assert_eq!(out.matches("failed on purpose").count(), 2, "{out}");
    assert!(out.ends_with("the table is what it would be without failures: true\n"), "{out}");
}
