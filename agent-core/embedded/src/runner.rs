//! Runs calls on the model thread, one after another.

use std::sync::Arc;

use agent_core::error::{Failure, FailureKind};
use agent_core::message::{FinishReason, Usage};
use agent_core::model::ModelEvent;
use futures_channel::mpsc;
use llguidance::Matcher;

use crate::call::{Call, Choice, Decision};
use crate::grammar::Grammars;
use crate::llama::{KvCache, Llama};
use crate::sample::Sampler;
use crate::vocabulary::{TextStream, Vocabulary};

/// Number of prompt tokens processed between two cancellation checks. Larger chunks are hardly faster.
const PREFILL_CHUNK: usize = 8;
/// Maximum number of request tokens that are scored; more improve the ranking little and take long.
const MAX_SCORED: usize = 40;

/// A queued call: the call, its prompt as tokens, and the channel for its events.
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) prompt: Vec<u32>,
    /// Event channel. Its capacity covers the longest answer, so that a slow reader never blocks the model.
    pub(crate) events: mpsc::Sender<Result<ModelEvent, Failure>>,
}

impl Job {
    /// Returns true if the receiver of the answer was dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// Reason why an answer ended early.
enum Stop {
    /// The receiver was dropped.
    Abandoned,
    Failed(Failure),
}

/// A model with the key-value cache of the last prompt.
pub(crate) struct Runner {
    llama: Llama,
    vocabulary: Arc<Vocabulary>,
    grammars: Option<Grammars>,
    context: usize,
    cache: KvCache,
    /// Tokens in the cache. A prefix that the next prompt shares with them is not processed again.
    read: Vec<u32>,
}

impl Runner {
    pub(crate) fn new(llama: Llama, vocabulary: Arc<Vocabulary>, context: usize) -> Self {
        let cache = llama.cache();
        Self { llama, vocabulary, grammars: None, context, cache, read: Vec::new() }
    }

    /// Clears the cache. Required after a panic, which can leave it inconsistent.
    pub(crate) fn reset(&mut self) {
        self.cache = self.llama.cache();
        self.read.clear();
    }

    /// Runs one call and sends its events. An error is sent as the last item of the channel.
    pub(crate) fn run(&mut self, job: &mut Job) {
        match self.answer(job) {
            Ok(()) | Err(Stop::Abandoned) => {}
            Err(Stop::Failed(failure)) => {
                // A dropped receiver needs no error.
                let _ = job.events.try_send(Err(failure));
            }
        }
    }

    fn answer(&mut self, job: &mut Job) -> Result<(), Stop> {
        let (finish, usage) = match self.decide(job)? {
            None => self.write_text(job)?,
            Some(choice) => self.write_arguments(job, choice)?,
        };
        send(job, ModelEvent::Usage(usage))?;
        send(job, ModelEvent::Finish(finish))
    }

    /// Returns the index of the tool to call, or `None` for a text answer.
    fn decide(&self, job: &Job) -> Result<Option<usize>, Stop> {
        let text_intent = match &job.call.decision {
            Decision::Text => return Ok(None),
            Decision::Tool => return Ok(Some(0)),
            Decision::Scored { text_intent } => text_intent,
        };
        let mut request = self.vocabulary.encode(&job.call.request);
        request.truncate(MAX_SCORED);
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
    fn score(&self, job: &Job, intent: &str, request: &[u32]) -> Result<f32, Stop> {
        let mut tokens = self.vocabulary.encode(intent);
        let Some(start) = tokens.len().checked_sub(1) else { return Ok(f32::NEG_INFINITY) };
        tokens.extend_from_slice(request);
        let mut cache = self.llama.cache();
        let mut forward = |tokens: &[u32]| match job.is_abandoned() {
            true => Err(Stop::Abandoned),
            false => Ok(self.llama.forward(tokens, &mut cache)),
        };
        for chunk in tokens[..start].chunks(PREFILL_CHUNK) {
            forward(chunk)?;
        }
        // The logits at each token predict the next one.
        let mut sum = 0.0;
        for (chunk, next) in tokens[start..].chunks(PREFILL_CHUNK).zip(request.chunks(PREFILL_CHUNK)) {
            let logits = self.llama.logits(&forward(chunk)?);
            let predicted = logits.chunks_exact(self.vocabulary.len()).zip(next);
            sum += predicted.map(|(logits, next)| log_probability(logits, *next)).sum::<f32>();
        }
        Ok(sum / request.len().max(1) as f32)
    }

    fn write_text(&mut self, job: &mut Job) -> Result<(FinishReason, Usage), Stop> {
        let mut prompt = job.prompt.clone();
        prompt.extend(self.tokens(&job.call.answer)?);
        let (mut logits, mut usage) = self.read(job, &prompt)?;
        let mut sampler = Sampler::new(job.call.sampling);
        let mut text = TextStream::default();
        let mut said = Vec::new();
        let finish = loop {
            let Some(token) = sampler.pick(&mut logits, None, &said) else { break FinishReason::Stop };
            if self.vocabulary.is_control(token) {
                break FinishReason::Stop;
            }
            said.push(token);
            let more = text.push(self.vocabulary.bytes(token));
            if !more.is_empty() {
                send(job, ModelEvent::Text(more))?;
            }
            if said.len() >= job.call.max_tokens || self.read.len() >= self.context {
                break FinishReason::Length;
            }
            logits = self.step(job, &[token])?;
        };
        let rest = text.finish();
        if !rest.is_empty() {
            send(job, ModelEvent::Text(rest))?;
        }
        usage.output_tokens = Some(said.len() as u64);
        Ok((finish, usage))
    }

    fn write_arguments(&mut self, job: &mut Job, choice: usize) -> Result<(FinishReason, Usage), Stop> {
        let Choice { name, ask, schema, .. } = &job.call.tools[choice];
        let mut matcher = self.matcher(name, schema)?;
        let mut prompt = job.prompt.clone();
        prompt.extend(self.tokens(ask)?);
        prompt.extend(self.tokens(&job.call.answer)?);
        let start = ModelEvent::ToolCallStart { index: 0, id: agent_core::new_id(), name: name.clone() };
        let (mut logits, mut usage) = self.read(job, &prompt)?;
        send(job, start)?;
        let mut sampler = Sampler::new(job.call.sampling);
        sampler.prefer(self.repeatable(&job.call.request));
        let mut text = TextStream::default();
        let mut said = Vec::new();
        let finish = loop {
            let next = next_forced(&mut matcher, &mut sampler, &mut logits, &said).map_err(Stop::Failed)?;
            let next: Vec<u32> = next.into_iter().take_while(|t| !self.vocabulary.is_control(*t)).collect();
            if next.is_empty() {
                break FinishReason::ToolCalls;
            }
            let delta: String = next.iter().map(|token| text.push(self.vocabulary.bytes(*token))).collect();
            said.extend_from_slice(&next);
            if !delta.is_empty() {
                send(job, ModelEvent::ToolCallArgs { index: 0, delta })?;
            }
            if matcher.is_stopped() {
                break FinishReason::ToolCalls;
            }
            if said.len() >= job.call.max_tokens || self.read.len() + next.len() > self.context {
                break FinishReason::Length;
            }
            logits = self.step(job, &next)?;
        };
        usage.output_tokens = Some(said.len() as u64);
        Ok((finish, usage))
    }

    /// Processes a prompt, except for the prefix that it shares with the cached tokens. Returns the logits of
    /// the next token.
    fn read(&mut self, job: &Job, prompt: &[u32]) -> Result<(Vec<f32>, Usage), Stop> {
        let Some(last) = prompt.len().checked_sub(1).filter(|_| prompt.len() < self.context) else {
            let message = "the prompt does not fit the embedded model's context";
            return Err(Stop::Failed(Failure::new(FailureKind::InvalidRequest, message)));
        };
        // The last token is always processed, because its logits are needed.
        let shared = self.read.iter().zip(&prompt[..last]).take_while(|(a, b)| a == b).count();
        self.cache.truncate(shared);
        self.read.truncate(shared);
        let mut logits = Vec::new();
        let rest = &prompt[shared..];
        for (i, chunk) in rest.chunks(PREFILL_CHUNK).enumerate() {
            let ends = (i + 1) * PREFILL_CHUNK >= rest.len();
            let hidden = self.forward(job, chunk)?;
            if ends {
                logits = self.llama.logits(self.llama.last(&hidden));
            }
        }
        let usage = Usage {
            model: Some(job.call.model.clone()),
            provider: Some(crate::model::PROVIDER.to_owned()),
            input_tokens: Some(prompt.len() as u64),
            cached_input_tokens: Some(shared as u64),
            ..Usage::default()
        };
        Ok((logits, usage))
    }

    fn step(&mut self, job: &Job, tokens: &[u32]) -> Result<Vec<f32>, Stop> {
        let hidden = self.forward(job, tokens)?;
        Ok(self.llama.logits(self.llama.last(&hidden)))
    }

    fn forward(&mut self, job: &Job, tokens: &[u32]) -> Result<Vec<f32>, Stop> {
        if job.is_abandoned() {
            return Err(Stop::Abandoned);
        }
        let hidden = self.llama.forward(tokens, &mut self.cache);
        self.read.extend_from_slice(tokens);
        Ok(hidden)
    }

    /// Returns the tokens of the request's words, which most arguments repeat.
    fn repeatable(&self, request: &str) -> Vec<u32> {
        // The first word in a JSON string has no leading space, so each word is encoded without one too.
        let bare = request.split_whitespace().flat_map(|word| self.vocabulary.encode(word));
        self.vocabulary.encode(request).into_iter().chain(bare).collect()
    }

    fn tokens(&self, pieces: &[crate::vocabulary::Piece<'_>]) -> Result<Vec<u32>, Stop> {
        self.vocabulary.encode_pieces(pieces).map_err(|detail| Stop::Failed(defect(detail)))
    }

    fn matcher(&mut self, tool: &str, schema: &serde_json::Value) -> Result<Matcher, Stop> {
        if self.grammars.is_none() {
            let made = Grammars::new(&self.vocabulary).map_err(|detail| Stop::Failed(defect(detail)))?;
            self.grammars = Some(made);
        }
        let grammars = self.grammars.as_ref().expect("made above where it was missing");
        grammars.matcher(schema).map_err(|detail| {
            let message = format!("the embedded model cannot be held to the schema of tool {tool:?}");
            Stop::Failed(Failure::new(FailureKind::InvalidRequest, message).with_source(detail))
        })
    }
}

/// Returns the next tokens of constrained output: the ones that the grammar forces, or else one sampled token
/// among those allowed. Empty at the end of the output.
fn next_forced(
    matcher: &mut Matcher,
    sampler: &mut Sampler,
    logits: &mut [f32],
    said: &[u32],
) -> Result<Vec<u32>, Failure> {
    let fault = |error: &dyn std::fmt::Display| defect(error.to_string());
    let forced = matcher.consume_ff_tokens();
    if !forced.is_empty() {
        return Ok(forced);
    }
    let allowed = matcher.compute_mask().map_err(|error| fault(&error))?;
    let Some(token) = sampler.pick(logits, Some(&allowed), said) else { return Ok(Vec::new()) };
    matcher.consume_token(token).map_err(|error| fault(&error))?;
    Ok(vec![token])
}

fn log_probability(logits: &[f32], token: u32) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - max).exp()).sum();
    logits[token as usize] - max - sum.ln()
}

fn send(job: &mut Job, event: ModelEvent) -> Result<(), Stop> {
    job.events.try_send(Ok(event)).map_err(|_| Stop::Abandoned)
}

fn defect(detail: String) -> Failure {
    Failure::new(FailureKind::Internal, "the embedded model failed").with_source(detail)
}

#[cfg(test)]
mod tests;
