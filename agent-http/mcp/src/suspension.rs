//! Calls without a result in the metadata of tool results: `agentd/suspend`, with the interrupt in `agentd/interrupt`.
//! The application's tool server writes them, and the runtime's tool loop ends its run by them.

use agent_core::tool::Suspension;
use serde_json::{Map, Value, json};

const SUSPEND: &str = "agentd/suspend";
const INTERRUPT: &str = "agentd/interrupt";

/// Returns the metadata of a suspended call's result.
pub(crate) fn suspension_meta(suspension: &Suspension) -> Map<String, Value> {
    let mut meta = Map::from_iter([(SUSPEND.to_owned(), json!(true))]);
    if let Suspension::Interrupt(interrupt) = suspension {
        meta.insert(INTERRUPT.to_owned(), json!(interrupt));
    }
    meta
}

/// Reads the metadata of a result; `None` if the call is not suspended.
pub(crate) fn read_suspension(meta: &Map<String, Value>) -> Option<Suspension> {
    if meta.get(SUSPEND) != Some(&Value::Bool(true)) {
        return None;
    }
    Some(match meta.get(INTERRUPT).map(|interrupt| serde_json::from_value(interrupt.clone())) {
        Some(Ok(interrupt)) => Suspension::Interrupt(interrupt),
        _ => Suspension::ClientSide,
    })
}

#[cfg(test)]
mod tests {
    use agent_core::event::Interrupt;

    use super::*;

    #[test]
    fn a_suspension_is_read_as_it_was_written() {
        let interrupt =
            Interrupt { id: "i".to_owned(), reason: "tool_call".to_owned(), ..Interrupt::default() };
        for suspension in [Suspension::ClientSide, Suspension::Interrupt(interrupt.into())] {
            assert_eq!(read_suspension(&suspension_meta(&suspension)), Some(suspension));
        }
        let other = json!({"agentd/suspend": "yes", "agentd/interrupt": {}});
        assert_eq!(read_suspension(other.as_object().expect("an object")), None);
    }
}
