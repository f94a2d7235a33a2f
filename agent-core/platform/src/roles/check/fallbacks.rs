//! Checks of the repetition and the fallbacks of models and agent servers.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use agent_core::role::{AgentServer, EmbeddedAi, RetrySettings};

use super::finding::RoleFinding;
use super::provider::{SERVER_PROVIDERS, check_model_provider, check_provider, is_blank};
use crate::fallback::MAX_FALLBACKS;

/// Bounds of the calls of one model in a round, of the waits between them, and of the time until the first content.
const ATTEMPTS: RangeInclusive<u32> = 1..=10;
const WAIT_MS: RangeInclusive<u32> = 0..=60_000;
const FIRST_CONTENT_MS: RangeInclusive<u32> = 100..=600_000;

/// Checks the repetition and the fallbacks of a container's model.
pub(super) fn check_model_fallbacks(findings: &mut Vec<RoleFinding>, at: &str, embedded: &EmbeddedAi) {
    let times = embedded.fallbacks.iter().map(|fallback| fallback.first_content_ms);
    check_retry(findings, at, embedded.retry.as_ref(), times);
    for (i, fallback) in embedded.fallbacks.iter().enumerate() {
        check_model_provider(findings, format!("{at}.fallbacks[{i}].provider"), &fallback.provider);
    }
    check_number(findings, at, embedded.fallbacks.len(), "models");
}

/// Checks the repetition and the fallbacks of an agent server. A fallback has a separate address; tools, repetition and
/// fallbacks are those of the first server.
pub(super) fn check_server_fallbacks(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    let times = server.fallbacks.iter().map(|fallback| fallback.first_content_ms);
    check_retry(findings, at, server.retry.as_ref(), times);
    if server.first_content_ms.is_some() {
        let message = "must be absent: it is a member of retry, and of fallbacks";
        findings.push(RoleFinding::new(format!("{at}.firstContentMs"), message));
    }
    for (i, fallback) in server.fallbacks.iter().enumerate() {
        let at = format!("{at}.fallbacks[{i}]");
        let provider = &fallback.agent_server_provider;
        check_provider(findings, format!("{at}.agentServerProvider"), provider, &SERVER_PROVIDERS);
        if is_blank(&fallback.agent_server_url) {
            let message = "must name a runtime: a fallback inherits none";
            findings.push(RoleFinding::new(format!("{at}.agentServerUrl"), message));
        }
        for (name, is_set) in [
            ("agentServerTools", fallback.agent_server_tools.is_some()),
            ("retry", fallback.retry.is_some()),
            ("fallbacks", !fallback.fallbacks.is_empty()),
        ] {
            if is_set {
                let message = "must be absent: a fallback has none of its own";
                findings.push(RoleFinding::new(format!("{at}.{name}"), message));
            }
        }
    }
    check_number(findings, at, server.fallbacks.len(), "agent servers");
}

/// Checks the limits on calls. `first_content_ms` are those of the fallbacks.
fn check_retry(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    retry: Option<&RetrySettings>,
    first_content_ms: impl Iterator<Item = Option<NonZeroU32>>,
) {
    let mut check = |name: &str, value: Option<u32>, bounds: RangeInclusive<u32>| {
        if value.is_some_and(|value| !bounds.contains(&value)) {
            let message = format!("must be from {} to {}", bounds.start(), bounds.end());
            findings.push(RoleFinding::new(format!("{at}.{name}"), message));
        }
    };
    let retry = retry.cloned().unwrap_or_default();
    check("retry.maxAttempts", retry.max_attempts.map(NonZeroU32::get), ATTEMPTS);
    check("retry.maxWaitMs", retry.max_wait_ms, WAIT_MS);
    check("retry.firstContentMs", retry.first_content_ms.map(NonZeroU32::get), FIRST_CONTENT_MS);
    for (i, limit) in first_content_ms.enumerate() {
        check(&format!("fallbacks[{i}].firstContentMs"), limit.map(NonZeroU32::get), FIRST_CONTENT_MS);
    }
    for (i, class) in retry.also.iter().enumerate().filter(|(_, class)| *class != "content") {
        let message = format!("{class:?} is not a kind of failure: expected content");
        findings.push(RoleFinding::new(format!("{at}.retry.also[{i}]"), message));
    }
}

fn check_number(findings: &mut Vec<RoleFinding>, at: &str, number: usize, counted_items: &str) {
    if number > MAX_FALLBACKS {
        let message = format!("has more than {MAX_FALLBACKS} {counted_items}");
        findings.push(RoleFinding::new(format!("{at}.fallbacks"), message));
    }
}
