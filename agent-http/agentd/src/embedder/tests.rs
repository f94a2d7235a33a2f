use std::collections::BTreeMap;

use agent_client::outbound::OutboundConfig;

use super::*;
use crate::config::Flags;

fn selected(settings: &[(&'static str, &str)]) -> Result<Option<String>, String> {
    let env: BTreeMap<&str, &str> = settings.iter().copied().collect();
    let config = AppConfig::load(&Flags::default(), &env).map_err(|error| error.to_string())?;
    let outbound = OutboundClient::new(OutboundConfig::default()).expect("a client");
    let embedder = embedder(&config, &outbound).map_err(|error| error.to_string())?;
    Ok(embedder.map(|embedder| embedder.id().to_string()))
}

#[test]
fn a_chat_key_selects_no_embedder() {
    let chat =
        [("OPENAI_API_KEY", "sk-1"), ("OLLAMA_BASE_URL", "http://127.0.0.1:11434"), ("OLLAMA_MODEL", "m")];
    assert_eq!(selected(&chat), Ok(None));
    let named = [("OPENAI_API_KEY", "sk-1"), ("EMBEDDING_PROVIDER", "openai")];
    let error = selected(&named).expect_err("no key for documents");
    assert_eq!(error, "EMBEDDING_API_KEY is missing: OPENAI_API_KEY is not used for documents");
    // Settings of an embedder do not select one either.
    assert_eq!(selected(&[("EMBEDDING_API_KEY", "sk-1"), ("EMBEDDING_MODEL", "m")]), Ok(None));
}

#[test]
fn providers_are_selected_by_name() {
    let provider = |name| ("EMBEDDING_PROVIDER", name);
    let id = |settings: &[(&'static str, &str)]| selected(settings).map(Option::unwrap_or_default);
    let key = ("EMBEDDING_API_KEY", "sk-1");
    assert_eq!(id(&[provider("openai"), key]), Ok("openai/text-embedding-3-small".into()));
    let embedder_settings = [
        provider("openai"),
        ("EMBEDDING_BASE_URL", "http://127.0.0.1:8080/v1"),
        ("EMBEDDING_MODEL", "bge-m3"),
    ];
    assert_eq!(id(&embedder_settings), Ok("openai/bge-m3".into()));
    let short = [provider("openai"), key, ("EMBEDDING_DIMENSIONS", "512")];
    assert_eq!(id(&short), Ok("openai/text-embedding-3-small;dimensions=512".into()));
    assert_eq!(id(&[provider("ollama"), ("EMBEDDING_MODEL", "bge-m3")]), Ok("ollama/bge-m3".into()));
    let cases = [
        (
            vec![provider("vectors")],
            "EMBEDDING_PROVIDER (environment) must be one of lexical, openai, ollama, local",
        ),
        (vec![provider("ollama")], "EMBEDDING_MODEL is missing: ollama has no default model"),
        (
            vec![provider("local"), ("EMBEDDING_DIMENSIONS", "64")],
            "EMBEDDING_DIMENSIONS (environment) is not a setting of the provider local",
        ),
        (
            vec![provider("openai"), key, ("EMBEDDING_DIMENSIONS", "0")],
            "EMBEDDING_DIMENSIONS (environment) must be a whole number from 1 to 8192",
        ),
    ];
    for (settings, expected) in cases {
        assert_eq!(selected(&settings), Err(expected.to_owned()));
    }
}

#[cfg(not(feature = "embedded"))]
#[test]
fn a_build_without_models_has_no_local_embedder() {
    let error = selected(&[("EMBEDDING_PROVIDER", "local")]).expect_err("no such feature");
    assert_eq!(error, "EMBEDDING_PROVIDER=local needs a build with the feature `embedded`");
}

#[cfg(feature = "embedded")]
mod local {
    use agent_core::conformance::Scenario;
    use agent_embedded::catalog::{self, EmbeddingSpec, Pooling};
    use agent_embedded::{EmbeddingFiles, LocalEmbedder};
    use agent_retrieval::conformance::{EmbedderSubject, embedder as conformance};

    use super::*;
    use crate::weights::InProcessEmbedder;

    #[test]
    fn a_missing_model_is_named_with_its_command() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().expect("a path");
        let local = |model: &str| {
            let settings = [("EMBEDDING_PROVIDER", "local"), ("MODEL_DIR", at), ("EMBEDDING_MODEL", model)];
            selected(&settings).expect_err("no such model")
        };
        let missing = local("granite-embedding-97m-multilingual-r2");
        assert!(
            missing.contains("run `agentd model pull granite-embedding-97m-multilingual-r2`"),
            "{missing}"
        );
        let unknown = local("word2vec");
        assert!(
            unknown.starts_with("there is no embedding model \"word2vec\"; there is granite-embed"),
            "{unknown}"
        );
        assert!(local(catalog::default_model().name).starts_with("there is no embedding model"));
        let default = selected(&[("EMBEDDING_PROVIDER", "local"), ("MODEL_DIR", at)]);
        assert_eq!(default, Err(missing));
    }

    /// Opens a tiny random model of the fixtures of `agent-embedded`.
    fn tiny(name: &str, pooling: Pooling) -> InProcessEmbedder {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent-core/embedded/tests/fixtures");
        let read =
            |file: &str| std::fs::read(format!("{folder}/{name}/{file}")).expect("a file of the fixtures");
        let files = EmbeddingFiles {
            config: read("config.json"),
            tokenizer: read("tokenizer.json"),
            weights: read("model.safetensors"),
        };
        let spec = EmbeddingSpec { dimensions: 16, max_tokens: 32, pooling };
        let model = LocalEmbedder::from_files(spec, files).expect("threads");
        InProcessEmbedder::new(catalog::find("bge-small-en-v1.5").expect("an entry"), model)
    }

    #[tokio::test]
    async fn local_models_keep_the_contract() {
        for (name, pooling) in [("tiny-bert", Pooling::Mean), ("tiny-modernbert", Pooling::First)] {
            conformance(async |scenario| match scenario {
                Scenario::Completes => {
                    Some(EmbedderSubject { embedder: Arc::new(tiny(name, pooling)), open: None })
                }
                _ => None,
            })
            .await;
        }
    }
}
