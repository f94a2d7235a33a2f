//! Settings of the extraction of text from documents.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of the processes that extract text.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "EXTRACT_TIMEOUT",
        APP,
        SettingKind::Duration { min: 1, max: 60 * 60 },
        &["60s"],
        "The maximum duration of the extraction of a document's text; after it, the document has failed.",
    ),
    setting(
        "EXTRACT_MEMORY",
        APP,
        SettingKind::Number { min: 256 * 1024 * 1024, max: 64 * 1024 * 1024 * 1024 },
        &["1073741824"],
        "The maximum address space of an extraction's process in bytes; a document that needs more has failed.",
    ),
    setting(
        "EXTRACT_PROCESSES",
        APP,
        SettingKind::Number { min: 1, max: 64 },
        &["2"],
        "The maximum number of extractions at once; further documents wait.",
    ),
];
