//! Measures retrieval on a folder of public test collections.
//!
//! `cargo run --release -p bench-retrieval -- FOLDER` prints a table: quality of the rankings, and speed beside SQLite FTS5
//! on the same text in the same run.

mod collections;
mod dense;
mod extraction;
mod quality;
mod speed;
mod table;
mod vectors;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use collections::CollectionName;

/// Measures retrieval on a folder of public test collections.
#[derive(Parser)]
struct Arguments {
    /// The folder with CISI, NPL and XQuAD.
    folder: PathBuf,
    /// Number of chunks of the greatest index whose speed is measured; 0 measures quality alone.
    #[arg(long, default_value_t = 100_000)]
    chunks: usize,
    /// Name of a local embedding model; measures nothing else.
    #[arg(long)]
    model: Option<String>,
    /// The folder in which `agentd model pull` has stored the model.
    #[arg(long, default_value = "data/models")]
    model_dir: PathBuf,
    /// Collection that the model is measured on, instead of all; may be repeated.
    #[arg(long, value_enum, value_name = "NAME", requires = "model")]
    collection: Vec<CollectionName>,
    /// Number of passages of each collection that the model is measured on, the first ones, instead of all.
    #[arg(long, value_name = "NUMBER", requires = "model")]
    passages: Option<NonZeroUsize>,
}

#[expect(clippy::print_stdout, reason = "the result of the measurement")]
fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut table = table::Table::default();
    if let Some(model) = &arguments.model {
        let names = match &arguments.collection[..] {
            [] => &CollectionName::ALL[..],
            names => names,
        };
        let part = dense::Part { names, passages: arguments.passages };
        dense::run(&arguments.folder, part, (&arguments.model_dir, model), &mut table)?;
        println!("{}", table.markdown());
        return Ok(());
    }
    quality::run(&arguments.folder, &mut table)?;
    dense::run_meaningless(&arguments.folder, &mut table)?;
    if arguments.chunks > 0 {
        speed::run(&arguments.folder, arguments.chunks, &mut table)?;
        extraction::run(&mut table)?;
        vectors::run(arguments.chunks, &mut table)?;
    }
    println!("{}", table.markdown());
    Ok(())
}
