//! Compiled cron expressions: the matching wall-clock times as bit sets.

use std::fmt::Display;

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronPattern, Weekday};
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, time};

use super::error::{CronField, ScheduleError, excerpt};
use super::field;

/// Maximum length of a cron expression, in bytes; the longest useful one has about 600.
pub(crate) const MAX_CRON_BYTES: usize = 1024;

/// Set of wall-clock times that an expression matches.
///
/// croner parses the expression; the result is stored in about 150 bytes instead of croner's five kilobytes, because
/// a process may hold very many schedules. The matching days depend only on a month's length and the weekday of its
/// first day, so they are stored for each of the 28 possible months.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CronBits {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    /// Matching days, indexed by the weekday of the month's first day, from Sunday, and by the month's length minus
    /// 28.
    days: [[u32; 4]; 7],
    wildcard: bool,
}

const FIELDS: [CronField; 6] = [
    CronField::Second,
    CronField::Minute,
    CronField::Hour,
    CronField::DayOfMonth,
    CronField::Month,
    CronField::DayOfWeek,
];

impl CronBits {
    /// Parses an expression of five or six fields, or a nickname.
    pub(super) fn parse(expression: &str) -> Result<Self, ScheduleError> {
        if expression.len() > MAX_CRON_BYTES {
            return Err(shape_error(format_args!("must be at most {MAX_CRON_BYTES} bytes long")));
        }
        let expanded = match expression.strip_prefix('@') {
            Some(nickname) => fields_of_nickname(nickname)?.to_owned(),
            None => expression.to_ascii_uppercase(),
        };
        let parts: Vec<&str> = expanded.split_ascii_whitespace().collect();
        let fields = match parts[..] {
            [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
            [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
            _ => return Err(shape_error(format_args!("must have five or six fields, not {}", parts.len()))),
        };
        let implied = fields.len() - parts.len();
        for (position, (field, text)) in (1..).zip(FIELDS.into_iter().zip(fields)) {
            field::check_field(field, position - implied, text)?;
        }
        Self::from_fields(fields)
    }

    fn from_fields(fields: [&str; 6]) -> Result<Self, ScheduleError> {
        let [second, minute, hour, day, _, weekday] = fields;
        let has_star = |field: &str| field.contains(['*', '?']);
        let parser = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            // Vixie cron: a day must match only one of the two fields if neither has a star, and both otherwise, also
            // if the star has a step.
            .dom_and_dow(has_star(day) || has_star(weekday))
            .build();
        let parsed = parser.parse(&fields.join(" ")).map_err(shape_error)?.pattern;
        Ok(Self {
            seconds: to_bits(&parsed.seconds.values()),
            minutes: to_bits(&parsed.minutes.values()),
            hours: to_bits(&parsed.hours.values()),
            months: to_bits(&parsed.months.values()),
            days: days_of_each_month(&parsed)?,
            wildcard: [second, minute, hour].into_iter().any(has_star),
        })
    }

    /// Returns true if the seconds, minutes or hours contain `*`, so that the job follows elapsed time and not fixed
    /// times of day.
    pub(super) fn follows_elapsed_time(&self) -> bool {
        self.wildcard
    }

    /// Returns the first matching wall-clock time in `from..until`.
    pub(super) fn next_match(&self, from: DateTime, until: DateTime) -> Option<DateTime> {
        let mut month = from.date().first_of_month();
        let mut days = self.days_of(month) & (u32::MAX << from.day());
        loop {
            while days != 0 {
                let date = on_day(month, days.trailing_zeros());
                let earliest = if date == from.date() { from.time() } else { Time::midnight() };
                if let Some(time) = self.time_from(earliest) {
                    return Some(date.to_datetime(time)).filter(|date_time| *date_time < until);
                }
                days &= days - 1;
            }
            month = month.checked_add(1.month()).ok().filter(|month| *month <= until.date())?;
            days = self.days_of(month);
        }
    }

    fn days_of(&self, first: Date) -> u32 {
        if !has_bit(self.months, first.month()) {
            return 0;
        }
        let weekday = usize::from(first.weekday().to_sunday_zero_offset().unsigned_abs());
        let length = usize::from(first.days_in_month().unsigned_abs());
        self.days[weekday][length - 28]
    }

    fn time_from(&self, earliest: Time) -> Option<Time> {
        let first_second = next_bit(self.seconds, 0)?;
        let first_minute = next_bit(self.minutes, 0)?;
        let (hour, minute) = (earliest.hour(), earliest.minute());
        if has_bit(self.hours, hour) {
            if has_bit(self.minutes, minute)
                && let Some(second) = next_bit(self.seconds, earliest.second())
            {
                return Some(time(hour, minute, second, 0));
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(time(hour, minute, first_second, 0));
            }
        }
        next_bit(self.hours, hour + 1).map(|hour| time(hour, first_minute, first_second, 0))
    }
}

fn on_day(month: Date, day: u32) -> Date {
    let day = i8::try_from(day).expect("a month has at most 31 days");
    Date::new(month.year(), month.month(), day).expect("bits are set of days that the month has")
}

fn to_bits(values: &[u16]) -> u64 {
    values.iter().fold(0, |bits, value| bits | 1 << value)
}

fn has_bit(bits: u64, value: i8) -> bool {
    next_bit(bits, value) == Some(value)
}

/// Returns the lowest set bit at or above `from`.
fn next_bit(bits: u64, from: i8) -> Option<i8> {
    let bit = (bits & u64::MAX.checked_shl(u32::try_from(from).ok()?)?).trailing_zeros();
    i8::try_from(bit).ok().filter(|bit| *bit < 64)
}

fn days_of_each_month(parsed: &CronPattern) -> Result<[[u32; 4]; 7], ScheduleError> {
    let depends_on_length = parsed.days.has_modifiers() || parsed.days_of_week.has_modifiers();
    let mut days = [[0; 4]; 7];
    for (first_weekday, of_weekday) in days.iter_mut().enumerate() {
        let of_longest = days_of_month(parsed, first_weekday, 31)?;
        for (length, of_length) in (28..).zip(of_weekday) {
            *of_length = if depends_on_length {
                days_of_month(parsed, first_weekday, length)?
            } else {
                of_longest & (u32::MAX >> (31 - length))
            };
        }
    }
    Ok(days)
}

fn days_of_month(parsed: &CronPattern, first_weekday: usize, length: u32) -> Result<u32, ScheduleError> {
    let (year, month) = match length {
        28 => (2023, 2),
        29 => (2024, 2),
        30 => (2024, 4),
        _ => (2024, 1),
    };
    let weekdays = CRONER_WEEKDAYS.into_iter().cycle().skip(first_weekday);
    (1..=length).zip(weekdays).try_fold(0, |days, (day, weekday)| {
        let matches = parsed.day_match(year, month, day, weekday).map_err(shape_error)?;
        Ok(days | u32::from(matches) << day)
    })
}

const CRONER_WEEKDAYS: [Weekday; 7] = [
    Weekday::Sunday,
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
];

fn shape_error(reason: impl Display) -> ScheduleError {
    ScheduleError::CronShape { reason: reason.to_string() }
}

fn fields_of_nickname(nickname: &str) -> Result<&'static str, ScheduleError> {
    match nickname.to_ascii_lowercase().as_str() {
        "yearly" | "annually" => Ok("0 0 1 1 *"),
        "monthly" => Ok("0 0 1 * *"),
        "weekly" => Ok("0 0 * * 0"),
        "daily" | "midnight" => Ok("0 0 * * *"),
        "hourly" => Ok("0 * * * *"),
        _ => Err(shape_error(format_args!(
            "\"@{}\" is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly",
            excerpt(nickname)
        ))),
    }
}
