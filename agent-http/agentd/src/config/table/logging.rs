//! Settings of the log.

use super::{ALL_SERVICES, Setting, SettingKind, setting};

/// Settings of the log.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "LOG",
        ALL_SERVICES,
        SettingKind::LogFilter,
        &["info"],
        "The log filter: a level (`off`, `error`, `warn`, `info`, `debug` or `trace`), and levels of targets, such as `info,agent_http=debug,agent_client=debug`.",
    ),
    setting(
        "LOG_FORMAT",
        ALL_SERVICES,
        SettingKind::Word(&["text", "json"]),
        &["text"],
        "The log format: text, or one JSON object per line.",
    ),
];
