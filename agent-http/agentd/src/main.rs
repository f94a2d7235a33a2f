//! agentd
fn main() {}
