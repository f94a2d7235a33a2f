//! Table of valid run tokens with shares per company. Every operation takes time logarithmic in the number of tokens.

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use agent_core::ids::CompanyId;
use uuid::Uuid;

use super::super::error::TokenMintError;
use super::super::metadata::Token;
use super::super::text::SecretDigest;
use crate::call_reports::ToolCallReporter;

/// Maximum number of run tokens in a process.
pub(super) const MAX_RUN_TOKENS: usize = 50_000;
/// Maximum number of run tokens of one company in a process.
const MAX_RUN_TOKENS_PER_COMPANY: usize = MAX_RUN_TOKENS / 4;

/// Maximum number of expired tokens that one insertion removes. It exceeds one, so that they cannot accumulate.
const MAX_EXPIRED_PER_INSERT: usize = 8;

/// Maximum numbers of run tokens.
#[derive(Debug, Clone, Copy)]
pub(in crate::token) struct RunTokenLimits {
    pub(in crate::token) process: usize,
    pub(in crate::token) company: usize,
}

/// The limits of a process.
pub(in crate::token) const RUN_TOKEN_LIMITS: RunTokenLimits =
    RunTokenLimits { process: MAX_RUN_TOKENS, company: MAX_RUN_TOKENS_PER_COMPANY };

/// A run token and the sink for reports of calls made with it.
pub(super) struct LiveToken {
    pub(super) token: Token,
    pub(super) digest: SecretDigest,
    pub(super) calls: Option<ToolCallReporter>,
    pub(super) expires_at: SystemTime,
    /// True if other processes can verify the token's text.
    pub(super) is_sealed: bool,
}

/// A token that is no longer in the table.
pub(super) struct RemovedToken {
    pub(super) id: Uuid,
    pub(super) expires_at: SystemTime,
    pub(super) is_sealed: bool,
}

/// Position of a token in an order by expiry.
type ByExpiry = BTreeSet<(SystemTime, Uuid)>;

/// The run tokens of one company.
#[derive(Default)]
struct CompanyTokens {
    count: usize,
    /// Tokens that outlive their run, which may be evicted.
    detached: ByExpiry,
}

/// Run tokens that are not revoked, including a bounded number of expired ones.
pub(super) struct LiveTokenTable {
    limits: RunTokenLimits,
    tokens: HashMap<Uuid, LiveToken>,
    by_expiry: ByExpiry,
    companies: HashMap<CompanyId, CompanyTokens>,
    /// Companies with detached tokens, by the number of their tokens.
    evictable: BTreeSet<(usize, CompanyId)>,
}

impl LiveTokenTable {
    pub(super) fn new(limits: RunTokenLimits) -> Self {
        Self {
            limits,
            tokens: HashMap::new(),
            by_expiry: BTreeSet::new(),
            companies: HashMap::new(),
            evictable: BTreeSet::new(),
        }
    }

    pub(super) fn get(&self, id: Uuid) -> Option<&LiveToken> {
        self.tokens.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: Uuid) -> Option<&mut LiveToken> {
        self.tokens.get_mut(&id)
    }

    /// Adds a token and returns the tokens that were removed for it because they had expired or were evicted.
    ///
    /// At its share, a company's detached token that expires first is evicted. If the table is full, it is a token of the company
    /// with the most tokens; on a tie, of the same company.
    pub(super) fn insert(
        &mut self,
        id: Uuid,
        live: LiveToken,
        now: SystemTime,
    ) -> (Vec<RemovedToken>, Result<(), TokenMintError>) {
        let mut removed = self.remove_expired(now);
        match self.token_to_evict(&live.token.company_id) {
            Ok(None) => {}
            Ok(Some(evicted)) => removed.extend(self.remove(evicted)),
            Err(error) => return (removed, Err(error)),
        }
        self.change_company(&live.token.company_id, |company| company.count += 1);
        self.by_expiry.insert((live.expires_at, id));
        self.tokens.insert(id, live);
        (removed, Ok(()))
    }

    fn token_to_evict(&self, company: &CompanyId) -> Result<Option<Uuid>, TokenMintError> {
        let token_count = self.companies.get(company).map_or(0, |company| company.count);
        let victim = if token_count >= self.limits.company {
            self.first_detached(company)
        } else if self.tokens.len() >= self.limits.process {
            let largest = self.evictable.last().filter(|(count, _)| *count > token_count);
            self.first_detached(largest.map_or(company, |(_, largest)| largest))
        } else {
            return Ok(None);
        };
        victim.map(Some).ok_or(TokenMintError::TooManyRunTokens)
    }

    fn first_detached(&self, company: &CompanyId) -> Option<Uuid> {
        self.companies.get(company)?.detached.first().map(|(_, id)| *id)
    }

    /// Marks a token that outlives its run, so that it may be evicted.
    pub(super) fn detach(&mut self, id: Uuid) {
        let Some(LiveToken { token, expires_at, .. }) = self.tokens.get(&id) else { return };
        let (company_id, position) = (token.company_id.clone(), (*expires_at, id));
        self.change_company(&company_id, |company| {
            company.detached.insert(position);
        });
    }

    /// Removes a token; returns `None` if there is none with this id.
    pub(super) fn remove(&mut self, id: Uuid) -> Option<RemovedToken> {
        let LiveToken { token, expires_at, is_sealed, .. } = self.tokens.remove(&id)?;
        self.by_expiry.remove(&(expires_at, id));
        self.change_company(&token.company_id, |company| {
            company.count -= 1;
            company.detached.remove(&(expires_at, id));
        });
        Some(RemovedToken { id, expires_at, is_sealed })
    }

    /// Removes a bounded number of expired tokens, and returns them.
    fn remove_expired(&mut self, now: SystemTime) -> Vec<RemovedToken> {
        let expired = self.by_expiry.iter().take_while(|(expires_at, _)| *expires_at <= now);
        let expired: Vec<Uuid> = expired.take(MAX_EXPIRED_PER_INSERT).map(|(_, id)| *id).collect();
        expired.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Changes a company's entry, and keeps its position among the evictable ones.
    fn change_company(&mut self, id: &CompanyId, change: impl FnOnce(&mut CompanyTokens)) {
        let company = self.companies.entry(id.clone()).or_default();
        if !company.detached.is_empty() {
            self.evictable.remove(&(company.count, id.clone()));
        }
        change(company);
        if !company.detached.is_empty() {
            self.evictable.insert((company.count, id.clone()));
        }
        if company.count == 0 {
            self.companies.remove(id);
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        [self.tokens.len(), self.by_expiry.len(), self.companies.len(), self.evictable.len()]
    }
}
