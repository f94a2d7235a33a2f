//! Numbers of sheets as their formats show them.

/// Serial number of the day after the last one that a sheet can show, the end of the year 9999.
const END_OF_DATES: f64 = 2_958_466.0;
/// Days between the epochs of the two date systems.
const DAYS_TO_1904: f64 = 1_462.0;
/// Maximum number of significant digits of a number in a sheet.
const MAX_DIGITS: usize = 15;

/// A format of numbers that changes their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum NumberFormat {
    #[default]
    General,
    /// A percentage with a number of decimals.
    Percent(usize),
    Date,
    DateTime,
    Time,
    /// Hours, minutes or seconds that are not restricted to a day.
    Duration,
    /// An empty format, which shows nothing.
    Hidden,
}

impl NumberFormat {
    /// Returns the format with an identifier that needs no code.
    pub(super) fn built_in(id: u32) -> Self {
        match id {
            9 => Self::Percent(0),
            10 => Self::Percent(2),
            14..=17 | 27..=31 | 36 | 50..=54 | 57 | 58 => Self::Date,
            18..=21 | 32..=35 | 45 | 47 | 55 | 56 => Self::Time,
            22 => Self::DateTime,
            46 => Self::Duration,
            _ => Self::General,
        }
    }

    /// Returns the format with a code.
    pub(super) fn parse(code: &str) -> Self {
        if code.trim() == ";;;" {
            return Self::Hidden;
        }
        let mut letters = String::new();
        let mut has_duration = false;
        let mut characters = code.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => characters.by_ref().take_while(|&character| character != '"').for_each(|_| {}),
                // The next character is shown, left blank or repeated.
                '\\' | '_' | '*' => {
                    characters.next();
                }
                '[' => {
                    let bracket: String =
                        characters.by_ref().take_while(|&character| character != ']').collect();
                    let bracket = bracket.to_ascii_lowercase();
                    has_duration |= ["h", "m", "s"].iter().any(|unit| {
                        !bracket.is_empty()
                            && bracket.trim_matches(|letter: char| unit.contains(letter)).is_empty()
                    });
                }
                // The first section is that of positive numbers.
                ';' => break,
                _ => letters.push(character.to_ascii_lowercase()),
            }
        }
        let letters = letters.replace("am/pm", "").replace("general", "");
        let has_time = letters.contains(['h', 's']);
        let has_date = letters.contains(['y', 'd']) || (letters.contains('m') && !has_time && !has_duration);
        match (has_date, has_time) {
            _ if has_duration => Self::Duration,
            (true, true) => Self::DateTime,
            (true, false) => Self::Date,
            (false, true) => Self::Time,
            (false, false) if letters.contains('%') => {
                let decimals = letters.split_once('.').map_or("", |(_, decimals)| decimals);
                Self::Percent(decimals.chars().take_while(|&digit| matches!(digit, '0' | '#')).count())
            }
            (false, false) => Self::General,
        }
    }

    /// Returns a stored number as the format shows it, or `None` if the format does not change it.
    pub(super) fn format(self, stored: &str, has_epoch_1904: bool) -> Option<String> {
        let number: f64 = stored.trim().parse().ok()?;
        match self {
            Self::General => shorten(stored.trim(), number),
            Self::Percent(decimals) => {
                let decimals = decimals.min(MAX_DIGITS);
                let percent = round_digits(number * 100.0)?;
                // Half of the last digit is rounded away from zero, and not to the even digit.
                let scale = 10_f64.powi(decimals as i32);
                let scaled = percent * scale;
                let rounded = if scaled.abs() < 1e15 { scaled.round() / scale } else { percent };
                (number.abs() < 1e15).then(|| format!("{rounded:.decimals$}%"))
            }
            Self::Hidden => Some(String::new()),
            Self::Date | Self::DateTime => {
                let serial = if has_epoch_1904 { number + DAYS_TO_1904 } else { number };
                let (days, seconds) = days_and_seconds(serial)?;
                match (self, days) {
                    (Self::DateTime, 0) => Some(time(seconds)),
                    (Self::DateTime, _) => Some(format!("{} {}", date(days)?, time(seconds))),
                    _ => date(days),
                }
            }
            Self::Time => days_and_seconds(number).map(|(_, seconds)| time(seconds)),
            Self::Duration => days_and_seconds(number).map(|(days, seconds)| time(days * 86_400 + seconds)),
        }
    }
}

/// Rounds a fraction with more digits than a sheet shows to the number that was entered; `None` for other numbers.
fn shorten(stored: &str, number: f64) -> Option<String> {
    let (digits, _) = stored.split_once(['e', 'E']).unwrap_or((stored, ""));
    let significant = digits.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    if significant <= MAX_DIGITS || !digits.contains('.') || !(1e-4..1e15).contains(&number.abs()) {
        return None;
    }
    Some(round_digits(number)?.to_string())
}

/// Rounds a number to [`MAX_DIGITS`] significant digits.
fn round_digits(number: f64) -> Option<f64> {
    let decimals = MAX_DIGITS - 1;
    format!("{number:.decimals$e}").parse().ok()
}

/// Returns the days and the seconds of the day of a serial number that a sheet can show.
fn days_and_seconds(serial: f64) -> Option<(i64, i64)> {
    if !(0.0..END_OF_DATES).contains(&serial) {
        return None;
    }
    let seconds = (serial * 86_400.0).round() as i64;
    Some((seconds / 86_400, seconds % 86_400))
}

/// Returns a time of the day, or a duration, in hours, minutes, and seconds if there are any.
fn time(seconds: i64) -> String {
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    match seconds % 60 {
        0 => format!("{hours:02}:{minutes:02}"),
        seconds => format!("{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// Returns the date of a serial number of a day. 1900 is a leap year there, as in the first spreadsheets.
fn date(serial: i64) -> Option<String> {
    if serial == 0 {
        return None;
    }
    let day_before_1900 = jiff::civil::date(1899, 12, 31);
    let days = if serial > 60 { serial - 1 } else { serial };
    let date = day_before_1900.checked_add(jiff::Span::new().try_days(days).ok()?).ok()?;
    Some(date.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_parsed() {
        for (code, expected) in [
            ("General", NumberFormat::General),
            ("#,##0.00 \"days\"", NumberFormat::General),
            ("[Red]0.00", NumberFormat::General),
            ("[$-407]#,##0.00 [$€-407]", NumberFormat::General),
            ("0.00E+00", NumberFormat::General),
            ("_-* #,##0_-;\\-* #,##0_-", NumberFormat::General),
            ("0%", NumberFormat::Percent(0)),
            ("0.0#%;-0.0%", NumberFormat::Percent(2)),
            ("dd.mm.yyyy", NumberFormat::Date),
            ("[$-409]mmmm\\ d\\,\\ yyyy;@", NumberFormat::Date),
            ("mmm", NumberFormat::Date),
            ("yyyy\"年\"m\"月\"", NumberFormat::Date),
            ("d/m/yy h:mm", NumberFormat::DateTime),
            ("h:mm AM/PM", NumberFormat::Time),
            ("mm:ss.0", NumberFormat::Time),
            ("[h]:mm:ss", NumberFormat::Duration),
            ("[mm]:ss", NumberFormat::Duration),
            (";;;", NumberFormat::Hidden),
            ("\"open", NumberFormat::General),
            ("[", NumberFormat::General),
        ] {
            assert_eq!(NumberFormat::parse(code), expected, "{code}");
        }
    }

    #[test]
    fn numbers_are_formatted() {
        for (format, stored, expected) in [
            (NumberFormat::General, "42", None),
            (NumberFormat::General, "12345678901234567", None),
            (NumberFormat::General, "0.30000000000000004", Some("0.3")),
            (NumberFormat::General, "-1.1000000000000001", Some("-1.1")),
            (NumberFormat::General, "1.5E-10", None),
            (NumberFormat::General, "text", None),
            (NumberFormat::Percent(0), "0.25", Some("25%")),
            (NumberFormat::Percent(1), "7.0000000000000007E-2", Some("7.0%")),
            (NumberFormat::Percent(0), "0.125", Some("13%")),
            (NumberFormat::Percent(0), "0.285", Some("29%")),
            (NumberFormat::Percent(1), "-0.00250", Some("-0.3%")),
            (NumberFormat::Percent(15), "1e14", Some("10000000000000000.000000000000000%")),
            (NumberFormat::Percent(99), "0.5", Some("50.000000000000000%")),
            (NumberFormat::Percent(2), "1e300", None),
            (NumberFormat::Percent(2), "inf", None),
            (NumberFormat::Date, "1", Some("1900-01-01")),
            (NumberFormat::Date, "59", Some("1900-02-28")),
            (NumberFormat::Date, "61", Some("1900-03-01")),
            (NumberFormat::Date, "44197", Some("2021-01-01")),
            (NumberFormat::Date, "45351.75", Some("2024-02-29")),
            (NumberFormat::Date, "2958465", Some("9999-12-31")),
            (NumberFormat::Date, "2958466", None),
            (NumberFormat::Date, "1e300", None),
            (NumberFormat::Date, "-1", None),
            (NumberFormat::Date, "0", None),
            (NumberFormat::DateTime, "44197.395833333336", Some("2021-01-01 09:30")),
            (NumberFormat::DateTime, "44196.999999999", Some("2021-01-01 00:00")),
            (NumberFormat::Time, "0.5", Some("12:00")),
            (NumberFormat::Time, "0.52085648148148145", Some("12:30:02")),
            (NumberFormat::Duration, "1.5", Some("36:00")),
            (NumberFormat::Hidden, "1", Some("")),
        ] {
            assert_eq!(format.format(stored, false).as_deref(), expected, "{format:?} {stored}");
        }
        assert_eq!(NumberFormat::Date.format("42735", true).as_deref(), Some("2021-01-01"));
        assert_eq!(NumberFormat::Time.format("0.5", true).as_deref(), Some("12:00"));
    }
}
