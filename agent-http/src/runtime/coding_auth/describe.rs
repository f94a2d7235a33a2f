//! OpenAPI descriptions of the sign-in routes.

use agent_client::device_auth::MAX_TOKEN_BYTES;
use serde_json::{Value, json};

use super::super::state::TAG;
use super::MAX_SCOPE_BYTES;
use crate::endpoint::{Operation, Schemas, string_schema};
use crate::error::Code;

/// Codes of the routes' errors.
const PROBLEMS: [Code; 4] = [Code::OauthError, Code::RateLimited, Code::BackendFailed, Code::BackendTimeout];

fn token_schema(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": MAX_TOKEN_BYTES, "description": description})
}

fn tokens_schema() -> Value {
    json!({
        "type": "object",
        "required": ["access_token", "token_type", "expires_in"],
        "properties": {
            "access_token": string_schema(), "token_type": {"const": "Bearer"}, "expires_in": {"type": "integer"},
            "refresh_token": {"type": "string", "description": "Absent if the previous one stays valid."},
            "scope": string_schema(),
            "account_id": {"type": "string", "description": "The person's account at the vendor."},
            "plan": {"type": "string", "description": "The account's plan."},
        },
    })
}

pub(in super::super) fn describe_device(_: &mut Schemas) -> Operation {
    let scope = json!({"type": "string", "maxLength": MAX_SCOPE_BYTES});
    let body = json!({"type": "object", "properties": {"scope": scope}});
    let answer = json!({
        "type": "object",
        "required": ["device_code", "user_code", "verification_uri", "expires_in", "interval"],
        "properties": {
            "device_code": {"type": "string", "description": "An opaque handle of the sign-in, at most 2 KiB."},
            "user_code": string_schema(), "verification_uri": string_schema(),
            "verification_uri_complete": string_schema(),
            "expires_in": {"type": "integer"}, "interval": {"type": "integer"},
        },
    });
    Operation::new("codingAuthDevice", TAG, "Begins a sign-in to the coding subscription (RFC 8628).")
        .body(body)
        .json_response(200, "The codes of the sign-in.", answer)
        .problems(&PROBLEMS)
}

pub(in super::super) fn describe_token(_: &mut Schemas) -> Operation {
    let body = json!({
        "type": "object",
        "required": ["device_code"],
        "properties": {"device_code": {"type": "string", "description": "The handle of the sign-in."}},
    });
    Operation::new("codingAuthToken", TAG, "Polls a sign-in once.")
        .describe("The member `error` of a problem with the code `OAUTH_ERROR` is `authorization_pending`, `slow_down`, `access_denied` or `expired_token`.")
        .body(body)
        .json_response(200, "The tokens of the person who has signed in.", tokens_schema())
        .problems(&PROBLEMS)
}

pub(in super::super) fn describe_refresh(_: &mut Schemas) -> Operation {
    let body = json!({
        "type": "object",
        "required": ["refresh_token"],
        "properties": {"refresh_token": token_schema("It is never logged, and may be valid once only.")},
    });
    Operation::new("codingAuthRefresh", TAG, "Exchanges a refresh token for new tokens.")
        .describe("The member `error` of a problem with the code `OAUTH_ERROR` is `invalid_grant`, and `reason` is `expired`, `reused`, `revoked` or `unknown`.")
        .body(body)
        .json_response(200, "The new tokens.", tokens_schema())
        .problems(&PROBLEMS)
}

pub(in super::super) fn describe_revoke(_: &mut Schemas) -> Operation {
    let body = json!({
        "type": "object",
        "required": ["token"],
        "properties": {
            "token": token_schema("It is never logged."),
            "token_type_hint": {"enum": ["access_token", "refresh_token"]},
        },
    });
    let answer = json!({
        "type": "object",
        "required": ["revoked"],
        "properties": {"revoked": {"type": "boolean", "description": "False if the issuer has no address for it, or refuses."}},
    });
    Operation::new("codingAuthRevoke", TAG, "Revokes a token (RFC 7009).")
        .body(body)
        .json_response(200, "The outcome.", answer)
        .problems(&PROBLEMS)
}
