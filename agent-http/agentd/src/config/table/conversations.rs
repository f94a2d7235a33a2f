//! Settings of conversations.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of conversations that are kept.
pub(super) const SETTINGS: &[Setting] = &[setting(
    "CONVERSATIONS",
    APP,
    SettingKind::Word(&["on", "off"]),
    &["on"],
    "Keeps the conversations of users whose requests name a thread; `off` keeps nothing and removes `/api/threads` and `/api/runs`.",
)];
