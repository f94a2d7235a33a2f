//! Requests that a server refuses: statuses, limits on the answer, and the context window.

use super::*;

#[tokio::test]
async fn a_limit_that_the_server_does_not_have_is_left_out_from_then_on() {
    let unsupported = json!({"message": "Unsupported parameter: 'max_output_tokens'", "type": "invalid_request_error",
        "param": "max_output_tokens", "code": "unsupported_parameter"});
    let forbidden = json!([{"type": "extra_forbidden", "loc": ["body", "max_output_tokens"],
        "msg": "Extra inputs are not permitted"}]);
    for (status, error) in [
        ("400 Bad Request", json!({ "error": unsupported })),
        ("422 Unprocessable Entity", json!({ "detail": forbidden })),
        ("400 Bad Request", json!({"error": "`max_output_tokens` is not supported"})),
    ] {
        let server = server_without_limit(status, error.clone()).await;
        let model = limited_model(&server);
        let lines = answer_of(&model).await;
        let later = model.prepare(&request()).expect("prepared");
        assert!(lines[0].contains("parameterRefused") && lines[0].contains(&later.sha256()), "{lines:?}");
        assert_eq!(lines[1..], ["text hi", "finish Stop"], "{error}");
        assert!(later.with_output_limit(300).is_none(), "a budget cannot lower what is not sent");
        assert_eq!(answer_of(&model).await, ["text hi", "finish Stop"]);
        assert_eq!(server.requests().len(), 3);
    }
}

#[tokio::test]
async fn limits_refused_for_their_value_and_budget_limits_are_kept() {
    let too_large = json!({"error": {"message": "Invalid 'max_output_tokens': integer above maximum value.",
        "type": "invalid_request_error", "param": "max_output_tokens", "code": "integer_above_max_value"}});
    let server = server_without_limit("400 Bad Request", too_large).await;
    let model = limited_model(&server);
    assert!(answer_of(&model).await[0].starts_with("refused"));
    assert_eq!(server.requests().len(), 1);

    let unknown = json!({"error": {"message": "Unknown parameter: 'max_output_tokens'."}});
    let server = server_without_limit("400 Bad Request", unknown).await;
    let model = limited_model(&server);
    let lowered = model.prepare(&request()).expect("prepared").with_output_limit(300).expect("a limit");
    assert!(model.start(lowered).await.is_err());
    assert_eq!(server.requests().len(), 1);
    assert!(model.prepare(&request()).expect("prepared").with_output_limit(300).is_some());
}

#[tokio::test]
async fn an_unsuccessful_status_refuses() {
    for (status, expected) in [
        ("400 Bad Request", "Failed"),
        ("401 Unauthorized", "Failed"),
        ("403 Forbidden", "Failed"),
        ("413 Payload Too Large", "InvalidRequest"),
        ("429 Too Many Requests", "RateLimited"),
        ("503 Service Unavailable", "Failed"),
        ("504 Gateway Timeout", "Timeout"),
    ] {
        let answer = chunked_response(status, JSON, b"{}", 64, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, [format!("refused {expected}")]);
    }
    let answer = chunked_response("401 Unauthorized", JSON, b"{}", 64, true);
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let protocol = ResponsesProtocol { account: Account::Subscription, ..protocol("m-1") };
    let model = Responses { protocol, ..model(&server) };
    assert_eq!(answer_of(&model).await, ["refused SignInRequired"]);
}

#[tokio::test]
async fn the_window_is_learned_from_a_refusal_and_from_an_answer() {
    let error = json!({"code": "context_length_exceeded", "message": "sk-1"});
    let failed = json!({"type": "response.failed", "response": {"error": error}});
    let refusal = json!({ "error": error }).to_string();
    for answer in [
        chunked_response("400 Bad Request", JSON, refusal.as_bytes(), 64, true),
        chunked_response("200 OK", SSE, sse(&[created(), failed]).as_bytes(), 64, true),
    ] {
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let spec = ModelSpec::new("m-1").with_limits(ModelLimits::default());
        let model = Responses { protocol: protocol(spec), ..model(&server) };
        assert_eq!(model.info().context_window, 128_000);
        let shown = answer_of(&model).await;
        assert!(shown.iter().any(|event| event.ends_with("ContextExceeded")), "{shown:?}");
        assert!(model.info().context_window < 1_000, "{:?}", model.info());
    }
}
