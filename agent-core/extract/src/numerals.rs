//! Roman numerals of lists.

/// Maximum number that is written as a Roman numeral.
const MAX_ROMAN: u32 = 3_999;
/// Roman numerals, the largest first.
const ROMAN: [(u32, &str); 13] = [
    (1_000, "m"),
    (900, "cm"),
    (500, "d"),
    (400, "cd"),
    (100, "c"),
    (90, "xc"),
    (50, "l"),
    (40, "xl"),
    (10, "x"),
    (9, "ix"),
    (5, "v"),
    (4, "iv"),
    (1, "i"),
];

/// Writes a number as a Roman numeral in lowercase; `None` if there is none for it.
pub(crate) fn roman(number: u32) -> Option<String> {
    if !(1..=MAX_ROMAN).contains(&number) {
        return None;
    }
    let (mut rest, mut numeral) = (number, String::new());
    for (value, digits) in ROMAN {
        while rest >= value {
            numeral.push_str(digits);
            rest -= value;
        }
    }
    Some(numeral)
}
