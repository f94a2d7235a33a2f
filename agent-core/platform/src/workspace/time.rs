//! Parsing and formatting of times: RFC 3339 in UTC with milliseconds.

use std::time::SystemTime;

use agent_core::clock::find_time_zone;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Formats a time as `2026-11-21T14:30:00.000Z`.
pub fn utc_time(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// Formats a time as local time in the IANA zone, `2026-11-21 15:30 Europe/Berlin`; `None` if the zone is unknown.
pub(crate) fn local_time(time: Timestamp, zone: &str) -> Option<String> {
    let time = time.to_zoned(find_time_zone(zone)?);
    Some(time.strftime("%Y-%m-%d %H:%M %Q").to_string())
}

/// Parses an RFC 3339 time, or a date with or without a time of day in the IANA zone; UTC without a known zone. The
/// error describes the fault.
pub(crate) fn parse_time(text: &str, zone: Option<&str>) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let zone = zone.and_then(find_time_zone).unwrap_or(TimeZone::UTC);
    // The parser ignores a zone in brackets (RFC 9557).
    let civil = text.parse::<DateTime>().ok().filter(|_| !text.contains('['));
    let time = civil.and_then(|time| time.to_zoned(zone).ok());
    time.map(|time| time.timestamp()).ok_or_else(|| {
        "is neither a time such as \"2026-11-21T14:30:00Z\" nor a date such as \"2026-11-21\"".to_owned()
    })
}

/// Converts the time of a clock or a store; a time outside the calendar becomes the epoch.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_users_zone_and_shown_in_utc() {
        let berlin = Some("Europe/Berlin");
        for (text, zone, expected) in [
            ("2026-11-21T14:30:00Z", berlin, "2026-11-21T14:30:00.000Z"),
            ("2026-11-21T14:30:00.1239+02:00", None, "2026-11-21T12:30:00.123Z"),
            (" 2026-11-21 14:30 ", berlin, "2026-11-21T13:30:00.000Z"),
            ("2026-07-01", berlin, "2026-06-30T22:00:00.000Z"),
            ("2026-07-01", None, "2026-07-01T00:00:00.000Z"),
            ("2026-07-01", Some("Mars/Crater"), "2026-07-01T00:00:00.000Z"),
        ] {
            assert_eq!(parse_time(text, zone).map(utc_time), Ok(expected.to_owned()), "{text}");
        }
        let of_another_zone = "2026-11-21T14:30[America/New_York]";
        for text in
            ["", "yesterday", "2026-13-01", "1763735400", "2026-11-21T14:30:00+99:00", of_another_zone]
        {
            assert!(parse_time(text, berlin).expect_err(text).starts_with("is neither a time"), "{text}");
        }
        let time = "2026-11-21T14:30:00Z".parse().expect("a time");
        assert_eq!(local_time(time, "Europe/Berlin").as_deref(), Some("2026-11-21 15:30 Europe/Berlin"));
        assert_eq!(local_time(time, "Mars/Crater"), None);
    }
}
