//! Benchmarks of relaying model responses, each figure as a ratio to a reference in the same run.
//!
//! `cargo bench -p benches --bench relay` starts a mock model vendor, a bare hyper pass-through proxy in front of it
//! (the reference) and the services under test, each as its own process, sends them the same load in turns, and
//! prints one Markdown table. Absolute times depend on the machine; ratios within one run are comparable across
//! machines.
//!
//! | module | contents |
//! |---|---|
//! | [`application`] | the application over a chosen store, and its chats |
//! | [`answer`] | the vendor's scripted responses, chosen by model name, and the text that a client must receive |
//! | [`upstream`] | the mock vendor on raw TCP: Chat Completions and the Responses API over server-sent events |
//! | [`subscription`] | the subject whose user has signed in to a subscription, and the answers of its issuer |
//! | [`wire`] | incremental parser and checks of a response, from the vendor or from a service |
//! | [`batch`] | claiming and completing jobs of a store in batches |
//! | [`comparison`] | a figure beside its reference, its limit, and the result table |
//! | [`delivery`] | job payloads, and HTTP messages with a content length |
//! | [`load`] | the load generator: keep-alive connections, exchanges, open streams |
//! | [`process`] | child processes: start, CPU time, resident memory, kill on drop |
//! | [`subjects`] | the subjects and their configuration: the place to add a subject |
//! | [`measure`] | the measurements and the sizes of their runs |
//! | [`tricks`] | the variants of the program, each without one optimization of the token path |
//! | [`table`] | medians and percentiles, and the rows of the relay's table |

pub mod answer;
pub mod application;
pub mod batch;
pub mod comparison;
pub mod delivery;
pub mod load;
pub mod measure;
pub mod process;
mod responses;
pub mod subjects;
pub mod subscription;
pub mod table;
pub mod tricks;
pub mod upstream;
pub mod wire;

/// Returns true for a run by `cargo bench`, which passes `--bench` to each benchmark. Reports otherwise that nothing is
/// measured, since `cargo test --all-targets` runs benchmarks too.
#[expect(clippy::print_stderr, reason = "a message to the person who runs a benchmark")]
pub fn should_measure(has_bench_flag: bool) -> bool {
    if !has_bench_flag {
        eprintln!("not measuring without --bench");
    }
    has_bench_flag
}
