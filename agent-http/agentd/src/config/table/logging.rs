//! Settings of the log.

use super::{ALL_SERVICES, Setting, SettingKind, setting};

/// Settings of the log.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "LOG",
        ALL_SERVICES,
        SettingKind::LogFilter,
        &["info"],
        "The log filter, as directives of `tracing`'s environment filter without spans and fields, such as `info,agent_http=debug,agent_client=debug`.",
    ),
    setting(
        "LOG_FORMAT",
        ALL_SERVICES,
        SettingKind::Word(&["text", "json"]),
        &["text"],
        "The log format: text, or one JSON object per line.",
    ),
];
