//! Settings of uploaded documents and files.

use super::{APP, DAY_MS, Setting, SettingKind, setting};

/// Settings of uploaded documents and of users' files.
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
        "The maximum size in bytes of all uploaded documents and files of a company together; further ones are answered 409.",
    ),
    setting(
        "FILE_LIMIT_BYTES",
        APP,
        SettingKind::Number { min: 1, max: 100_000_000 },
        &["20971520"],
        "The maximum size in bytes of one file for messages; a larger one is answered 413.",
    ),
    setting(
        "FILE_TTL",
        APP,
        SettingKind::Duration { min: 60, max: 36_500 * DAY_MS / 1000 },
        &["30d"],
        "The time after which a file for messages is deleted, unless a thread refers to it.",
    ),
];
