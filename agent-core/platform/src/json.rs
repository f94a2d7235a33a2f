//! Checks of JSON text before it is parsed.

/// Returns true if `json` nests deeper than `max_depth`, by counting brackets outside of strings. The result for
/// invalid JSON is meaningless; the parser rejects it.
#[must_use]
pub fn is_deeper_than(max_depth: usize, json: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > max_depth {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    false
}
