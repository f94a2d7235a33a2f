//! Tests of answers: streams in pieces, answers in one piece, errors and limits.

use super::*;

#[tokio::test]
async fn text_and_thoughts_are_streamed() {
    let thinking = |text: &str| message_line(&json!({"role": "assistant", "content": "", "thinking": text}));
    let cases: Vec<(String, &[&str])> = vec![
        (text("Hel") + &text("lo") + &stop(), &["text Hel", "text lo", "finish Stop"]),
        (text("Größe – 🙂\n") + &stop(), &["text Größe – 🙂\n", "finish Stop"]),
        (
            thinking("Hm") + &thinking("m") + &text("a") + &stop(),
            &["reasoning Hm", "reasoning m", "text a", "finish Stop"],
        ),
        (
            message_line(&json!({"content": "a", "thinking": "Hm"})) + &stop(),
            &["reasoning Hm", "text a", "finish Stop"],
        ),
        // Compatible servers have other names and shapes.
        (
            message_line(&json!({"thinking": {"type": "thinking", "thinking": "H"}, "content": ""}))
                + &message_line(&json!({"reasoning": ["m"], "content": "a"}))
                + &message_line(&json!({"thinking": false, "content": "b"}))
                + &stop(),
            &["reasoning H", "reasoning m", "text a", "text b", "finish Stop"],
        ),
        // The last line may have content, which precedes the finish event.
        (
            done(&json!({"message": {"content": "all"}, "eval_count": 3})),
            &["text all", "usage m-1 - 3 - -", "finish Stop"],
        ),
        // Lines without content, and unknown members.
        (
            format!("\r\n \n{{\"model\":\"m-1\",\"later\":[1],\"error\":null}}\r\n{}{}", text("a"), stop()),
            &["text a", "finish Stop"],
        ),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn every_end_is_distinguished_from_truncation() {
    let reason = |reason: &str| done(&json!({"done_reason": reason}));
    let cases: Vec<(String, &[&str])> = vec![
        (text("a") + &reason("length"), &["text a", "finish Length"]),
        (text("a") + &reason("later"), &["text a", "finish Stop"]),
        (text("a") + &done(&json!({})), &["text a", "finish Stop"]),
        (text("a") + &stop() + &text("never"), &["text a", "finish Stop"]),
        (text("a") + &stop() + "sorry\n", &["text a", "finish Stop"]),
        (text("a") + stop().trim_end(), &["text a", "finish Stop"]),
        (stop(), &["finish Stop"]),
        (reason("load"), &["fails Truncated"]),
        (text("a"), &["text a", "fails Truncated"]),
        (text("a") + &stop()[..40], &["text a", "fails Truncated"]),
        (text("a") + text("b").trim_end(), &["text a", "text b", "fails Truncated"]),
        (String::new(), &["fails Truncated"]),
        ("{}\n".into(), &["fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn errors_inside_an_answer_that_began_well_are_errors() {
    let error = "{\"error\":\"sk-1 is overloaded\"}\n";
    let cases: Vec<(String, &[&str])> = vec![
        (error.into(), &["fails Failed"]),
        (text("a") + error + &text("b"), &["text a", "fails Failed"]),
        (text("a") + error.trim_end(), &["text a", "fails Failed"]),
        ("{\"error\":{\"message\":\"x\"},\"done\":true}\n".into(), &["fails Failed"]),
        (text("a") + "sorry\n" + &stop(), &["text a", "fails Failed"]),
        ("{\"message\":{\n".into(), &["fails Failed"]),
        ("{\"message\":\"none\"}\n".into(), &["fails Failed"]),
        ("{\"message\":{\"content\":7}}\n".into(), &["fails Failed"]),
        ("{\"done\":\"yes\"}\n".into(), &["fails Failed"]),
        (calls(&json!("none")), &["fails Failed"]),
        ("[1]\n".into(), &["fails Failed"]),
        ("data: {}\n\n".into(), &["fails Failed"]),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn calls_come_whole_and_are_given_identifiers() {
    let call = |arguments: Value| json!([{"function": {"name": "x", "arguments": arguments}}]);
    let cases: Vec<(String, &[&str])> = vec![
        (
            calls(&call(json!({"n": [1, "ö"]}))) + &stop(),
            &["call 0 new x", "args 0 {\"n\":[1,\"ö\"]}", "finish ToolCalls"],
        ),
        (
            text("Wait.") + &calls(&call(json!({}))) + &calls(&call(json!({"a": 1}))) + &stop(),
            &[
                "text Wait.",
                "call 0 new x",
                "args 0 {}",
                "call 1 new x",
                "args 1 {\"a\":1}",
                "finish ToolCalls",
            ],
        ),
        (
            calls(&json!([
                {"id": "call_ab", "function": {"index": 0, "name": "x", "arguments": {}}},
                {"id": "", "type": "function", "function": {"index": 1, "name": "y"}}
            ])) + &stop(),
            &["call 0 call_ab x", "args 0 {}", "call 1 new y", "finish ToolCalls"],
        ),
        // A string that contains JSON, as Ollama-compatible servers send it; no arguments; and arguments that are not
        // an object, which the tool loop refuses.
        (
            calls(&call(json!("{\"n\": 1}"))) + &stop(),
            &["call 0 new x", "args 0 {\"n\": 1}", "finish ToolCalls"],
        ),
        (calls(&call(json!(null))) + &stop(), &["call 0 new x", "finish ToolCalls"]),
        (calls(&call(json!([1]))) + &stop(), &["call 0 new x", "args 0 [1]", "finish ToolCalls"]),
        (calls(&call(json!("{"))) + &stop(), &["call 0 new x", "args 0 {", "finish ToolCalls"]),
        (calls(&json!([{}])) + &stop(), &["call 0 new ", "finish ToolCalls"]),
        (calls(&json!([])) + &stop(), &["finish Stop"]),
        (calls(&call(json!({}))), &["call 0 new x", "args 0 {}", "fails Truncated"]),
        (
            calls(&call(json!({}))) + &done(&json!({"done_reason": "length"})),
            &["call 0 new x", "args 0 {}", "finish Length"],
        ),
    ];
    for (body, expected) in cases {
        check(NDJSON, &body, expected).await;
    }
}

#[tokio::test]
async fn usage_is_the_last_lines() {
    let cases: [(Value, &[&str]); 5] = [
        (
            json!({"prompt_eval_count": 26, "prompt_eval_cached_count": 20, "eval_count": 5}),
            &["usage m-1 26 5 20 -", "finish Stop"],
        ),
        (json!({"eval_count": 5}), &["usage m-1 - 5 - -", "finish Stop"]),
        (json!({}), &["finish Stop"]),
        // Counts that no answer can have do not fail it.
        (json!({"prompt_eval_count": -26, "eval_count": 5}), &["usage m-1 - 5 - -", "finish Stop"]),
        (
            json!({"prompt_eval_count": "26", "prompt_eval_cached_count": [], "eval_count": 2.5}),
            &["finish Stop"],
        ),
    ];
    for (counts, expected) in cases {
        check(NDJSON, &done(&counts), expected).await;
    }
}

#[tokio::test]
async fn a_prompt_that_was_cut_is_noticed() {
    let cut = |estimated: usize, read: u64| {
        let notice = ModelNotice::PromptCut {
            estimated_tokens: estimated as u64,
            read_tokens: read,
            context_window: 512,
        };
        format!("{:?}", ModelEvent::from(notice))
    };
    let estimate = |request: &ModelRequest| request.estimated_tokens(&request.tools);
    let (short, long) = (request_of(300, false), request_of(900, false));
    // Messages appended during the run are counted, and so are tools.
    let appended =
        ModelRequest { appended_messages: vec![long.prompt.messages()[0].message().clone()], ..request() };
    let schema = format!(r#"{{"type":"object","description":"{}"}}"#, "word ".repeat(900));
    let tools = ModelRequest { tools: Arc::new([tool("x", "", &schema)]), ..request() };
    let unused = ModelRequest { tool_choice: ToolChoice::None, ..tools.clone() };
    let cases = [
        (&short, Some(310), None),
        (&short, Some(1), None),
        (&long, Some(258), Some(cut(estimate(&long), 258))),
        (&long, Some(3), Some(cut(estimate(&long), 3))),
        (&long, Some(900), None),
        (&long, None, None),
        (&appended, Some(512), Some(cut(estimate(&appended), 512))),
        (&tools, Some(258), Some(cut(estimate(&tools), 258))),
        (&unused, Some(8), None),
        (&request_of(900, true), Some(258), None),
    ];
    for (request, read, expected) in cases {
        let counts = read.map_or(json!({}), |read| json!({"prompt_eval_count": read}));
        let server = LoopbackServer::respond_with(
            chunked_response("200 OK", NDJSON, done(&counts).as_bytes(), 64, true),
            AfterResponse::Close,
        )
        .await;
        let events = answer_to(&model_of(&server, 512), request).await;
        let notice = events.iter().find(|event| event.starts_with("Notice"));
        assert_eq!(notice, expected.as_ref(), "{read:?} read of {}", estimate(request));
        assert_eq!(events.last().map(String::as_str), Some("finish Stop"));
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer_and_a_reported_error_a_refusal() {
    let complete_answer =
        done(&json!({"message": {"content": "Hello"}, "prompt_eval_count": 3, "eval_count": 4}));
    let cases: Vec<(String, &[&str])> = vec![
        (complete_answer.clone(), &["text Hello", "usage m-1 3 4 - -", "finish Stop"]),
        (complete_answer.replace(',', ",\n  "), &["text Hello", "usage m-1 3 4 - -", "finish Stop"]),
        (text("Hel") + &text("lo") + &stop(), &["text Hel", "text lo", "finish Stop"]),
        ("{\"error\":\"overloaded\"}".into(), &["refused Failed"]),
        (text("Hel"), &["refused Truncated"]),
        ("{}".into(), &["refused Failed"]),
        ("[]".into(), &["refused Failed"]),
        ("sorry".into(), &["refused Failed"]),
        (String::new(), &["refused Failed"]),
    ];
    for (body, expected) in cases {
        let server = LoopbackServer::respond_with(piece(&body), AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, expected, "{body}");
    }
    check("text/html; charset=utf-8", "<html>Sorry</html>", &["refused Failed"]).await;
    // A stream with another media type.
    for kind in ["application/json", "text/plain", "text/event-stream"] {
        check(kind, &(text("a") + &stop()), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_broken_ones_are_detected() {
    let long = text(&"x".repeat(2 << 20));
    let begun = text("a");
    let cases = [
        (chunked_response("200 OK", NDJSON, long.as_bytes(), 64 << 10, true), "fails Failed"),
        (chunked_response("200 OK", NDJSON, &begun.as_bytes()[..9], 64, false), "fails Truncated"),
        (piece(&" ".repeat(5 << 20)), "refused OutputTooLarge"),
    ];
    for (answer, expected) in cases {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, [expected]);
    }
}

#[tokio::test]
async fn unsuccessful_statuses_are_refused_with_clear_messages() {
    let cases = [
        ("400 Bad Request", "{\"error\":\"sk-1 is bad\"}", "rejected the request (HTTP 400)"),
        ("400 Bad Request", "{\"error\":\"m-1 does not support tools\"}", "does not support tools, but"),
        (
            "400 Bad Request",
            "{\"error\":\"\\\"m-1\\\" does not support thinking\"}",
            "does not support thinking, but",
        ),
        ("404 Not Found", "{\"error\":\"model 'm-1' not found\"}", "does not have the model"),
        ("429 Too Many Requests", "", "is rate limiting requests (HTTP 429)"),
        ("500 Internal Server Error", "{\"error\":\"does not support tools\"}", "failed (HTTP 500)"),
    ];
    for (status, body, expected) in cases {
        let server = LoopbackServer::respond_with(
            chunked_response(status, JSON, body.as_bytes(), 64, true),
            AfterResponse::Close,
        )
        .await;
        let model = model(&server);
        let payload = model.prepare(&request()).expect("prepared");
        let failure = model.start(payload).await.err().expect("refused");
        assert!(failure.message().contains(expected), "{}", failure.message());
        assert!(!format!("{failure:?}").contains("sk-1"), "{failure:?}");
        // A call of a model that the server does not have is not repeated.
        let class = FailureClass::of(&failure);
        assert_eq!(class == FailureClass::Account, status.starts_with("404"), "{status}");
        // A request that needs a missing capability of the model is not repeated either, but another model may answer it.
        assert_eq!(class == FailureClass::Unsupported, body.contains("does not support"), "{status} {body}");
    }
    // A status error is reported even if its body does not arrive.
    let silent = chunked_response("400 Bad Request", JSON, b"{", 64, false);
    let server = LoopbackServer::respond_with(silent, AfterResponse::Hold).await;
    assert_eq!(answer_of(&model(&server)).await, ["refused Failed"]);
}
