//! Reading of a run's bundle from the store.

use jiff::Timestamp;

use super::{BundleError, RunBundle};
use crate::conversation::{ConversationError, Conversations, Run, RunKey};
use agent_core::event::{Audience, Event};

impl RunBundle {
    /// Reads a run with its inputs and its log, as far as they are kept; `None` if there is no such run.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn load(
        store: &dyn Conversations,
        key: &RunKey,
        now: Timestamp,
        program: &str,
    ) -> Result<Option<Self>, ConversationError> {
        let Some(mut run) = store.run(&key.owner, &key.id).await? else { return Ok(None) };
        let events = match run.events.until.is_some_and(|until| until > now) {
            true => load_events(store, key, &run).await?,
            false => None,
        };
        let inputs = store.run_inputs(&key.owner, &key.id).await?;
        Ok(Some(Self {
            program: program.to_owned(),
            prompt: run.prompt.take(),
            run: run.shown_to(Audience::Trusted),
            // Inputs of another version are not read.
            inputs: inputs.and_then(|stored| serde_json::from_slice(&stored).ok()),
            events,
        }))
    }

    /// Returns an error if the bundle's run has not ended.
    ///
    /// # Errors
    /// [`BundleError::NotEnded`].
    pub fn check_ended(self) -> Result<Self, BundleError> {
        match self.run.state.is_live() {
            true => Err(BundleError::NotEnded),
            false => Ok(self),
        }
    }
}

/// Returns all events of a run; `None` if some are missing.
async fn load_events(
    store: &dyn Conversations,
    key: &RunKey,
    run: &Run,
) -> Result<Option<Vec<Event>>, ConversationError> {
    let (mut events, mut next) = (Vec::new(), 0);
    while next < run.events.count {
        let Some(page) = store.events(&key.owner, &key.id, next).await? else { return Ok(None) };
        for chunk in &page.chunks {
            match chunk.events() {
                Ok(read) if chunk.first == next => events.extend(read),
                _ => return Ok(None),
            }
            next = chunk.last + 1;
        }
        if page.chunks.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(events))
}
