//! Tests of the runner's internals: cancellation of abandoned calls, and reuse of the key-value cache.

use std::cell::Cell;
use std::path::PathBuf;

use futures_util::StreamExt;

use super::*;
use crate::sample::Sampling;
use crate::vocabulary::{Piece, TURN_END};
use crate::weights::Weights;

const CONTEXT: usize = 512;

fn weights() -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/models");
    let pulled = || crate::catalog::default_model().path_in(folder.as_ref());
    std::env::var_os("EMBEDDED_MODEL_PATH").map_or_else(pulled, PathBuf::from)
}

fn runner() -> Runner {
    let weights = Weights::open(&weights()).expect("`agentd model pull` has been run");
    let vocabulary = Vocabulary::read(&weights.content).unwrap();
    Runner::new(weights.load().unwrap(), vocabulary, CONTEXT)
}

fn job(
    runner: &Runner,
    prompt: &str,
    max_tokens: usize,
) -> (QueuedCall, mpsc::Receiver<Result<ModelEvent, AgentError>>) {
    let call = ModelCall {
        model: "m".to_owned(),
        prompt: Vec::new(),
        answer: crate::chat::assistant_start(),
        request: String::new(),
        decision: Decision::Text,
        tools: Vec::new(),
        quotes: Vec::new(),
        max_tokens,
        sampling: Sampling::default(),
    };
    let (events, receiver) = mpsc::channel(max_tokens + 8);
    let prompt = runner.vocabulary.encode(prompt);
    (QueuedCall { call, company: String::new(), prompt, events }, receiver)
}

/// A single test, because loading the weights dominates its run time.
#[test]
fn cached_prompts_are_reused_and_abandoned_calls_are_stopped() {
    let mut runner = runner();

    // Marker text in a message is ordinary text; only the prompt's own markers become control tokens.
    let spelled = runner.vocabulary.encode(TURN_END);
    assert!(spelled.len() > 1 && !spelled.iter().any(|token| runner.vocabulary.is_control(*token)));
    let control = runner.vocabulary.encode_pieces(&[Piece::Control(TURN_END.into())]).unwrap();
    assert!(matches!(control[..], [token] if runner.vocabulary.is_control(token)));
    assert!(runner.vocabulary.encode_pieces(&[Piece::Control("ordinary".into())]).is_err());
    // Same split as the model's own tokenizer: no leading space, digits separately.
    let pieces: Vec<&[u8]> =
        runner.vocabulary.encode("Room 12").into_iter().map(|token| runner.vocabulary.bytes(token)).collect();
    assert_eq!(pieces, [&b"Room"[..], b" ", b"1", b"2"]);

    // The likeliest continuation is the one that the unquantised weights give.
    let (mut first, events) = job(&runner, "The capital of France is Paris. The capital of Italy is", 4);
    first.call.answer.clear();
    runner.run(&mut first);
    drop(first);
    let events: Vec<_> = futures_executor::block_on(events.collect());
    let text: String = events
        .iter()
        .filter_map(|e| if let Ok(ModelEvent::Text(text)) = e { Some(text.as_str()) } else { None })
        .collect();
    assert!(text.starts_with(" Rome"), "{text}");
    assert!(matches!(events.last(), Some(Ok(ModelEvent::Finish(FinishReason::Length)))), "{events:?}");

    // A prompt prefix in the cache is not processed again.
    let long = "Tell me a very long story about bread and the people who bake it. ".repeat(8);
    let (mut again, _) = job(&runner, &long, 1);
    let prompt: Vec<u32> = again.prompt.clone();
    let read = |runner: &mut Runner, job: &mut QueuedCall, prompt: &[u32]| match runner.prefill(job, prompt) {
        Ok((logits, usage)) => (logits, usage.cached_input_tokens.unwrap()),
        Err(_) => panic!("the prompt is not processed"),
    };
    let (open, _receiver) = job(&runner, &long, 1);
    again.events = open.events;
    let (first_logits, shared) = read(&mut runner, &mut again, &prompt);
    assert!(shared < 4, "{shared}");
    let (second_logits, shared) = read(&mut runner, &mut again, &prompt);
    assert_eq!(shared, prompt.len() as u64 - 1);
    assert!(second_logits == first_logits, "logits depend on the cache");

    // Another company's call does not use it.
    again.company = "other".to_owned();
    let (other_logits, shared) = read(&mut runner, &mut again, &prompt);
    assert_eq!(shared, 0, "another company's prompt");
    assert!(other_logits == first_logits, "logits depend on the cache");

    // An answer is processed again as part of the next prompt, whose logits are those of an empty cache.
    for token in &prompt[..3] {
        assert!(runner.decode_step(&again, &[*token]).is_ok());
    }
    let next: Vec<u32> = [&prompt[..], &prompt[..9]].concat();
    let (resumed, shared) = read(&mut runner, &mut again, &next);
    assert_eq!(shared, prompt.len() as u64);
    runner.reset();
    let (fresh, shared) = read(&mut runner, &mut again, &next);
    assert_eq!(shared, 0);
    assert!(resumed == fresh, "logits depend on the cache");

    // A call that is cancelled between two layers leaves the cache as it was.
    for cached in [0, prompt.len()] {
        if cached == 0 {
            runner.reset();
        }
        let layers = Cell::new(0);
        let is_cancelled = || layers.replace(layers.get() + 1) == 5;
        let hidden = runner.llama.forward(&prompt, &mut runner.cache, Arithmetic::Float32, is_cancelled);
        assert!(hidden.is_none() && layers.get() == 6, "{} layers", layers.get());
        let (logits, shared) = read(&mut runner, &mut again, &next);
        assert_eq!(shared, cached as u64);
        assert!(logits == fresh, "logits depend on the cancelled call");
        runner.cached_prompt_len = prompt.len();
        runner.cached_tokens.truncate(prompt.len());
        runner.cache.truncate(prompt.len());
    }

    // The receiver was dropped: the prompt is not processed.
    runner.reset();
    let (mut abandoned, receiver) = job(&runner, &long, 64);
    drop(receiver);
    runner.run(&mut abandoned);
    assert!(runner.cached_tokens.is_empty());

    // The receiver is dropped after the first event: generation stops before its several hundred tokens are
    // produced.
    let (mut abandoned, mut receiver) = job(&runner, &long, 300);
    let reader = std::thread::spawn(move || futures_executor::block_on(receiver.next()));
    runner.run(&mut abandoned);
    assert!(reader.join().unwrap().is_some_and(|event| event.is_ok()));
    let written = runner.cached_tokens.len() - abandoned.prompt.len();
    assert!(written < 250, "{written} tokens were written after the reader had gone");

    // A prompt beyond the context is rejected, neither truncated nor run.
    let (mut beyond, receiver) = job(&runner, &long.repeat(10), 8);
    runner.run(&mut beyond);
    drop(beyond);
    let events: Vec<_> = futures_executor::block_on(receiver.collect());
    assert!(
        matches!(&events[..], [Err(failure)] if failure.kind() == AgentErrorKind::InvalidRequest),
        "{events:?}"
    );
}
