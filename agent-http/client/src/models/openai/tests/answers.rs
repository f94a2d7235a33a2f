//! Tests of answers: streams in pieces, answers in one piece, errors and limits.

use super::*;

/// An error that is not within another object.
const UNWRAPPED: &str =
    r#"{"object":"error","message":"bad","type":"InternalServerError","param":null,"code":500}"#;

#[tokio::test]
async fn text_and_reasoning_are_streamed() {
    let null = r#"{"role":"assistant","content":null,"refusal":null,"tool_calls":null,"function_call":null}"#;
    let stop = || finish("stop");
    let done = || DONE.to_owned();
    let cases: Vec<(Vec<String>, &[&str])> = vec![
        (vec![text("Hel"), text("lo"), stop(), done()], &["text Hel", "text lo", "finish Stop"]),
        (
            vec![delta(r#"{"role":"assistant","content":""}"#), delta(null), text("a"), stop(), done()],
            &["text a", "finish Stop"],
        ),
        (vec![text("Größe – 🙂 \\ud83d\\ude42\\n")], &["text Größe – 🙂 🙂\n", "fails Truncated"]),
        // A refusal ends as any other answer, also as a part of the content.
        (
            vec![delta(r#"{"refusal":"No"}"#), delta(r#"{"refusal":"."}"#), stop(), done()],
            &["text No", "text .", "finish ContentFilter"],
        ),
        (vec![delta(r#"{"refusal":"No."}"#), done()], &["text No.", "finish ContentFilter"]),
        (
            vec![delta(r#"{"content":[{"type":"refusal","refusal":"No."}]}"#), stop(), done()],
            &["text No.", "finish ContentFilter"],
        ),
        (
            vec![delta(r#"{"content":"a","refusal":""}"#), finish("length"), done()],
            &["text a", "finish Length"],
        ),
        (
            vec![
                delta(r#"{"reasoning_content":"Hm"}"#),
                delta(r#"{"reasoning":"m"}"#),
                text("a"),
                stop(),
                done(),
            ],
            &["reasoning Hm", "reasoning m", "text a", "finish Stop"],
        ),
        (
            vec![
                delta(r#"{"reasoning_content":"Hm","reasoning":"Hm"}"#),
                delta(r#"{"reasoning_content":"","reasoning":"m"}"#),
                stop(),
                done(),
            ],
            &["reasoning Hm", "reasoning m", "finish Stop"],
        ),
        // Parts in place of a text, with kinds that are not read.
        (
            vec![
                delta(r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]}"#),
                delta(r#"{"content":[{"type":"text","text":"a"},{"type":"reference","reference_ids":[1]}]}"#),
                text("b"),
                stop(),
                done(),
            ],
            &["reasoning Hm", "text a", "text b", "finish Stop"],
        ),
        // Reasoning under other names and in other shapes, which is never text and never an error.
        (
            vec![
                delta(r#"{"content":[{"type":"thinking","thinking":"H"},{"type":"reasoning","text":"m"}]}"#),
                delta(r#"{"thinking":", so"}"#),
                delta(r#"{"reasoning":{"type":"thinking","content":" it"}}"#),
                delta(r#"{"reasoning_content":[{"type":"text","text":" is"}],"thinking":" is"}"#),
                delta(r#"{"content":"a","reasoning":true,"thinking":7}"#),
                stop(),
                done(),
            ],
            &["reasoning Hm", "reasoning , so", "reasoning  it", "reasoning  is", "text a", "finish Stop"],
        ),
        // The accumulated message beside the delta.
        (
            vec![
                r#"{"choices":[{"delta":{"content":"a"},"message":{"content":"a"}}]}"#.into(),
                r#"{"choices":[{"delta":{"content":"b"},"message":{"content":"ab"}}]}"#.into(),
                done(),
            ],
            &["text a", "text b", "finish Stop"],
        ),
        // A second choice, no choice, and unknown members.
        (
            vec![
                r#"{"choices":[{"index":1,"delta":{"content":"other"}}]}"#.into(),
                r#"{"choices":[],"prompt_filter_results":[{}]}"#.into(),
                r#"{"choices":null,"error":null,"later":1}"#.into(),
                text("a"),
                done(),
            ],
            &["text a", "finish Stop"],
        ),
    ];
    for (data, expected) in cases {
        check(SSE, &sse(&data), expected).await;
    }
}

#[tokio::test]
async fn every_end_is_distinguished_from_truncation() {
    let length = [text("a"), finish("length"), DONE.into()];
    let cases: Vec<(String, &[&str])> = vec![
        (sse(&length), &["text a", "finish Length"]),
        (sse(&[text("a"), finish("content_filter"), DONE.into()]), &["text a", "finish ContentFilter"]),
        (sse(&[text("a"), finish("model_length"), DONE.into()]), &["text a", "finish Length"]),
        (sse(&[text("a"), finish("max_tokens"), DONE.into()]), &["text a", "finish Length"]),
        (sse(&[text("a"), finish("refusal"), DONE.into()]), &["text a", "finish ContentFilter"]),
        (
            sse(&[text("a"), finish("content_filter: RECITATION"), DONE.into()]),
            &["text a", "finish ContentFilter"],
        ),
        (
            sse(&[r#"{"choices":[{"index":0,"finish_reason":"content_filter: PROHIBITED_CONTENT"}]}"#, DONE]),
            &["finish ContentFilter"],
        ),
        (sse(&[text("a"), finish("eos"), DONE.into()]), &["text a", "finish Stop"]),
        (sse(&[text("a"), finish("stop")]), &["text a", "finish Stop"]),
        (sse(&[text("a"), DONE.into()]), &["text a", "finish Stop"]),
        (sse(&[text("a"), " [DONE] ".into(), text("never")]), &["text a", "finish Stop"]),
        (sse(&[finish("stop"), DONE.into()]), &["finish Stop"]),
        // An empty reason in each chunk is none.
        (sse(&[text("a"), finish("")]), &["text a", "fails Truncated"]),
        (sse(&[text("a"), finish(""), finish("length")]), &["text a", "finish Length"]),
        (format!("\u{feff}: hi\r\n\r\n{}", sse(&length).replace('\n', "\r\n")), &["text a", "finish Length"]),
        (sse(&[text("a")]), &["text a", "fails Truncated"]),
        (sse(&[text("a")]) + "data: [DONE]", &["text a", "fails Truncated"]),
        (sse(&[DONE]), &["fails Truncated"]),
        (String::new(), &["fails Truncated"]),
        (sse(&[delta("{}"), DONE.into()]), &["fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn errors_inside_an_answer_that_began_well_are_errors() {
    let error = r#"{"error":{"message":"sk-1 is overloaded","type":"server_error","code":503}}"#;
    let named = |data: &str| format!("event: error\ndata: {data}\n\n");
    let with_usage = |choice: &str, error: &str| {
        let usage = r#"{"prompt_tokens":12,"completion_tokens":5}"#;
        format!(r#"{{"choices":[{{"index":0,{choice}}}],"error":{error},"usage":{usage}}}"#)
    };
    let cases: Vec<(String, &[&str])> = vec![
        (sse(&[error]), &["fails Failed"]),
        (sse(&[text("a"), error.into(), text("b"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[r#"{"error":"overloaded"}"#]), &["fails Failed"]),
        (named(r#"{"message":"overloaded"}"#), &["fails Failed"]),
        (named("overloaded"), &["fails Failed"]),
        (named(OVERFLOW), &["fails ContextExceeded"]),
        (named(r#"{"message":"prompt is too long"}"#), &["fails ContextExceeded"]),
        (sse(&[text("a"), finish("error"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[text("a"), finish("insufficient_system_resource"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[text("a"), finish("abort"), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[finish("function_call_filter: MALFORMED_FUNCTION_CALL"), DONE.into()]), &["fails Failed"]),
        // The error in place of a chunk.
        (sse(&[text("a"), UNWRAPPED.into(), DONE.into()]), &["text a", "fails Failed"]),
        (sse(&[UNWRAPPED.replace("bad", "prompt is too long"), DONE.into()]), &["fails ContextExceeded"]),
        (
            sse(&[text("a"), with_usage(r#""delta":{"content":"b"},"finish_reason":"error""#, "null")]),
            &["text a", "usage m-1-2026 12 5 - -", "fails Failed"],
        ),
        (sse(&[with_usage(r#""delta":{}"#, r#""overloaded""#)]), &["usage - 12 5 - -", "fails Failed"]),
        (sse(&[text("a"), "sorry".into(), text("b")]), &["text a", "fails Failed"]),
        (sse(&[r#"{"choices":[{"#]), &["fails Failed"]),
        (sse(&[r#"{"choices":"none"}"#]), &["fails Failed"]),
        (sse(&[r#"{"choices":[{"delta":{"content":7}}]}"#]), &["fails Failed"]),
        (sse(&["[1]"]), &["fails Failed"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn calls_are_put_together_however_servers_cut_them() {
    let call = |index: &str, id: &str, name: &str, arguments: &str| {
        let member = |key: &str, value: &str| match value {
            "-" => String::new(),
            value => format!(
                r#""{key}":{},"#,
                if key == "index" { value.to_owned() } else { format!("{value:?}") }
            ),
        };
        let function = format!("{}{}", member("name", name), member("arguments", arguments));
        let head = format!("{}{}", member("index", index), member("id", id));
        format!(r#"{{{head}"type":"function","function":{{{}}}}}"#, function.trim_end_matches(','))
    };
    let answer = |fragments: &[&[String]]| {
        let mut data: Vec<String> = fragments.iter().map(|fragments| calls(&fragments.join(","))).collect();
        data.extend([finish("tool_calls"), DONE.to_owned()]);
        sse(&data)
    };
    let complete_call = |index, id| call(index, id, "x", "{}");
    let two: &[&str] = &["call 0 a x", "args 0 {}", "call 1 b x", "args 1 {}", "finish ToolCalls"];
    let two_new: &[&str] = &["call 0 new x", "args 0 {}", "call 1 new x", "args 1 {}", "finish ToolCalls"];
    let cases: Vec<(String, &[&str])> = vec![
        (
            answer(&[
                &[call("0", "a", "x", "")],
                &[call("0", "-", "-", "{\"n\"")],
                &[call("0", "-", "-", "")],
                &[call("0", "-", "-", ":1}")],
            ]),
            &["call 0 a x", "args 0 {\"n\"", "args 0 :1}", "finish ToolCalls"],
        ),
        (
            answer(&[
                &[call("0", "a", "x", "{")],
                &[call("1", "b", "y", "{"), call("0", "-", "-", "}")],
                &[call("1", "-", "-", "}")],
            ]),
            &["call 0 a x", "args 0 {", "call 1 b y", "args 1 {", "args 0 }", "args 1 }", "finish ToolCalls"],
        ),
        // Indices that are not positions, are missing, or are all the same; identifiers that are missing or repeated.
        (answer(&[&[complete_call("7", "a")], &[complete_call("3", "b")]]), two),
        (answer(&[&[complete_call("-", "a"), complete_call("-", "b")]]), two),
        (answer(&[&[complete_call("0", "a")], &[complete_call("0", "b")]]), two),
        (answer(&[&[complete_call("0", "-")], &[complete_call("1", "-")]]), two_new),
        (answer(&[&[complete_call("0", "")], &[complete_call("1", "")]]), two_new),
        (answer(&[&[complete_call("-", "-")], &[complete_call("-", "-")]]), two_new),
        (
            answer(&[
                &[call("-", "a", "x", "{")],
                &[call("-", "b", "x", "{")],
                &[call("-", "a", "-", "}")],
                &[call("-", "-", "-", "}")],
            ]),
            &["call 0 a x", "args 0 {", "call 1 b x", "args 1 {", "args 0 }", "args 1 }", "finish ToolCalls"],
        ),
        (
            answer(&[&[call("0", "a", "x", "{")], &[call("0", "a", "x", "}")], &[call("0", "z", "-", " ")]]),
            &["call 0 a x", "args 0 {", "args 0 }", "args 0  ", "finish ToolCalls"],
        ),
        // A name that comes after the identifier, after arguments, with the identifier, without an index, or never.
        (
            answer(&[&[call("0", "a", "-", "")], &[call("0", "-", "x", "-")], &[call("0", "-", "-", "{}")]]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (
            answer(&[&[call("0", "-", "-", "{")], &[call("1", "b", "y", "{}")], &[call("0", "a", "x", "}")]]),
            &["call 0 b y", "args 0 {}", "call 1 a x", "args 1 {}", "finish ToolCalls"],
        ),
        (
            answer(&[&[call("-", "a", "-", "")], &[call("-", "-", "x", "-")], &[call("-", "-", "-", "{}")]]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (answer(&[&[call("0", "a", "-", "{}")]]), &["call 0 a ", "args 0 {}", "finish ToolCalls"]),
        // The older form of the only call, and both forms.
        (
            sse(&[
                delta(r#"{"role":"assistant","content":null,"function_call":{"name":"x","arguments":""}}"#),
                delta(r#"{"function_call":{"arguments":"{\"n\""}}"#),
                delta(r#"{"function_call":{"arguments":":1}"}}"#),
                finish("function_call"),
                DONE.to_owned(),
            ]),
            &["call 0 new x", "args 0 {\"n\"", "args 0 :1}", "finish ToolCalls"],
        ),
        (
            sse(&[
                delta(
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}],
                        "function_call":{"name":"x","arguments":"{}"}}"#,
                )
                .replace('\n', " "),
                finish("tool_calls"),
                DONE.to_owned(),
            ]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        // No arguments, an empty fragment, and a finish reason that is not `tool_calls`.
        (answer(&[&[call("0", "a", "x", "-")]]), &["call 0 a x", "finish ToolCalls"]),
        (
            answer(&[&["{}".to_owned(), complete_call("0", "a")]]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (
            sse(&[calls(&complete_call("0", "a")), DONE.into()]),
            &["call 0 a x", "args 0 {}", "finish ToolCalls"],
        ),
        (
            sse(&[calls(&complete_call("0", "a")), finish("stop")]),
            &["call 0 a x", "args 0 {}", "finish Stop"],
        ),
        (sse(&[calls(&complete_call("0", "a"))]), &["call 0 a x", "args 0 {}", "fails Truncated"]),
    ];
    for (body, expected) in cases {
        check(SSE, &body, expected).await;
    }
}

#[tokio::test]
async fn usage_comes_before_the_end_wherever_the_server_puts_it() {
    let usage = r#"{"model":"m-1-2026","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,
        "prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let usage = usage.replace('\n', "");
    let expected: &[&str] = &["text a", "usage m-1-2026 12 5 8 2", "finish Stop"];
    for end in [
        vec![finish("stop"), usage.clone(), DONE.into()],
        vec![finish("stop"), usage.clone()],
        vec![usage, finish("stop")],
    ] {
        check(SSE, &sse(&[vec![text("a")], end].concat()), expected).await;
    }
    let of_choice =
        finish("stop").replace("}]}", r#","usage":{"prompt_tokens":12,"completion_tokens":5}}]}"#);
    check(SSE, &sse(&[text("a"), of_choice]), &["text a", "usage m-1-2026 12 5 - -", "finish Stop"]).await;
    let poor =
        [text("a"), r#"{"usage":{"prompt_tokens":1,"prompt_tokens_details":null}}"#.into(), DONE.into()];
    check(SSE, &sse(&poor), &["text a", "usage m-1-2026 1 - - -", "finish Stop"]).await;
    check(
        SSE,
        &sse(&[text("a").replace("}]}", "}],\"usage\":null}"), DONE.into()]),
        &["text a", "finish Stop"],
    )
    .await;
    // The answer is there although its usage cannot be read.
    for wrong in ["7", r#""none""#, r#"{"prompt_tokens":1e400}"#, r#"{"prompt_tokens_details":"none"}"#] {
        let usage = format!(r#"{{"choices":[],"usage":{wrong}}}"#);
        check(SSE, &sse(&[text("a"), finish("stop"), usage, DONE.into()]), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer_and_a_reported_error_a_refusal() {
    let choice = |message: &str, reason: &str| {
        let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#;
        let choice = format!(r#"{{"index":0,"message":{message},"finish_reason":{reason}}}"#);
        format!(r#"{{"object":"chat.completion","model":"m-1","choices":[{choice}],{usage}}}"#)
    };
    let calls = r#"{"content":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"x","arguments":"{\"n\":1}"}},
        {"id":"b","type":"function","function":{"name":"y","arguments":""}}]}"#;
    let cases: Vec<(String, &[&str])> = vec![
        (
            choice(r#"{"role":"assistant","content":"Hello","reasoning":"Hm"}"#, "\"stop\""),
            &["reasoning Hm", "text Hello", "usage m-1 3 4 - -", "finish Stop"],
        ),
        (
            choice(calls, "\"tool_calls\""),
            &["call 0 a x", "args 0 {\"n\":1}", "call 1 b y", "usage m-1 3 4 - -", "finish ToolCalls"],
        ),
        // The arguments themselves in place of a string that contains them.
        (
            choice(
                r#"{"tool_calls":[{"id":"a","function":{"name":"x","arguments":{"n": 12345678901234567890123}}},
                    {"id":"b","function":{"name":"y","arguments":null}}]}"#,
                "\"tool_calls\"",
            ),
            &[
                "call 0 a x",
                "args 0 {\"n\": 12345678901234567890123}",
                "call 1 b y",
                "usage m-1 3 4 - -",
                "finish ToolCalls",
            ],
        ),
        (
            choice(calls, "null"),
            &["call 0 a x", "args 0 {\"n\":1}", "call 1 b y", "usage m-1 3 4 - -", "finish ToolCalls"],
        ),
        (
            choice(r#"{"content":null,"function_call":{"name":"x","arguments":"{\"n\":1}"}}"#, "null"),
            &["call 0 new x", "args 0 {\"n\":1}", "usage m-1 3 4 - -", "finish ToolCalls"],
        ),
        (
            choice(r#"{"content":null,"refusal":"No."}"#, "\"stop\""),
            &["text No.", "usage m-1 3 4 - -", "finish ContentFilter"],
        ),
        (choice(r#"{"content":"a"}"#, "\"length\""), &["text a", "usage m-1 3 4 - -", "finish Length"]),
        (choice(r#"{"content":""}"#, "null"), &["refused Truncated"]),
        (choice(r#"{"content":"a"}"#, "\"error\""), &["refused Failed"]),
        (r#"{"error":{"message":"overloaded"}}"#.into(), &["refused Failed"]),
        (r#"{"choices":[],"error":"overloaded"}"#.into(), &["refused Failed"]),
        (UNWRAPPED.replace("bad", "prompt is too long"), &["refused ContextExceeded"]),
        (
            r#"{"choices":[{"message":{"content":""},"error":{"code":429},"finish_reason":"error"}]}"#.into(),
            &["refused RateLimited"],
        ),
        (r#"{"detail":"Not Found"}"#.into(), &["refused Failed"]),
        ("{}".into(), &["refused Failed"]),
        ("[]".into(), &["refused Failed"]),
        ("sorry".into(), &["refused Failed"]),
        (String::new(), &["refused Failed"]),
    ];
    for (body, expected) in cases {
        check(JSON, &body, expected).await;
    }
    check("Application/JSON", "{}", &["refused Failed"]).await;
    check("text/html; charset=utf-8", "<html>Sorry</html>", &["refused Failed"]).await;
    // Compressed, which no request allows: not an answer that was cut off.
    for kind in [SSE, JSON] {
        let head = format!("{kind}\r\ncontent-encoding: gzip");
        check(&head, "\u{1f}", &["refused Failed"]).await;
        let body =
            if kind == SSE { sse(&[text("a"), DONE.into()]) } else { choice(r#"{"content":"a"}"#, "null") };
        let expected: &[&str] = match kind {
            SSE => &["text a", "finish Stop"],
            _ => &["text a", "usage m-1 3 4 - -", "finish Stop"],
        };
        // Some servers say so to keep proxies from compressing a stream.
        for coding in ["identity", "None", "identity, identity", ""] {
            check(&format!("{kind}\r\ncontent-encoding: {coding}"), &body, expected).await;
        }
    }
    // A stream with another media type.
    for kind in ["text/plain", "application/octet-stream", "application/x-ndjson"] {
        check(kind, &sse(&[text("a"), DONE.into()]), &["text a", "finish Stop"]).await;
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_broken_ones_are_detected() {
    let long = "x".repeat(2 << 20);
    let begun = sse(&[text("a")]);
    let cases = [
        (chunked_response("200 OK", SSE, text(&long).as_bytes(), 64 << 10, true), "fails Failed"),
        (chunked_response("200 OK", SSE, sse(&[text(&long)]).as_bytes(), 4 << 20, true), "fails Failed"),
        (
            chunked_response("200 OK", JSON, " ".repeat(5 << 20).as_bytes(), 1 << 20, true),
            "refused OutputTooLarge",
        ),
        (chunked_response("200 OK", JSON, b"{\"choices\":[", 64, false), "refused Truncated"),
        (chunked_response("200 OK", SSE, &begun.as_bytes()[..9], 64, false), "fails Truncated"),
    ];
    for (answer, expected) in cases {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(read(&server).await, [expected]);
    }
    let server = LoopbackServer::respond_with(
        chunked_response("200 OK", SSE, begun.as_bytes(), 64, false),
        AfterResponse::Close,
    )
    .await;
    assert_eq!(read(&server).await, ["text a", "fails Truncated"]);
}

#[tokio::test]
async fn the_calls_of_an_answer_are_bounded() {
    let nameless = |count: usize| vec![r#"{"function":{"name":"x"}}"#; count].join(",");
    let whole = |count: usize| {
        let message = format!(r#"{{"tool_calls":[{}]}}"#, nameless(count));
        format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"tool_calls"}}]}}"#)
    };
    for (kind, body, expected) in [
        (JSON, whole(32), "finish ToolCalls"),
        (JSON, whole(33), "refused ToolLoopLimit"),
        // Each call without an index is compared with all before it.
        (JSON, whole(150_000), "refused ToolLoopLimit"),
        (SSE, sse(&[calls(&nameless(32)), DONE.into()]), "finish ToolCalls"),
        (SSE, sse(&[calls(&nameless(33)), DONE.into()]), "fails ToolLoopLimit"),
    ] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), 1 << 20, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let events = read(&server).await;
        assert_eq!(events.last().map(String::as_str), Some(expected));
    }
}

#[tokio::test]
async fn an_unsuccessful_status_refuses() {
    let cases = [
        ("400 Bad Request", "Failed"),
        ("401 Unauthorized", "Failed"),
        ("429 Too Many Requests", "RateLimited"),
        ("503 Service Unavailable", "Failed"),
        ("504 Gateway Timeout", "Timeout"),
    ];
    for (status, kind) in cases {
        let server = LoopbackServer::respond_with(
            chunked_response(status, JSON, b"{}", 64, true),
            AfterResponse::Close,
        )
        .await;
        assert_eq!(read(&server).await, [format!("refused {kind}")]);
    }
}
