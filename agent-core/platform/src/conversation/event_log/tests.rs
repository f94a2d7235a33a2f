use agent_core::event::{AssistantRole, ReasoningRole, ResultMetadata, RunOutcome, RunResult, ToolRole};
use agent_core::message::{FinishReason, Usage};
use serde_json::json;

use super::*;

/// A run with each kind of event, and interleaved deltas.
fn every_event() -> Vec<Event> {
    let (a, b): (Id, Id) = ("a".into(), "b".into());
    let text =
        |id: &Id, delta: &str| Event::TextMessageContent { message_id: id.clone(), delta: delta.to_owned() };
    let thought =
        |delta: &str| Event::ReasoningMessageContent { message_id: "a".into(), delta: delta.to_owned() };
    let arguments = |delta: &str| Event::ToolCallArgs { tool_call_id: "c".into(), delta: delta.to_owned() };
    vec![
        Event::RunStarted { thread_id: "t".into(), run_id: "r".into() },
        Event::Custom {
            name: "agent.prompt".into(),
            value: json!({"z": 1, "a": [0.1, 1e-7, -0.0], "n": null}),
        },
        Event::StepStarted { step_name: "round-1".into() },
        Event::ReasoningStart { message_id: a.clone() },
        Event::ReasoningMessageStart { message_id: a.clone(), role: ReasoningRole::Reasoning },
        thought("hm"),
        thought("\u{2028} \"quoted\" \\ \u{0} 🙂"),
        Event::ReasoningMessageEnd { message_id: a.clone() },
        Event::ReasoningEnd { message_id: a.clone() },
        Event::TextMessageStart { message_id: a.clone(), role: AssistantRole::Assistant },
        text(&a, "one"),
        text(&a, &"long ".repeat(100)),
        text(&b, "of another message"),
        text(&a, "two"),
        text(&"a".into(), "an equal id"),
        thought("of another kind"),
        Event::TextMessageEnd { message_id: a.clone() },
        Event::ToolCallStart {
            tool_call_id: "c".into(),
            tool_call_name: "n".into(),
            parent_message_id: Some(a),
        },
        arguments("{\"x\":"),
        arguments("1}"),
        Event::ToolCallEnd { tool_call_id: "c".into() },
        Event::ToolCallResult {
            message_id: b,
            tool_call_id: "c".into(),
            content: "no".into(),
            role: ToolRole::Tool,
            metadata: Some(ResultMetadata { is_error: true }),
        },
        Event::StepFinished { step_name: "round-1".into() },
        Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: Some(RunResult::from(FinishReason::Stop)),
            outcome: Some(RunOutcome::Cancelled),
            usage: vec![Usage::default()],
        },
        Event::RunError { message: "m".into(), code: "C".into(), usage: Vec::new() },
    ]
}

fn on_wire(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| serde_json::to_string(event).expect("it serializes")).collect()
}

fn packed(first: u64, events: &[Event]) -> LogChunk {
    let mut writer = ChunkWriter::new(first);
    events.iter().for_each(|event| writer.push(event));
    writer.take().expect("it has events")
}

#[test]
fn events_are_unpacked_byte_for_byte_wherever_chunks_are_cut() {
    let events = every_event();
    for cut in 1..events.len() {
        let mut writer = ChunkWriter::default();
        let mut chunks = Vec::new();
        for (at, event) in events.iter().enumerate() {
            if at == cut {
                chunks.extend(writer.take());
            }
            assert_eq!(writer.next(), at as u64);
            writer.push(event);
        }
        chunks.extend(writer.take());
        assert_eq!(writer.take(), None);
        assert_eq!((chunks[0].first, chunks[0].last, chunks[1].first), (0, cut as u64 - 1, cut as u64));
        let unpacked: Vec<Event> =
            chunks.iter().flat_map(|chunk| chunk.events().expect("an intact chunk")).collect();
        assert_eq!(on_wire(&unpacked), on_wire(&events), "cut at {cut}");
    }
}

#[test]
fn a_reader_continues_within_a_chunk() {
    let events = every_event();
    let mut writer = ChunkWriter::default();
    let (mut reader, mut read, mut unpacked) = (ChunkReader::default(), 0, Vec::new());
    for event in &events {
        writer.push(event);
        reader.read(&writer.body()[read..], |event| unpacked.push(event)).expect("whole records");
        read = writer.body().len();
    }
    assert_eq!(unpacked, events);
}

#[test]
fn tokens_take_little_room() {
    let token =
        |n: u32| Event::TextMessageContent { message_id: "01a1".into(), delta: format!(" tok{n:04}") };
    let tokens: Vec<Event> = (0..1_000).map(token).collect();
    assert!(packed(0, &tokens).body.len() <= 11_000, "a token takes its bytes and two");
}

#[test]
fn damage_is_an_error_at_every_byte() {
    let packed_log = packed(0, &every_event()).body;
    for at in 0..packed_log.len() {
        let cut = LogChunk { first: 0, last: 24, body: packed_log[..at].to_vec() };
        if let Ok(events) = cut.events() {
            assert_eq!(on_wire(&events), on_wire(&every_event()[..events.len()]), "cut at {at}");
        }
        let mut flipped = packed_log.clone();
        flipped[at] ^= 0xff;
        // Any answer but a panic is correct.
        let _ = LogChunk { first: 0, last: 24, body: flipped }.events();
    }
    let huge = LogChunk { first: 0, last: 0, body: [vec![EVENT], vec![0xff; 20]].concat() };
    assert_eq!(huge.events(), Err(LogError));
    let orphan = LogChunk { first: 0, last: 0, body: vec![DELTA, 1, b'x'] };
    assert_eq!(orphan.events(), Err(LogError), "a delta of no message");
}
