use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agent_client::models::ModelLimits;
use agent_client::outbound::OutboundConfig;
use agent_core::event::OutputLimits;
use agent_core::secret::Secret;
use agent_core::tool_loop::LoopLimits;
use agent_http::request::BodyLimits;
use agent_http::serve::ServeLimits;
use expect_test::{Expect, expect};

use super::setting::Setting;
use super::table;
use super::*;

type Map<'m> = BTreeMap<&'m str, &'m str>;

fn app(env: &[(&str, &str)]) -> Result<AppConfig, ConfigError> {
    AppConfig::load(&Flags::default(), &env.iter().copied().collect::<Map<'_>>())
}

fn runtime(env: &[(&str, &str)]) -> Result<RuntimeConfig, ConfigError> {
    RuntimeConfig::load(&Flags::default(), &env.iter().copied().collect::<Map<'_>>())
}

/// Temporary file, deleted on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("agent-http-config-{}", uuid::Uuid::now_v7()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the temporary folder's name is Unicode")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn from_file(text: &str, env: &[(&str, &str)]) -> Result<AppConfig, ConfigError> {
    let file = TempFile::new(text);
    let flags = Flags { config: Some(file.0.clone()), ..Flags::default() };
    AppConfig::load(&flags, &env.iter().copied().collect::<Map<'_>>())
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let config = app(&[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:3000");
    assert_eq!(config.server.body.bytes, 1024 * 1024);
    assert_eq!(config.server.json_depth, 64);
    assert_eq!(config.server.stream_idle, Duration::from_secs(120));
    assert_eq!(config.server.tool_loop.max_rounds, 16);
    assert_eq!(config.server.hosted.base_url.as_str(), "https://api.openai.com/v1");
    assert!(config.server.hosted.needs_key && config.server.hosted.api_key.is_none());
    let anthropic = &config.anthropic;
    assert_eq!(anthropic.base_url.as_str(), "https://api.anthropic.com/");
    assert_eq!((anthropic.model.as_str(), anthropic.key_setting), ("claude-haiku-4-5", "ANTHROPIC_API_KEY"));
    assert!(anthropic.needs_key && anthropic.api_key.is_none());
    assert!(config.session_secret.is_none() && config.runtime_url.is_none());
    assert!(!config.coding_unattended, "a subscription is its user's, who must be there");
    let ollama = OllamaConfig { base_url: None, model: None, num_ctx: 8192, preferred: false };
    assert_eq!(config.server.ollama, ollama);
    let runtime = runtime(&[("OLLAMA_BASE_URL", "http://127.0.0.1:11434"), ("OLLAMA_MODEL", "m")]).unwrap();
    assert_eq!(runtime.server.listen.to_string(), "127.0.0.1:3001");
    assert_eq!(runtime.server.ollama, ollama, "a runtime's requests bring both");
}

#[test]
fn ollama_is_preferred_where_address_and_model_are_known() {
    let (url, model) = (("OLLAMA_BASE_URL", "http://127.0.0.1:11434"), ("OLLAMA_MODEL", "m"));
    for (env, expected) in [(vec![url], false), (vec![model], false), (vec![url, model], true)] {
        assert_eq!(app(&env).unwrap().server.ollama.preferred, expected, "{env:?}");
    }
}

/// Checks that the defaults in the table equal the types' `Default`, so that embedding and configuring do not differ.
#[test]
fn defaults_equal_the_defaults_of_the_parts() {
    let server = app(&[]).unwrap().server;
    let (serve, body) = (ServeLimits::default(), BodyLimits::default());
    assert_eq!(format!("{:?}", server.serve), format!("{serve:?}"));
    assert_eq!(format!("{:?}", server.body), format!("{body:?}"));
    assert_eq!(format!("{:?}", server.outbound), format!("{:?}", OutboundConfig::default()));
    assert_eq!(format!("{:?}", server.tool_loop), format!("{:?}", LoopLimits::default()));
    assert_eq!(server.output, OutputLimits::default());
    let limits = ModelLimits::default();
    assert_eq!(
        (server.context_window, server.max_output_tokens),
        (limits.context_window, limits.max_output_tokens)
    );
    assert_eq!(server.json_depth, agent_http::request::MAX_JSON_DEPTH);
}

#[test]
fn every_setting_is_read() {
    let config = app(&[
        ("HOST", " ::1 "),
        ("PORT", "0"),
        ("DATABASE_URL", "sqlite:///var/lib/agentd/app.db"),
        ("DATA_SECRET", "data-secret-0000"),
        ("DATA_SECRET_PREVIOUS", "data-secret-0001"),
        ("PUBLIC_URL", "https://app.example/base/"),
        ("RUNTIME_URL", "http://127.0.0.1:3001"),
        ("SESSION_SECRET", "session-secret-0"),
        ("INTERNAL_SECRET", "internal-secret-0"),
        ("RUNTIME_SECRET", "runtime-secret-00"),
        ("CORS_ORIGIN", "https://a.example, http://localhost:5173"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
        ("OPENAI_API_KEY", "k"),
        ("OPENAI_MODEL", "m"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:8081"),
        ("ANTHROPIC_API_KEY", "k2"),
        ("ANTHROPIC_MODEL", "m2"),
        ("OLLAMA_BASE_URL", "http://127.0.0.1:11434"),
        ("OLLAMA_MODEL", "llama3.2"),
        ("OLLAMA_NUM_CTX", "512"),
        ("EMBEDDED_MODEL_PATH", "/w.gguf"),
        ("MODEL_DIR", "/models"),
        ("OUTBOUND_ALLOW", "127.0.0.1:11434, 10.0.0.0/8"),
        ("BODY_LIMIT_BYTES", "2048"),
        ("HEAD_LIMIT_BYTES", "8192"),
        ("JSON_DEPTH", "9"),
        ("HEADER_TIMEOUT_MS", "1001"),
        ("BODY_IDLE_MS", "1002"),
        ("BODY_TOTAL_MS", "1003"),
        ("WRITE_STALL_MS", "1004"),
        ("STREAM_IDLE_MS", "1005"),
        ("RUN_TIMEOUT_MS", "1006"),
        ("CONNECT_TIMEOUT_MS", "1007"),
        ("RESPONSE_HEADER_TIMEOUT_MS", "1008"),
        ("TOOL_TIMEOUT_MS", "1009"),
        ("TOOL_ROUNDS", "3"),
        ("OUTPUT_LIMIT_BYTES", "1025"),
        ("RUN_OUTPUT_LIMIT_BYTES", "1026"),
        ("CONTEXT_WINDOW", "513"),
        ("MAX_OUTPUT_TOKENS", "7"),
        ("MAX_CONNECTIONS", "17"),
        ("DRAIN_MS", "0"),
        ("LAME_DUCK_MS", "1009"),
        ("CODING_UNATTENDED", "on"),
        ("EXTRACT_TIMEOUT", "5s"),
        ("EXTRACT_MEMORY", "536870912"),
        ("EXTRACT_PROCESSES", "3"),
        ("LOG", "debug"),
        ("LOG_FORMAT", "json"),
    ])
    .unwrap();
    let millis = |duration: Duration| duration.as_millis();
    let server = &config.server;
    assert_eq!(server.listen.to_string(), "[::1]:0");
    assert_eq!(config.database, Database::Sqlite("/var/lib/agentd/app.db".into()));
    assert_eq!(config.data_secret.as_ref().unwrap().expose(), "data-secret-0000");
    assert_eq!(config.data_secret_previous.as_ref().unwrap().expose(), "data-secret-0001");
    assert_eq!(config.public_url.as_ref().unwrap().as_str(), "https://app.example/base/");
    assert_eq!(config.runtime_url.as_ref().unwrap().as_str(), "http://127.0.0.1:3001/");
    assert_eq!(config.session_secret.as_ref().unwrap().expose(), "session-secret-0");
    assert_eq!(config.internal_secret.as_ref().unwrap().expose(), "internal-secret-0");
    assert_eq!(config.runtime_secret.as_ref().unwrap().expose(), "runtime-secret-00");
    assert!(server.origins.contains(&http::HeaderValue::from_static("http://localhost:5173")));
    assert_eq!(server.hosted.base_url.as_str(), "http://127.0.0.1:8080/v1");
    assert_eq!((server.hosted.model.as_str(), server.hosted.needs_key), ("m", false));
    assert_eq!(server.hosted.api_key.as_ref().unwrap().expose(), "k");
    let anthropic = &config.anthropic;
    assert_eq!(anthropic.base_url.as_str(), "http://127.0.0.1:8081/");
    assert_eq!((anthropic.model.as_str(), anthropic.needs_key), ("m2", false));
    assert_eq!(anthropic.api_key.as_ref().unwrap().expose(), "k2");
    assert_eq!(
        server.ollama,
        OllamaConfig {
            base_url: Some(Url::parse("http://127.0.0.1:11434").unwrap()),
            model: Some("llama3.2".to_owned()),
            num_ctx: 512,
            preferred: true,
        }
    );
    assert_eq!(config.embedded_model_path, Some(PathBuf::from("/w.gguf")));
    assert_eq!(config.model_dir, PathBuf::from("/models"));
    assert_eq!(
        server.outbound.allow,
        agent_client::outbound::AllowList::parse("127.0.0.1:11434,10.0.0.0/8").unwrap()
    );
    assert_eq!((server.body.bytes, server.serve.head_bytes, server.json_depth), (2048, 8192, 9));
    assert_eq!(millis(server.serve.head_read), 1001);
    assert_eq!((millis(server.body.idle), millis(server.body.total)), (1002, 1003));
    assert_eq!(millis(server.serve.write_stall), 1004);
    assert_eq!((millis(server.stream_idle), millis(server.run_timeout)), (1005, 1006));
    assert_eq!(millis(server.outbound.connect_timeout), 1007);
    assert_eq!(millis(server.outbound.header_timeout), 1008);
    assert_eq!((millis(server.tool_loop.tool_timeout), server.tool_loop.max_rounds), (1009, 3));
    assert_eq!((server.output.max_answer_bytes, server.output.max_run_bytes), (1025, 1026));
    assert_eq!((server.context_window, server.max_output_tokens), (Some(513), 7));
    assert_eq!((server.serve.connections, millis(server.serve.drain)), (17, 0));
    assert_eq!(millis(server.serve.lame_duck), 1009);
    assert!(config.coding_unattended);
    let extraction =
        ExtractionConfig { timeout: Duration::from_secs(5), memory_bytes: 512 * 1024 * 1024, processes: 3 };
    assert_eq!(config.extraction, extraction);
    assert_eq!(server.log, LogConfig { filter: "debug".to_owned(), json: true });
    assert!(!format!("{config:?}").contains("secret-0"));
}

#[test]
fn the_schedulers_postgres_url_is_never_shown() {
    for url in ["postgres://ada:canary@h:1/db?sslmode=require", " postgresql://ada:canary@h/db "] {
        let env = BTreeMap::from([
            ("PULSE_SECRET", "0123456789abcdef"),
            ("CALLBACK_URL", "http://app/callback"),
            ("DATABASE_URL", url),
        ]);
        let config = SchedulerConfig::load(&Flags::default(), &env).unwrap();
        assert_eq!(config.database, Database::Postgres(Secret::new(url.trim())));
        let printed = ResolvedSettings::new(Service::Scheduler, &Flags::default(), &env).unwrap().print();
        assert!(printed.contains("DATABASE_URL = \"***\""), "{printed}");
        assert!(!format!("{config:?} {printed}").contains("canary"));
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_malformed_postgres_url_is_refused_without_its_text() {
    for (url, expected) in [
        ("postgres:///jobs", "it has no host"),
        (
            "postgres://u:canary?1@host/jobs",
            "it is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            "postgres://u:canary@host:x/jobs",
            "it is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
        (
            "postgresql://u:canary@host/jobs?sslmode=prefer",
            "its sslmode must be disable, require or verify-full",
        ),
        ("postgres://u:canary@host/jobs?pool_mode=statement", "its pool_mode must be session or transaction"),
    ] {
        let error = app(&[("DATABASE_URL", url)]).unwrap_err().to_string();
        let expected =
            format!("DATABASE_URL (environment) cannot be used: the PostgreSQL URL is invalid: {expected}");
        assert!(error.starts_with(&expected), "{url}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
}

#[test]
fn all_faults_are_reported_at_once() {
    let error = app(&[
        ("HOST", "example.com"),
        ("PORT", "65536"),
        ("DATABASE_URL", "mysql://user:sk-1@h/db"),
        ("PUBLIC_URL", "ftp://x"),
        ("PULSE_URL", "scheduler:sk-1"),
        ("EMBEDDING_BASE_URL", "agents.example"),
        ("RUNTIME_URL", "http://user:sk-1@h/"),
        ("SESSION_SECRET", "sk-1"),
        ("INTERNAL_SECRET", "sk-1 sk-1 sk-1 sk-1"),
        ("CORS_ORIGIN", "*"),
        ("OPENAI_BASE_URL", "https://x/v1?key=sk-1"),
        ("OUTBOUND_ALLOW", "a.example,10.0.0.0/40"),
        ("JSON_DEPTH", "many"),
        ("DRAIN_MS", "-1"),
        ("LOG_FORMAT", "xml"),
        ("THREAD_RETENTION", "soon"),
        ("MCP_WORKFLOW_TTL", "0s"),
        ("USAGE_RETENTION", "30m"),
        ("ALLOWED_HOSTS", "agents.example:80"),
    ])
    .unwrap_err();
    assert!(!error.to_string().contains("sk-1"), "{error}");
    expect![[r#"
        HOST (environment) must be an IP address or localhost
        PORT (environment) must be a whole number from 0 to 65535
        DATABASE_URL (environment) must be sqlite:// and a path, such as sqlite://data/app.db, or a postgres:// URL
        PUBLIC_URL (environment) must be an http or https URL, such as https://agents.example
        RUNTIME_URL (environment) must not contain a user name or password
        SESSION_SECRET (environment) must have at least 16 bytes
        INTERNAL_SECRET (environment) must be printable ASCII without blanks
        CORS_ORIGIN (environment) must list exact origins; `*` would let any page use a visitor's session
        OPENAI_BASE_URL (environment) must be a base URL, without query and fragment
        OUTBOUND_ALLOW (environment) has the entry `10.0.0.0/40`, which is not a host, host:port or CIDR: expected a CIDR: an address, a slash and a prefix length
        JSON_DEPTH (environment) must be a whole number from 8 to 100
        MCP_WORKFLOW_TTL (environment) must be a duration from 1s to 1d, such as 30m
        PULSE_URL (environment) must be an http or https URL, such as https://agents.example
        DRAIN_MS (environment) must be a whole number from 0 to 86400000
        LOG_FORMAT (environment) must be one of text, json
        EMBEDDING_BASE_URL (environment) must be an http or https URL, such as https://agents.example
        THREAD_RETENTION (environment) must be a duration from 1s to 36500d, such as 30m
        ALLOWED_HOSTS (environment) must list host names without ports, such as agents.example
        USAGE_RETENTION (environment) must be a duration from 1d to 36500d, such as 30d"#]]
    .assert_eq(&error.to_string());
}

/// `agentd config check` finds it, too: it reads all settings and begins no log.
#[test]
fn a_log_filter_with_a_fault_is_an_error_of_the_settings() {
    for (filter, expected) in [
        ("info,agent_http=loud", Some("error parsing level filter")),
        ("agent_http=info=debug", Some("invalid filter directive")),
        ("agent_http[x", Some("directive 1 is not a level, a target, or a target and its level")),
        ("info,agent_http[turn]=debug", Some("directive 2 is not a level")),
        ("info,agent_http[{run,round}]=debug", Some("directive 2 is not a level")),
        ("verbose", Some("directive 1 is not a level (off, error, warn, info, debug, trace)")),
        ("info,agent_http", Some("directive 2 is not a level (")),
        ("WARN", None),
        ("off", None),
        ("info,", Some("directive 2 is empty")),
        ("info,=debug", Some("directive 2 is empty")),
        ("info,agent_http=debug,agent_client=debug", None),
    ] {
        let env: Map<'_> = [("LOG", filter)].into();
        let error = AppConfig::load(&Flags::default(), &env).err().map(|error| error.to_string());
        let start = "LOG (environment) must be a log filter, such as info,agent_http=debug: ";
        let found = error.as_deref().map(|error| error.strip_prefix(start).unwrap_or(error));
        assert_eq!(found.is_some(), expected.is_some(), "{filter}: {found:?}");
        assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{filter}: {found:?}");
    }
    let env: Map<'_> = [("LOG", "info, agent_http = debug")].into();
    assert!(AppConfig::load(&Flags::default(), &env).is_err(), "no target has blanks within it");
    let env: Map<'_> = [("LOG", "info, agent_http=debug")].into();
    let config = AppConfig::load(&Flags::default(), &env).expect("settings");
    assert_eq!(config.server.log.filter, "info,agent_http=debug");
}

#[test]
fn a_runtime_that_others_reach_asks_for_a_secret() {
    for (env, refused) in [
        (&[("HOST", "127.0.0.1")][..], false),
        (&[("HOST", "localhost")], false),
        (&[("HOST", "::1")], false),
        (&[("HOST", "0.0.0.0")], true),
        (&[("HOST", "::")], true),
        (&[("HOST", "192.168.0.1")], true),
        (&[("HOST", "0.0.0.0"), ("RUNTIME_SECRET", "runtime-secret-0")], false),
        (&[("HOST", "0.0.0.0"), ("RUNTIME_SECRET", "  ")], true),
    ] {
        let loaded = runtime(env);
        assert_eq!(loaded.is_err(), refused, "for {env:?}");
        if let Err(error) = loaded {
            assert_eq!(
                error.to_string(),
                "RUNTIME_SECRET is required when HOST is not loopback, since the runtime would be open to the network"
            );
        }
    }
    // A secret that is set but invalid is reported once, not also as missing.
    let error = runtime(&[("HOST", "0.0.0.0"), ("RUNTIME_SECRET", "short")]).unwrap_err();
    assert_eq!(error.to_string(), "RUNTIME_SECRET (environment) must have at least 16 bytes");
    assert!(app(&[("HOST", "0.0.0.0")]).is_ok());
}

#[test]
fn a_coding_subscription_has_no_default_and_names_what_is_missing() {
    let unset = runtime(&[]).unwrap().coding;
    assert!(unset.api_url.is_none());
    assert_eq!(unset.originator, "agentd");
    assert_eq!((unset.body_limit_bytes, unset.stream_idle), (16 << 20, Duration::from_secs(300)));
    let required = [
        ("CODING_AUTH_URL", "https://issuer.example/base"),
        ("CODING_AUTH_DIALECT", "codex"),
        ("CODING_CLIENT_ID", "client-1"),
    ];
    for (set, (missing, _)) in required.iter().enumerate() {
        match runtime(&required[..set]).unwrap().coding.issuer {
            CodingIssuerConfig::MissingSetting(name) => assert_eq!(name, *missing),
            CodingIssuerConfig::Configured(_) => panic!("without {missing}"),
        }
    }
    let mut settings = required.to_vec();
    settings.extend([
        ("CODING_API_URL", "https://api.example/responses"),
        ("CODING_DEVICE_URL", "https://issuer.example/device"),
        ("CODING_TOKEN_URL", "https://issuer.example/token"),
        ("CODING_EXCHANGE_URL", "https://issuer.example/exchange"),
        ("CODING_REVOKE_URL", "https://issuer.example/revoke"),
        ("CODING_VERIFICATION_URL", "https://issuer.example/page"),
        ("CODING_SCOPE", "openid"),
        ("CODING_ORIGINATOR", "a test"),
        ("CODING_BODY_LIMIT_BYTES", "1024"),
        ("CODING_STREAM_IDLE_MS", "1000"),
    ]);
    let coding = runtime(&settings).unwrap().coding;
    let CodingIssuerConfig::Configured(issuer) = coding.issuer else { panic!("it is configured") };
    let text = |url: &Option<Url>| url.as_ref().map(|url| url.path().to_owned()).unwrap_or_default();
    assert_eq!(issuer.issuer.as_str(), "https://issuer.example/base");
    assert_eq!((issuer.dialect.name(), issuer.client_id.as_str()), ("codex", "client-1"));
    let urls = [&issuer.device_url, &issuer.token_url, &issuer.exchange_url, &issuer.revoke_url];
    assert_eq!(urls.map(text), ["/device", "/token", "/exchange", "/revoke"]);
    assert_eq!((text(&issuer.verification_url).as_str(), issuer.scope.as_deref()), ("/page", Some("openid")));
    assert_eq!(text(&coding.api_url), "/responses");
    assert_eq!(coding.originator, "a test");
    assert_eq!((coding.body_limit_bytes, coding.stream_idle), (1024, Duration::from_secs(1)));

    let error = runtime(&[
        ("CODING_API_URL", "https://user:sk-1@api.example/"),
        ("CODING_AUTH_DIALECT", "oauth"),
        ("CODING_ORIGINATOR", "a\tb"),
        ("CODING_BODY_LIMIT_BYTES", "1"),
    ])
    .unwrap_err();
    expect![[r#"
        CODING_API_URL (environment) must not contain a user name or password
        CODING_AUTH_DIALECT (environment) must be one of rfc8628, codex
        CODING_BODY_LIMIT_BYTES (environment) must be a whole number from 1024 to 67108864
        CODING_ORIGINATOR (environment) must be printable ASCII"#]]
    .assert_eq(&error.to_string());
}

#[test]
fn flag_before_environment_before_file() {
    let file = TempFile::new("port = 1\njson_depth = 11\nLOG = \"warn\"\n");
    let env: Map<'_> = [("PORT", "2"), ("JSON_DEPTH", "12")].into();
    let mut flags = Flags { config: Some(file.0.clone()), ..Flags::default() };
    flags.values.insert("PORT", "3".to_owned());
    let config = AppConfig::load(&flags, &env).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.json_depth, 12);
    assert_eq!(config.server.log.filter, "warn");
    flags.values.insert("PORT", "x".to_owned());
    let error = AppConfig::load(&flags, &env).unwrap_err().to_string();
    assert_eq!(error, "PORT (flag) must be a whole number from 0 to 65535");
}

#[test]
fn files_name_settings_in_any_case() {
    let config = from_file(
        "port = 4000\nCors_Origin = [\"https://a.example\", \"https://b.example\"]\n\
         session_secret = \"session-secret-0\"\nopenai_model = \"\"\n",
        &[],
    )
    .unwrap();
    assert_eq!(config.server.listen.port(), 4000);
    assert!(config.server.origins.contains(&http::HeaderValue::from_static("https://b.example")));
    assert_eq!(config.session_secret.unwrap().expose(), "session-secret-0");
    assert_eq!(config.server.hosted.model, "gpt-5-mini");
}

#[test]
fn faults_of_a_settings_file_are_reported_without_secrets() {
    fn check(text: &str, expected: Expect) {
        let error = from_file(text, &[]).unwrap_err().to_string();
        assert!(!error.contains("sk-1"), "{error}");
        expected.assert_eq(&error);
    }
    check(
        "prot = 1\n[app]\nport = 1",
        expect![[r#"
        app (file) is not a known setting
        prot (file) is not a known setting"#]],
    );
    check("port = 1\nPORT = 2", expect!["port (file) is set twice, in different spellings"]);
    check("port = true", expect!["port (file) must be text, a whole number, or a list of texts"]);
    check("port = 1.5", expect!["port (file) must be text, a whole number, or a list of texts"]);
    check(
        "cors_origin = [1]",
        expect!["cors_origin (file) must be text, a whole number, or a list of texts"],
    );
    check(
        "session_secrt = \"sk-1\"",
        expect!["session_secrt (file) is not a known setting; did you mean session_secret?"],
    );
    check("port_file = \"x\"", expect!["port_file (file) is not a known setting"]);
    check("session_secret = \"sk-1\"", expect!["SESSION_SECRET (file) must have at least 16 bytes"]);
    let broken = from_file("port = 1\nsession_secret = sk-1", &[]).unwrap_err().to_string();
    assert!(broken.ends_with("(file) is not valid TOML at line 2"), "{broken}");
    let flags = Flags { config: Some("/nowhere/at/all.toml".into()), ..Flags::default() };
    let missing = AppConfig::load(&flags, &Map::new()).unwrap_err().to_string();
    assert!(missing.starts_with("/nowhere/at/all.toml (file) cannot be read: "), "{missing}");
}

#[test]
fn secrets_from_files() {
    for (text, secret) in [
        ("session-secret-0\n", "session-secret-0"),
        ("session-secret-0\r\n", "session-secret-0"),
        ("session-secret-0", "session-secret-0"),
    ] {
        let file = TempFile::new(text);
        let config = app(&[("SESSION_SECRET_FILE", file.path())]).unwrap();
        assert_eq!(config.session_secret.unwrap().expose(), secret);
        let config = from_file(&format!("session_secret_file = '{}'", file.path()), &[]).unwrap();
        assert_eq!(config.session_secret.unwrap().expose(), secret);
    }
    let file = TempFile::new("session-secret-1");
    let both = [("SESSION_SECRET", "session-secret-0"), ("SESSION_SECRET_FILE", file.path())];
    let error = app(&both).unwrap_err().to_string();
    assert_eq!(
        error,
        "SESSION_SECRET (environment) conflicts with SESSION_SECRET_FILE: set only one of the two"
    );
    // A source of higher precedence replaces a lower one, whether the value is given directly or by `_FILE`.
    let lower = format!("session_secret_file = '{}'", file.path());
    let config = from_file(&lower, &[("SESSION_SECRET", "session-secret-0")]).unwrap();
    assert_eq!(config.session_secret.unwrap().expose(), "session-secret-0");
    let (empty, short) = (TempFile::new("\n"), TempFile::new("sk-1\n"));
    for (path, expected) in [
        (empty.path(), "SESSION_SECRET_FILE (environment) names a file that is empty"),
        (
            short.path(),
            "SESSION_SECRET_FILE (environment) names a file whose value must have at least 16 bytes",
        ),
        ("/nowhere/at/all", "SESSION_SECRET_FILE (environment) names a file that cannot be read"),
    ] {
        let error = app(&[("SESSION_SECRET_FILE", path)]).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_database_of_a_service_may_be_named_in_a_file() {
    let url = "postgres://ada:canary@h/db?sslmode=require";
    let file = TempFile::new(&format!("{url}\n"));
    let env = [("DATABASE_URL_FILE", file.path())];
    let config = app(&env).unwrap();
    assert_eq!(config.database, Database::Postgres(Secret::new(url)));
    assert!(!format!("{config:?}").contains("canary"));
    let config = from_file(&format!("database_url_file = '{}'", file.path()), &[]).unwrap();
    assert_eq!(config.database, Database::Postgres(Secret::new(url)));
    let settings = ResolvedSettings::new(Service::App, &Flags::default(), &Map::from(env)).unwrap();
    let printed = settings.print();
    assert!(printed.contains("DATABASE_URL = \"***\"") && !printed.contains("canary"), "{printed}");
    let scheduler =
        Map::from([("PULSE_SECRET", "0123456789abcdef"), ("CALLBACK_URL", "http://app/callback"), env[0]]);
    let config = SchedulerConfig::load(&Flags::default(), &scheduler).unwrap();
    assert_eq!(config.database, Database::Postgres(Secret::new(url)));

    let wrong = TempFile::new("mysql://ada:canary@h/db");
    let error = app(&[("DATABASE_URL_FILE", wrong.path())]).unwrap_err().to_string();
    let expected = "DATABASE_URL_FILE (environment) names a file whose value must be sqlite://";
    assert!(error.starts_with(expected) && !error.contains("canary"), "{error}");
}

#[test]
fn a_value_that_is_not_text_is_a_fault() {
    struct Broken;
    impl Env for Broken {
        fn var(&self, name: &str) -> Result<Option<String>, NotUnicodeError> {
            if name == "LOG" { Err(NotUnicodeError) } else { Ok(None) }
        }
    }
    let error = AppConfig::load(&Flags::default(), &Broken).unwrap_err().to_string();
    assert_eq!(error, "LOG (environment) cannot be read: the value is not Unicode");
}

#[test]
fn the_public_address_follows_the_listener() {
    let unset = app(&[]).unwrap();
    for (bound, url) in [
        ("127.0.0.1:4000", "http://127.0.0.1:4000/"),
        ("0.0.0.0:80", "http://127.0.0.1/"),
        ("[::]:4000", "http://[::1]:4000/"),
    ] {
        assert_eq!(unset.public_url(bound.parse().unwrap()).as_str(), url);
    }
    let set = app(&[("PUBLIC_URL", "https://app.example")]).unwrap();
    assert_eq!(set.public_url("0.0.0.0:80".parse().unwrap()).as_str(), "https://app.example/");
}

#[test]
fn printing_masks_secrets_and_invalid_values() {
    let env: Map<'_> = [
        ("SESSION_SECRET", "sk-1-and-more-bytes"),
        ("RUNTIME_URL", "http://user:sk-1@h/"),
        ("PORT", "4000"),
        ("ANTHROPIC_MODEL", "the \"best\" one"),
    ]
    .into();
    let printed = ResolvedSettings::new(Service::App, &Flags::default(), &env).unwrap().print();
    assert!(!printed.contains("sk-1"), "{printed}");
    let shown = ["HOST =", "PORT", "RUNTIME_URL", "SESSION_SECRET", "INTERNAL_SECRET", "ANTHROPIC_MODEL ="];
    let lines: Vec<&str> =
        printed.lines().filter(|line| shown.iter().any(|name| line.contains(name))).collect();
    expect![[r##"
        HOST = "127.0.0.1" # default
        PORT = "4000" # environment
        # RUNTIME_URL (environment) must not contain a user name or password
        SESSION_SECRET = "***" # environment
        # INTERNAL_SECRET is not set
        ANTHROPIC_MODEL = 'the "best" one' # environment"##]]
    .assert_eq(&lines.join("\n"));
    let file = TempFile::new("prot = 1");
    let flags = Flags { config: Some(file.0.clone()), ..Flags::default() };
    let faulty = ResolvedSettings::new(Service::App, &flags, &env).unwrap().print();
    assert!(faulty.ends_with("# prot (file) is not a known setting\n"), "{faulty}");
    // The output is a valid configuration file, except for the masked secrets.
    assert!(printed.parse::<toml::Table>().is_ok());
}

/// Checks that the documentation lists the same settings as the table, word for word.
#[test]
fn the_documentation_is_the_table() {
    let services = |setting: &Setting| {
        let names: Vec<String> = setting.services.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    let default = |setting: &Setting| {
        let shown: Vec<String> = setting
            .default
            .iter()
            .filter(|value| !value.is_empty())
            .map(|value| format!("`{value}`"))
            .collect();
        shown.join(", ")
    };
    let row = |setting: &Setting| {
        format!("| `{}` | {} | {} | {} |\n", setting.name, services(setting), default(setting), setting.doc)
    };
    let expected: String = table::settings().map(row).collect();
    let documentation = include_str!("../../../../docs/configuration.md");
    let rows: String = documentation
        .lines()
        .filter(|line| {
            let name = line.strip_prefix("| `").and_then(|table_row| table_row.split('`').next());
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(rows, expected, "docs/configuration.md must have these rows:\n{expected}");
}

/// Returns the number of a limit in the documentation, such as `16,384` or `1 MiB`, in the unit of the settings: bytes,
/// milliseconds or pieces. `None` if the text does not begin with a number.
fn documented_number(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != ',');
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let number: u64 = digits.replace(',', "").parse().ok()?;
    let unit = rest.trim_start().split(|character: char| !character.is_ascii_alphabetic()).next()?;
    let factor = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "s" => 1_000,
        "min" => 60_000,
        _ => 1,
    };
    Some(number * factor)
}

/// Checks that the table of limits of the HTTP API names the defaults of the settings.
#[test]
fn the_documented_limits_are_the_defaults() {
    let documentation = include_str!("../../../../docs/http-api.md");
    let (_, limits) = documentation.split_once("\n## Limits\n").expect("the limits");
    let (_, rows) = limits.split_once("\n|---|---|---|\n").expect("a table");
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    let mut checked = Vec::new();
    for row in rows {
        let limit = row.split(" | ").nth(1).unwrap_or_else(|| panic!("{row}"));
        for setting in table::settings() {
            let Some((_, value)) = limit.split_once(&format!("`{}`, ", setting.name)) else { continue };
            // A share of a setting's value, which is not the default.
            let Some(found) = documented_number(value).filter(|_| setting.name != "MAX_CONNECTIONS") else {
                continue;
            };
            let default: Option<u64> = setting.default.first().and_then(|default| default.parse().ok());
            assert_eq!(Some(found), default, "{row}");
            checked.push(setting.name);
        }
    }
    checked.sort_unstable();
    let expected = [
        "BODY_IDLE_MS",
        "BODY_LIMIT_BYTES",
        "BODY_TOTAL_MS",
        "CODING_BODY_LIMIT_BYTES",
        "CODING_STREAM_IDLE_MS",
        "CONCURRENT_RUNS_COMPANY",
        "FILE_LIMIT_BYTES",
        "HEADER_TIMEOUT_MS",
        "HEAD_LIMIT_BYTES",
        "JSON_DEPTH",
        "MAX_OUTPUT_TOKENS",
        "OUTPUT_LIMIT_BYTES",
        "RESPONSE_HEADER_TIMEOUT_MS",
        "RUNS_PER_MINUTE_COMPANY",
        "RUN_OUTPUT_LIMIT_BYTES",
        "RUN_TIMEOUT_MS",
        "STREAM_IDLE_MS",
        "TOOL_CALLS_PER_RUN",
        "TOOL_ROUNDS",
        "TOOL_TIMEOUT_MS",
        "WRITE_STALL_MS",
    ];
    assert_eq!(checked, expected);
}
