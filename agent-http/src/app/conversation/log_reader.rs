//! Reader of a run's log: from the store, and from memory where the run is live in this process.

use std::sync::Arc;
use std::time::Duration;

use agent_core::event::Event;
use agent_core::store_error::StoreError;
use agent_platform::conversation::{ConversationError, Conversations, LogPage, Run, RunKey, RunSignal};
use jiff::SignedDuration;
use tokio::time::Instant;

use crate::app::services::ConversationService;
use crate::app::services::live::{AttachedReader, ReaderPermit};
use crate::app::services::tail::{LogCursor, TailRead};
use crate::error::{Code, HttpError};
use crate::shutdown::ShutdownStage;

/// Maximum number of readers of a run in a process.
const MAX_RUN_READERS: usize = 32;
/// Time between two polls of the log of a run in another process.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a signal marks a run of another process as watched.
const WATCH_SIGNAL_TTL: SignedDuration = SignedDuration::from_secs(10);
/// Time after which the signal is renewed.
const WATCH_SIGNAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which a reader waits for the next event of a run of this process, once the shutdown has ended the run.
const FINAL_EVENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of reads that return a part of the log that does not continue the previous one.
const MAX_GAP_READS: u32 = 3;

/// Reader of a run's log from an event on.
pub(crate) struct LogReader {
    service: Arc<ConversationService>,
    store: Arc<dyn Conversations>,
    key: RunKey,
    cursor: LogCursor,
    /// True if the reader waits for further events of a live run.
    follows: bool,
    live: Option<AttachedReader>,
    /// Time of the last signal to the run's process.
    last_signal: Option<Instant>,
    gap_reads: u32,
    /// True once the terminal event was read.
    has_ended: bool,
    _permit: ReaderPermit,
}

impl LogReader {
    /// Opens the log from event `from` on; `None` if the run has as many readers as it may have.
    pub(crate) fn open(
        service: &Arc<ConversationService>,
        store: &Arc<dyn Conversations>,
        key: RunKey,
        from: u64,
        follows: bool,
    ) -> Option<Self> {
        let permit = service.runs.acquire_reader(&key, MAX_RUN_READERS)?;
        let live = service.runs.get(&key).map(|run| run.attach());
        Some(Self {
            service: service.clone(),
            store: store.clone(),
            key,
            cursor: LogCursor::at(from),
            follows,
            live,
            last_signal: None,
            gap_reads: 0,
            has_ended: false,
            _permit: permit,
        })
    }

    /// Returns the next events, at least one; `None` after the terminal event, when the run was deleted, and at the end of
    /// the service's shutdown, for a run of this process after its terminal event.
    ///
    /// # Errors
    /// 410 if the log was deleted meanwhile; those of the store, and a log with a gap.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Event>>, HttpError> {
        if self.has_ended {
            return Ok(None);
        }
        let shutdown = self.service.shutdown.wait_for(ShutdownStage::Ending);
        let is_live_here = self.live.is_some();
        let ending = async move {
            shutdown.await;
            // The run is ended, too, and its terminal event follows once its end is stored.
            if is_live_here {
                tokio::time::sleep(FINAL_EVENT_TIMEOUT).await;
            }
        };
        let next = tokio::select! {
            biased;
            events = self.next_events() => events?,
            () = ending => None,
        };
        self.has_ended = next.iter().flatten().any(Event::is_terminal);
        Ok(next)
    }

    /// Returns the number of the event after those that were read. It is less than before if the reader had events that were lost
    /// with the run's process.
    pub(crate) fn next_number(&self) -> u64 {
        self.cursor.next
    }

    async fn next_events(&mut self) -> Result<Option<Vec<Event>>, HttpError> {
        loop {
            if let Some(live) = &self.live {
                let run = live.run();
                let mut growth = std::pin::pin!(run.wait_for_growth());
                // From here on no wake-up is missed.
                growth.as_mut().enable();
                let result = run.tail().read(&mut self.cursor);
                match result {
                    TailRead::Events(events) => return Ok(Some(events)),
                    TailRead::Over => return Ok(None),
                    TailRead::Pending if !self.follows => return Ok(None),
                    TailRead::Pending => {
                        growth.await;
                        continue;
                    }
                    TailRead::Stored => {}
                }
            }
            let Some(page) = self.store.events(&self.key.owner, &self.key.id, self.cursor.next).await? else {
                return Ok(None);
            };
            // A run that waits for decisions has ended, too: another one continues it.
            let is_over = !page.run.state.is_live();
            let events = self.unpack(&page)?;
            if !events.is_empty() {
                return Ok(Some(events));
            }
            // Every run has a terminal event, so a log without events was deleted.
            if is_over && page.run.events.count == 0 {
                return Err(log_gone());
            }
            // The reader came while the run was live, with events that were lost with the run's process. It gets the end.
            if is_over && self.cursor.next >= page.run.events.count {
                self.cursor = LogCursor::at(page.run.events.count - 1);
                continue;
            }
            // Missing events may be there at the next read.
            let has_gap = page.chunks.iter().any(|chunk| chunk.first > self.cursor.next);
            if !has_gap && (is_over || !self.follows) {
                return Ok(None);
            }
            self.wait_for_remote_run().await?;
        }
    }

    /// Returns the events of a page from the cursor on, and moves it.
    fn unpack(&mut self, page: &LogPage) -> Result<Vec<Event>, ConversationError> {
        let mut events = Vec::new();
        for chunk in &page.chunks {
            if chunk.first > self.cursor.next {
                self.gap_reads += 1;
                // Chunks are appended in order, so that this one was not complete when the page was read.
                return match events.is_empty() && self.gap_reads > MAX_GAP_READS {
                    true => Err(damaged(&page.run)),
                    false => Ok(events),
                };
            }
            let already_read = usize::try_from(self.cursor.next - chunk.first).unwrap_or(usize::MAX);
            let unpacked = chunk.events().map_err(|_| damaged(&page.run))?;
            events.extend(unpacked.into_iter().skip(already_read));
            self.cursor.next = chunk.last + 1;
        }
        Ok(events)
    }

    /// Waits before the next poll of the log of a run in another process, and signals this reader to that process.
    async fn wait_for_remote_run(&mut self) -> Result<(), ConversationError> {
        if self.last_signal.is_none_or(|signal| signal.elapsed() >= WATCH_SIGNAL_INTERVAL) {
            let until = self.service.now().saturating_add(WATCH_SIGNAL_TTL).unwrap_or_default();
            self.store.signal(&self.key, RunSignal::Watch, until).await?;
            self.last_signal = Some(Instant::now());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(())
    }
}

/// Returns the error of a reader whose log has been deleted.
pub(crate) fn log_gone() -> HttpError {
    let detail = "the events of the run are not kept any more; the thread has its messages";
    HttpError::new(Code::RunLogGone, detail)
}

/// Returns the error of a reader of a run that has as many readers as it may have.
pub(crate) fn too_many_readers() -> HttpError {
    let detail = format!("the run has {MAX_RUN_READERS} readers, which is the maximum");
    HttpError::new(Code::RateLimited, detail)
}

fn damaged(run: &Run) -> ConversationError {
    StoreError::Invalid(format!("the log of the run {} is damaged", run.id)).into()
}
