//! `POST /api/agents/{id}/retrieve`: the fragments of the agent's documents that a message would retrieve, and how each was
//! chosen. It calls the function that a turn calls, and sends nothing.

use std::sync::Arc;
use std::time::SystemTime;

use agent_client::backends::DEFAULT_REMOTE_BUDGET;
use agent_client::outbound::for_tenant;
use agent_core::context::TurnInput;
use agent_core::message::{Message, Role};
use agent_core::request::{Principal, TurnRequest};
use agent_core::turn::TurnError;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ownership::{AGENTS_TAG, load_in_company};
use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::service::HandlerResult;

/// Default and maximum number of hits that are ranked.
const DEFAULT_HITS: usize = 20;
const MAX_HITS: usize = 100;
/// Maximum length of a query, in bytes.
const MAX_QUERY_BYTES: usize = 64 * 1024;
/// Maximum number of earlier messages. The latest one of the user is used.
const MAX_MESSAGES: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
struct RetrieveRequest {
    /// The message to retrieve fragments for.
    #[schemars(length(min = 1, max = MAX_QUERY_BYTES))]
    query: String,
    /// The conversation before the message, oldest message first.
    #[serde(default)]
    messages: Vec<EarlierMessage>,
    /// Number of hits to rank; 20 if absent.
    #[schemars(range(min = 1, max = MAX_HITS))]
    limit: Option<usize>,
}

/// A message before the query.
#[derive(Deserialize, JsonSchema)]
struct EarlierMessage {
    /// Author of the message. Only messages of `user` have an effect.
    role: String,
    /// Text of the message.
    content: String,
}

impl RetrieveRequest {
    fn check(&self) -> Result<(), HttpError> {
        if self.query.trim().is_empty() || self.query.len() > MAX_QUERY_BYTES {
            let detail = format!("must have between 1 and {MAX_QUERY_BYTES} bytes");
            return Err(HttpError::invalid("query", detail));
        }
        if self.messages.len() > MAX_MESSAGES {
            return Err(HttpError::invalid("messages", format!("must be at most {MAX_MESSAGES}")));
        }
        match self.limit {
            Some(limit) if !(1..=MAX_HITS).contains(&limit) => {
                Err(HttpError::invalid("limit", format!("must be between 1 and {MAX_HITS}")))
            }
            _ => Ok(()),
        }
    }

    fn into_messages(self) -> Vec<Message> {
        let earlier = self.messages.into_iter().filter(|message| message.role == "user");
        let texts = earlier.map(|message| message.content).chain([self.query]);
        texts.map(|text| Message::text(Role::User, text)).collect()
    }
}

pub(super) async fn post(context: RequestContext<App>, principal: Principal) -> HandlerResult {
    let RequestContext { state: app, head, params, body } = context;
    let role = load_in_company(&app, &principal, params.get("id")?).await?.value;
    let retrieval: RetrieveRequest = body.read_json(&head.headers).await?;
    retrieval.check()?;
    let limit = retrieval.limit.unwrap_or(DEFAULT_HITS);
    let request = TurnRequest::new(role.id.clone(), retrieval.into_messages());
    let max_prompt_tokens = app.platform.max_prompt_tokens(&principal, &request);
    let max_prompt_tokens = for_tenant(&principal.company_id, max_prompt_tokens).await;
    let turn = TurnInput {
        context: principal.agent_context(&role.id, principal.caller),
        role: Arc::new(role),
        request: Arc::new(request),
        now: SystemTime::now(),
        max_prompt_tokens: max_prompt_tokens.unwrap_or(DEFAULT_REMOTE_BUDGET.max_prompt_tokens),
    };
    let report = app.documents.retrieve(&turn, limit).await.map_err(TurnError::from)?;
    let report = report.map_or_else(empty_report, |report| report.to_json());
    response::json(StatusCode::OK, &with_assumed_budget(report, max_prompt_tokens))
}

/// Adds to a report the budget of the prompt that was assumed, for an agent whose backend reports no budget.
fn with_assumed_budget(mut report: Value, max_prompt_tokens: Option<usize>) -> Value {
    if max_prompt_tokens.is_none() {
        report["assumedMaxPromptTokens"] = DEFAULT_REMOTE_BUDGET.max_prompt_tokens.into();
    }
    report
}

/// Returns the report on an agent without documents to search.
fn empty_report() -> Value {
    json!({"scope": [], "skipped": [], "terms": [], "relevance": 0.0, "fragments": [], "tokens": 0})
}

pub(super) fn describe(schemas: &mut Schemas) -> Operation {
    let report_schema =
        json!({"type": "object", "required": ["scope", "skipped", "terms", "fragments", "tokens"]});
    Operation::new(
        "retrieve",
        AGENTS_TAG,
        "Shows the fragments that a message would retrieve, and how they were chosen.",
    )
    .describe("Retrieves for agents without `enableAutoRag` too. Nothing is sent.")
    .body(schemas.schema_for::<RetrieveRequest>())
    .json_response(200, "The documents, the terms, and each hit with its scores.", report_schema)
    .problems(&[Code::NotFound])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumed_budget_is_reported() {
        assert_eq!(with_assumed_budget(empty_report(), Some(8_000)), empty_report());
        let report = with_assumed_budget(empty_report(), None);
        assert_eq!(report["assumedMaxPromptTokens"], 111_616);
    }
}
