//! The write-ahead suite on sinks and committers in memory, whole and with a flaw each.

mod marker_files;
mod memory;
mod mutants;

/// [TPL-18] a correct sink with a committer of its own passes every scenario: at least once.
mod apart {
    levada_conformance::write_ahead_tests!(crate::memory::Memory::default());
}

/// [TPL-18] a correct sink whose committer shares its transaction passes every scenario: exactly once.
mod sharing {
    levada_conformance::write_ahead_tests!(crate::memory::Memory::sharing());
}

/// [TPL-07] [TPL-18] the engine's committer of marker files beside the same sink.
mod files {
    levada_conformance::write_ahead_tests!(crate::marker_files::MarkerFiles::new());
}

/// [TPL-18] on one target, one scenario after the other.
#[tokio::test]
async fn correct_sink_passes_all_scenarios_on_one_target() {
    levada_conformance::write_ahead::all(&memory::Memory::sharing()).await.unwrap();
}
