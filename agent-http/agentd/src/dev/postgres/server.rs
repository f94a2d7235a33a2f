//! Lifecycle of the server's process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::socket::SocketFolder;
use crate::StartError;

/// Timeout of the start, in which the server recovers from a crash if there was one.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a fast shutdown (SIGINT), in which the server writes a checkpoint.
pub(super) const FAST_STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of an immediate shutdown (SIGQUIT), which follows if the fast one takes too long.
const IMMEDIATE_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the state of the server is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of last lines of an output that errors contain.
const MAX_SHOWN_LINES: usize = 10;

/// A running server. It is stopped when the value is dropped.
#[derive(Debug)]
pub(in crate::dev) struct DevServer {
    pub(super) child: Child,
    /// Folder of the cluster.
    folder: PathBuf,
    socket: SocketFolder,
    /// Exclusive lock of the cluster.
    pub(super) lock: File,
}

impl DevServer {
    pub(super) fn new(child: Child, folder: PathBuf, socket: SocketFolder, lock: File) -> Self {
        Self { child, folder, socket, lock }
    }

    /// Waits until the server accepts connections.
    ///
    /// # Errors
    /// The server has stopped, or has not started within [`START_TIMEOUT`]; with the last lines of its log.
    pub(super) async fn wait_until_ready(mut self, log: &Path) -> Result<Self, StartError> {
        let started = Instant::now();
        while !self.is_ready() {
            let problem = match self.child.try_wait() {
                Ok(None) if started.elapsed() < START_TIMEOUT => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                Ok(None) => format!("has not started within {} s", START_TIMEOUT.as_secs()),
                _ => "has stopped during its start".to_owned(),
            };
            let text = fs::read(log).unwrap_or_default();
            let lines = last_lines(&String::from_utf8_lossy(&text));
            return Err(StartError::Other(format!(
                "PostgreSQL {problem}; {} ends with:\n{lines}",
                log.display()
            )));
        }
        Ok(self)
    }

    /// Returns true if the server's `postmaster.pid` says that it accepts connections.
    fn is_ready(&self) -> bool {
        let status = fs::read_to_string(self.folder.join("postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines();
        lines.next() == Some(&self.child.id().to_string())
            && lines.next_back().is_some_and(|line| line.trim() == "ready")
    }

    /// Waits for the server's end. Returns false if it has not ended within `timeout`.
    fn wait(&mut self, timeout: Duration) -> bool {
        let started = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if started.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        let stages = [(Signal::INT, FAST_STOP_TIMEOUT), (Signal::QUIT, IMMEDIATE_STOP_TIMEOUT)];
        let has_ended = stages.into_iter().any(|(signal, timeout)| {
            // A process that has ended keeps its id until `wait` has seen its end.
            self.wait(Duration::ZERO)
                || kill_process(Pid::from_child(&self.child), signal).is_ok() && self.wait(timeout)
        });
        if !has_ended {
            tracing::warn!("PostgreSQL has not stopped in time and is killed");
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.socket.remove();
        let _ = self.lock.unlock();
    }
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..].join("\n")
}
