//! Settings of the retrieval of fragments of documents.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of retrieval.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "RAG_MAX_TOKENS",
        APP,
        SettingKind::Number { min: 100, max: 100_000 },
        &["1500"],
        "The limit in tokens on the document fragments that a turn retrieves, with their titles and headings. They are also limited to a quarter of the prompt.",
    ),
    setting(
        "RAG_MIN_RELEVANCE",
        APP,
        SettingKind::Number { min: 0, max: 1_000 },
        &["80"],
        "The relevance that a fragment must reach, in thousandths of the best score that the message allows. Scripts without spaces need half of it.",
    ),
    setting(
        "RAG_MIN_SIMILARITY",
        APP,
        SettingKind::Number { min: 0, max: 1_000 },
        &["500"],
        "The similarity by vectors, in thousandths, from which a fragment is relevant whatever its words. Embedding models differ: `POST /api/agents/{id}/retrieve` shows the similarities of yours.",
    ),
    setting(
        "RAG_CACHE_BYTES",
        APP,
        SettingKind::Number { min: 1024 * 1024, max: 64 * 1024 * 1024 * 1024 },
        &["268435456"],
        "The limit in bytes on the indexes of documents in memory. A company's index may take half of it; documents beyond that are not searched. With an embedding model, documents that are being embedded may take a quarter of it in addition.",
    ),
];
