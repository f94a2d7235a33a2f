//! `agentd extract`: reads a document from standard input and writes its text to standard output.

use std::io::{self, BufWriter, Read};
use std::process::ExitCode;
use std::thread;

use agent_extract::{ExtractionLimits, sniff};
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};

use super::{MAX_DOCUMENT_BYTES, protocol};

/// Stack of the thread that extracts. Readers recurse over nested structures.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Decrease of the process's priority: extraction gives way to the services.
const NICENESS: i32 = 10;

/// Limits of the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLimits {
    /// Address space in bytes.
    pub(crate) memory_bytes: u64,
    /// Processor time in seconds.
    pub(crate) cpu_seconds: u64,
}

/// Runs the command. A failed extraction is written like its result, with the exit code 1.
pub(crate) fn run(media_type: &str, limits: ProcessLimits) -> ExitCode {
    // The message of a panic may contain text of the document.
    std::panic::set_hook(Box::new(|_| ()));
    let result = limit_process(limits).and_then(|()| extract(media_type));
    let exit_code = if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    match protocol::write(&mut BufWriter::new(io::stdout().lock()), result) {
        Ok(()) => exit_code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Limits the process before it reads anything: address space, processor time, and no core dump, which would contain
/// the document.
fn limit_process(limits: ProcessLimits) -> Result<(), ExtractError> {
    let _ = nice(NICENESS);
    for (resource, limit) in
        [(Resource::Core, 0), (Resource::As, limits.memory_bytes), (Resource::Cpu, limits.cpu_seconds)]
    {
        let maximum = getrlimit(resource).maximum;
        let current = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
        // Above the soft limit on processor time, the signal says which limit was exceeded.
        let maximum = if resource == Resource::Cpu { maximum } else { current };
        let outcome = setrlimit(resource, Rlimit { current, maximum });
        // macOS maps more than any sensible limit into each process, and refuses it.
        if outcome.is_err() && (cfg!(target_os = "linux") || resource != Resource::As) {
            return Err(ExtractError::Unavailable("its limits cannot be set".to_owned()));
        }
    }
    Ok(())
}

/// Reads the document and extracts its text on a thread with a large stack.
fn extract(media_type: &str) -> Result<ExtractedDocument, ExtractError> {
    let mut bytes = Vec::new();
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    io::stdin()
        .lock()
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(|_| ExtractError::Unavailable("the document cannot be read".to_owned()))?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(ExtractError::LimitExceeded(format!("more than {MAX_DOCUMENT_BYTES} bytes")));
    }
    let media_type = media_type.to_owned();
    let thread = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || match sniff(&bytes, &media_type) {
            Some(media_type) => agent_extract::extract(media_type, &bytes, &ExtractionLimits::default()),
            None => Err(ExtractError::Unsupported(media_type)),
        })
        .map_err(|_| ExtractError::LimitExceeded("memory".to_owned()))?;
    thread.join().unwrap_or_else(|_| Err(ExtractError::Malformed("its reader failed".to_owned())))
}
