//! Answers of vendors, workflows and messengers that contain the secrets which they were sent.

use super::*;

/// Returns upstream responses that repeat secrets in every position.
pub(super) fn leaking_responses() -> Vec<(&'static str, Vec<Step>)> {
    let all = format!("{UPSTREAM_CANARY} {OPERATOR_KEY} {ROLE_KEY} {RUNTIME_SECRET} {TOOL_TOKEN}");
    let error = json!({"error": {"message": all, "type": UPSTREAM_CANARY, "code": OPERATOR_KEY}}).to_string();
    let headers = format!(
        "x-request-id: {UPSTREAM_CANARY}\r\nset-cookie: a={UPSTREAM_CANARY}\r\nwww-authenticate: Bearer realm=\"{all}\"\r\n\
         retry-after: {UPSTREAM_CANARY}\r\nlocation: http://127.0.0.1:1/?key={UPSTREAM_CANARY}\r\n"
    );
    let after_text = |step: Step| vec![stream_head(), delta(json!({"content": "par"})), step, last_chunk()];
    let raw = |text: String| vec![Step::Send(text.into_bytes()), Step::Close];
    vec![
        ("good", answer(&["hello"])),
        ("good-with-headers", {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}content-type: text/event-stream\r\n");
            let mut steps = answer(&["hello"]);
            steps[0] = Step::Send(format!("{head}transfer-encoding: chunked\r\n\r\n").into());
            steps
        }),
        ("400", json_response("400 Bad Request", &headers, &error)),
        ("401", json_response("401 Unauthorized", &headers, &error)),
        ("429", json_response("429 Too Many Requests", &headers, &error)),
        ("500", json_response(&format!("500 {UPSTREAM_CANARY}"), &headers, &error)),
        ("302", json_response("302 Found", &headers, &error)),
        ("200-json", json_response("200 OK", &headers, &error)),
        (
            "problem",
            json_response(
                "403 Forbidden",
                &headers,
                &json!({"code": UPSTREAM_CANARY, "detail": all}).to_string(),
            ),
        ),
        ("error-event", after_text(event(&error))),
        ("text-event", after_text(event(&all))),
        ("error-text-event", after_text(event(json!({"error": all})))),
        ("comment", after_text(chunk(format!(": {all}\n\n")))),
        ("shape", after_text(event(json!({"choices": all})))),
        ("inner-shape", after_text(event(json!({"choices": [{"index": all, "delta": all}]})))),
        ("usage-shape", after_text(event(json!({"choices": [], "usage": {"prompt_tokens": all}})))),
        ("line", after_text(chunk(format!("{all}\n")))),
        ("head", raw(format!("HTTP/1.1 200 OK\r\n{all}\r\n\r\n"))),
        ("no-http", raw(all.clone())),
        ("chunk-length", vec![stream_head(), Step::Send(format!("{all}\r\n").into()), Step::Close]),
        ("ollama-good", ollama::answer(&["hello"])),
        ("ollama-cut", {
            let done = ollama::done("stop", 258);
            [ollama::stream_head()].into_iter().chain(done).collect()
        }),
        ("ollama-error", ollama_text_then(ollama::json_line(&json!({"error": all})))),
        ("ollama-text", ollama_text_then(chunk(format!("{all}\n")))),
        ("ollama-shape", ollama_text_then(ollama::json_line(&json!({"message": all})))),
        (
            "ollama-count",
            ollama_text_then(ollama::json_line(&json!({"done": true, "prompt_eval_count": all}))),
        ),
        ("ollama-reason", ollama_text_then(ollama::json_line(&json!({"done": true, "done_reason": all})))),
        (
            "ollama-400",
            json_response(
                "400 Bad Request",
                &headers,
                &json!({"error": format!("{all} does not support tools")}).to_string(),
            ),
        ),
        ("ollama-404", json_response("404 Not Found", &headers, &json!({"error": all}).to_string())),
        ("n8n-good", n8n::answer(&["hello"])),
        (
            "n8n-error",
            n8n_text_then(n8n::json_line(
                &json!({"type": "error", "content": all, "metadata": {"nodeName": all}}),
            )),
        ),
        ("n8n-text", n8n_text_then(chunk(format!("{all}\n")))),
        (
            "n8n-shape",
            n8n_text_then(n8n::json_line(&json!({"type": "item", "content": {UPSTREAM_CANARY: all}}))),
        ),
        ("n8n-type", n8n_text_then(n8n::json_line(&json!({"type": all, "content": all})))),
        ("n8n-half", json_response("200 OK", &headers, &format!("{{\"output\":\"{all}"))),
        (
            "n8n-echo",
            json_response(
                "200 OK",
                &headers,
                &json!({"headers": {"authorization": all}, "body": all}).to_string(),
            ),
        ),
        (
            "n8n-started",
            json_response(
                "200 OK",
                &headers,
                &json!({"message": "Workflow was started", "executionId": all}).to_string(),
            ),
        ),
        (
            "n8n-404",
            json_response(
                "404 Not Found",
                &headers,
                &json!({"code": 404, "message": all, "stacktrace": all}).to_string(),
            ),
        ),
        (
            "n8n-page",
            vec![
                Step::Send(
                    format!("HTTP/1.1 200 OK\r\n{headers}content-type: text/html\r\n\r\n<html>{all}").into(),
                ),
                Step::Close,
            ],
        ),
    ]
}

fn n8n_text_then(step: Step) -> Vec<Step> {
    vec![n8n::stream_head(), n8n::text("par"), step, last_chunk()]
}

/// Returns the webhook authentication schemes.
pub(super) fn webhook_auths() -> [Value; 4] {
    [
        json!({"type": "basic", "user": "ada", "password": WEBHOOK_SECRET}),
        json!({"type": "header", "name": "X-Api-Key", "value": WEBHOOK_SECRET}),
        json!({"type": "jwt", "secret": WEBHOOK_SECRET}),
        json!({"type": "none"}),
    ]
}

fn ollama_text_then(step: Step) -> Vec<Step> {
    vec![ollama::stream_head(), ollama::text("par"), step, last_chunk()]
}

/// Returns bot API responses that repeat the request path, which contains the token.
pub(super) fn bot_answers() -> Vec<Vec<Step>> {
    let all = format!("{UPSTREAM_CANARY} {} {RUNTIME_SECRET}", bot_path());
    let error = json!({"ok": false, "error_code": 400, "description": all}).to_string();
    let wait = json!({"ok": false, "error_code": 429, "description": all, "parameters": {"retry_after": 1}});
    let headers = format!("location: {}\r\nset-cookie: a={UPSTREAM_CANARY}\r\n", bot_path());
    let raw = |text: String| vec![Step::Send(text.into_bytes()), Step::Close];
    vec![
        json_response(
            "200 OK",
            &headers,
            &json!({"ok": true, "result": {"message_id": 7, "text": all}}).to_string(),
        ),
        json_response("200 OK", &headers, &json!({"ok": true, "result": {"message_id": all}}).to_string()),
        json_response("400 Bad Request", &headers, &error),
        json_response("404 Not Found", &headers, &format!("<pre>Cannot POST {all}</pre>")),
        json_response("429 Too Many Requests", &headers, &wait.to_string()),
        json_response("302 Found", &headers, &all),
        json_response(&format!("500 {all}"), &headers, &all),
        json_response("200 OK", &headers, &format!("{{\"ok\":{all}")),
        raw(format!("HTTP/1.1 200 OK\r\n{all}\r\n\r\n")),
        raw(all.clone()),
        vec![Step::Reset],
    ]
}
