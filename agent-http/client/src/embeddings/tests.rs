//! Both clients against a double of the vendor that answers rightly, or wrongly in one way.

use std::sync::Arc;
use std::time::Duration;

use agent_core::conformance::Scenario;
use agent_core::secret::Secret;
use agent_retrieval::conformance::{EmbedderSubject, embedder as conformance};
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder};
use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};
use crate::secret::BoundSecret;

/// Number of components of the double's vectors.
const DIMENSIONS: usize = 16;
const TEXT: &str = "text that is nobody's business";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    OpenAi,
    Ollama,
}

const APIS: [Api; 2] = [Api::OpenAi, Api::Ollama];

/// Returns a vector of a text that differs from the vectors of other texts.
fn vector(text: &str, dimensions: usize) -> Vec<f64> {
    let mut vector = vec![0.01; dimensions];
    for (position, byte) in text.bytes().enumerate() {
        vector[(usize::from(byte) + position) % dimensions] += 1.0;
    }
    vector
}

fn body_of(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").expect("a head").1).expect("a JSON body")
}

fn texts_of(request: &str) -> Vec<String> {
    serde_json::from_value(body_of(request)["input"].clone()).expect("a list of texts")
}

impl Api {
    /// Returns the body of an answer with these vectors.
    fn answer(self, vectors: &[Vec<f64>]) -> Value {
        match self {
            // The vendor's order is its own; the index counts.
            Self::OpenAi => {
                let entry =
                    |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
                let data: Vec<Value> = vectors.iter().enumerate().rev().map(entry).collect();
                json!({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}})
            }
            Self::Ollama => json!({"model": "m", "embeddings": vectors, "total_duration": 1}),
        }
    }

    fn right_answer(self, request: &str) -> Value {
        let vectors: Vec<_> = texts_of(request).iter().map(|text| vector(text, DIMENSIONS)).collect();
        self.answer(&vectors)
    }

    fn client(self, server: EmbeddingServer) -> Arc<dyn Embedder> {
        match self {
            Self::OpenAi => Arc::new(server.openai().expect("a client")),
            Self::Ollama => Arc::new(server.ollama().expect("a client")),
        }
    }
}

fn settings(url: &Url) -> EmbeddingServer {
    EmbeddingServer::new(outbound_client(""), url.clone(), "m")
}

fn ok(body: &str) -> Vec<u8> {
    chunked_response("200 OK", "application/json", body.as_bytes(), 4096, true)
}

async fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> LoopbackServer {
    LoopbackServer::respond_by(answer, AfterResponse::Close).await
}

/// Embeds two texts at a server that sends this response.
async fn embed_at(api: Api, answer: Vec<u8>) -> Result<usize, EmbedError> {
    let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
    let embedded = api.client(settings(&server.url)).embed(&[TEXT, "b"], EmbedRole::Document).await;
    embedded.map(|embeddings| embeddings.len())
}

#[tokio::test]
async fn the_clients_keep_the_contract() {
    for api in APIS {
        conformance(async |scenario| {
            let right = move |request: &str| api.right_answer(request).to_string();
            let cut = move |request: &str| {
                let body = right(request);
                chunked_response("200 OK", "application/json", &body.as_bytes()[..body.len() / 2], 64, false)
            };
            let server = match scenario {
                Scenario::Completes => answering(move |request| ok(&right(request))).await,
                Scenario::Hangs => LoopbackServer::respond_by(cut, AfterResponse::Hold).await,
                Scenario::Truncates => answering(cut).await,
                Scenario::Rejects => {
                    // A vendor that repeats the text.
                    let answer = |request: &str| {
                        let message = texts_of(request).concat();
                        let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
                        let body = body.to_string();
                        chunked_response("400 Bad Request", "application/json", body.as_bytes(), 64, true)
                    };
                    answering(answer).await
                }
                _ => return None,
            };
            let open = Box::new(server.open());
            // The suite asks for nothing else, and the server must live as long as the subject.
            let embedder =
                Arc::new(WithServer { embedder: api.client(settings(&server.url)), _server: server });
            Some(EmbedderSubject { embedder, open: Some(open) })
        })
        .await;
    }
}

struct WithServer {
    embedder: Arc<dyn Embedder>,
    _server: LoopbackServer,
}

#[async_trait::async_trait]
impl Embedder for WithServer {
    fn id(&self) -> &agent_retrieval::embed::EmbedderId {
        self.embedder.id()
    }

    fn max_batch(&self) -> usize {
        self.embedder.max_batch()
    }

    async fn embed(
        &self,
        texts: &[&str],
        role: EmbedRole,
    ) -> Result<agent_retrieval::embed::Embeddings, EmbedError> {
        self.embedder.embed(texts, role).await
    }
}

#[tokio::test]
async fn requests_have_the_form_of_the_api() {
    let cases = [
        (Api::OpenAi, None, json!({"model": "m", "input": ["a", "b"], "encoding_format": "float"})),
        (
            Api::OpenAi,
            Some(16),
            json!({"model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": 16}),
        ),
        (Api::Ollama, None, json!({"model": "m", "input": ["a", "b"], "truncate": false})),
        (
            Api::Ollama,
            Some(16),
            json!({"model": "m", "input": ["a", "b"], "truncate": false, "dimensions": 16}),
        ),
    ];
    for (api, dimensions, body) in cases {
        let server = answering(move |request| ok(&api.right_answer(request).to_string())).await;
        let client = api.client(EmbeddingServer { dimensions, ..settings(&server.url) });
        let embeddings = client.embed(&["a", "b"], EmbedRole::Document).await.expect("vectors");
        assert_eq!((embeddings.len(), embeddings.dimensions()), (2, DIMENSIONS));
        let requests = server.requests();
        let path = if api == Api::OpenAi { "/v1/embeddings" } else { "/v1/api/embed" };
        assert!(requests[0].starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", requests[0]);
        assert_eq!(body_of(&requests[0]), body);
    }
    let id = |api: Api, model: &str, dimensions| {
        let server = settings(&Url::parse("http://127.0.0.1/").unwrap());
        let client = api.client(EmbeddingServer { model: model.into(), dimensions, ..server });
        client.id().to_string()
    };
    assert_eq!(id(Api::OpenAi, "m", None), "openai/m");
    assert_eq!(id(Api::OpenAi, "m", Some(16)), "openai/m;dimensions=16");
    let nomic = "ollama/nomic-embed-text;query=\"search_query: \";document=\"search_document: \"";
    assert_eq!(id(Api::Ollama, "nomic-embed-text", None), nomic);
}

#[tokio::test]
async fn models_with_prefixes_get_them_by_role() {
    let server = answering(|request| ok(&Api::Ollama.right_answer(request).to_string())).await;
    let client =
        Api::Ollama.client(EmbeddingServer { model: "nomic-embed-text".into(), ..settings(&server.url) });
    for role in [EmbedRole::Query, EmbedRole::Document] {
        client.embed(&["a"], role).await.expect("a vector");
    }
    let sent: Vec<_> = server.requests().iter().map(|request| texts_of(request).concat()).collect();
    assert_eq!(sent, ["search_query: a", "search_document: a"]);
}

#[tokio::test]
async fn the_key_is_sent_only_to_its_own_url() {
    let server = answering(|request| ok(&Api::OpenAi.right_answer(request).to_string())).await;
    let elsewhere = Url::parse("https://api.example.com/v1").unwrap();
    for (bound_to, sent) in [(&server.url, true), (&elsewhere, false)] {
        let key = Some(BoundSecret::new(bound_to, Secret::new("sk-embed")));
        let client = Api::OpenAi.client(EmbeddingServer { key, ..settings(&server.url) });
        client.embed(&["a"], EmbedRole::Query).await.expect("a vector");
        let request = server.requests().pop().expect("a request");
        assert_eq!(request.contains("authorization: Bearer sk-embed\r\n"), sent, "{bound_to}");
    }
}

#[tokio::test]
async fn large_texts_are_sent_in_several_requests() {
    let server = answering(|request| ok(&Api::OpenAi.right_answer(request).to_string())).await;
    let client = Api::OpenAi.client(settings(&server.url));
    let texts: Vec<String> = ["a", "b", "c", "d"].iter().map(|text| text.repeat(100_000)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let embeddings = client.embed(&texts, EmbedRole::Document).await.expect("vectors");
    assert_eq!(embeddings.len(), 4);
    let sizes: Vec<_> = server.requests().iter().map(|request| texts_of(request).len()).collect();
    assert_eq!(sizes, [2, 2]);
    let too_long = "x".repeat(300_000);
    let refused = client.embed(&[&too_long], EmbedRole::Document).await;
    assert_eq!(refused, Err(EmbedError::Rejected("a text of 300000 bytes, of which 262144 are sent".into())));
    assert_eq!(server.requests().len(), 2);
}

/// Returns the message of an invalid answer.
fn invalid(result: Result<usize, EmbedError>) -> String {
    match result {
        Err(EmbedError::InvalidAnswer(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn wrong_vectors_are_invalid_answers() {
    let right = || vec![1.0; DIMENSIONS];
    for api in APIS {
        let at =
            async |vectors: &[Vec<f64>]| invalid(embed_at(api, ok(&api.answer(vectors).to_string())).await);
        let too_many = at(&[right(), right(), right()]).await;
        match api {
            Api::OpenAi => assert_eq!(too_many, "a vector with the index 2 for 2 texts"),
            Api::Ollama => assert_eq!(too_many, "more vectors for 2 texts"),
        }
        let too_few = at(&[right()]).await;
        assert!(["no vector with the index 1", "1 vectors for 2 texts"].contains(&&*too_few), "{too_few}");
        assert_eq!(at(&[right(), vec![1.0]]).await, "a vector of 1 components; 16 were expected");
        assert_eq!(at(&[Vec::new(), Vec::new()]).await, "a vector of 0 components");
        assert_eq!(at(&[right(), vec![0.0; DIMENSIONS]]).await, "all components of a vector are 0");
        // Larger than a component can be; the parser rejects it before the check for finite ones.
        assert_eq!(
            at(&[right(), vec![1e300; DIMENSIONS]]).await,
            "not JSON of the expected form (Syntax error)"
        );
    }
    let entry = |index: Value| json!({"index": index, "embedding": [1.0, 2.0]});
    let at = async |data: Value| invalid(embed_at(Api::OpenAi, ok(&json!({"data": data}).to_string())).await);
    let twice = at(json!([entry(0.into()), entry(0.into())])).await;
    assert_eq!(twice, "two vectors with the index 0");
    for data in [
        json!([{"embedding": [1.0]}, {"embedding": [1.0]}]),
        json!([entry((-1).into()), entry(0.into())]),
        json!([entry("0".into()), entry(1.into())]),
        json!(null),
    ] {
        assert_eq!(at(data).await, "not JSON of the expected form (Data error)");
    }
}

#[tokio::test]
async fn answers_without_valid_vectors_are_invalid() {
    for api in APIS {
        let at = async |body: &str| invalid(embed_at(api, ok(body)).await);
        let not_a_number = api.answer(&[vec![7.5], vec![7.5]]).to_string().replace("7.5", "NaN");
        assert_eq!(at(&not_a_number).await, "not JSON of the expected form (Syntax error)");
        assert_eq!(at("").await, "not JSON of the expected form (Eof error)");
        assert_eq!(at("{}").await, "not JSON of the expected form (Data error)");
        assert!(at("[1e999]").await.starts_with("not JSON of the expected form"));
        let page = chunked_response("200 OK", "text/html; charset=utf-8", b"<html>Sign in</html>", 64, true);
        assert_eq!(invalid(embed_at(api, page).await), "a web page in place of JSON");
        let mut packed =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n".to_vec();
        packed.extend(b"content-length: 2\r\nconnection: close\r\n\r\n{}");
        assert_eq!(invalid(embed_at(api, packed).await), "compressed data in place of JSON");
        let endless = "[".to_owned() + &" ".repeat(1 << 20);
        assert_eq!(invalid(embed_at(api, ok(&endless)).await), "the response exceeds 589824 bytes");
    }
}

#[tokio::test]
async fn statuses_become_typed_errors_without_texts_or_keys() {
    // Status line, whether it is the server or the account that fails, part of the message.
    let cases = [
        ("400 Bad Request", false, "rejected the request (HTTP 400) (type t, code c)"),
        ("401 Unauthorized", true, "rejected the credentials (HTTP 401)"),
        ("403 Forbidden", true, "rejected the credentials (HTTP 403)"),
        ("404 Not Found", true, "rejected the request (HTTP 404)"),
        ("402 Payment Required", true, "HTTP 402"),
        ("413 Content Too Large", false, "HTTP 413"),
        ("422 Unprocessable Content", false, "HTTP 422"),
        ("408 Request Timeout", true, "HTTP 408"),
        ("429 Too Many Requests", true, "is rate limiting requests (HTTP 429)"),
        ("500 Internal Server Error", true, "failed (HTTP 500)"),
        ("503 Service Unavailable", true, "failed (HTTP 503)"),
        ("301 Moved Permanently", true, "redirect"),
    ];
    let body =
        json!({"error": {"message": format!("key sk-embed, {TEXT}"), "type": "t", "code": "c"}}).to_string();
    for api in APIS {
        for (status, is_temporary, expected) in cases {
            let answer =
                chunked_response(status, "application/json\r\nretry-after: 7", body.as_bytes(), 64, true);
            let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
            let key = Some(BoundSecret::new(&server.url, Secret::new("sk-embed")));
            let client = api.client(EmbeddingServer { key, ..settings(&server.url) });
            let error = client.embed(&[TEXT], EmbedRole::Query).await.expect_err(status);
            match &error {
                EmbedError::Unavailable { retry_after, .. } if is_temporary => {
                    assert_eq!(*retry_after, Some(Duration::from_secs(7)), "{status}");
                }
                EmbedError::Rejected(_) if !is_temporary => {}
                other => panic!("{status}: {other:?}"),
            }
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(expected), "{status}: {shown}");
            assert!(
                !shown.contains(TEXT) && !shown.contains("sk-embed") && !shown.contains("127.0.0.1"),
                "{shown}"
            );
        }
        let long = json!({"error": "the input length exceeds the context length"}).to_string();
        let answer = chunked_response("400 Bad Request", "application/json", long.as_bytes(), 64, true);
        let expected = EmbedError::Rejected("a text is longer than the model reads".into());
        assert_eq!(embed_at(api, answer).await, Err(expected));
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable_in_time() {
    let timeout = Duration::from_millis(50);
    let started = chunked_response("200 OK", "application/json", b"{\"data\":[", 64, false);
    for api in APIS {
        for answer in [Vec::new(), started.clone()] {
            let server = LoopbackServer::respond_with(answer, AfterResponse::Hold).await;
            let client = api.client(EmbeddingServer { timeout, ..settings(&server.url) });
            let error = client.embed(&["a"], EmbedRole::Query).await.expect_err("no answer");
            assert!(matches!(error, EmbedError::Unavailable { .. }), "{error:?}");
        }
        let nobody = Url::parse("http://127.0.0.1:1/").unwrap();
        let error =
            api.client(settings(&nobody)).embed(&["a"], EmbedRole::Query).await.expect_err("no server");
        assert!(matches!(error, EmbedError::Unavailable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn dimensions_change_only_after_several_agreeing_answers() {
    for api in APIS {
        let server = answering(move |request| {
            let texts = texts_of(request);
            let dimensions = if texts[0] == "other" { 8 } else { DIMENSIONS };
            ok(&api.answer(&[vector(&texts[0], dimensions)]).to_string())
        })
        .await;
        let client = api.client(settings(&server.url));
        let embed = async |text: &str| client.embed(&[text], EmbedRole::Document).await;
        assert_eq!(embed("first").await.map(|embeddings| embeddings.dimensions()), Ok(DIMENSIONS));
        let expected = EmbedError::InvalidAnswer("a vector of 8 components; 16 were expected".into());
        assert_eq!(embed("other").await, Err(expected.clone()));
        assert!(embed("again").await.is_ok());
        // The server has another model.
        for _ in 0..2 {
            assert_eq!(embed("other").await, Err(expected.clone()));
        }
        assert_eq!(embed("other").await.map(|embeddings| embeddings.dimensions()), Ok(8));
        let asked = api.client(EmbeddingServer { dimensions: Some(DIMENSIONS), ..settings(&server.url) });
        assert_eq!(asked.embed(&["other"], EmbedRole::Document).await, Err(expected));
    }
}
