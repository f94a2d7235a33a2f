//! Webhook signatures by the [Standard Webhooks](https://www.standardwebhooks.com) specification.
//!
//! A sender adds three headers to a body: the message id, the timestamp, and the signature: `v1,` with the base64 of
//! an HMAC-SHA256 over `{id}.{timestamp}.{body}`. A receiver with the secret verifies that the body is authentic and
//! recent. The id stays the same when a message is resent, so that the receiver can deduplicate it.
//!
//! The key is the bytes of the secret as written. A library that expects the key as base64 after `whsec_` needs the
//! base64 of those bytes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

/// Header with the message id, the same each time the message is sent.
pub(crate) const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");

/// Header with the time of sending, in whole seconds since the Unix epoch.
pub(crate) const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");

/// Header with the signatures, separated by spaces. One of them must be valid.
pub(crate) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Maximum difference between the timestamp and the receiver's clock, in both directions.
pub(crate) const TIMESTAMP_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 256;
/// Maximum number of signatures that are checked. A sender has one, or two during a rotation of its secret.
const MAX_SIGNATURES: usize = 8;
/// Prefix of supported signatures; others are ignored.
const SIGNATURE_PREFIX: &str = "v1,";

/// Error of signing or verifying a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// A header is missing.
    #[error("{0} is missing")]
    Missing(HeaderLabel),
    /// A header is repeated or malformed.
    #[error("{0} is invalid")]
    Malformed(HeaderLabel),
    /// The message is too old, or is being replayed.
    #[error("webhook-timestamp is too old")]
    TooOld,
    /// The timestamp is in the future.
    #[error("webhook-timestamp is in the future")]
    TooNew,
    /// No signature of a supported scheme is valid for any of the secrets.
    #[error("webhook-signature does not match")]
    WrongSignature,
}

/// Name of one of the three headers.
pub type HeaderLabel = &'static str;

/// Returns the headers of a message. `id` has 1 to 256 printable ASCII characters without spaces and full stops;
/// `now` is the time of sending.
///
/// # Errors
/// Returns [`WebhookError::Malformed`] for any other id, since its end in the signed text would be ambiguous.
pub fn sign(
    secret: &Secret,
    id: &str,
    now: SystemTime,
    body: &[u8],
) -> Result<[(HeaderName, HeaderValue); 3], WebhookError> {
    let malformed = |name| move |_| WebhookError::Malformed(name);
    if !is_id(id) {
        return Err(WebhookError::Malformed("webhook-id"));
    }
    let timestamp = seconds(now).to_string();
    let signature = mac(secret.expose().as_bytes(), id, &timestamp, body).finalize().into_bytes();
    let signature = format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(signature));
    Ok([
        (WEBHOOK_ID, HeaderValue::try_from(id).map_err(malformed("webhook-id"))?),
        (WEBHOOK_TIMESTAMP, HeaderValue::try_from(timestamp).map_err(malformed("webhook-timestamp"))?),
        (WEBHOOK_SIGNATURE, HeaderValue::try_from(signature).map_err(malformed("webhook-signature"))?),
    ])
}

/// Verifies a message that arrived at `now` and returns its id. `secrets` has several entries during a rotation.
///
/// # Errors
/// Every [`WebhookError`]. Without secrets, no message is valid.
pub fn verify<'h>(
    secrets: &[Secret],
    headers: &'h HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Result<&'h str, WebhookError> {
    let keys = secrets.iter().map(|secret| secret.expose().as_bytes());
    verify_under(keys, headers, body, now)
}

fn verify_under<'h, 'k>(
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    headers: &'h HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Result<&'h str, WebhookError> {
    let id = single(headers, &WEBHOOK_ID, "webhook-id")?;
    if !is_id(id) {
        return Err(WebhookError::Malformed("webhook-id"));
    }
    let timestamp = single(headers, &WEBHOOK_TIMESTAMP, "webhook-timestamp")?;
    check_age(timestamp, now)?;
    let signatures = single(headers, &WEBHOOK_SIGNATURE, "webhook-signature")?;
    let supported =
        signatures.split(' ').take(MAX_SIGNATURES).filter_map(|part| part.strip_prefix(SIGNATURE_PREFIX));
    let is_valid = supported.filter_map(|text| STANDARD.decode(text).ok()).any(|signature| {
        // Compares in constant time.
        keys.clone().any(|key| mac(key, id, timestamp, body).verify_slice(&signature).is_ok())
    });
    if is_valid { Ok(id) } else { Err(WebhookError::WrongSignature) }
}

fn check_age(timestamp: &str, now: SystemTime) -> Result<(), WebhookError> {
    let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent_at: Option<u64> = timestamp.parse().ok().filter(|_| is_number);
    let sent_at = sent_at.ok_or(WebhookError::Malformed("webhook-timestamp"))?;
    let now = seconds(now);
    if now.saturating_sub(sent_at) > TIMESTAMP_TOLERANCE.as_secs() {
        Err(WebhookError::TooOld)
    } else if sent_at.saturating_sub(now) > TIMESTAMP_TOLERANCE.as_secs() {
        Err(WebhookError::TooNew)
    } else {
        Ok(())
    }
}

fn mac(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update(id).chain_update(".").chain_update(timestamp).chain_update(".").chain_update(body)
}

/// Returns true for a valid id. A full stop separates the id in the signed text, so an id must not contain one.
fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.')
}

fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    label: HeaderLabel,
) -> Result<&'h str, WebhookError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(WebhookError::Missing(label)),
        (Some(value), None) => value.to_str().map_err(|_| WebhookError::Malformed(label)),
        (Some(_), Some(_)) => Err(WebhookError::Malformed(label)),
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SENT: u64 = 1_614_265_330;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn signed(secret: &str) -> HeaderMap {
        let signed = sign(&Secret::new(secret), "job:1", at(SENT), BODY).expect("an id");
        signed.into_iter().collect()
    }

    /// The example of the specification, whose key is given in base64.
    #[test]
    fn the_example_of_the_standard_verifies() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let headers: HeaderMap = [
            (WEBHOOK_ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            (WEBHOOK_TIMESTAMP, "1614265330"),
            (WEBHOOK_SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ]
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect();
        let verified = verify_under([key.as_slice()].into_iter(), &headers, BODY, at(SENT));
        assert_eq!(verified, Ok("msg_p5jXN8AQM9LWM0D4loKWxJek"));
    }

    #[test]
    fn both_secrets_verify_during_a_rotation() {
        let secrets = ["0123456789abcdef", "fedcba9876543210"].map(Secret::new);
        for secret in &secrets {
            assert_eq!(verify(&secrets, &signed(secret.expose()), BODY, at(SENT)), Ok("job:1"));
        }
        let foreign = signed("0123456789abcdeF");
        assert_eq!(verify(&secrets, &foreign, BODY, at(SENT)), Err(WebhookError::WrongSignature));
        assert_eq!(verify(&[], &foreign, BODY, at(SENT)), Err(WebhookError::WrongSignature));
        assert_eq!(
            verify(&secrets, &signed("0123456789abcdef"), b"{}", at(SENT)),
            Err(WebhookError::WrongSignature)
        );
    }

    #[test]
    fn five_minutes_are_tolerated_either_way() {
        let secrets = [Secret::new("0123456789abcdef")];
        let headers = signed("0123456789abcdef");
        for (now, expected) in [
            (SENT + 300, Ok("job:1")),
            (SENT + 301, Err(WebhookError::TooOld)),
            (SENT - 300, Ok("job:1")),
            (SENT - 301, Err(WebhookError::TooNew)),
            (0, Err(WebhookError::TooNew)),
        ] {
            assert_eq!(verify(&secrets, &headers, BODY, at(now)), expected, "{now}");
        }
    }

    #[test]
    fn headers_that_are_wrong_are_named() {
        use WebhookError::{Malformed, Missing, WrongSignature};
        let secrets = [Secret::new("0123456789abcdef")];
        let with = |name: HeaderName, value: Option<&'static str>| {
            let mut headers = signed("0123456789abcdef");
            headers.remove(&name);
            headers.extend(value.map(|value| (name, HeaderValue::from_static(value))));
            verify(&secrets, &headers, BODY, at(SENT)).map(str::to_owned)
        };
        let good = signed("0123456789abcdef")[WEBHOOK_SIGNATURE].to_str().expect("text").to_owned();
        let among_others: &'static str = format!("v1a,x v1,!! v1,eHk= {good}").leak();
        let too_many: &'static str = format!("{}{good}", "v1,eHk= ".repeat(MAX_SIGNATURES)).leak();
        for (name, value, expected) in [
            (WEBHOOK_ID, None, Err(Missing("webhook-id"))),
            (WEBHOOK_ID, Some(""), Err(Malformed("webhook-id"))),
            (WEBHOOK_ID, Some("a.b"), Err(Malformed("webhook-id"))),
            (WEBHOOK_ID, Some("a b"), Err(Malformed("webhook-id"))),
            (WEBHOOK_ID, Some("job:2"), Err(WrongSignature)),
            (WEBHOOK_TIMESTAMP, None, Err(Missing("webhook-timestamp"))),
            (WEBHOOK_TIMESTAMP, Some("+1614265330"), Err(Malformed("webhook-timestamp"))),
            (WEBHOOK_TIMESTAMP, Some("99999999999999999999"), Err(Malformed("webhook-timestamp"))),
            (WEBHOOK_TIMESTAMP, Some("1614265331"), Err(WrongSignature)),
            (WEBHOOK_SIGNATURE, None, Err(Missing("webhook-signature"))),
            (WEBHOOK_SIGNATURE, Some(""), Err(WrongSignature)),
            (WEBHOOK_SIGNATURE, Some("v1,"), Err(WrongSignature)),
            (WEBHOOK_SIGNATURE, Some(among_others), Ok("job:1".to_owned())),
            (WEBHOOK_SIGNATURE, Some(too_many), Err(WrongSignature)),
        ] {
            assert_eq!(with(name.clone(), value), expected, "{name}: {value:?}");
        }
        let mut twice = signed("0123456789abcdef");
        twice.append(WEBHOOK_ID, HeaderValue::from_static("job:1"));
        assert_eq!(verify(&secrets, &twice, BODY, at(SENT)), Err(Malformed("webhook-id")));
    }

    #[test]
    fn ids_that_would_not_be_read_are_not_signed() {
        for id in ["", "a.b", "a b", "ü", &"x".repeat(MAX_ID_BYTES + 1)] {
            let signed = sign(&Secret::new("0123456789abcdef"), id, at(SENT), BODY);
            assert_eq!(signed.err(), Some(WebhookError::Malformed("webhook-id")), "{id}");
        }
    }
}
