//! Run tokens, in memory: created when a run begins, revoked when it ends.
//!
//! With a key, their texts are [sealed], so that other processes can verify them, and [ended] tells these processes of
//! the tokens that ended before their expiry.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

mod ended;
mod sealed;
mod table;

pub(super) use ended::delete_expired;
pub(super) use sealed::SealedText;
pub(super) use table::{RUN_TOKEN_LIMITS, RunTokenLimits};

use ended::{EndedTokenWriter, ended_token_key};
use sealed::RunTokenSealer;
use table::{LiveToken, LiveTokenTable, RemovedToken};

use super::end::TokenEndListeners;
use super::error::{TokenError, TokenMintError};
use super::metadata::Token;
use super::new_token::NewToken;
use super::text::{SecretDigest, TokenText};
use crate::call_reports::{ToolCallReporter, tool_call_channel};
use crate::records::Records;
use crate::seal::Sealer;
use crate::spawner::Spawner;
use agent_core::clock::Clock;
use agent_core::event::ReportedToolCalls;
use agent_core::run_token::RunToken;
use agent_core::secret::Secret;

/// The run tokens of this process that are valid.
pub(super) struct RunTokenTable {
    live: Arc<LiveTokens>,
}

struct LiveTokens {
    clock: Arc<dyn Clock>,
    table: Mutex<LiveTokenTable>,
    ended: Arc<TokenEndListeners>,
    /// `None` if the tokens are valid at this process only.
    sharing: Option<TokenSharing>,
}

/// Sharing of run tokens with the other processes.
pub(super) struct TokenSharing {
    sealer: RunTokenSealer,
    ended: Arc<EndedTokenWriter>,
}

impl TokenSharing {
    pub(super) fn new(
        sealer: Arc<Sealer>,
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        let ended = EndedTokenWriter::new(records, clock, spawner);
        Self { sealer: RunTokenSealer::new(sealer), ended }
    }
}

impl LiveTokens {
    /// Locks the table. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, LiveTokenTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the end of a token, which is no longer in the table, to this process and the others.
    fn announce_end(&self, removed: &RemovedToken) {
        let RemovedToken { id, expires_at, is_sealed } = *removed;
        self.ended.notify(id);
        if let Some(sharing) = self.sharing.as_ref().filter(|_| is_sealed)
            && expires_at > self.clock.now()
        {
            sharing.ended.push(id, expires_at);
        }
    }
}

impl RunTokenTable {
    /// Creates a table with times from `clock`, which reports the tokens that end to `ended`, and to other processes if
    /// the tokens are shared with them.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        limits: RunTokenLimits,
        ended: Arc<TokenEndListeners>,
        sharing: Option<TokenSharing>,
    ) -> Self {
        let table = Mutex::new(LiveTokenTable::new(limits));
        Self { live: Arc::new(LiveTokens { clock, table, ended, sharing }) }
    }

    /// Creates a token that is revoked when the returned value is dropped, and at its `ttl` at the latest.
    ///
    /// # Errors
    /// [`TokenMintError::TooManyRunTokens`] if a limit is reached and no token that outlives its run can be evicted,
    /// [`TokenMintError::Invalid`] also for a token without `ttl`.
    pub(super) fn mint(&self, new: NewToken) -> Result<IssuedRunToken, TokenMintError> {
        let now = self.live.clock.now();
        let (token, text) = new.create(now)?;
        let expires_at = token.expires_at.ok_or_else(|| TokenMintError::invalid("ttl", "is missing"))?;
        let id = text.id;
        let sealed = self.live.sharing.as_ref().and_then(|sharing| sharing.sealer.seal(id, &token));
        let (digest, is_sealed) = match &sealed {
            Some(sealed) => (SecretDigest::of(sealed.expose().as_bytes()), true),
            None => (text.digest(), false),
        };
        let live = LiveToken { token, digest, calls: None, expires_at, is_sealed };
        let (removed, inserted) = self.live.lock().insert(id, live, now);
        removed.iter().for_each(|removed| self.live.announce_end(removed));
        inserted?;
        Ok(IssuedRunToken {
            id,
            text: sealed.unwrap_or_else(|| text.to_secret()),
            live: self.live.clone(),
            keep_until_expiry: AtomicBool::new(false),
        })
    }

    /// Returns the token of an opaque text, or `None` if its id is not that of a run token of this process.
    pub(super) fn find(&self, text: &TokenText) -> Option<Result<Token, TokenError>> {
        self.find_live(text.id, |live| {
            !live.is_sealed && text.matches_kind(&live.token.grant) && text.matches(&live.digest)
        })
    }

    fn find_live(
        &self,
        id: Uuid,
        is_text: impl FnOnce(&LiveToken) -> bool,
    ) -> Option<Result<Token, TokenError>> {
        let table = self.live.lock();
        let live = table.get(id)?;
        if !is_text(live) {
            return Some(Err(TokenError::WrongSecret));
        }
        Some(live.token.check(self.live.clock.now()).map(|()| live.token.clone()))
    }

    /// Returns the token of a sealed text, which any process may have issued.
    ///
    /// # Errors
    /// Every [`TokenError`].
    pub(super) async fn find_sealed(
        &self,
        text: &SealedText<'_>,
        records: &dyn Records,
    ) -> Result<Token, TokenError> {
        let digest = SecretDigest::of(text.text.as_bytes());
        if let Some(found) = self.find_live(text.id, |live| live.is_sealed && live.digest.matches(&digest)) {
            return found;
        }
        let sharing = self.live.sharing.as_ref().ok_or(TokenError::Unknown)?;
        let content = sharing.sealer.open(text)?;
        content.token.check(self.live.clock.now())?;
        // Neither in the table nor expired, so it has ended.
        if sharing.sealer.is_issuer(&content) {
            return Err(TokenError::Revoked);
        }
        let expires_at = content.token.expires_at.ok_or(TokenError::Malformed)?;
        let ended = ended_token_key(text.id, expires_at)?.counted_for(&content.token.company_id);
        if records.get(&ended).await?.is_some() {
            self.live.ended.notify(text.id);
            return Err(TokenError::Revoked);
        }
        Ok(content.token)
    }

    /// Returns the sink for reports of calls made with a token, if its run requested them.
    pub(super) fn call_reports(&self, id: Uuid) -> Option<ToolCallReporter> {
        self.live.lock().get(id)?.calls.clone()
    }

    /// Waits until the ends of tokens are known to the other processes.
    pub(super) async fn flush_ended(&self) {
        if let Some(sharing) = &self.live.sharing {
            sharing.ended.flush().await;
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        self.live.lock().sizes()
    }
}

/// A run's token that this process issued; revoked on drop.
pub struct IssuedRunToken {
    id: Uuid,
    text: Secret,
    live: Arc<LiveTokens>,
    keep_until_expiry: AtomicBool,
}

impl RunToken for IssuedRunToken {
    fn text(&self) -> &Secret {
        &self.text
    }

    fn report_calls(&self) -> Box<dyn ReportedToolCalls> {
        let (reports, calls) = tool_call_channel();
        if let Some(live) = self.live.lock().get_mut(self.id) {
            live.calls = Some(reports);
        }
        Box::new(calls)
    }

    fn keep_until_expiry(&self) {
        self.keep_until_expiry.store(true, Ordering::Relaxed);
    }
}

impl Drop for IssuedRunToken {
    fn drop(&mut self) {
        if *self.keep_until_expiry.get_mut() {
            self.live.lock().detach(self.id);
            return;
        }
        let removed = self.live.lock().remove(self.id);
        if let Some(removed) = removed {
            self.live.announce_end(&removed);
        }
    }
}

impl fmt::Debug for IssuedRunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedRunToken").field("id", &self.id).finish_non_exhaustive()
    }
}
