//! Input of clients in a prompt.

use agent_core::clock::find_time_zone;
use agent_core::context::TurnInput;
use jiff::tz::TimeZone;
use serde::Serialize;

/// Serializes client input as JSON on one line, for a fragment. The result contains no line break and cannot close the
/// tags that delimit a turn's context: `</` becomes `<\/`, which JSON allows.
pub(super) fn to_inline_json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("plain data serialises").replace("</", "<\\/")
}

/// Returns the user's time zone and its name, or `None` if the request names no zone or an unknown one. An unknown name
/// is not shown to the model, because the name is input of the client.
pub(super) fn user_time_zone(turn: &TurnInput) -> Option<(&str, TimeZone)> {
    let name = turn.context.timezone.as_deref()?;
    Some((name, find_time_zone(name)?))
}
