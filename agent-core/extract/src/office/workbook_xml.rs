//! Changes of the XML of workbooks for which styles do not matter.

use quick_xml::escape::escape;
use quick_xml::events::Event;

use super::xml::{XmlChanges, XmlEvents, attribute, is_on};

/// Removes the sheets that are hidden, and reads the epoch of dates.
pub(super) fn without_hidden_sheets(xml: &str, has_epoch_1904: &mut bool) -> Option<String> {
    let mut changes = XmlChanges::new(xml);
    let mut events = XmlEvents::new(xml);
    while let Some((event, range)) = events.next() {
        let is_empty = matches!(event, Event::Empty(_));
        let (Event::Start(element) | Event::Empty(element)) = event else { continue };
        match element.name().into_inner() {
            "workbookPr" => {
                *has_epoch_1904 = attribute(&element, "date1904").is_some_and(|value| is_on(&value))
            }
            "sheet" if attribute(&element, "state").is_some_and(|state| state != "visible") => {
                let end = if is_empty { range.end } else { events.skip(&element) };
                changes.remove(range.start..end);
            }
            _ => {}
        }
    }
    changes.finish()
}

/// Decodes the escapes of characters in texts, such as `_x000D_` for a carriage return (ECMA-376 part 1, section 22.9.2.19). A
/// control character becomes a space. Returns `None` for a text without escapes.
pub(super) fn decode_escapes(xml: &str) -> Option<String> {
    let mut decoded = String::new();
    let mut copied = 0;
    let mut searched = 0;
    while let Some(offset) = xml[searched..].find("_x") {
        let start = searched + offset;
        let digits = xml.get(start + 2..start + 6).filter(|_| xml[start + 6..].starts_with('_'));
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let character = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        // A half of a surrogate pair stays as it is.
        let Some(character) = character else {
            searched = start + 2;
            continue;
        };
        decoded.push_str(&xml[copied..start]);
        let character = if character.is_control() { ' ' } else { character };
        decoded.push_str(&escape(character.encode_utf8(&mut [0; 4]) as &str));
        copied = start + "_x0000_".len();
        searched = copied;
    }
    if copied == 0 {
        return None;
    }
    decoded.push_str(&xml[copied..]);
    Some(decoded)
}
