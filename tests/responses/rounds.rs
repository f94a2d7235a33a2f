//! Runs of several rounds: what the vendor must see again, and what the client must not see.

use serde_json::{Value, json};

use super::{app, of_type, run, run_with};
use crate::support::responses_vendor::{OutputItem, Reply, ResponsesVendor};
use crate::support::{expect_problem, text_of};

const NO_COMPLAINT: &[String] = &[];

/// Returns an answer with reasoning, a text and three calls, which are different in each round.
pub(crate) fn round(number: usize) -> Vec<OutputItem> {
    let call = |index: usize, name, arguments: Value| {
        OutputItem::call(format!("call_{number}_{index}"), name, arguments.to_string())
    };
    let mut items = vec![
        OutputItem::reasoning("Let me see.", format!("sealed-canary-{number}")),
        call(0, "readTodos", json!({})),
        call(1, "createTodo", json!({"title": format!("Größe \"{number}\"")})),
        call(2, "readTodos", json!({})),
    ];
    match number % 4 {
        1 => items.insert(1, OutputItem::text(&["One ", "moment – "])),
        2 => items.insert(2, OutputItem::reasoning("", format!("sealed-canary-{number}-again"))),
        3 => items.push(OutputItem::reasoning("", format!("sealed-canary-{number}-last"))),
        _ => {}
    }
    items
}

#[tokio::test]
async fn sixteen_rounds_of_reasoning_and_three_calls_send_valid_requests() {
    let vendor = ResponsesVendor::start().await;
    for (model, reply) in [("in-order", Reply::answer as fn(_) -> _), ("interleaved", Reply::interleaved)] {
        let rounds = (0..16).map(round).map(reply);
        vendor.on(model, rounds.chain([Reply::answer(vec![OutputItem::text(&["Done", "."])])]));
    }
    let app = app(&vendor, &["in-order", "interleaved"], json!({}), &[("TOOL_ROUNDS", "17")]).await;
    for model in ["in-order", "interleaved"] {
        let events = run(&app, model).await;
        assert!(text_of(&events).ends_with("Done."), "{events:?}");
        let results = of_type(&events, "TOOL_CALL_RESULT");
        assert_eq!(results.len(), 48);
        assert!(results.iter().all(|result| result.get("metadata").is_none()), "{results:?}");
        let usage = &events.last().expect("an end")["usage"][0];
        let expected = json!({"model": "fake-1", "provider": "openai-responses", "inputTokens": 187,
            "outputTokens": 119, "reasoningTokens": 51, "cachedInputTokens": 68});
        assert_eq!(*usage, expected);
        assert_eq!(vendor.received_bodies(model).len(), 17);
        let shown = serde_json::to_string(&events).expect("events serialise");
        assert!(!shown.contains("sealed-canary") && shown.contains("Let me see."), "{shown}");
    }
    assert_eq!(vendor.complaints(), NO_COMPLAINT);
}

#[tokio::test]
async fn the_fake_vendor_detects_changed_items() {
    // The check of the checks: an answer whose items the vendor expects back, and which it has not sent.
    let vendor = ResponsesVendor::start().await;
    let sent = vec![OutputItem::reasoning("", "a"), OutputItem::call("c1", "readTodos", "{}")];
    let expected = [
        vec![OutputItem::reasoning("", "b"), OutputItem::call("c1", "readTodos", "{}")],
        vec![OutputItem::call("c1", "readTodos", "{}"), OutputItem::reasoning("", "a")],
        vec![OutputItem::reasoning("", "a"), OutputItem::call("c2", "readTodos", "{}")],
        vec![OutputItem::call("c1", "readTodos", "{}")],
    ];
    let models = ["other-bytes", "other-order", "other-call", "one-more"];
    for (model, expected) in models.iter().zip(expected) {
        let events = crate::support::responses_vendor::events(&sent);
        vendor.on(model, [Reply::events(&events, expected), Reply::answer(vec![OutputItem::text(&["a"])])]);
    }
    let app = app(&vendor, &models, json!({}), &[]).await;
    for model in models {
        run(&app, model).await;
        let complaints = vendor.complaints();
        assert!(complaints.iter().any(|complaint| complaint.starts_with(model)), "{model}: {complaints:?}");
    }
}

#[tokio::test]
async fn unusual_identifiers_and_items_are_normalized_for_the_vendor() {
    let vendor = ResponsesVendor::start().await;
    let call = |id: &str| OutputItem::call(id, "readTodos", "{}");
    let search =
        json!({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "basil"}});
    vendor.on(
        "m",
        [
            // The same identifier twice, and none.
            Reply::answer(vec![call("c1"), call("c1"), call("")]),
            // An identifier of an earlier round, and an item of the vendor's own.
            Reply::answer(vec![
                OutputItem::Other(search),
                call("c1"),
                OutputItem::call("c2", "no_such_tool", "{}"),
            ]),
            Reply::answer(vec![OutputItem::text(&["Done."])]),
        ],
    );
    let app = app(&vendor, &["m"], json!({}), &[]).await;
    let history = json!([
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": "Wait.", "toolCalls": [
            {"id": "an id, with spaces", "type": "function", "function": {"name": "a.tool/of.another", "arguments": "{}"}}]},
        {"role": "tool", "toolCallId": "an id, with spaces", "content": "none"},
        {"role": "assistant", "content": "Nothing."},
        {"role": "developer", "content": "of the page"},
    ]);
    let events = run_with(
        &app,
        json!({"agentId": "m", "messages": history, "message": "And now?", "todoListId": "l1"}),
    )
    .await;
    assert!(text_of(&events).ends_with("Done."), "{events:?}");
    assert_eq!(vendor.complaints(), NO_COMPLAINT);
    let notices = of_type(&events, "CUSTOM");
    let debug: Vec<_> = notices.iter().filter(|event| event["name"] == "agent.debug").collect();
    assert_eq!(debug.len(), 1, "{debug:?}");
    assert_eq!(debug[0]["value"], json!({"kind": "unknownItem", "itemType": "web_search_call"}));
    let ids = of_type(&events, "TOOL_CALL_START");
    let mut ids: Vec<_> = ids.iter().map(|event| event["toolCallId"].as_str().expect("an id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "each call has an identifier of its own");
}

#[tokio::test]
async fn the_settings_of_the_agent_are_sent() {
    let vendor = ResponsesVendor::start().await;
    let ask = async |container: Value, request: Value| {
        let app = app(&vendor, &["m"], container, &[]).await;
        let mut body = json!({"agentId": "m", "message": "Hi", "todoListId": "l1"});
        body.as_object_mut().expect("an object").extend(request.as_object().cloned().unwrap_or_default());
        assert_eq!(text_of(&run_with(&app, body).await), "hello world");
        vendor.received_bodies("m").pop().expect("it was asked")
    };
    let plain = ask(json!({}), json!({})).await;
    assert_eq!(plain["reasoning"], json!({"summary": "auto"}));
    assert!(plain["instructions"].as_str().is_some_and(|text| text.starts_with("Be brief.")), "{plain}");
    assert_eq!((&plain["max_output_tokens"], plain.get("prompt_cache_key")), (&json!(16_384), None));
    let thinking = ask(json!({"enableThinking": true}), json!({})).await;
    assert_eq!(thinking["reasoning"], json!({"effort": "medium", "summary": "auto"}));
    let low = ask(json!({"enableThinking": false}), json!({})).await;
    assert_eq!(low["reasoning"], json!({"effort": "low"}));
    let level = ask(json!({"reasoningEffort": "high"}), json!({"toolChoice": "required"})).await;
    assert_eq!(level["reasoning"]["effort"], "high");
    assert_eq!(level["tool_choice"], "required");
    let image = json!({"role": "user", "content": [{"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/png"}}]});
    let image = ask(json!({}), json!({ "message": image })).await;
    let latest = image["input"].as_array().and_then(|items| items.last()).expect("an item");
    let part = latest["content"].as_array().and_then(|parts| parts.last()).expect("a part");
    assert_eq!(
        *part,
        json!({"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"})
    );
    assert_eq!(vendor.complaints(), NO_COMPLAINT);

    let app = app(&vendor, &["m"], json!({}), &[]).await;
    let document = json!({"role": "user", "content": [
        {"type": "document", "source": {"type": "data", "value": "QUJD", "mimeType": "application/pdf"}}]});
    let response = app.chat(&json!({"agentId": "m", "message": document})).await;
    expect_problem(response, 422, "UNSUPPORTED_CONTENT").await;
}

#[tokio::test]
async fn the_limit_of_the_role_is_sent() {
    let vendor = ResponsesVendor::start().await;
    let mut workspace = crate::support::workspace(&vendor.base_url(), "m");
    workspace["agents"][0]["content"]["maxOutputTokens"] = json!(700);
    workspace["agents"][0]["children"][0]["content"]["provider"] = json!("openai-responses");
    let app = crate::support::server::app(&workspace, &[]).await;
    let events = run(&app, "a1").await;
    assert_eq!(text_of(&events), "hello world");
    assert_eq!(vendor.received_bodies("m")[0]["max_output_tokens"], 700);
    assert_eq!(vendor.complaints(), NO_COMPLAINT);
}
