//! Settings of the protocol for one model, and the data of a request for reading its answer.

use std::sync::Arc;

use agent_core::model::ModelInfo;
use agent_core::payload::Payload;
use agent_core::secret::Secret;
use agent_platform::coding::SubscriptionLimits;
use sha2::{Digest, Sha256};

use super::server_error::Account;
use crate::models::answer_parts::ItemMaker;
use crate::models::spec::ModelSpec;

/// Function that receives the usage limits of a subscription, as an answer reports them.
pub(super) type LimitHandler = Arc<dyn Fn(SubscriptionLimits) + Send + Sync>;

/// Bytes of the hash that names the maker of an answer's items.
const MAKER_BYTES: usize = 8;
/// Bytes of a key's hash in that name: enough to distinguish two accounts, too few to find the key.
const ACCOUNT_BYTES: usize = 2;

/// Builder of requests and reader of answers for one model, without a transport.
#[derive(Clone)]
pub struct ResponsesProtocol {
    pub(super) provider: &'static str,
    pub(super) account: Account,
    pub(super) model: Arc<ModelSpec>,
    pub(super) instructions: Option<String>,
    pub(super) default_instructions: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) sends_output_limit: bool,
    pub(super) limit_handler: Option<LimitHandler>,
    /// Name of the maker of the answers' items; see [`maker`](Self::maker).
    pub(super) maker: String,
}

impl std::fmt::Debug for ResponsesProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponsesProtocol").finish_non_exhaustive()
    }
}

impl ResponsesProtocol {
    /// Creates the protocol for `model` at the server with the address `address`, by which the model's context window is
    /// learned. Usage names `provider`; `account` selects the error of a refusal.
    pub fn new(provider: &'static str, account: Account, model: impl Into<ModelSpec>, address: &str) -> Self {
        let model = model.into().at(provider, address);
        Self {
            provider,
            account,
            maker: maker_name([address.as_bytes(), model.name.as_bytes()]),
            model: Arc::new(model),
            instructions: None,
            default_instructions: None,
            prompt_cache_key: None,
            sends_output_limit: false,
            limit_handler: None,
        }
    }

    /// Sets a text that is sent as `instructions`. The system prompt becomes the first developer message.
    pub fn with_instructions(self, instructions: Option<&str>) -> Self {
        Self { instructions: instructions.map(str::to_owned), ..self }
    }

    /// Sets a text that is sent as `instructions` if there is no system prompt. Without it, the field is left out.
    pub fn with_default_instructions(self, instructions: impl Into<String>) -> Self {
        Self { default_instructions: Some(instructions.into()), ..self }
    }

    /// Sets the vendor's cache key for the prefix of a conversation. It is hidden in previews.
    pub fn with_prompt_cache_key(self, key: impl Into<String>) -> Self {
        Self { prompt_cache_key: Some(key.into()), ..self }
    }

    /// Sets whether requests limit the answer, by `max_output_tokens`, which subscriptions reject. Off by default.
    pub fn with_output_limit(self, sends_output_limit: bool) -> Self {
        Self { sends_output_limit, ..self }
    }

    /// Sets a function that receives the usage limits of each `codex.rate_limits` event, in the order of the stream.
    /// Without it, these events are ignored.
    pub fn with_limit_handler(self, handler: impl Fn(SubscriptionLimits) + Send + Sync + 'static) -> Self {
        Self { limit_handler: Some(Arc::new(handler)), ..self }
    }

    /// Sets the key of the account that is called.
    pub(super) fn with_key(self, key: Option<&Secret>) -> Self {
        let Some(key) = key else { return self };
        let account = Sha256::digest(key.expose());
        Self { maker: maker_name([self.maker.as_bytes(), &account[..ACCOUNT_BYTES]]), ..self }
    }

    /// Returns the maker of the answers' items: this model at this server, by this account. The vendor can decrypt its reasoning
    /// for the same organization only, and other servers and models reject it.
    pub(super) fn maker(&self) -> ItemMaker<'_> {
        ItemMaker::responses(&self.maker)
    }

    /// Describes the model.
    pub fn info(&self) -> ModelInfo {
        self.model.info()
    }
}

fn maker_name(parts: [&[u8]; 2]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hex::encode(&hasher.finalize()[..MAKER_BYTES])
}

/// Data of a request for reading its answer.
#[derive(Debug, Clone, Default)]
pub struct AnswerContext {
    /// Names of the tools that were sent under an alias, by their alias.
    pub(super) aliases: Vec<(String, String)>,
    /// True if the request switches reasoning off, so that reasoning in the answer is not emitted.
    pub(super) hides_reasoning: bool,
    /// Tokens of the prompt by the platform's count.
    pub(super) prompt_tokens: Option<usize>,
}

impl AnswerContext {
    /// Returns the data of a payload with a body of [`ResponsesProtocol::push_body`].
    pub fn of(payload: &Payload) -> Self {
        let context = payload.attachment::<Self>().cloned().unwrap_or_default();
        Self { prompt_tokens: payload.prompt_tokens(), ..context }
    }

    /// Returns the name of the tool that was sent under `name`.
    pub(super) fn tool_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| alias == name).map_or(name, |(_, name)| name)
    }
}
