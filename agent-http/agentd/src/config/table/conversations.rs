//! Settings of conversations.

use super::super::setting::{Setting, SettingKind};
use super::{APP, DAY_MS, setting};

/// Settings of conversations that are kept.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "CONVERSATIONS",
        APP,
        SettingKind::Word(&["on", "off"]),
        &["on"],
        "Keeps the conversations of users whose requests name a thread; `off` keeps nothing and removes `/api/threads` and `/api/runs`.",
    ),
    setting(
        "RUN_LOG_FLUSH_MS",
        APP,
        SettingKind::Millis { min: 10, max: 60_000 },
        &["500"],
        "The maximum time for which events of a stored run are buffered in memory before they are written; buffered events are lost if the process is killed.",
    ),
    setting(
        "RUN_LEASE_MS",
        APP,
        SettingKind::Millis { min: 1000, max: 600_000 },
        &["10000"],
        "The lease of an application process on its runs. If the process does not renew it in time, its runs count as interrupted, and other processes release their threads.",
    ),
    setting(
        "RUN_LOG_RETENTION_MS",
        APP,
        SettingKind::Millis { min: 1000, max: 366 * DAY_MS },
        &["86400000"],
        "The time for which the events of a run can be read after its end. Its messages are not deleted.",
    ),
    setting(
        "RUN_PROMPTS",
        APP,
        SettingKind::Word(&["keep", "off"]),
        &["off"],
        "Keeps the inputs of each stored run as long as its events, up to 4 MiB: the role without its secrets, the texts of the prompt and the tools' descriptions, for `GET /api/runs/{id}/prompt` and `agentd replay`. `dev` turns it on.",
    ),
    setting(
        "THREAD_RETENTION",
        APP,
        SettingKind::Duration { min: 1, max: 36_500 * DAY_MS / 1000 },
        &[],
        "The time without activity after which a user's thread is deleted, such as `365d`; without it, threads are kept. A role's `conversations.retentionDays` counts if it is shorter.",
    ),
    setting(
        "VISITOR_THREAD_RETENTION",
        APP,
        SettingKind::Duration { min: 1, max: 36_500 * DAY_MS / 1000 },
        &["30d"],
        "The time without activity after which a visitor's thread is deleted.",
    ),
];
