//! Interruption of runs whose process has ended.

use std::ops::ControlFlow;

use agent_core::event::Event;
use jiff::Timestamp;

use super::commit::StoredRun;
use super::{
    ChunkWriter, EndRunRequest, FoldedRun, LogChunk, LogEnd, PublicRunError, Run, RunClock, RunEndKind,
    RunFold, RunRecord, ThreadOwner,
};

/// Returns the end of a run whose process's lease has expired, by the chunks of its log; `None` if the run has ended or
/// the lease holds.
pub fn interrupt_run(
    owner: &ThreadOwner,
    stored: &StoredRun,
    lease: Option<Timestamp>,
    chunks: &[LogChunk],
    clock: RunClock,
) -> Option<EndRunRequest> {
    let StoredRun { run, process } = stored;
    let is_lost = run.state.is_live() && lease.is_none_or(|until| until <= clock.now);
    is_lost.then(|| {
        let InterruptedRun { folded, log } = close_log(run, chunks, clock);
        EndRunRequest {
            owner: owner.clone(),
            run_id: run.id.clone(),
            process: process.clone(),
            nodes: folded.nodes,
            ending: folded.ending,
            log,
            context: None,
            request_sha256: None,
            backend: None,
            record: RunRecord::default(),
            now: clock.now,
        }
    })
}

/// End of a run whose process has ended: what its log has, and the log's last chunk.
#[derive(Debug, Clone, PartialEq)]
struct InterruptedRun {
    /// Nodes of the run's answer so far, and its end.
    folded: FoldedRun,
    /// End of the log.
    log: LogEnd,
}

/// Ends the run of an ended process by the chunks of its log. Events after damage or a gap are lost.
fn close_log(run: &Run, chunks: &[LogChunk], clock: RunClock) -> InterruptedRun {
    let (mut fold, mut next, mut is_incomplete) = (RunFold::default(), 0, false);
    let read = chunks.iter().try_for_each(|chunk| match chunk.events() {
        Ok(events) if chunk.first == next => {
            events.iter().for_each(|event| fold.push(event));
            next = chunk.last + 1;
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    });
    if read.is_break() {
        is_incomplete = true;
        next = chunks.last().map_or(0, |chunk| chunk.last + 1);
    }
    let folded = fold.finish(run.parent_id.clone(), RunEndKind::Interrupted);
    let mut tail = ChunkWriter::new(next);
    if next == 0 {
        tail.push(&Event::RunStarted { thread_id: run.thread_id.clone(), run_id: run.id.clone() });
    }
    let PublicRunError { code, message } = PublicRunError::interrupted();
    tail.push(&Event::RunError { message, code, usage: Vec::new() });
    InterruptedRun {
        folded,
        log: LogEnd {
            chunks: tail.take().into_iter().collect(),
            is_incomplete,
            until: Some(clock.log_until),
            inputs: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use agent_core::event::AssistantRole;
    use serde_json::json;

    use super::super::{NodeStatus, RunState};
    use super::*;

    fn events() -> Vec<Event> {
        let text =
            |delta: &str| Event::TextMessageContent { message_id: "m".into(), delta: delta.to_owned() };
        vec![
            Event::RunStarted { thread_id: "t".into(), run_id: "r".into() },
            Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant },
            text("one "),
            text("two "),
            text("three"),
        ]
    }

    fn packed(first: u64, events: &[Event]) -> LogChunk {
        let mut writer = ChunkWriter::new(first);
        events.iter().for_each(|event| writer.push(event));
        writer.take().expect("it has events")
    }

    fn run() -> Run {
        serde_json::from_value(json!({
            "id": "r", "threadId": "t", "turnId": "r", "agentId": "a", "state": "running",
            "trigger": {"kind": "chat"}, "parentId": "question", "nodeIds": ["question"],
            "onDisconnect": "cancel", "attached": 0, "events": {"count": 0, "complete": false}, "usage": [],
            "createdAt": "2026-01-01T00:00:00.000Z",
        }))
        .expect("a run")
    }

    fn clock() -> RunClock {
        let now = "2026-01-01T00:00:10Z".parse().expect("a time");
        RunClock { now, log_until: "2026-01-02T00:00:10Z".parse().expect("a time") }
    }

    #[test]
    fn an_interrupted_run_keeps_the_words_before_damage() {
        let events = events();
        let chunks = [packed(0, &events[..4]), packed(4, &events[4..])];
        let undamaged_run = close_log(&run(), &chunks, clock());
        assert!(!undamaged_run.log.is_incomplete);
        let tail = undamaged_run.log.chunks.last().expect("the terminal event");
        assert_eq!((tail.first, tail.last), (5, 5));
        let expected_node = &undamaged_run.folded.nodes[0];
        assert_eq!((expected_node.status, expected_node.parent_id.is_some()), (NodeStatus::Incomplete, true));
        assert_eq!(expected_node.message.as_message().expect("a message").content.to_text(), "one two three");

        let damaged = LogChunk { body: vec![9], ..chunks[1].clone() };
        let damaged_run = close_log(&run(), &[chunks[0].clone(), damaged], clock());
        assert_eq!(
            (damaged_run.log.is_incomplete, damaged_run.log.chunks.first().map(|chunk| chunk.first)),
            (true, Some(5))
        );
        assert_eq!(
            damaged_run.folded.nodes[0].message.as_message().expect("a message").content.to_text(),
            "one two "
        );
        let gap = close_log(&run(), &chunks[1..], clock());
        assert_eq!((gap.log.is_incomplete, gap.folded.nodes.len()), (true, 0));
        let empty = close_log(&run(), &[], clock()).log.chunks[0].events().expect("intact");
        assert_eq!(empty.len(), 2, "a run begins with RUN_STARTED");
    }

    #[test]
    fn a_run_is_interrupted_when_its_lease_has_expired() {
        let owner = ThreadOwner::new("c", "u");
        let interrupt = |run: Run, lease: Option<Timestamp>| {
            interrupt_run(&owner, &StoredRun { run, process: "p".into() }, lease, &[], clock()).is_some()
        };
        let now = clock().now;
        let later = now.checked_add(jiff::SignedDuration::from_millis(1)).expect("a time");
        assert!(interrupt(run(), None));
        assert!(interrupt(run(), Some(now)));
        assert!(!interrupt(run(), Some(later)));
        assert!(!interrupt(Run { state: RunState::Completed, ..run() }, None));
    }
}
