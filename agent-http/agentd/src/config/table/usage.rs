//! Settings of usage.

use super::super::setting::{Setting, SettingKind};
use super::{APP, APP_AND_RUNTIME, DAY_MS, setting};

/// Settings of the ledger of the calls of models.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "MODEL_CATALOG",
        APP_AND_RUNTIME,
        SettingKind::Path,
        &[],
        "A JSON file with limits, capabilities and prices of models. Its entries replace those of the built-in catalogue.",
    ),
    setting(
        "USAGE_RETENTION",
        APP,
        SettingKind::Duration { min: 86_400, max: 36_500 * DAY_MS / 1000 },
        &["400d"],
        "The time after which single model calls are deleted from the usage ledger; the sums by day are kept.",
    ),
];
