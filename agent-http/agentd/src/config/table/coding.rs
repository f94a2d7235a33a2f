//! Settings of the proxies of a coding subscription. No vendor's address or client id is a default.

use agent_client::device_auth::DeviceAuthDialect;

use super::super::setting::{Setting, SettingKind};
use super::{DAY_MS, RUNTIME, setting};

/// Settings of the runtime's routes `/coding-chat` and `/coding-auth`.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "CODING_API_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL of the coding subscription's model API, to which `POST /coding-chat` sends requests. Without it, that route is answered 503.",
    ),
    setting(
        "CODING_AUTH_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL of the issuer of the coding subscription's tokens. Without it, or without the next two settings, `/coding-auth` is answered 503.",
    ),
    setting(
        "CODING_AUTH_DIALECT",
        RUNTIME,
        SettingKind::Word(DeviceAuthDialect::NAMES),
        &[],
        "The issuer's protocol: `rfc8628`, or `codex`, with JSON bodies and an authorization code.",
    ),
    setting(
        "CODING_CLIENT_ID",
        RUNTIME,
        SettingKind::Text,
        &[],
        "The OAuth client id that the issuer has assigned to the operator.",
    ),
    setting(
        "CODING_DEVICE_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL that begins a sign-in; if not set, `/device/code` below `CODING_AUTH_URL`, for `codex` `/api/accounts/deviceauth/usercode`.",
    ),
    setting(
        "CODING_TOKEN_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL that is polled during a sign-in; if not set, `/token` below `CODING_AUTH_URL`, for `codex` `/api/accounts/deviceauth/token`. For `rfc8628` it also refreshes tokens.",
    ),
    setting(
        "CODING_EXCHANGE_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL that exchanges authorization codes and refreshes tokens, for `codex` only; if not set, `/oauth/token` below `CODING_AUTH_URL`.",
    ),
    setting(
        "CODING_REVOKE_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The URL that revokes tokens; if not set, `/oauth/revoke` below `CODING_AUTH_URL` for `codex`, and none for `rfc8628`.",
    ),
    setting(
        "CODING_VERIFICATION_URL",
        RUNTIME,
        SettingKind::Url,
        &[],
        "The page on which people enter their code, for `codex` only; if not set, `/codex/device` below `CODING_AUTH_URL`. `https`, or `http` on loopback.",
    ),
    setting(
        "CODING_SCOPE",
        RUNTIME,
        SettingKind::Text,
        &[],
        "The OAuth scope of a sign-in whose request names none, for `rfc8628` only.",
    ),
    setting(
        "CODING_ORIGINATOR",
        RUNTIME,
        SettingKind::Text,
        &["agentd"],
        "The name of this program in the header `originator` of requests to the model API.",
    ),
    setting(
        "CODING_BODY_LIMIT_BYTES",
        RUNTIME,
        SettingKind::Number { min: 1024, max: 64 * 1024 * 1024 },
        &["16777216"],
        "The maximum size of a request body of `/coding-chat`, in place of `BODY_LIMIT_BYTES`; a larger one is answered 413.",
    ),
    setting(
        "CODING_STREAM_IDLE_MS",
        RUNTIME,
        SettingKind::Millis { min: 1000, max: DAY_MS },
        &["300000"],
        "The maximum pause of the model API within a response, in place of `STREAM_IDLE_MS`; after it, the connection is closed.",
    ),
];
