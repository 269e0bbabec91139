//! What the shipped binary must not hold. Run by ./check, which builds it and names it.

use std::{env, fs};

fn holds(file: &str, text: &str) -> bool {
    let content = fs::read(file).expect("the binary");
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Fail points are in the test build and not in the one that is shipped.
#[test]
#[ignore = "needs LEVADA_SHIPPED_BINARY; ./check builds it"]
fn shipped_binary_has_no_fail_point() {
    let shipped = env::var("LEVADA_SHIPPED_BINARY").expect("LEVADA_SHIPPED_BINARY names the binary");
    for text in ["pg::commit::after_positions", "pg::claim::before", "without_compare_and_set"] {
        assert!(holds(env!("CARGO_BIN_EXE_levada-under-test"), text), "the test build holds {text:?}");
        assert!(!holds(&shipped, text), "the shipped binary holds {text:?}");
    }
    // The transactional sink is not in the test build of the bridge, either.
    assert!(!holds(&shipped, "kafka::end::sent"), "the shipped binary holds a fail point of the Kafka sink");
    assert!(holds(&shipped, "levada.positions"), "the binary that was looked at is the bridge");
}
