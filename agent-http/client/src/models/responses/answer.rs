//! State of one answer: converts the events of the Responses API to model events.
//!
//! Events are matched to items by the item's identifier, else by its index, since some servers give an item another
//! identifier in each event, and some send no index. Several calls may be open at once.

use std::collections::VecDeque;
use std::time::SystemTime;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, ProviderItem, SharedJson};
use agent_core::model::ModelEvent;
use agent_platform::coding::SubscriptionLimits;
use agent_platform::model_notice::ModelNotice;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::protocol::{AnswerContext, LimitHandler, ResponsesProtocol};
use super::server_error::{Account, ServerError};
use super::wire::{StreamEvent, WireAnswer, WireItem, content_text, number, sent_item, text, usage};
use crate::models::answer_parts::ItemMaker;
use crate::models::answer_stream::DecodeAnswer;
use crate::models::errors::{
    MAX_CALLS, malformed_response, reported_error, too_many_calls, truncated_answer, unknown_response,
};
use crate::models::vendor_error::plain_word;

/// Limit on the arguments of a call, in bytes.
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
/// Limit on the items of an answer that are sent back, in bytes.
const MAX_ANSWER_ITEM_BYTES: usize = 4 << 20;
/// Limit on the items of an answer.
const MAX_ITEMS: usize = 1024;
/// Limit on the identifier of an item, in bytes; an item with a longer one is found by its index.
const MAX_ID_BYTES: usize = 256;

/// State of one answer.
pub(super) struct AnswerReader {
    /// Events that are ready, in order.
    pub(super) ready: VecDeque<ModelEvent>,
    /// True after the event that ends the answer.
    is_finished: bool,
    provider: &'static str,
    account: Account,
    maker: String,
    context: AnswerContext,
    /// Function that receives the usage limits within the answer.
    limit_handler: Option<LimitHandler>,
    /// Time at which a usage limit ends, as the head of the response reports it.
    pub(super) reset_time: Option<HeaderValue>,
    items: Vec<AnswerItem>,
    calls: usize,
    provider_item_bytes: usize,
    is_refusal: bool,
}

/// An item of the answer that has begun.
struct AnswerItem {
    id: Option<String>,
    output_index: Option<u64>,
    is_done: bool,
    kind: ItemKind,
}

enum ItemKind {
    Message {
        text_bytes: usize,
    },
    Call(OpenCall),
    /// An item that is sent back, once it is done.
    Provider(Option<SharedJson>),
}

struct OpenCall {
    /// Index among the calls of the answer.
    index: usize,
    arguments: String,
    /// False until the call's name is known.
    is_started: bool,
    has_all_arguments: bool,
}

/// Kind of item that an event looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Message,
    Call,
    Provider,
}

impl DecodeAnswer for AnswerReader {
    fn ready(&mut self) -> &mut VecDeque<ModelEvent> {
        &mut self.ready
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Reads the data of one event of the stream.
    ///
    /// # Errors
    /// The error that the event reports; `Failed` for data that is not an event or contradicts earlier events;
    /// `OutputTooLarge` and `ToolLoopLimit` beyond the limits; `Truncated` for a call that is not complete at the end.
    fn take(&mut self, data: &[u8]) -> Result<(), AgentError> {
        let event: StreamEvent<'_> = parse(data)?;
        let kind = match (event.kind, event.error) {
            (None, None) => return Ok(()),
            (None, Some(_)) => "error".into(),
            (kind, _) => text(kind).ok_or_else(inconsistent)?,
        };
        match &*kind {
            "response.output_text.delta" => self.take_text(&event),
            "response.refusal.delta" => {
                self.is_refusal = true;
                self.take_text(&event)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.push_reasoning(&delta(&event)?);
                Ok(())
            }
            "response.reasoning_summary_part.added" => {
                if number(event.summary_index).is_some_and(|index| index > 0) {
                    self.push_reasoning("\n\n");
                }
                Ok(())
            }
            "response.output_item.added" => self.add_item(&event),
            "response.function_call_arguments.delta" => self.take_arguments(&event),
            "response.function_call_arguments.done" => {
                let call = self.find_call(&event)?;
                self.complete_arguments(call, event.arguments)
            }
            "response.output_item.done" => self.complete_item(&event),
            "response.completed" | "response.done" | "response.incomplete" => {
                let answer = parse(event.response.map_or(&b"{}"[..], |answer| answer.get().as_bytes()))?;
                self.finish(&answer, kind == "response.incomplete", data)
            }
            "response.failed" | "error" => Err(self.reported(data)),
            "codex.rate_limits" => {
                self.report_limits(data);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl AnswerReader {
    pub(super) fn new(protocol: &ResponsesProtocol, context: AnswerContext) -> Self {
        Self {
            ready: VecDeque::new(),
            is_finished: false,
            provider: protocol.provider,
            account: protocol.account,
            maker: protocol.maker.clone(),
            context,
            limit_handler: protocol.limit_handler.clone(),
            reset_time: None,
            items: Vec::new(),
            calls: 0,
            provider_item_bytes: 0,
            is_refusal: false,
        }
    }

    /// Reads a whole answer, from a server that does not stream.
    ///
    /// # Errors
    /// As [`take`](Self::take); `Failed` for JSON that is not an answer.
    pub(super) fn take_whole(&mut self, data: &[u8]) -> Result<(), AgentError> {
        let answer: WireAnswer<'_> = parse(data)?;
        match (answer.error, answer.output) {
            (Some(_), _) => Err(self.reported(data)),
            (None, None) => Err(unknown_response()),
            (None, Some(_)) => self.finish(&answer, false, data),
        }
    }

    /// Classifies an error that the server reports within the answer.
    fn reported(&self, data: &[u8]) -> AgentError {
        let error = ServerError::from_event(data).with_reset_time(self.reset_time.as_ref());
        error.into_agent_error(self.account, SystemTime::now())
    }

    /// Passes the usage limits in an event to their handler. An event that cannot be read is ignored, since the answer
    /// does not depend on it.
    fn report_limits(&self, data: &[u8]) {
        let Some(handler) = &self.limit_handler else { return };
        if let Ok(event) = serde_json::from_slice::<Value>(data) {
            handler(SubscriptionLimits::from_event(&event));
        }
    }

    fn take_text(&mut self, event: &StreamEvent<'_>) -> Result<(), AgentError> {
        let text = delta(event)?;
        let found = self.find(Wanted::Message, event.item_id, event.output_index);
        let item_index = match found {
            Some(item_index) => item_index,
            // Some servers do not announce messages.
            None => self.push_item(event.item_id, event.output_index, ItemKind::Message { text_bytes: 0 })?,
        };
        self.push_text(item_index, &text);
        Ok(())
    }

    fn push_text(&mut self, item_index: usize, text: &str) {
        if let ItemKind::Message { text_bytes } = &mut self.items[item_index].kind {
            *text_bytes += text.len();
        }
        if !text.is_empty() {
            self.ready.push_back(ModelEvent::Text(text.to_owned()));
        }
    }

    fn push_reasoning(&mut self, text: &str) {
        if !text.is_empty() && !self.context.hides_reasoning {
            self.ready.push_back(ModelEvent::Reasoning(text.to_owned()));
        }
    }

    fn add_item(&mut self, event: &StreamEvent<'_>) -> Result<(), AgentError> {
        let item = read_item(event.item)?;
        self.begin_item(&item, event.output_index).map(|_| ())
    }

    /// Adds an item. A call is started if its name is known.
    fn begin_item(
        &mut self,
        item: &WireItem<'_>,
        output_index: Option<&RawValue>,
    ) -> Result<usize, AgentError> {
        let kind = match wanted(item) {
            Wanted::Message => ItemKind::Message { text_bytes: 0 },
            Wanted::Provider => ItemKind::Provider(None),
            Wanted::Call => {
                if self.calls == MAX_CALLS {
                    return Err(too_many_calls());
                }
                self.calls += 1;
                let (index, arguments) = (self.calls - 1, String::new());
                ItemKind::Call(OpenCall { index, arguments, is_started: false, has_all_arguments: false })
            }
        };
        let item_index = self.push_item(item.id, output_index, kind)?;
        if let Some(name) = text(item.name).filter(|name| !name.is_empty()) {
            self.start_call(item_index, item, &name);
        }
        Ok(item_index)
    }

    fn push_item(
        &mut self,
        id: Option<&RawValue>,
        output_index: Option<&RawValue>,
        kind: ItemKind,
    ) -> Result<usize, AgentError> {
        if self.items.len() == MAX_ITEMS {
            let message = format!("the model's response has more than {MAX_ITEMS} items");
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        let id = text(id).filter(|id| (1..=MAX_ID_BYTES).contains(&id.len())).map(String::from);
        self.items.push(AnswerItem { id, output_index: number(output_index), is_done: false, kind });
        Ok(self.items.len() - 1)
    }

    /// Starts a call that has not been started, with the arguments that have arrived.
    fn start_call(&mut self, item_index: usize, item: &WireItem<'_>, name: &str) {
        let ItemKind::Call(call) = &mut self.items[item_index].kind else { return };
        if std::mem::replace(&mut call.is_started, true) {
            return;
        }
        let id = text(item.call_id).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("call_{}", agent_core::new_id()), String::from);
        let (index, name) = (call.index, self.context.tool_name(name).to_owned());
        self.ready.push_back(ModelEvent::ToolCallStart { index, id, name });
        if !call.arguments.is_empty() {
            self.ready.push_back(ModelEvent::ToolCallArgs { index, delta: call.arguments.clone() });
        }
    }

    fn find_call(&self, event: &StreamEvent<'_>) -> Result<usize, AgentError> {
        self.find(Wanted::Call, event.item_id, event.output_index).ok_or_else(inconsistent)
    }

    fn take_arguments(&mut self, event: &StreamEvent<'_>) -> Result<(), AgentError> {
        let (item_index, delta) = (self.find_call(event)?, delta(event)?);
        match &self.items[item_index].kind {
            ItemKind::Call(call) if call.has_all_arguments && !delta.is_empty() => Err(inconsistent()),
            _ => self.push_arguments(item_index, &delta),
        }
    }

    fn push_arguments(&mut self, item_index: usize, delta: &str) -> Result<(), AgentError> {
        let ItemKind::Call(call) = &mut self.items[item_index].kind else { return Err(inconsistent()) };
        if call.arguments.len() + delta.len() > MAX_ARGUMENT_BYTES {
            let message = "the model's tool call arguments exceed the size limit";
            return Err(AgentError::new(AgentErrorKind::Failed, message));
        }
        call.arguments.push_str(delta);
        if call.is_started && !delta.is_empty() {
            let (index, delta) = (call.index, delta.to_owned());
            self.ready.push_back(ModelEvent::ToolCallArgs { index, delta });
        }
        Ok(())
    }

    /// Adds the part of the whole arguments that the deltas have not contained: some servers send none.
    fn complete_arguments(&mut self, item_index: usize, whole: Option<&RawValue>) -> Result<(), AgentError> {
        let whole = match text(whole) {
            Some(text) => text,
            // Some servers send an object instead of its text.
            None => whole.map_or("", RawValue::get).into(),
        };
        let ItemKind::Call(call) = &mut self.items[item_index].kind else { return Err(inconsistent()) };
        call.has_all_arguments = true;
        if whole.is_empty() {
            return Ok(());
        }
        let missing = whole.strip_prefix(&*call.arguments).ok_or_else(inconsistent)?.to_owned();
        self.push_arguments(item_index, &missing)
    }

    fn complete_item(&mut self, event: &StreamEvent<'_>) -> Result<(), AgentError> {
        let item = read_item(event.item)?;
        let found = self.find(wanted(&item), item.id.or(event.item_id), event.output_index);
        let item_index = match found {
            Some(item_index) if self.items[item_index].is_done => return Ok(()),
            Some(item_index) => item_index,
            None => self.begin_item(&item, event.output_index)?,
        };
        self.items[item_index].is_done = true;
        match wanted(&item) {
            Wanted::Message => {
                let (text, is_refusal) = content_text(item.content);
                self.is_refusal |= is_refusal;
                // Some servers send no deltas.
                if matches!(self.items[item_index].kind, ItemKind::Message { text_bytes: 0 }) {
                    self.push_text(item_index, &text);
                }
                Ok(())
            }
            Wanted::Call => {
                self.start_call(item_index, &item, &text(item.name).unwrap_or_default());
                self.complete_arguments(item_index, item.arguments)
            }
            Wanted::Provider => self.keep_item(item_index, event.item, &item),
        }
    }

    fn keep_item(
        &mut self,
        item_index: usize,
        whole: Option<&RawValue>,
        item: &WireItem<'_>,
    ) -> Result<(), AgentError> {
        let whole = sent_item(whole.ok_or_else(inconsistent)?).map_err(|error| malformed_response(&error))?;
        self.provider_item_bytes += whole.get().len();
        if self.provider_item_bytes > MAX_ANSWER_ITEM_BYTES {
            let message = "the provider's items in the answer exceed the size limit";
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        self.items[item_index].kind = ItemKind::Provider(Some(whole));
        let kind = text(item.kind).unwrap_or_default();
        if kind != "reasoning" {
            let item_type = plain_word(Some(&kind.into())).unwrap_or_default();
            self.ready.push_back(ModelNotice::UnknownItem { item_type }.into());
        }
        Ok(())
    }

    /// Finds the item of a kind that an event names: by its identifier, otherwise by its index, otherwise the block that has
    /// neither.
    fn find(&self, wanted: Wanted, id: Option<&RawValue>, output_index: Option<&RawValue>) -> Option<usize> {
        let (id, output_index) = (text(id), number(output_index));
        let last = |is_meant: &dyn Fn(&AnswerItem) -> bool| {
            self.items.iter().rposition(|item| item.kind.wanted() == wanted && is_meant(item))
        };
        let by_id = id.and_then(|id| last(&|item| item.id.as_deref() == Some(&*id)));
        let by_index =
            || output_index.and_then(|index| last(&|item| !item.is_done && item.output_index == Some(index)));
        let unnamed = || last(&|item| !item.is_done && item.id.is_none() && item.output_index.is_none());
        by_id.or_else(by_index).or_else(unnamed)
    }

    /// Ends the answer. The items that are sent back come in their order, then the usage and the reason.
    fn finish(&mut self, answer: &WireAnswer<'_>, is_cut: bool, data: &[u8]) -> Result<(), AgentError> {
        let status = text(answer.status);
        if answer.error.is_some() || status.as_deref() == Some("failed") {
            return Err(self.reported(data));
        }
        let reason = match is_cut || status.as_deref() == Some("incomplete") {
            true => cut_reason(answer)?,
            false => self.complete_reason(answer)?,
        };
        self.push_provider_items();
        let model = text(answer.model).map(String::from);
        self.ready.extend(usage(answer.usage, model, self.provider).map(ModelEvent::Usage));
        self.ready.push_back(ModelEvent::Finish(reason));
        self.is_finished = true;
        Ok(())
    }

    /// Pushes the items that are sent back, with their position in the order of the answer: by the items' indices, if all
    /// have one, else as they have come.
    fn push_provider_items(&mut self) {
        let mut order: Vec<&AnswerItem> = self.items.iter().collect();
        if order.iter().all(|item| item.output_index.is_some()) {
            order.sort_by_key(|item| item.output_index);
        }
        let (mut text_before, mut calls_before) = (0, 0);
        for item in order {
            match &item.kind {
                ItemKind::Message { text_bytes } => text_before += text_bytes,
                ItemKind::Call(_) => calls_before += 1,
                ItemKind::Provider(None) => {}
                ItemKind::Provider(Some(json)) => {
                    let json = ItemMaker::responses(&self.maker).keep(&**json).into();
                    let item = ProviderItem { json, text_before, calls_before };
                    self.ready.push_back(ModelEvent::ProviderItem(item));
                }
            }
        }
    }

    /// Returns the reason of an answer that is complete, after reading its items if no event has contained them.
    fn complete_reason(&mut self, answer: &WireAnswer<'_>) -> Result<FinishReason, AgentError> {
        if self.items.is_empty()
            && let Some(output) = answer.output
        {
            let items: Vec<&RawValue> = parse(output.get().as_bytes())?;
            for item in items {
                self.complete_item(&StreamEvent { item: Some(item), ..StreamEvent::default() })?;
            }
        }
        let is_whole = |item: &AnswerItem| match &item.kind {
            ItemKind::Call(call) => call.is_started && call.has_all_arguments,
            _ => true,
        };
        if !self.items.iter().all(is_whole) {
            return Err(truncated_answer());
        }
        Ok(match (self.is_refusal, self.calls) {
            (true, _) => FinishReason::ContentFilter,
            (false, 0) => FinishReason::Stop,
            (false, _) => FinishReason::ToolCalls,
        })
    }
}

impl ItemKind {
    fn wanted(&self) -> Wanted {
        match self {
            Self::Message { .. } => Wanted::Message,
            Self::Call(_) => Wanted::Call,
            Self::Provider(_) => Wanted::Provider,
        }
    }
}

fn wanted(item: &WireItem<'_>) -> Wanted {
    match text(item.kind).as_deref() {
        Some("message") => Wanted::Message,
        Some("function_call") => Wanted::Call,
        _ => Wanted::Provider,
    }
}

fn cut_reason(answer: &WireAnswer<'_>) -> Result<FinishReason, AgentError> {
    #[derive(Deserialize)]
    struct IncompleteDetails<'a> {
        #[serde(borrow)]
        reason: Option<&'a RawValue>,
    }
    let details: Option<IncompleteDetails<'_>> =
        answer.incomplete_details.map(|json| parse(json.get().as_bytes())).transpose()?;
    match text(details.and_then(|details| details.reason)).as_deref() {
        Some("max_output_tokens") => Ok(FinishReason::Length),
        Some("content_filter") => Ok(FinishReason::ContentFilter),
        _ => Err(reported_error()),
    }
}

fn delta<'a>(event: &StreamEvent<'a>) -> Result<std::borrow::Cow<'a, str>, AgentError> {
    text(event.delta).ok_or_else(inconsistent)
}

fn read_item(item: Option<&RawValue>) -> Result<WireItem<'_>, AgentError> {
    parse(item.ok_or_else(inconsistent)?.get().as_bytes())
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, AgentError> {
    serde_json::from_slice(json).map_err(|error| malformed_response(&error))
}

/// The error of events that contradict each other, or lack a member.
fn inconsistent() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the model's server sent an invalid response")
}
