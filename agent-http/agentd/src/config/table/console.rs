//! Settings of the console and of the chat widget.

use super::super::setting::{Setting, SettingKind};
use super::{APP, setting};

/// Settings of the console and of the chat widget.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "CONSOLE",
        APP,
        SettingKind::Word(&["off", "on"]),
        &["off"],
        "With `on`, the application serves the [console](console.md) at `/` and signs users in to it; with `off`, `/` is 404. `dev` turns it on.",
    ),
    setting(
        "WIDGET",
        APP,
        SettingKind::Word(&["on", "off"]),
        &["on"],
        "With `on`, the application serves the [chat widget](widget.md) at `/widget.js`, for the pages that have a token; with `off`, it is 404.",
    ),
    setting(
        "ALLOWED_HOSTS",
        APP,
        SettingKind::Hosts,
        &[""],
        "Host names without ports, separated by commas, under which the console is served besides loopback and the host of `PUBLIC_URL`; others are answered 421.",
    ),
];
