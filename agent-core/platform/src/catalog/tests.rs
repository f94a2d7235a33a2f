use std::num::NonZeroU32;

use serde_json::{Value, json};

use super::*;

/// Limit on the size of the built-in catalogue in bytes.
const MAX_BUILT_IN_BYTES: usize = 60_000;

fn catalog(models: &Value) -> Catalog {
    let file = json!({"asOf": "2026-02-03", "models": models}).to_string();
    Catalog::default().merged(&file).expect("a catalogue")
}

fn window(catalog: &Catalog, provider: &str, model: &str) -> Option<u32> {
    catalog.model_with_window(provider, model)?.context_window.map(NonZeroU32::get)
}

#[test]
fn the_built_in_catalogue_is_small_and_complete() {
    assert!(BUILT_IN.len() <= MAX_BUILT_IN_BYTES, "{} bytes", BUILT_IN.len());
    let file: Value = serde_json::from_str(BUILT_IN).expect("JSON");
    assert!(file["source"].as_str().is_some_and(|source| source.contains("licence")), "{file}");
    let catalog = Catalog::built_in();
    assert_eq!(file["asOf"], catalog.as_of().to_string());
    let models: Vec<&CatalogModel> = catalog.models().collect();
    assert!((150..=300).contains(&models.len()), "{}", models.len());
    for provider in ["openai", "anthropic", "google", "mistral", "deepseek", "xai", "groq"] {
        assert!(models.iter().any(|model| model.provider == provider), "{provider}");
    }
    for model in models {
        let (window, output) = (model.context_window.expect("a window"), model.max_output_tokens);
        assert!(window.get() >= 4_096 && output.expect("a limit").get() >= 1_024, "{model:?}");
        assert_eq!(model.input.as_ref().and_then(|input| input.first()), Some(&InputModality::Text));
        assert!(model.tools.is_some() && model.structured.is_some() && model.reasoning.is_some());
        let price = model.price.as_ref().expect("a price");
        assert!(price.prices.cached_input <= price.prices.input, "{model:?}");
        assert_eq!(price.as_of, catalog.as_of().to_string());
        assert_eq!(catalog.model_with_window(&model.provider, &model.model), Some(model));
    }
    for free in ["local", "ollama", "subscription"] {
        let price = catalog.price(free, "any").expect("a price");
        assert_eq!((price.prices.input, price.prices.output), (NanoUsd::ZERO, NanoUsd::ZERO));
    }
}

#[test]
fn a_model_is_found_by_its_provider_its_name_and_its_undated_name() {
    let catalog = catalog(&json!([
        {"provider": "openai", "model": "gpt-5", "contextWindow": 100},
        {"provider": "openai", "model": "priced", "prices": {"input": "1", "output": "2"}},
        {"provider": "groq", "model": "openai/oss", "contextWindow": 200},
        {"provider": "mistral", "model": "gpt-5", "contextWindow": 300},
        {"provider": "mistral", "model": "large-2512", "contextWindow": 400},
        {"provider": "mistral", "model": "priced", "contextWindow": 500},
        {"provider": "ollama", "model": "small", "contextWindow": 600},
        {"provider": "mistral", "model": "*", "contextWindow": 700},
        {"provider": "openai", "model": "MixedCase", "contextWindow": 800},
    ]));
    for (provider, model, expected) in [
        ("openai", "gpt-5", Some(100)),
        ("openai", "gpt-5-2025-08-07", Some(100)),
        ("openai-responses", "gpt-5-20250807", Some(100)),
        ("mistral", "gpt-5", Some(300)),
        ("subscription", "gpt-5", Some(100)),
        ("auto", "openai/gpt-5-2025-08-07", Some(100)),
        ("openai", "openai/oss", Some(200)),
        ("openai", "large-2512", Some(400)),
        ("openai", "mistralai/large-2512", Some(400)),
        ("openai", "priced", Some(500)),
        ("ollama", "small", Some(600)),
        ("ollama", "gpt-5", None),
        ("openai", "small", None),
        ("openai", "gpt-5-mini", None),
        ("openai", "GPT-5", Some(100)),
        ("openai", "GPT-5-2025-08-07", Some(100)),
        ("openai-responses", "GPT-5", Some(100)),
        ("mistral", "GPT-5", Some(300)),
        ("auto", "OpenAI/GPT-5", Some(100)),
        ("openai", "MixedCase", Some(800)),
        ("openai", "mixedcase", None),
        ("ollama", "Small", Some(600)),
        ("ollama", "GPT-5", None),
        ("openai", "", None),
        ("openai", "/", None),
        ("openai", "gpt-5/", None),
        ("mistral", "another", None),
    ] {
        assert_eq!(window(&catalog, provider, model), expected, "{provider} {model}");
        let is_self_described = provider == "ollama";
        assert_eq!(
            catalog.is_known(provider, model),
            expected.is_some() || is_self_described,
            "{provider} {model}"
        );
    }
    assert!(catalog.is_known("local", "weights"));
}

#[test]
fn a_file_replaces_the_members_that_it_has() {
    let file = json!({"asOf": "2031-01-02", "models": [
        {"provider": "openai", "model": "gpt-4o", "prices": {"input": "7", "output": "8"}, "later": 1},
        {"provider": "openai", "model": "gpt-4.1", "contextWindow": 32_768, "maxOutputTokens": 1_000, "input": ["text"],
            "tools": false, "structured": "object", "reasoning": ["default", "xhigh"]},
        {"provider": "acme", "model": "new"},
    ]});
    let built_in = Catalog::built_in();
    let merged = (*built_in).clone().merged(&file.to_string()).expect("merged");
    assert_eq!(merged.as_of().to_string(), "2031-01-02");
    let priced = merged.model_with_window("openai", "gpt-4o").expect("a model");
    let before = built_in.model_with_window("openai", "gpt-4o").expect("a model");
    let price = priced.price.clone().expect("a price");
    assert_eq!((price.as_of.as_str(), price.prices.input), ("2031-01-02", NanoUsd::parse("7").expect("7")));
    assert_eq!(*priced, CatalogModel { price: priced.price.clone(), ..before.clone() });
    let written = json!(merged.model_with_window("openai", "gpt-4.1").expect("a model"));
    assert_eq!(
        written,
        json!({"provider": "openai", "model": "gpt-4.1", "contextWindow": 32_768, "maxOutputTokens": 1_000,
            "input": ["text"], "tools": false, "structured": "object", "reasoning": ["default", "xhigh"],
            "prices": {"input": "2", "cachedInput": "0.5", "cacheWrite": "2", "output": "8",
                "asOf": built_in.as_of().to_string()}})
    );
    assert_eq!(merged.models().count(), built_in.models().count() + 1);
    assert!(!merged.is_known("acme", "new"));
    let older = json!({"asOf": "1999-01-02", "models": []});
    assert_eq!(merged.merged(&older.to_string()).expect("merged").as_of().to_string(), "2031-01-02");
}

#[test]
fn a_malformed_file_is_refused() {
    let model = |members: &str| {
        format!(r#"{{"asOf":"2026-02-03","models":[{{"provider":"p","model":"m",{members}}}]}}"#)
    };
    for wrong in [
        model(r#""contextWindow":0"#),
        model(r#""contextWindow":-1"#),
        model(r#""contextWindow":4294967296"#),
        model(r#""maxOutputTokens":"8""#),
        model(r#""input":["smell"]"#),
        model(r#""structured":"yaml""#),
        model(r#""reasoning":["max"]"#),
        model(r#""prices":{"input":"1e400","output":"8"}"#),
        model(r#""prices":{"input":"-1","output":"8"}"#),
        model(r#""prices":{"input":"10000.1","output":"8"}"#),
        model(r#""prices":{"input":1,"output":8}"#),
        model(r#""prices":{"input":"1"}"#),
        model(r#""prices":{"input":"1","output":"1","cached":"1"}"#),
        r#"{"asOf":"2026-02-03","models":[{"model":"m"}]}"#.to_owned(),
        r#"{"asOf":"today","models":[]}"#.to_owned(),
        r#"{"models":[]}"#.to_owned(),
        " ".repeat(file::MAX_FILE_BYTES + 1),
    ] {
        let shown = wrong.chars().take(200).collect::<String>();
        assert!(Catalog::default().merged(&wrong).is_err(), "{shown}");
    }
    assert!(Catalog::default().merged(&model(r#""contextWindow":1"#)).is_ok());
}
