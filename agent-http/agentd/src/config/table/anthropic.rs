//! Settings of the vendor of Anthropic's Messages API.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of the provider `anthropic`.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "ANTHROPIC_BASE_URL",
        APP,
        SettingKind::Url,
        &["https://api.anthropic.com"],
        "The base URL of the provider `anthropic`: any server of Anthropic's Messages API, with or without `/v1`.",
    ),
    setting(
        "ANTHROPIC_API_KEY",
        APP,
        SettingKind::Secret { min_bytes: 1 },
        &[],
        "The API key for agents with the provider `anthropic` that have none of their own. It is sent to `ANTHROPIC_BASE_URL` and URLs below it only.",
    ),
    setting(
        "ANTHROPIC_MODEL",
        APP,
        SettingKind::Text,
        &["claude-haiku-4-5"],
        "The model for agents with the provider `anthropic` whose role names none.",
    ),
];
