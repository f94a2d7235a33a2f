use serde_json::json;

use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + ms).expect("a time")
}

fn run(state: RunState) -> Run {
    let thread = ThreadKey::new("c1", "ada", "t");
    Run { state, ..Run::queued(&thread, &"a".into(), &"r".into(), at(0)) }
}

#[test]
fn each_step_leads_only_from_the_states_that_allow_it() {
    use RunState::{Cancelled, Completed, Failed, Interrupted, Queued, Running, Waiting};
    let failure = PublicRunError { code: "X".to_owned(), message: "no".to_owned() };
    let end = |kind| RunStep::End(RunEnding { kind, ..RunEnding::default() });
    let asks = RunOutcome::Interrupt { interrupts: Vec::new(), pending_tool_call_ids: Vec::new() };
    let cases = [
        (RunStep::Start, vec![Queued], Running),
        (end(RunEndKind::Completed), vec![Running], Completed),
        (end(RunEndKind::Failed(failure)), vec![Queued, Running], Failed),
        (end(RunEndKind::Interrupted), vec![Queued, Running], Interrupted),
        (end(RunEndKind::Cancelled(CancelReason::Requested)), vec![Queued, Running], Cancelled),
        (end(RunEndKind::Suspended(asks)), vec![Running], Waiting),
        (RunStep::Continue, vec![Waiting], Completed),
        (RunStep::Interrupt, vec![Queued, Running], Interrupted),
        (RunStep::Cancel(CancelReason::Deleted), vec![Queued, Running, Waiting], Cancelled),
    ];
    for (step, allowed, expected) in cases {
        for state in RunState::ALL {
            let stepped = run(state).step(step.clone(), at(7));
            match allowed.contains(&state) {
                false => assert_eq!(stepped, Err(RunStepError(state)), "{step:?} of {state:?}"),
                true => {
                    let stepped = stepped.unwrap_or_else(|error| panic!("{step:?} of {state:?}: {error}"));
                    assert_eq!(stepped.state, expected);
                    let is_over = expected.is_final();
                    assert_eq!(stepped.ended_at, is_over.then(|| at(7)), "{step:?}");
                    assert_eq!(stepped.reason.is_some(), expected == Cancelled);
                    assert_eq!(stepped.error.is_some(), matches!(expected, Failed | Interrupted));
                }
            }
        }
    }
}

#[test]
fn states_and_kinds_have_the_names_of_the_wire() {
    for state in RunState::ALL {
        assert_eq!(serde_json::to_value(state).expect("plain data"), json!(state.as_str()));
        assert_eq!(RunState::from_name(state.as_str()), Some(state));
    }
    for kind in RunTriggerKind::ALL {
        assert_eq!(serde_json::to_value(kind).expect("plain data"), json!(kind.as_str()));
        assert_eq!(RunTriggerKind::from_name(kind.as_str()), Some(kind));
    }
    assert_eq!((RunState::from_name("x"), RunTriggerKind::from_name("")), (None, None));
}

#[test]
fn a_run_has_the_members_of_the_wire_and_leaves_out_what_is_absent() {
    let plain = run(RunState::Queued);
    let json = json!({
        "id": "r", "threadId": "t", "turnId": "r", "agentId": "a", "state": "queued", "trigger": {"kind": "chat"},
        "nodeIds": [], "onDisconnect": "cancel", "attached": 0, "events": {"count": 0, "complete": false},
        "usage": [], "createdAt": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(serde_json::to_value(&plain).expect("plain data"), json);
    assert_eq!(serde_json::from_value::<Run>(json).expect("it reads back"), plain);
    // A run of an earlier version has no record; a current run is read by its member names.
    let record = json!({
        "selection": {"backend": "embedded", "rule": "EmbeddedAI"},
        "timing": {"queuedMs": 1, "preparedMs": 2, "firstContentMs": 9, "rounds": [{"startedMs": 2, "firstContentMs": 9,
            "endedMs": 11, "outputTokens": 4, "attempts": 1}], "tools": [{"callId": "c", "name": "look", "startedMs": 11,
            "endedMs": 12, "isError": true}]},
        "attempts": [{"round": 1, "attempt": 1, "entry": 0, "provider": "openai", "model": "m", "reason":
            "BACKEND_FAILED", "status": 503, "waitedMs": 5, "requestSha256": "33"}, {"round": 1, "entry": 1,
            "provider": "ollama", "model": "n", "reason": "CIRCUIT_OPEN", "waitedMs": 0}],
        "prompt": {"requestSha256": "00", "backend": "embedded", "parts": [{"id": "rules", "source": "role",
            "stability": "role", "placement": "system", "tokens": 1, "bytes": 2, "sha256": "11"}], "tools": [{"name":
            "look", "sha256": "22", "tokens": 3}], "messages": 1, "tokens": {"system": 1, "tools": 3, "messages": 2},
            "tokenCounter": "estimate", "cache": {"stablePrefixBytes": 2, "firstChangedPart": "rules",
            "previousRunId": "r0"}},
    });
    let mut stored = serde_json::to_value(&plain).expect("plain data");
    stored.as_object_mut().expect("an object").extend(record.as_object().expect("an object").clone());
    let read: Run = serde_json::from_value(stored.clone()).expect("it reads");
    assert_eq!(serde_json::to_value(&read).expect("plain data"), stored);
    let shown = serde_json::to_value(read.clone().shown_to(Audience::Trusted)).expect("plain data");
    assert_eq!((shown.get("prompt"), &shown["timing"]), (None, &record["timing"]));
    assert_eq!(shown["attempts"], record["attempts"]);
    let answer = Run { parent_id: Some("n".into()), node_ids: vec!["m".into()], ..read };
    let shown = serde_json::to_value(answer.shown_to(Audience::Visitor)).expect("plain data");
    assert_eq!((shown.get("parentId"), &shown["nodeIds"]), (None, &json!([])));
    let hidden = ["prompt", "timing", "selection", "attempts"];
    assert!(hidden.iter().all(|name| shown.get(name).is_none()), "{shown}");
    let trigger = RunTrigger { job_id: Some("j".into()), occurrence: Some(3), ..RunTriggerKind::Job.into() };
    let full = Run {
        parent_id: Some("n".into()),
        node_ids: vec!["n".into()],
        grace_ms: Some(5),
        trigger,
        started_at: Some(at(1)),
        ..run(RunState::Running)
    };
    let ending = RunEnding { kind: RunEndKind::Cancelled(CancelReason::Requested), ..RunEnding::default() };
    let full = full.step(RunStep::End(ending), at(1)).expect("a step");
    let json = serde_json::to_value(&full).expect("plain data");
    assert_eq!(json["trigger"], json!({"kind": "job", "jobId": "j", "occurrence": 3}));
    assert_eq!((&json["outcome"], &json["reason"]), (&json!({"type": "cancelled"}), &json!("requested")));
    assert_eq!(
        (&json["startedAt"], &json["endedAt"]),
        (&json!("2026-01-01T00:00:00.001Z"), &json!("2026-01-01T00:00:00.001Z"))
    );
    assert_eq!(serde_json::from_value::<Run>(json).expect("it reads back"), full);
}
