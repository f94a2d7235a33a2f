//! An extractor that starts a process for each document.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use agent_extract::{EXTRACTOR_ID, MediaType, sniff};
use agent_retrieval::extract::{ExtractError, ExtractedDocument, Extractor};
use async_trait::async_trait;
use bytes::Bytes;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{MAX_DOCUMENT_BYTES, protocol};
use crate::config::ExtractionConfig;

/// Maximum output of a process in bytes.
const MAX_OUTPUT_BYTES: usize = 20 * 1024 * 1024;
/// Maximum size of a process's error output that is kept to determine the cause of its end, in bytes.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// Media type of data of any kind.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// The running program on Linux, also if its file has been replaced since.
const CURRENT_PROGRAM: &str = "/proc/self/exe";

/// Extracts text by `agentd extract`, a process for each document.
///
/// A program that embeds the application and is not `agentd` names an `agentd` by [`Self::with_program`], or brings an
/// extractor of its own.
#[derive(Debug)]
pub struct ProcessExtractor {
    program: PathBuf,
    config: ExtractionConfig,
    permits: Semaphore,
}

impl ProcessExtractor {
    /// Creates an extractor that starts the program of this process.
    pub fn new(config: ExtractionConfig) -> Self {
        let own_program = Path::new(CURRENT_PROGRAM);
        let program =
            if own_program.exists() { Some(own_program.to_owned()) } else { std::env::current_exe().ok() };
        Self::with_program(program.unwrap_or_else(|| own_program.to_owned()), config)
    }

    /// Creates an extractor that starts another program.
    pub fn with_program(program: impl Into<PathBuf>, config: ExtractionConfig) -> Self {
        Self { program: program.into(), config, permits: Semaphore::new(config.processes.max(1)) }
    }

    fn start(&self, media_type: &str) -> Result<Child, ExtractError> {
        let seconds = self.config.timeout.as_secs() + u64::from(self.config.timeout.subsec_nanos() > 0);
        // The name of an unknown type is a client's; the process determines the type by the content.
        let media_type = MediaType::parse(media_type).map_or(UNKNOWN_MEDIA_TYPE, MediaType::as_str);
        let (memory, seconds) = (self.config.memory_bytes.to_string(), seconds.to_string());
        let arguments = ["extract", media_type, "--memory", &memory, "--cpu", &seconds];
        Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                ExtractError::Unavailable(format!("its process cannot be started: {}", error.kind()))
            })
    }
}

#[async_trait]
impl Extractor for ProcessExtractor {
    fn id(&self) -> &str {
        EXTRACTOR_ID
    }

    fn supports(&self, media_type: &str) -> bool {
        MediaType::parse(media_type).is_some_and(MediaType::is_supported)
    }

    fn detect(&self, declared_media_type: &str, bytes: &[u8]) -> Option<String> {
        let media_type = sniff(bytes, declared_media_type).filter(|media_type| media_type.is_supported())?;
        Some(media_type.as_str().to_owned())
    }

    async fn extract(&self, media_type: &str, bytes: Bytes) -> Result<ExtractedDocument, ExtractError> {
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err(ExtractError::LimitExceeded(format!("more than {MAX_DOCUMENT_BYTES} bytes")));
        }
        let closed = |_| ExtractError::Unavailable("it is closed".to_owned());
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let mut child = self.start(media_type)?;
        let result = timeout(self.config.timeout, exchange(&mut child, &bytes)).await;
        // The process ends before its permit is released.
        let _ = child.kill().await;
        result.unwrap_or_else(|_| Err(time_exceeded(self.config.timeout)))
    }
}

fn time_exceeded(limit: Duration) -> ExtractError {
    ExtractError::LimitExceeded(format!("the time of {} s", limit.as_secs_f64()))
}

/// Sends the document to a process and returns its result.
async fn exchange(child: &mut Child, document: &[u8]) -> Result<ExtractedDocument, ExtractError> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(ExtractError::Unavailable("its process has no pipes".to_owned()));
    };
    let send = async move {
        // A process that has ended does not read on; its output or its status says why.
        let _ = stdin.write_all(document).await;
        drop(stdin);
        std::future::pending::<Infallible>().await
    };
    let errors = async {
        let (mut beginning, mut stderr) = (Vec::new(), stderr);
        let _ = (&mut stderr).take(MAX_ERROR_BYTES as u64).read_to_end(&mut beginning).await;
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        beginning
    };
    let receive = async {
        let (output, errors) = tokio::try_join!(read_output(stdout), async { Ok(errors.await) })?;
        let status = child.wait().await;
        let status = status.map_err(|_| ExtractError::Unavailable("its process is lost".to_owned()))?;
        match spawn_blocking(move || protocol::read(&output)).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(cause_of_end(status, &errors)
                .unwrap_or_else(|| ExtractError::Unavailable(format!("{error} ({status})")))),
            Err(_) => Err(ExtractError::Unavailable("its output cannot be read".to_owned())),
        }
    };
    tokio::select! {
        result = receive => result,
        never = send => match never {},
    }
}

/// Reads the output up to its limit.
async fn read_output(stdout: impl AsyncRead + Unpin) -> Result<Vec<u8>, ExtractError> {
    let mut output = Vec::new();
    let unreadable = |_| ExtractError::Unavailable("its output cannot be read".to_owned());
    stdout.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(&mut output).await.map_err(unreadable)?;
    if output.len() > MAX_OUTPUT_BYTES {
        return Err(ExtractError::LimitExceeded(format!("an output of {MAX_OUTPUT_BYTES} bytes")));
    }
    Ok(output)
}

/// Returns the error for a process that was ended because of its document, by its status and its error output.
fn cause_of_end(status: ExitStatus, errors: &[u8]) -> Option<ExtractError> {
    let signal = status.signal()?;
    let contains = |text: &str| errors.windows(text.len()).any(|window| window == text.as_bytes());
    Some(if signal == Signal::XCPU.as_raw() {
        ExtractError::LimitExceeded("the processor time".to_owned())
    } else if contains("memory allocation of") {
        ExtractError::LimitExceeded("the memory".to_owned())
    } else if contains("has overflowed its stack") {
        ExtractError::LimitExceeded("the nesting".to_owned())
    } else if signal == Signal::KILL.as_raw() {
        return None;
    } else {
        ExtractError::Malformed("its reader failed".to_owned())
    })
}
