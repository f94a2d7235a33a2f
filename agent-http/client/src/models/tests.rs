//! Tests of model selection and of the address that each API key is sent to.

use agent_core::error::AgentError;
use agent_core::model::ModelRequest;
use agent_core::prompt::Prompt;
use agent_core::testing::ScriptedModel;
use agent_core::tool::ToolChoice;
use serde_json::json;

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};

async fn server() -> LoopbackServer {
    LoopbackServer::respond_with(
        chunked_response("200 OK", "text/event-stream", b"data: [DONE]\n\n", 64, true),
        AfterResponse::Close,
    )
    .await
}

fn vendor(operator_url: &Url, key: Option<&str>, allow: &str) -> HostedVendor {
    HostedVendor {
        outbound: outbound_client(allow),
        base_url: operator_url.clone(),
        key: key.map(|key| BoundSecret::new(operator_url, Secret::new(key))),
        default_model: "default".into(),
        key_setting: "OPENAI_API_KEY",
        needs_key: true,
        limits: ModelLimits::default(),
    }
}

fn ollama_server(operator_url: Option<&Url>, model: Option<&str>, allow: &str) -> OllamaServer {
    OllamaServer {
        outbound: outbound_client(allow),
        base_url: operator_url.cloned(),
        default_model: model.map(str::to_owned),
        num_ctx: 8192,
        limits: ModelLimits::default(),
    }
}

/// Creates the selected model and calls it.
async fn call(vendor: &HostedVendor, settings: HostedSettings<'_>) -> Result<(), AgentError> {
    ask(vendor.model(settings)?).await
}

async fn ask(model: impl Model) -> Result<(), AgentError> {
    let request = ModelRequest {
        prompt: Arc::new(Prompt::new(Vec::new(), Vec::new())),
        appended_messages: Vec::new(),
        tools: Arc::new([]),
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    };
    let payload = model.prepare(&request)?;
    model.start(payload).await.map(drop)
}

#[tokio::test]
async fn the_operators_key_goes_to_the_operators_url_alone() {
    // Settings' base URL, settings' key; request seen by the operator's server, and by another server.
    type Case<'a> = (&'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);
    let cases: [Case<'_>; 14] = [
        ("-", None, Some("/v1/chat/completions Bearer sk-op"), None),
        ("-", Some(""), Some("/v1/chat/completions Bearer sk-op"), None),
        ("-", Some("sk-role"), Some("/v1/chat/completions Bearer sk-role"), None),
        ("", None, Some("/v1/chat/completions Bearer sk-op"), None),
        (" ", Some("sk-role"), Some("/v1/chat/completions Bearer sk-role"), None),
        ("http://OWN/v1/", None, Some("/v1/chat/completions Bearer sk-op"), None),
        (" http://OWN/v1/eu ", None, Some("/v1/eu/chat/completions Bearer sk-op"), None),
        // Another path of the same origin may be another party's.
        ("http://OWN/v2", None, Some("/v2/chat/completions -"), None),
        ("HTTP://OWN", Some("sk-role"), Some("/chat/completions Bearer sk-role"), None),
        ("http://OTHER/v1", None, None, Some("/v1/chat/completions -")),
        ("http://OTHER/v1", Some(""), None, Some("/v1/chat/completions -")),
        ("http://OTHER/v1", Some("sk-role"), None, Some("/v1/chat/completions Bearer sk-role")),
        // The same machine under another name is another origin, and text before an `@` is not a host.
        ("http://localhost:PORT/v1", None, Some("/v1/chat/completions -"), None),
        ("http://OTHER\\@OWN/v1", None, None, Some("/@OWN/v1/chat/completions -")),
    ];
    for (base_url, key, own_sees, other_sees) in cases {
        let (operator_server, other) = (server().await, server().await);
        let authority = |server: &LoopbackServer| server.url.authority().to_owned();
        let port = operator_server.url.port().expect("a port").to_string();
        let fill = |text: &str| {
            text.replace("OWN", &authority(&operator_server))
                .replace("OTHER", &authority(&other))
                .replace("PORT", &port)
        };
        let address = fill(base_url);
        let key = key.map(Secret::new);
        let settings = HostedSettings {
            base_url: (base_url != "-").then_some(address.as_str()),
            api_key: key.as_ref(),
            ..HostedSettings::default()
        };
        let vendor = vendor(&operator_server.url, Some("sk-op"), "127.0.0.1, localhost");
        call(&vendor, settings).await.expect("the answer has begun");
        assert_eq!(operator_server.paths_and_authorizations(), own_sees.map(fill).as_slice(), "{address}");
        assert_eq!(other.paths_and_authorizations(), other_sees.map(fill).as_slice(), "{address}");
    }
}

#[tokio::test]
async fn the_operators_address_needs_no_allowance_and_a_supplied_one_does() {
    let (operator_server, other) = (server().await, server().await);
    let vendor = vendor(&operator_server.url, Some("sk-op"), "");
    call(&vendor, HostedSettings::default()).await.expect("the operator's own");
    let supplied = HostedSettings { base_url: Some(other.url.as_str()), ..HostedSettings::default() };
    assert_eq!(call(&vendor, supplied).await.expect_err("not allowed").kind(), AgentErrorKind::Blocked);
    assert!(other.paths_and_authorizations().is_empty());
    let user = format!("http://user:word@{}/v1", operator_server.url.authority());
    let with_user = HostedSettings { base_url: Some(&user), ..HostedSettings::default() };
    assert_eq!(call(&vendor, with_user).await.expect_err("user info").kind(), AgentErrorKind::Blocked);
    assert_eq!(operator_server.paths_and_authorizations().len(), 1);
}

#[tokio::test]
async fn ollama_is_asked_where_it_is_and_with_the_key_that_was_brought() {
    let (operator_server, other) = (server().await, server().await);
    let ollama = ollama_server(Some(&operator_server.url), Some("default"), "");
    ask(ollama.model(HostedSettings::default()).expect("a model")).await.expect("the operator's own");
    let key = Secret::new("sk-role");
    let with_key = HostedSettings { api_key: Some(&key), ..HostedSettings::default() };
    ask(ollama.model(with_key).expect("a model")).await.expect("the operator's own");
    assert_eq!(operator_server.paths_and_authorizations(), ["/v1/api/chat -", "/v1/api/chat Bearer sk-role"]);
    let supplied = HostedSettings { base_url: Some(other.url.as_str()), ..HostedSettings::default() };
    let refused = ask(ollama.model(supplied.clone()).expect("a model")).await.expect_err("not allowed");
    assert_eq!(refused.kind(), AgentErrorKind::Blocked);
    assert!(other.paths_and_authorizations().is_empty());
    let open = ollama_server(Some(&operator_server.url), Some("default"), "127.0.0.1");
    ask(open.model(supplied).expect("a model")).await.expect("allowed");
    assert_eq!(other.paths_and_authorizations(), ["/v1/api/chat -"]);
}

#[test]
fn missing_ollama_settings_are_named() {
    let operator_url = Url::parse("http://127.0.0.1:11434").expect("an address");
    let other = Some("http://ollama.example:11434");
    // Operator's base URL and model, settings' base URL and model; the selected model, or the missing setting.
    type Case<'a> =
        (Option<&'a Url>, Option<&'a str>, Option<&'a str>, Option<&'a str>, Result<&'a str, &'a str>);
    let cases: [Case<'_>; 8] = [
        (Some(&operator_url), Some("a"), None, None, Ok("a")),
        (Some(&operator_url), Some("a"), None, Some(" b "), Ok("b")),
        (Some(&operator_url), Some("a"), Some(" "), Some(" "), Ok("a")),
        (Some(&operator_url), None, None, None, Err("OLLAMA_MODEL is not configured")),
        (None, Some("a"), None, None, Err("OLLAMA_BASE_URL is not configured")),
        (None, None, other, Some("b"), Ok("b")),
        (None, Some("a"), other, None, Ok("a")),
        (None, None, other, None, Err("OLLAMA_MODEL is not configured")),
    ];
    for (base, default, base_url, model, expected) in cases {
        let settings = HostedSettings { model, base_url, ..HostedSettings::default() };
        let model_result = ollama_server(base, default, "").model(settings.clone());
        let model_result =
            model_result.map(|model| model.info().model).map_err(|failure| failure.message().to_owned());
        assert_eq!(model_result, expected.map(str::to_owned).map_err(str::to_owned), "{settings:?}");
    }
}

#[test]
fn missing_and_invalid_settings_are_named() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let key = Secret::new("sk-role");
    let refused = |vendor: &HostedVendor, base_url: Option<&str>, key: Option<&Secret>| {
        let settings = HostedSettings { base_url, api_key: key, ..HostedSettings::default() };
        vendor.model(settings).err().map(|failure| (failure.kind(), failure.message().to_owned()))
    };
    let keyless = vendor(&operator_url, None, "");
    let missing = Some((AgentErrorKind::NotConfigured, "OPENAI_API_KEY is not configured".to_owned()));
    assert_eq!(refused(&keyless, None, None), missing);
    assert_eq!(refused(&keyless, Some("https://api.example.com/v1/eu"), None), missing);
    assert_eq!(refused(&keyless, Some("https://api.example.com/v2"), None), None);
    assert_eq!(refused(&keyless, None, Some(&Secret::new(""))), missing);
    assert_eq!(refused(&keyless, None, Some(&key)), None);
    assert_eq!(refused(&keyless, Some("https://other.example.com"), None), None);
    let open = HostedVendor { needs_key: false, ..keyless.clone() };
    assert_eq!(refused(&open, None, None), None);
    for address in ["api.example.com", "http://", "mailto:ada@example.com", "/v1?key=secret"] {
        let (kind, message) = refused(&keyless, Some(address), Some(&key)).expect("no address");
        assert_eq!(kind, AgentErrorKind::InvalidRequest, "{address}");
        assert!(!message.contains("secret") && !message.contains("ada"), "{message}");
    }
}

#[test]
fn a_blank_model_means_the_operators_model() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let vendor = vendor(&operator_url, Some("sk-op"), "");
    for (model, expected) in [(None, "default"), (Some(" "), "default"), (Some(" m-1 "), "m-1")] {
        let settings = HostedSettings { model, ..HostedSettings::default() };
        assert_eq!(vendor.model(settings).expect("a model").info().model, expected);
    }
}

#[test]
fn without_a_model_the_error_names_what_sets_one() {
    let url = Url::parse("https://api.example.com/v1").expect("an address");
    let models = EmbeddedModels {
        hosted: vendor(&url, None, ""),
        anthropic: vendor(&url, None, ""),
        ollama: ollama_server(None, None, ""),
        prefers_ollama: false,
        local: None,
    };
    let error = models.model(&EmbeddedAi::default()).err().expect("no model").to_string();
    for name in
        ["set OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_BASE_URL", "EMBEDDED_MODEL_PATH", "model pull"]
    {
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn embedded_containers_get_the_model_that_they_ask_for() {
    use AgentErrorKind::*;
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let other = Some("https://other.example.com/v1");
    let (hosted, ollama, local) = (Ok("openai"), Ok("ollama"), Ok("scripted"));
    let (responses, anthropic) = (Ok("openai-responses"), Ok("anthropic"));
    let none = Err(NotConfigured);
    // Provider, base URL, key; outcomes with the operator's key, with Anthropic's key alone, with Ollama and no key, with
    // an in-process model only, and with nothing configured.
    type Outcome = Result<&'static str, AgentErrorKind>;
    type Case<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>, [Outcome; 5]);
    let cases: [Case<'_>; 24] = [
        (None, None, None, [hosted, anthropic, ollama, local, none]),
        (Some(""), None, None, [hosted, anthropic, ollama, local, none]),
        (Some(" auto "), None, None, [hosted, anthropic, ollama, local, none]),
        (Some("auto"), Some(" "), Some(""), [hosted, anthropic, ollama, local, none]),
        (Some("auto"), other, None, [hosted; 5]),
        (Some("auto"), None, Some("sk-role"), [hosted; 5]),
        (Some("local"), None, None, [local, local, local, local, none]),
        (Some("local"), other, Some("sk-role"), [local, local, local, local, none]),
        (Some("openai"), None, None, [hosted, none, none, none, none]),
        (Some("openai"), None, Some("sk-role"), [hosted; 5]),
        (Some("openai"), other, None, [hosted; 5]),
        (Some("openai"), Some("nowhere"), None, [Err(InvalidRequest); 5]),
        (Some("openai-responses"), None, None, [responses, none, none, none, none]),
        (Some("openai-responses"), None, Some("sk-role"), [responses; 5]),
        (Some("openai-responses"), other, None, [responses; 5]),
        (Some("openai-responses"), Some("nowhere"), None, [Err(InvalidRequest); 5]),
        (Some("anthropic"), None, None, [anthropic, anthropic, none, none, none]),
        (Some("anthropic"), None, Some("sk-role"), [anthropic; 5]),
        (Some("anthropic"), other, None, [anthropic; 5]),
        (Some("anthropic"), Some("nowhere"), None, [Err(InvalidRequest); 5]),
        (Some("ollama"), None, None, [ollama, ollama, ollama, none, none]),
        (Some("ollama"), other, Some("sk-role"), [ollama; 5]),
        (Some("ollama"), Some("nowhere"), None, [Err(InvalidRequest); 5]),
        (Some("abacus"), None, None, [Err(UnknownProvider); 5]),
    ];
    for (provider, base_url, key, expected) in cases {
        let settings = EmbeddedAi {
            provider: provider.map(str::to_owned),
            model: Some("m".to_owned()),
            base_url: base_url.map(str::to_owned),
            api_key: key.map(Secret::new),
            ..EmbeddedAi::default()
        };
        // Operator's key, Anthropic's key, Ollama, in-process model.
        let set_ups = [
            (true, true, true, true),
            (false, true, true, true),
            (false, false, true, true),
            (false, false, false, true),
            (false, false, false, false),
        ];
        for ((operators, anthropics, there, here), expected) in set_ups.into_iter().zip(expected) {
            let models = EmbeddedModels {
                hosted: vendor(&operator_url, operators.then_some("sk-op"), ""),
                anthropic: vendor(&operator_url, anthropics.then_some("sk-ant"), ""),
                ollama: ollama_server(there.then_some(&operator_url), Some("default"), ""),
                prefers_ollama: there,
                local: here.then(|| Arc::new(ScriptedModel::repeating("")) as Arc<dyn Model>),
            };
            let model = models.model(&settings);
            let found = model.as_ref().map(|model| model.info().provider).map_err(|failure| failure.kind());
            let case =
                format!("{settings:?}, keys {operators} {anthropics}, Ollama {there}, model here {here}");
            assert_eq!(found, expected.map(str::to_owned), "{case}");
            if let Ok(expected) = expected {
                let expected = if expected == "scripted" { "local" } else { expected };
                assert_eq!(models.names(&settings).0, expected, "{case}");
            }
        }
    }
}

#[test]
fn an_unknown_provider_is_refused_with_the_choices() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let ollama = ollama_server(None, None, "");
    let hosted = vendor(&operator_url, None, "");
    let models =
        EmbeddedModels { anthropic: hosted.clone(), hosted, ollama, prefers_ollama: false, local: None };
    let settings = EmbeddedAi { provider: Some("abacus".into()), ..EmbeddedAi::default() };
    let failure = models.model(&settings).err().expect("unknown");
    assert_eq!(
        failure.message(),
        "EmbeddedAI.provider \"abacus\" is unknown; expected one of auto, anthropic, local, openai, openai-responses, ollama, or a provider of the company"
    );
}

/// Returns the request of a model, as JSON.
fn body_of(model: &dyn Model) -> Value {
    let payload = model.prepare(&harness::request()).expect("a request");
    serde_json::from_slice(&payload.into_bytes()).expect("JSON")
}

#[test]
fn parameters_are_sent_in_the_words_of_each_api() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let models = EmbeddedModels {
        hosted: vendor(&operator_url, Some("sk-op"), ""),
        anthropic: vendor(&operator_url, Some("sk-op"), ""),
        ollama: ollama_server(Some(&operator_url), None, ""),
        prefers_ollama: false,
        local: None,
    };
    let Value::Object(parameters) = json!({"temperature": 0.70, "maxOutputTokens": 500, "topP": 0.9, "topK": 40,
        "presencePenalty": -0.5, "frequencyPenalty": 1, "stopSequences": ["END", "\n\n"], "seed": 7,
        "reasoning": "high", "extraBody": {"service_tier": "flex"}})
    else {
        panic!("an object")
    };
    let body = |provider: &str, model: &str| {
        let settings = EmbeddedAi {
            provider: Some(provider.to_owned()),
            model: Some(model.to_owned()),
            parameters: parameters.clone(),
            ..EmbeddedAi::default()
        };
        body_of(&*models.model(&settings).expect("a model"))
    };
    let common = json!({"temperature": 0.7, "top_p": 0.9, "presence_penalty": -0.5, "frequency_penalty": 1,
        "stop": ["END", "\n\n"], "seed": 7});
    let has = |body: &Value, expected: &Value| {
        for (name, value) in expected.as_object().expect("an object") {
            assert_eq!(&body[name], value, "{name} of {body}");
        }
    };
    let chat = body("openai", "house-model");
    has(&chat, &common);
    has(
        &chat,
        &json!({"max_tokens": 500, "reasoning_effort": "high", "service_tier": "flex", "top_k": null}),
    );
    // A model that reasons refuses to be sampled otherwise.
    let reasoning = body("openai", "gpt-5-mini");
    has(
        &reasoning,
        &json!({"temperature": null, "top_p": null, "stop": null, "seed": 7, "reasoning_effort": "high"}),
    );
    has(&body("openai", "gpt-4o"), &json!({"temperature": 0.7, "reasoning_effort": null}));
    let responses = body("openai-responses", "house-model");
    has(
        &responses,
        &json!({"temperature": 0.7, "top_p": 0.9, "max_output_tokens": 500, "stop": null, "seed": null,
        "reasoning": {"effort": "high", "summary": "auto"}, "service_tier": "flex"}),
    );
    let ollama = body("ollama", "qwen3");
    has(&ollama["options"], &common);
    has(&ollama["options"], &json!({"num_predict": 500, "num_ctx": 8192, "top_k": 40}));
    has(&ollama, &json!({"think": true, "service_tier": "flex"}));
    has(&body("ollama", "gpt-oss:20b"), &json!({"think": "high"}));
    // A model that thinks, too.
    let thinking = body("anthropic", "claude-opus-4-6");
    has(
        &thinking,
        &json!({"max_tokens": 500, "temperature": null, "stop_sequences": ["END", "\n\n"],
        "output_config": {"effort": "high"}, "service_tier": "flex", "seed": null}),
    );
    has(
        &body("anthropic", "claude-3-haiku-20240307"),
        &json!({"temperature": 0.7, "top_p": 0.9, "top_k": 40}),
    );
}

#[test]
fn a_level_that_the_model_does_not_have_is_the_nearest_one() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let models = EmbeddedModels {
        hosted: vendor(&operator_url, Some("sk-op"), ""),
        anthropic: vendor(&operator_url, Some("sk-op"), ""),
        ollama: ollama_server(Some(&operator_url), None, ""),
        prefers_ollama: false,
        local: None,
    };
    for (provider, model, level, path, sent) in [
        ("openai", "gpt-5", "xhigh", "/reasoning_effort", json!("high")),
        ("openai", "gpt-5", "minimal", "/reasoning_effort", json!("minimal")),
        ("openai", "gpt-5.1", "minimal", "/reasoning_effort", json!("low")),
        ("openai", "openai/gpt-5.2", "xhigh", "/reasoning_effort", json!("xhigh")),
        ("openai", "o3", "minimal", "/reasoning_effort", json!("low")),
        ("openai", "house-model", "minimal", "/reasoning_effort", json!("minimal")),
        // Off is the lowest level.
        ("openai", "gpt-5.1", "none", "/reasoning_effort", json!("none")),
        ("openai", "gpt-5.1-codex", "none", "/reasoning_effort", json!("low")),
        ("openai", "gpt-5.5-pro", "none", "/reasoning_effort", json!("medium")),
        ("openai-responses", "gpt-5.5-pro", "low", "/reasoning/effort", json!("medium")),
        ("openai-responses", "gpt-5.5-pro", "none", "/reasoning/effort", json!("medium")),
        ("openai-responses", "gpt-5.4", "none", "/reasoning/effort", json!("none")),
        ("openai-responses", "gpt-5.4", "minimal", "/reasoning/effort", json!("low")),
        ("anthropic", "claude-opus-5", "xhigh", "/output_config/effort", json!("xhigh")),
        ("anthropic", "claude-opus-4-6", "xhigh", "/output_config/effort", json!("high")),
        ("anthropic", "claude-opus-5", "minimal", "/output_config/effort", json!("low")),
        ("anthropic", "claude-haiku-4-5", "minimal", "/thinking/budget_tokens", json!(2048)),
    ] {
        let Value::Object(parameters) = json!({ "reasoning": level }) else { panic!("an object") };
        let settings = EmbeddedAi {
            provider: Some(provider.to_owned()),
            model: Some(model.to_owned()),
            parameters,
            ..EmbeddedAi::default()
        };
        let body = body_of(&*models.model(&settings).expect("a model"));
        assert_eq!(body.pointer(path), Some(&sent), "{provider} {model} {level}: {body}");
    }
}

#[test]
fn every_hosted_api_has_a_limit_on_the_answer_that_a_budget_can_lower() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let hosted = vendor(&operator_url, Some("sk-op"), "");
    let settings = |model| HostedSettings { model: Some(model), ..HostedSettings::default() };
    let models: [(Box<dyn Model>, &str); 3] = [
        (Box::new(hosted.model(settings("m")).expect("a model")), "max_tokens"),
        (Box::new(hosted.responses_model(settings("m")).expect("a model")), "max_output_tokens"),
        (Box::new(hosted.anthropic_model(settings("m")).expect("a model")), "max_tokens"),
    ];
    for (model, member) in models {
        assert_eq!(body_of(&*model)[member], DEFAULT_MAX_OUTPUT_TOKENS, "{member}");
        let payload = model.prepare(&harness::request()).expect("a request");
        let lowered = payload.with_output_limit(300).expect("a limit").into_bytes();
        let lowered: Value = serde_json::from_slice(&lowered).expect("JSON");
        assert_eq!(lowered[member], 300, "{lowered}");
    }
}

#[test]
fn reasoning_is_switched_off_by_its_level() {
    let operator_url = Url::parse("https://api.example.com/v1").expect("an address");
    let Value::Object(parameters) = json!({"reasoning": "none"}) else { panic!("an object") };
    let settings = |model| HostedSettings {
        model: Some(model),
        parameters: Some(&parameters),
        ..HostedSettings::default()
    };
    let hosted = vendor(&operator_url, Some("sk-op"), "");
    let chat = |model| body_of(&hosted.model(settings(model)).expect("a model"))["reasoning_effort"].clone();
    assert_eq!((chat("gpt-5"), chat("gpt-4o")), (json!("minimal"), Value::Null));
    let responses = body_of(&hosted.responses_model(settings("gpt-5")).expect("a model"));
    assert_eq!(responses["reasoning"], json!({"effort": "low"}));
    let ollama =
        ollama_server(Some(&operator_url), None, "").model(settings("gpt-oss:20b")).expect("a model");
    assert_eq!(body_of(&ollama)["think"], json!(false));
    let Value::Object(wrong) = json!({"topP": 2}) else { panic!("an object") };
    let refused = hosted.model(HostedSettings { parameters: Some(&wrong), ..HostedSettings::default() });
    let refused = refused.expect_err("refused");
    assert_eq!(refused.kind(), AgentErrorKind::InvalidRequest);
    assert_eq!(refused.message(), "parameters.topP must be a number from 0 to 1");
}
