//! The `levada` command.
fn main() {}
