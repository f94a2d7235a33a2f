//! Grammar of one field of a cron expression.
//!
//! croner replaces names anywhere in a field and ignores empty parts, so that `1OCT` is 110 and `,` is a field that
//! never matches. Only the grammar of crontab(5), with the `L`, `W` and `#` of Quartz, is passed on to croner.

use super::error::{CronField, ScheduleError, excerpt};

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Validates one field, given in capital letters; `position` counts from 1.
pub(super) fn check_field(field: CronField, position: usize, text: &str) -> Result<(), ScheduleError> {
    let mut items = text.split(',');
    items.try_for_each(|item| {
        let is_only_item = item.len() == text.len();
        check_item(field, item, is_only_item).map_err(|reason| ScheduleError::CronField {
            field,
            position,
            item: excerpt(item),
            reason,
        })
    })
}

fn check_item(field: CronField, item: &str, is_only_item: bool) -> Result<(), String> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let is_star = range == "*" || (range == "?" && field.is_of_days());
    match step {
        Some(step) => {
            if !is_star && !range.contains('-') {
                return Err(
                    "has a step without a range before it; a step is written as in */5 or 10-50/5".to_owned()
                );
            }
            parse_number(step).filter(|step| *step > 0).ok_or("has a step outside 1 to 99")?;
        }
        None if is_star && !is_only_item => return Err("cannot be part of a list".to_owned()),
        None if is_extension(field, item, is_only_item)? => return Ok(()),
        None => {}
    }
    if is_star {
        return Ok(());
    }
    match range.split_once('-') {
        None => parse_value(field, range).map(drop),
        Some((first, last)) => {
            let first = parse_value(field, first)?;
            // As the end of a range, Sunday is 7, the last day of the week.
            let last = if last == WEEKDAYS[0] && field == CronField::DayOfWeek {
                7
            } else {
                parse_value(field, last)?
            };
            if first > last { Err("is a range whose end is before its start".to_owned()) } else { Ok(()) }
        }
    }
}

/// Returns true for the Quartz extensions `L`, `LW` and `15W` in days of the month, `5L` and `5#2` in weekdays.
fn is_extension(field: CronField, item: &str, is_only_item: bool) -> Result<bool, String> {
    match field {
        CronField::DayOfMonth => match (item, item.strip_suffix('W')) {
            ("L", _) => Ok(true),
            (_, Some("L")) if is_only_item => Ok(true),
            (_, Some("L")) => Err("cannot be part of a list".to_owned()),
            (_, Some(day)) => parse_value(field, day).map(|_| true),
            (_, None) => Ok(false),
        },
        CronField::DayOfWeek => match (item.strip_suffix('L'), item.split_once('#')) {
            (Some(day), _) => parse_value(field, day).map(|_| true),
            (None, Some((day, nth))) => {
                parse_number(nth)
                    .filter(|nth| (1..=5).contains(nth))
                    .ok_or("has a number after # outside 1 to 5")?;
                parse_value(field, day).map(|_| true)
            }
            (None, None) => Ok(false),
        },
        _ => Ok(false),
    }
}

fn parse_value(field: CronField, text: &str) -> Result<u8, String> {
    let (min, max) = field.bounds();
    let named = field.names().iter().zip(field.bounds().0..).find(|(name, _)| **name == text);
    let value = named.map(|(_, value)| value).or_else(|| parse_number(text));
    value.filter(|value| (min..=max).contains(value)).ok_or_else(|| match field.names() {
        [first, .., last] => format!("is outside {min} to {max} and {first} to {last}"),
        _ => format!("is outside {min} to {max}"),
    })
}

/// Parses one or two digits.
fn parse_number(text: &str) -> Option<u8> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl CronField {
    fn bounds(self) -> (u8, u8) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 7),
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
            _ => &[],
        }
    }

    fn is_of_days(self) -> bool {
        matches!(self, Self::DayOfMonth | Self::DayOfWeek)
    }
}
