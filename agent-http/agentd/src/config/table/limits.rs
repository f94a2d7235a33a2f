//! Limits of users, companies and runs.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of the limits on rates, concurrent runs and tool calls.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "RUNS_PER_MINUTE",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["60"],
        "The maximum number of runs per user and minute in chats with a session, over all processes; further ones are answered 429.",
    ),
    setting(
        "RUNS_PER_MINUTE_COMPANY",
        APP,
        SettingKind::Number { min: 0, max: 1_000_000_000 },
        &["600"],
        "The maximum number of runs per company and minute, of all callers and over all processes; further ones are answered 429. A limit of the company's budget on `runs` per `minute` replaces it; 0 is no limit.",
    ),
    setting(
        "CONCURRENT_RUNS_COMPANY",
        APP,
        SettingKind::Number { min: 0, max: 1_000_000_000 },
        &["64"],
        "The maximum number of concurrent runs per company, over all processes; further ones are answered 429. Each additional process may admit another eighth of it. A limit of the company's budget on `concurrentRuns` replaces it; 0 is no limit.",
    ),
    setting(
        "TOOL_CALLS_PER_RUN",
        APP,
        SettingKind::Number { min: 0, max: 1_000_000_000 },
        &["100"],
        "The maximum number of calls of the platform's tools per run; further ones have an error as their result. A limit on `toolCalls` of the budget of the agent's runs replaces it; 0 is no limit.",
    ),
    setting(
        "CHANGES_PER_MINUTE",
        APP,
        SettingKind::Number { min: 1, max: 1_000_000_000 },
        &["300"],
        "The maximum number of management requests per user and minute that change something, over all processes; further ones are answered 429.",
    ),
];
