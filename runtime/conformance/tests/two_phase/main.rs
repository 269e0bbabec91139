//! The two-phase suite on a sink in memory, whole and with a flaw each.

mod memory;
mod mutants;

/// [TPL-18] a correct sink passes every scenario.
mod correct {
    levada_conformance::two_phase_tests!(crate::memory::Memory::default());
}

/// [TPL-18] on one target, one scenario after the other.
#[tokio::test]
async fn correct_sink_passes_all_scenarios_on_one_target() {
    levada_conformance::two_phase::all(&memory::Memory::default()).await.unwrap();
}
