//! Runs calls on the model thread, one after another.

use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, Usage};
use agent_core::model::ModelEvent;
use futures_channel::mpsc;
use llguidance::Matcher;

use crate::call::{Decision, ModelCall, ToolCandidate};
use crate::grammar::GrammarCompiler;
use crate::llama::{KvCache, Llama};
use crate::matrix::Arithmetic;
use crate::sample::Sampler;
use crate::vocabulary::{TokenTextDecoder, Vocabulary};

/// Maximum number of prompt tokens processed at a time. Larger chunks are hardly faster. A cancelled call ends before the next
/// layer of the model.
const MAX_PREFILL_CHUNK_TOKENS: usize = 128;
/// Maximum number of request tokens that are scored; more improve the ranking little and take long.
const MAX_SCORED_TOKENS: usize = 40;

/// A queued call: the call, its prompt as tokens, and the channel for its events.
pub(crate) struct QueuedCall {
    pub(crate) call: ModelCall,
    /// Company on whose behalf the call is made; empty for the process itself.
    pub(crate) company: String,
    pub(crate) prompt: Vec<u32>,
    /// Event channel. Its capacity covers the longest answer, so that a slow reader never blocks the model.
    pub(crate) events: mpsc::Sender<Result<ModelEvent, AgentError>>,
}

impl QueuedCall {
    /// Returns true if the receiver of the answer was dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// Reason why an answer ended early.
enum EarlyEnd {
    /// The receiver was dropped.
    Abandoned,
    Failed(AgentError),
}

/// A model with the key-value cache of the last prompt.
pub(crate) struct Runner {
    llama: Llama,
    vocabulary: Arc<Vocabulary>,
    grammars: Option<GrammarCompiler>,
    context: usize,
    cache: KvCache,
    /// Tokens in the cache. A prefix that the next prompt shares with those of the last prompt is not processed again.
    cached_tokens: Vec<u32>,
    /// Number of cached tokens that were processed as a prompt. Tokens generated after it are processed again if the next
    /// prompt contains them: their states have other rounding errors, and the answer to a prompt must not depend on earlier
    /// calls.
    cached_prompt_len: usize,
    /// Company of the cached tokens. Time and usage of another company's call must not depend on them.
    cached_company: String,
}

impl Runner {
    pub(crate) fn new(llama: Llama, vocabulary: Arc<Vocabulary>, context: usize) -> Self {
        let cache = llama.cache();
        Self {
            llama,
            vocabulary,
            grammars: None,
            context,
            cache,
            cached_tokens: Vec::new(),
            cached_prompt_len: 0,
            cached_company: String::new(),
        }
    }

    /// Clears the cache. Required after a panic, which can leave it inconsistent.
    pub(crate) fn reset(&mut self) {
        self.cache = self.llama.cache();
        self.cached_tokens.clear();
        self.cached_prompt_len = 0;
    }

    /// Runs one call and sends its events. An error is sent as the last item of the channel.
    pub(crate) fn run(&mut self, job: &mut QueuedCall) {
        match self.answer(job) {
            Ok(()) | Err(EarlyEnd::Abandoned) => {}
            Err(EarlyEnd::Failed(failure)) => {
                // A dropped receiver needs no error.
                let _ = job.events.try_send(Err(failure));
            }
        }
    }

    fn answer(&mut self, job: &mut QueuedCall) -> Result<(), EarlyEnd> {
        let (finish, usage) = match self.decide(job)? {
            None if !job.call.quotes.is_empty() => self.generate_quote(job)?,
            None => self.generate_text(job)?,
            Some(choice) => self.generate_arguments(job, choice)?,
        };
        send(job, ModelEvent::Usage(usage))?;
        send(job, ModelEvent::Finish(finish))
    }

    /// Returns the index of the tool to call, or `None` for a text answer.
    fn decide(&self, job: &QueuedCall) -> Result<Option<usize>, EarlyEnd> {
        let text_intent = match &job.call.decision {
            Decision::Text => return Ok(None),
            Decision::Tool => return Ok(Some(0)),
            Decision::Scored { text_intent } => text_intent,
        };
        let mut request = self.vocabulary.encode(&job.call.request);
        request.truncate(MAX_SCORED_TOKENS);
        let mut best = match text_intent {
            Some(intent) => (None, self.score(job, intent, &request)?),
            None => (None, f32::NEG_INFINITY),
        };
        for (i, choice) in job.call.tools.iter().enumerate() {
            let score = self.score(job, &choice.intent, &request)?;
            if score > best.1 {
                best = (Some(i), score);
            }
        }
        Ok(best.0)
    }

    /// Scores the request under an intent: the mean log-probability of the request's tokens.
    fn score(&self, job: &QueuedCall, intent: &str, request: &[u32]) -> Result<f32, EarlyEnd> {
        let mut tokens = self.vocabulary.encode(intent);
        let Some(start) = tokens.len().checked_sub(1) else { return Ok(f32::NEG_INFINITY) };
        tokens.extend_from_slice(request);
        let mut cache = self.llama.cache();
        let mut forward = |tokens: &[u32]| {
            let arithmetic = Arithmetic::fastest(tokens.len());
            let hidden = self.llama.forward(tokens, &mut cache, arithmetic, || job.is_abandoned());
            hidden.ok_or(EarlyEnd::Abandoned)
        };
        for chunk in tokens[..start].chunks(MAX_PREFILL_CHUNK_TOKENS) {
            forward(chunk)?;
        }
        // The logits at each token predict the next one.
        let mut sum = 0.0;
        for (chunk, next) in
            tokens[start..].chunks(MAX_PREFILL_CHUNK_TOKENS).zip(request.chunks(MAX_PREFILL_CHUNK_TOKENS))
        {
            let logits = self.llama.logits(&forward(chunk)?);
            let predicted = logits.chunks_exact(self.vocabulary.len()).zip(next);
            sum += predicted.map(|(logits, next)| log_probability(logits, *next)).sum::<f32>();
        }
        Ok(sum / request.len().max(1) as f32)
    }

    fn generate_text(&mut self, job: &mut QueuedCall) -> Result<(FinishReason, Usage), EarlyEnd> {
        let mut prompt = job.prompt.clone();
        prompt.extend(self.tokens(&job.call.answer)?);
        let (mut logits, mut usage) = self.prefill(job, &prompt)?;
        let mut sampler = Sampler::new(job.call.sampling);
        let mut text = TokenTextDecoder::default();
        let mut generated = Vec::new();
        let finish = loop {
            let Some(token) = sampler.pick(&mut logits, None, &generated) else { break FinishReason::Stop };
            if self.vocabulary.is_control(token) {
                break FinishReason::Stop;
            }
            generated.push(token);
            let delta = text.push(self.vocabulary.bytes(token));
            if !delta.is_empty() {
                send(job, ModelEvent::Text(delta))?;
            }
            if generated.len() >= job.call.max_tokens || self.cached_tokens.len() >= self.context {
                break FinishReason::Length;
            }
            logits = self.decode_step(job, &[token])?;
        };
        let rest = text.finish();
        if !rest.is_empty() {
            send(job, ModelEvent::Text(rest))?;
        }
        usage.output_tokens = Some(generated.len() as u64);
        Ok((finish, usage))
    }

    /// Answers with the quote that has the highest probability after the prompt.
    fn generate_quote(&mut self, job: &mut QueuedCall) -> Result<(FinishReason, Usage), EarlyEnd> {
        let mut prompt = job.prompt.clone();
        prompt.extend(self.tokens(&job.call.answer)?);
        let (first, mut usage) = self.prefill(job, &prompt)?;
        let mut best = (Vec::new(), f32::NEG_INFINITY);
        for quote in &job.call.quotes {
            let tokens = self.vocabulary.encode(&quote.text);
            let score = self.score_answer(job, &first, &tokens)?;
            self.cache.truncate(prompt.len());
            self.cached_tokens.truncate(prompt.len());
            if score > best.1 {
                best = (tokens, score);
            }
        }
        let (mut answer, _) = best;
        let finish =
            if answer.len() > job.call.max_tokens { FinishReason::Length } else { FinishReason::Stop };
        answer.truncate(job.call.max_tokens);
        let mut text = TokenTextDecoder::default();
        for token in &answer {
            let delta = text.push(self.vocabulary.bytes(*token));
            if !delta.is_empty() {
                send(job, ModelEvent::Text(delta))?;
            }
        }
        let rest = text.finish();
        if !rest.is_empty() {
            send(job, ModelEvent::Text(rest))?;
        }
        usage.output_tokens = Some(answer.len() as u64);
        Ok((finish, usage))
    }

    /// Scores an answer after the prompt in the cache, whose last logits are `first`: the mean log-probability of the
    /// answer's tokens.
    fn score_answer(&mut self, job: &QueuedCall, first: &[f32], answer: &[u32]) -> Result<f32, EarlyEnd> {
        let room = self.context.saturating_sub(self.cached_tokens.len());
        let answer = &answer[..answer.len().min(MAX_SCORED_TOKENS).min(room)];
        let Some((begin, rest)) = answer.split_first() else { return Ok(f32::NEG_INFINITY) };
        let mut sum = log_probability(first, *begin);
        for (read, next) in answer.chunks(MAX_PREFILL_CHUNK_TOKENS).zip(rest.chunks(MAX_PREFILL_CHUNK_TOKENS))
        {
            let hidden = self.forward(job, &read[..next.len()], Arithmetic::fastest(next.len()))?;
            let logits = self.llama.logits(&hidden);
            let predicted = logits.chunks_exact(self.vocabulary.len()).zip(next);
            sum += predicted.map(|(logits, next)| log_probability(logits, *next)).sum::<f32>();
        }
        Ok(sum / answer.len() as f32)
    }

    fn generate_arguments(
        &mut self,
        job: &mut QueuedCall,
        choice: usize,
    ) -> Result<(FinishReason, Usage), EarlyEnd> {
        let ToolCandidate { name, ask, schema, .. } = &job.call.tools[choice];
        let mut matcher = self.matcher(name, schema)?;
        let mut prompt = job.prompt.clone();
        prompt.extend(self.tokens(ask)?);
        prompt.extend(self.tokens(&job.call.answer)?);
        let start = ModelEvent::ToolCallStart { index: 0, id: agent_core::new_id(), name: name.clone() };
        let (mut logits, mut usage) = self.prefill(job, &prompt)?;
        send(job, start)?;
        let mut sampler = Sampler::new(job.call.sampling);
        sampler.prefer(self.request_tokens(&job.call.request));
        let mut text = TokenTextDecoder::default();
        let mut generated = Vec::new();
        let finish = loop {
            let next = next_constrained_tokens(&mut matcher, &mut sampler, &mut logits, &generated)
                .map_err(EarlyEnd::Failed)?;
            let next: Vec<u32> = next.into_iter().take_while(|t| !self.vocabulary.is_control(*t)).collect();
            if next.is_empty() {
                break FinishReason::ToolCalls;
            }
            let delta: String = next.iter().map(|token| text.push(self.vocabulary.bytes(*token))).collect();
            generated.extend_from_slice(&next);
            if !delta.is_empty() {
                send(job, ModelEvent::ToolCallArgs { index: 0, delta })?;
            }
            if matcher.is_stopped() {
                break FinishReason::ToolCalls;
            }
            if generated.len() >= job.call.max_tokens || self.cached_tokens.len() + next.len() > self.context
            {
                break FinishReason::Length;
            }
            logits = self.decode_step(job, &next)?;
        };
        usage.output_tokens = Some(generated.len() as u64);
        Ok((finish, usage))
    }

    /// Processes a prompt, except for the prefix that it shares with the cached tokens of the same company. Returns the
    /// logits of the next token.
    fn prefill(&mut self, job: &QueuedCall, prompt: &[u32]) -> Result<(Vec<f32>, Usage), EarlyEnd> {
        let Some(last) = prompt.len().checked_sub(1).filter(|_| prompt.len() < self.context) else {
            let message = "the prompt exceeds the embedded model's context window";
            return Err(EarlyEnd::Failed(AgentError::new(AgentErrorKind::InvalidRequest, message)));
        };
        // The last token is always processed, because its logits are needed.
        let reusable_len = if self.cached_company == job.company { self.cached_prompt_len } else { 0 };
        let reusable = &self.cached_tokens[..reusable_len];
        let shared = reusable.iter().zip(&prompt[..last]).take_while(|(a, b)| a == b).count();
        self.cache.truncate(shared);
        self.cached_tokens.truncate(shared);
        self.cached_prompt_len = shared;
        self.cached_company.clone_from(&job.company);
        let rest = &prompt[shared..];
        let chunk_tokens = rest.len().div_ceil(rest.len().div_ceil(MAX_PREFILL_CHUNK_TOKENS));
        let mut hidden = Vec::new();
        for chunk in rest.chunks(chunk_tokens) {
            hidden = self.forward(job, chunk, Arithmetic::Float32)?;
            self.cached_prompt_len += chunk.len();
        }
        let logits = self.llama.logits(self.llama.last_position(&hidden));
        let usage = Usage {
            model: Some(job.call.model.clone()),
            provider: Some(crate::catalog::PROVIDER.to_owned()),
            input_tokens: Some(prompt.len() as u64),
            cached_input_tokens: Some(shared as u64),
            ..Usage::default()
        };
        Ok((logits, usage))
    }

    fn decode_step(&mut self, job: &QueuedCall, tokens: &[u32]) -> Result<Vec<f32>, EarlyEnd> {
        let hidden = self.forward(job, tokens, Arithmetic::fastest(tokens.len()))?;
        Ok(self.llama.logits(self.llama.last_position(&hidden)))
    }

    fn forward(
        &mut self,
        job: &QueuedCall,
        tokens: &[u32],
        arithmetic: Arithmetic,
    ) -> Result<Vec<f32>, EarlyEnd> {
        let hidden = self.llama.forward(tokens, &mut self.cache, arithmetic, || job.is_abandoned());
        let hidden = hidden.ok_or(EarlyEnd::Abandoned)?;
        self.cached_tokens.extend_from_slice(tokens);
        Ok(hidden)
    }

    /// Returns the tokens of the request's words, which most arguments repeat.
    fn request_tokens(&self, request: &str) -> Vec<u32> {
        // The first word in a JSON string has no leading space, so each word is encoded without one too.
        let bare = request.split_whitespace().flat_map(|word| self.vocabulary.encode(word));
        self.vocabulary.encode(request).into_iter().chain(bare).collect()
    }

    fn tokens(&self, pieces: &[crate::vocabulary::Piece<'_>]) -> Result<Vec<u32>, EarlyEnd> {
        self.vocabulary.encode_pieces(pieces).map_err(|detail| EarlyEnd::Failed(internal_error(detail)))
    }

    fn matcher(&mut self, tool: &str, schema: &serde_json::Value) -> Result<Matcher, EarlyEnd> {
        if self.grammars.is_none() {
            let compiler = GrammarCompiler::new(&self.vocabulary)
                .map_err(|detail| EarlyEnd::Failed(internal_error(detail)))?;
            self.grammars = Some(compiler);
        }
        let grammars = self.grammars.as_ref().expect("made above where it was missing");
        grammars.matcher(schema).map_err(|detail| {
            let message =
                format!("the schema of tool {tool:?} cannot be compiled to a grammar for the embedded model");
            EarlyEnd::Failed(AgentError::new(AgentErrorKind::InvalidRequest, message).with_source(detail))
        })
    }
}

/// Returns the next tokens of constrained output: the ones that the grammar forces, or else one sampled token
/// among those allowed. Empty at the end of the output.
fn next_constrained_tokens(
    matcher: &mut Matcher,
    sampler: &mut Sampler,
    logits: &mut [f32],
    generated: &[u32],
) -> Result<Vec<u32>, AgentError> {
    let fault = |error: &dyn std::fmt::Display| internal_error(error.to_string());
    let forced = matcher.consume_ff_tokens();
    if !forced.is_empty() {
        return Ok(forced);
    }
    let allowed = matcher.compute_mask().map_err(|error| fault(&error))?;
    let Some(token) = sampler.pick(logits, Some(&allowed), generated) else { return Ok(Vec::new()) };
    matcher.consume_token(token).map_err(|error| fault(&error))?;
    Ok(vec![token])
}

fn log_probability(logits: &[f32], token: u32) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits[token as usize] - max - sum.ln()
}

fn send(job: &mut QueuedCall, event: ModelEvent) -> Result<(), EarlyEnd> {
    job.events.try_send(Ok(event)).map_err(|_| EarlyEnd::Abandoned)
}

fn internal_error(detail: String) -> AgentError {
    AgentError::new(AgentErrorKind::Internal, "the embedded model failed").with_source(detail)
}

#[cfg(test)]
mod tests;
