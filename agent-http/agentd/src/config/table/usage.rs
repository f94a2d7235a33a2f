//! Settings of usage.

use super::super::setting::{Setting, SettingKind};
use super::{APP, DAY_MS, setting};

/// Settings of the ledger of the calls of models.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "MODEL_CATALOG",
        APP,
        SettingKind::Path,
        &[],
        "A JSON file with the prices of models, which are used in place of the built-in ones.",
    ),
    setting(
        "USAGE_RETENTION",
        APP,
        SettingKind::Duration { min: 86_400, max: 36_500 * DAY_MS / 1000 },
        &["400d"],
        "The time after which the calls of models are deleted from the ledger; their sums by day stay.",
    ),
];
