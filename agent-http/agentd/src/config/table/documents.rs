//! Settings of uploaded documents.

use super::{APP, Setting, SettingKind, setting};

/// Settings of uploaded documents.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "RAG_MAX_UPLOAD",
        APP,
        SettingKind::Number { min: 1, max: 100_000_000 },
        &["25000000"],
        "The maximum size in bytes of one uploaded document; a larger one is answered 413.",
    ),
    setting(
        "MAX_UPLOADED_BYTES",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000_000_000 },
        &["2000000000"],
        "The maximum size in bytes of all uploaded documents of a company together; further ones are answered 409.",
    ),
];
