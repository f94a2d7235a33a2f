//! Measurements of what relaying a model's answer costs, each as a ratio to a reference in the same run.
//!
//! `cargo bench -p benches --bench relay` starts a mock model vendor, a bare hyper pass-through proxy in front of it
//! (the reference) and the services under test, each as a process of its own, sends them the same load by turns, and
//! prints one Markdown table. Absolute times belong to the machine; ratios within one run hold from machine to machine.
//!
//! | module | what |
//! |---|---|
//! | [`answer`] | the vendor's scripted answers, chosen by model name, and the text that a client must get |
//! | [`upstream`] | the mock vendor: Chat Completions over Server-Sent Events on raw TCP |
//! | [`wire`] | an answer taken apart and checked, as the vendor or as a service sends it |
//! | [`batch`] | jobs claimed and completed in batches, by a store |
//! | [`delivery`] | jobs, and messages of known length |
//! | [`load`] | the client: keep-alive connections, exchanges, open streams |
//! | [`process`] | child processes: start, processor time, resident memory, kill on drop |
//! | [`subjects`] | what is measured and how it is configured: the place to add a subject |
//! | [`measure`] | the measurements and the sizes of their runs |
//! | [`table`] | medians, limits and the table |

pub mod answer;
pub mod batch;
pub mod delivery;
pub mod load;
pub mod measure;
pub mod process;
pub mod subjects;
pub mod table;
pub mod upstream;
pub mod wire;
