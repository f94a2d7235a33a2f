//! Test double of an extractor. The text of a document is the script: it succeeds, blocks, fails or panics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use agent_retrieval::document::{ExtractedText, TextFormat};
use agent_retrieval::extract::{ExtractError, ExtractedDocument, Extractor};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{pending, poll_fn};

/// Extractor of `text/plain`, which the beginning of a document makes fail: `MALFORMED`, `UNAVAILABLE`, `PANIC`, or
/// `BLOCK`, which waits until [`release`](Self::release). Each form feed begins a page; the first line is the title.
#[derive(Debug)]
pub struct ScriptedExtractor {
    id: String,
    calls: AtomicUsize,
    waiting: Mutex<WaitingCalls>,
}

#[derive(Debug, Default)]
struct WaitingCalls {
    is_released: bool,
    wakers: Vec<Waker>,
}

impl ScriptedExtractor {
    /// Creates an extractor with an identifier.
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), calls: AtomicUsize::new(0), waiting: Mutex::default() }
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Lets the calls continue that wait, and those that follow.
    pub fn release(&self) {
        let wakers = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.is_released = true;
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until there have been this many calls.
    pub async fn wait_for_calls(&self, calls: usize) {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.calls() >= calls {
                return Poll::Ready(());
            }
            waiting.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    async fn wait_for_release(&self) {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_released {
                return Poll::Ready(());
            }
            waiting.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn count_call(&self) {
        let wakers = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.calls.fetch_add(1, Ordering::SeqCst);
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[async_trait]
impl Extractor for ScriptedExtractor {
    fn id(&self) -> &str {
        &self.id
    }

    fn supports(&self, media_type: &str) -> bool {
        media_type == "text/plain"
    }

    async fn extract(&self, _: &str, bytes: Bytes) -> Result<ExtractedDocument, ExtractError> {
        self.count_call();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match text.split_whitespace().next() {
            Some("MALFORMED") => return Err(ExtractError::Malformed("it says so".to_owned())),
            Some("UNAVAILABLE") => return Err(ExtractError::Unavailable("it says so".to_owned())),
            Some("PANIC") => panic!("the document says so"),
            Some("BLOCK") => self.wait_for_release().await,
            Some("HANG") => pending().await,
            _ => {}
        }
        let title = text.lines().next().unwrap_or_default().to_owned();
        let breaks = text.match_indices('\u{c}').map(|(at, _)| at + 1);
        let page_starts: Vec<u32> = [0].into_iter().chain(breaks).map(|at| at as u32).collect();
        let needs_ocr = if text.contains("PICTURE") { vec![1] } else { Vec::new() };
        let pages = u32::try_from(page_starts.len()).ok();
        let document = ExtractedText { title, text, format: TextFormat::Plain, page_starts };
        Ok(ExtractedDocument { document, pages, needs_ocr })
    }
}
