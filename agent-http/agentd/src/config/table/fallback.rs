//! Settings of the repetition of models' calls.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of repetition and fallback.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "MODEL_ATTEMPTS",
        APP,
        SettingKind::Number { min: 1, max: 10 },
        &["2"],
        "The maximum number of calls of one model in a round, or of one agent server in a run, for agents that set none. A call is repeated only if it has failed before its first content, or if its answer is [delivered whole](http-api.md#answers-that-are-delivered-whole).",
    ),
    setting(
        "MODEL_RETRY_WAIT_MS",
        APP,
        SettingKind::Millis { min: 0, max: 60_000 },
        &["10000"],
        "The limit on the sum of the waits between the calls of one model in a round, or of one agent server in a run.",
    ),
    setting(
        "FIRST_CONTENT_MS",
        APP,
        SettingKind::Millis { min: 100, max: 600_000 },
        &["60000"],
        "The time in which the first content of a model's answer, or the first event of an agent server's run, must arrive, for agents that set none.",
    ),
    setting(
        "MODEL_FALLBACKS",
        APP,
        SettingKind::Text,
        &[],
        "Models for the calls that the default model fails to answer, for agents that name neither a model nor fallbacks: at most four, as `PROVIDER/MODEL`, separated by commas.",
    ),
];
