//! Settings of the embedding model. No key and no address of a chat model is a default, so that documents are not sent
//! anywhere unless the operator says so.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of the retrieval by vectors.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "EMBEDDING_PROVIDER",
        APP,
        SettingKind::Word(&["lexical", "openai", "ollama", "local"]),
        &["lexical"],
        "The embedding model by which documents are found in addition to their words: `openai` is any server of OpenAI's Embeddings API, `ollama` an Ollama server, `local` a model in this process that `agentd model pull` has stored. With `lexical`, there is none, and no document is sent anywhere.",
    ),
    setting(
        "EMBEDDING_MODEL",
        APP,
        SettingKind::Text,
        &[],
        "The name of the embedding model; if not set, `text-embedding-3-small` for `openai`, and `granite-embedding-97m-multilingual-r2` for `local`. Documents are embedded again after a change.",
    ),
    setting(
        "EMBEDDING_BASE_URL",
        APP,
        SettingKind::Url,
        &[],
        "The base URL of the embedding model's server; if not set, `https://api.openai.com/v1` for `openai`, and `http://127.0.0.1:11434` for `ollama`.",
    ),
    setting(
        "EMBEDDING_API_KEY",
        APP,
        SettingKind::Secret { min_bytes: 1 },
        &[],
        "The API key of the embedding model's server. It is sent to `EMBEDDING_BASE_URL` and URLs below it only. `OPENAI_API_KEY` is not used in its place.",
    ),
    setting(
        "EMBEDDING_DIMENSIONS",
        APP,
        SettingKind::Number { min: 1, max: 8192 },
        &[],
        "The number of components of a vector, requested from `openai` or `ollama`; if not set, the model's default. Few models can shorten their vectors.",
    ),
];
