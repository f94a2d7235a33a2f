use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn cron(expression: &str, zone: &str) -> Schedule {
    Schedule::Cron(CronSchedule::new(expression, zone, DstPolicy::default()).expect(expression))
}

fn every(millis: u64, anchor: &str) -> Schedule {
    Schedule::Every { every: Duration::from_millis(millis), anchor: at(anchor) }
}

/// Iterates over the occurrences after `after`.
fn following(schedule: &Schedule, after: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(schedule.next_after(after), |last| schedule.next_after(*last))
}

fn resolve(spec: Value, now: &str) -> Result<Schedule, ScheduleError> {
    let spec: ScheduleSpec = serde_json::from_value(spec).expect("a spec");
    spec.resolve(at(now))
}

const NOW: &str = "2026-11-21T14:30:00Z";

/// Compares with reference vectors of an independent cron implementation, at clock changes and calendar limits; see
/// `vectors.py`.
#[test]
fn cron_agrees_with_the_reference_vectors() {
    let mut failures = Vec::new();
    let rows = include_str!("tests/vectors.txt").lines().filter(|line| !line.starts_with('#'));
    let mut zones = std::collections::BTreeSet::new();
    let mut count = 0;
    for row in rows {
        let [zone, expression, policy, after, expected] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not a row: {row}");
        };
        let mut dst = DstPolicy::default();
        match policy {
            "-" => {}
            "gap=skip" => dst.gap = GapPolicy::Skip,
            "fold=both" => dst.fold = FoldPolicy::Both,
            _ => panic!("no policy: {row}"),
        }
        let schedule = Schedule::Cron(CronSchedule::new(expression, zone, dst).expect(row));
        let expected: Vec<Timestamp> = expected.split(' ').map(at).collect();
        let occurrences: Vec<Timestamp> = following(&schedule, at(after)).take(expected.len()).collect();
        if occurrences != expected {
            failures.push(format!("{row}\n  found {occurrences:?}"));
        }
        zones.insert(zone);
        count += 1;
    }
    assert!(failures.is_empty(), "{} of {count} rows:\n{}", failures.len(), failures.join("\n"));
    assert!(count >= 500 && zones.len() >= 10, "{count} rows, {} zones", zones.len());
}

/// Checks the examples of `docs/jobs.md`.
#[test]
fn documented_examples_are_true() {
    let both_changes = DstPolicy { gap: GapPolicy::Skip, fold: FoldPolicy::Both };
    let daily = |anchor| every(86_400_000, anchor);
    let berlin = |expression, dst| {
        Schedule::Cron(CronSchedule::new(expression, "Europe/Berlin", dst).expect(expression))
    };
    let by_default = |expression| berlin(expression, DstPolicy::default());
    for (schedule, day, expected) in [
        (by_default("30 2 * * *"), "03-29", &["03:00+02"][..]),
        (by_default("30 2 * * *"), "10-25", &["02:30+02"]),
        (berlin("30 2 * * *", both_changes), "03-29", &[]),
        (berlin("30 2 * * *", both_changes), "10-25", &["02:30+02", "02:30+01"]),
        (by_default("0 2,3 * * *"), "03-29", &["03:00+02"]),
        (by_default("0 2,3 * * *"), "10-25", &["02:00+02", "03:00+01"]),
        (by_default("*/30 2 * * *"), "03-29", &[]),
        (by_default("*/30 2 * * *"), "10-25", &["02:00+02", "02:30+02", "02:00+01", "02:30+01"]),
        (daily("2026-03-28T12:00:00+01:00"), "03-29", &["13:00+02"]),
        (daily("2026-10-24T12:00:00+02:00"), "10-25", &["11:00+01"]),
    ] {
        let times = on_day_in_berlin(&schedule, day);
        assert_eq!(times, expected, "{schedule:?} on {day}");
    }
    assert_eq!(on_day_in_berlin(&by_default("0 * * * *"), "03-29").len(), 23);
    assert_eq!(on_day_in_berlin(&by_default("0 * * * *"), "10-25").len(), 25);
}

fn on_day_in_berlin(schedule: &Schedule, day: &str) -> Vec<String> {
    let zone = find_time_zone("Europe/Berlin").expect("a zone");
    let day: jiff::civil::Date = format!("2026-{day}").parse().expect("a day");
    let start = day.to_zoned(zone.clone()).expect("midnight").timestamp();
    following(schedule, start - SignedDuration::from_secs(1))
        .map(|time| time.to_zoned(zone.clone()))
        .take_while(|time| time.date() == day)
        .map(|time| time.strftime("%H:%M%:::z").to_string())
        .collect()
}

#[test]
fn fractions_of_a_second_are_followed_by_the_next_second() {
    let schedule = cron("* * * * * *", "UTC");
    for (after, expected) in [
        ("2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:01Z"),
        ("2026-01-01T00:00:00.999Z", "2026-01-01T00:00:01Z"),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"),
        ("1969-12-31T23:59:58.5Z", "1969-12-31T23:59:59Z"),
        ("1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z"),
    ] {
        assert_eq!(schedule.next_after(at(after)), Some(at(expected)), "{after}");
    }
}

#[test]
fn a_search_ends_with_the_calendar() {
    let start = Timestamp::MAX - SignedDuration::from_hours(1);
    for schedule in [cron("0 0 1 1 *", "UTC"), cron("* * * * *", "Europe/Berlin"), every(1000, NOW)] {
        assert_eq!(schedule.next_after(Timestamp::MAX), None);
        let count = following(&schedule, start).take(4000).count();
        assert!(count < 4000, "{count} occurrences of {schedule:?}");
        assert!(schedule.next_after(Timestamp::MIN).is_some(), "{schedule:?}");
    }
}

#[test]
fn specs_become_schedules() {
    let local = |text: &str| Schedule::At(at(text));
    for (spec, expected) in [
        (json!({"executeAt": "2026-12-01T09:00:00+01:00"}), local("2026-12-01T08:00:00Z")),
        (json!({"executeAt": "2026-12-01T09:00:00+01:00[Europe/Berlin]"}), local("2026-12-01T08:00:00Z")),
        (json!({"executeAt": "2026-12-01T09:00:00.0001Z"}), local("2026-12-01T09:00:00.001Z")),
        (json!({"executeAt": "2020-01-01T00:00:00Z"}), local("2020-01-01T00:00:00Z")),
        (
            json!({"executeAt": "2026-12-01T09:00:00", "timezone": "Asia/Kathmandu"}),
            local("2026-12-01T03:15:00Z"),
        ),
        (
            json!({"executeAt": "2026-12-01T09:00Z", "timezone": "Asia/Kathmandu"}),
            local("2026-12-01T09:00:00Z"),
        ),
        // Skipped and repeated wall-clock times.
        (
            json!({"executeAt": "2027-03-28T02:30", "timezone": "Europe/Berlin"}),
            local("2027-03-28T01:30:00Z"),
        ),
        (
            json!({"executeAt": "2027-10-31T02:30", "timezone": "Europe/Berlin"}),
            local("2027-10-31T00:30:00Z"),
        ),
        (json!({"delayMs": 0}), local(NOW)),
        (json!({"delayMs": 1500}), local("2026-11-21T14:30:01.500Z")),
        (json!({"delayMs": 315_360_000_000_u64}), local("2036-11-18T14:30:00Z")),
        (json!({"everyMs": 1000, "timezone": "UTC", "cron": null}), every(1000, NOW)),
        (json!({"cron": "@daily"}), cron("@daily", "UTC")),
        (json!({"cron": " 0 9 * * 1-5 ", "timezone": "europe/berlin"}), cron("0 9 * * 1-5", "Europe/Berlin")),
        (
            json!({"cron": "30 2 * * *", "dst": {"fold": "both"}}),
            Schedule::Cron(
                CronSchedule::new(
                    "30 2 * * *",
                    "UTC",
                    DstPolicy { gap: GapPolicy::RunAfter, fold: FoldPolicy::Both },
                )
                .expect("cron"),
            ),
        ),
    ] {
        assert_eq!(resolve(spec.clone(), NOW), Ok(expected), "{spec}");
    }
}

#[test]
fn errors_of_specs_name_the_field() {
    let long = "*,".repeat(600);
    for (spec, field, message) in [
        (json!({}), "executeAt", "one of executeAt, delayMs, cron and everyMs must be given"),
        (
            json!({"delayMs": 1, "everyMs": 1000}),
            "everyMs",
            "delayMs and everyMs are both given; give one of executeAt, delayMs, cron and everyMs",
        ),
        (
            json!({"executeAt": "tomorrow"}),
            "executeAt",
            "executeAt is not an RFC 3339 time such as \"2026-11-21T14:30:00Z\"",
        ),
        (
            json!({"executeAt": "2026-12-01T09:00:00"}),
            "executeAt",
            "executeAt has neither a UTC offset nor a timezone",
        ),
        (
            json!({"executeAt": "2026-12-01T09:00:00[America/New_York]", "timezone": "Europe/Berlin"}),
            "executeAt",
            "executeAt has a zone in brackets, and no UTC offset; name the zone in timezone",
        ),
        (
            json!({"executeAt": "2026-02-30T09:00:00Z"}),
            "executeAt",
            "executeAt is not an RFC 3339 time such as",
        ),
        (
            json!({"executeAt": "2037-01-01T00:00:00Z"}),
            "executeAt",
            "executeAt must be a time from 1970 to ten years from now",
        ),
        (json!({"executeAt": "1969-12-31T23:59:59Z"}), "executeAt", "executeAt must be a time from 1970"),
        (
            json!({"delayMs": 315_360_000_001_u64}),
            "delayMs",
            "delayMs must be from 0 to 315360000000 milliseconds",
        ),
        (json!({"delayMs": u64::MAX}), "delayMs", "delayMs must be from 0 to"),
        (json!({"everyMs": 999}), "everyMs", "everyMs must be from 1000 to 315360000000 milliseconds"),
        (
            json!({"cron": "@daily", "timezone": "Mars/Crater"}),
            "timezone",
            "timezone \"Mars/Crater\" is not a name in the IANA time zone database",
        ),
        (
            json!({"everyMs": 1000, "timezone": "../etc/passwd"}),
            "timezone",
            "timezone \"../etc/passwd\" is not",
        ),
        (json!({"everyMs": 1000, "timezone": ""}), "timezone", "timezone \"\" is not"),
        (json!({"cron": "@daily", "timezone": "CET-1CEST"}), "timezone", "timezone \"CET-1CEST\" is not"),
        (json!({"cron": "@daily", "timezone": "Etc/Unknown"}), "timezone", "timezone \"Etc/Unknown\" is not"),
        (json!({"cron": "@daily", "timezone": "localtime"}), "timezone", "timezone \"localtime\" is not"),
        (json!({"cron": "@daily", "timezone": "posix/Europe/Berlin"}), "timezone", "timezone \"posix/"),
        (json!({"cron": "@daily", "timezone": "right/Europe/Berlin"}), "timezone", "timezone \"right/"),
        (json!({"cron": "@daily", "timezone": long}), "timezone", "timezone \"*,*,"),
        (json!({"cron": ""}), "cron", "cron must have five or six fields, not 0"),
        (json!({"cron": "* * * *"}), "cron", "cron must have five or six fields, not 4"),
        (json!({"cron": "* * * * * * 2026"}), "cron", "cron must have five or six fields, not 7"),
        (json!({"cron": long}), "cron", "cron must be at most 1024 bytes long"),
        (json!({"cron": "@reboot"}), "cron", "cron \"@reboot\" is not one of @yearly, "),
        (json!({"cron": "0 25 * * *"}), "cron", "cron: hour (field 2): \"25\" is outside 0 to 23"),
        (json!({"cron": "60 * * * * *"}), "cron", "cron: second (field 1): \"60\" is outside 0 to 59"),
        (json!({"cron": "0 0 25 * * *"}), "cron", "cron: hour (field 3): \"25\" is outside 0 to 23"),
        (json!({"cron": "0 9 1,32 * *"}), "cron", "cron: day of month (field 3): \"32\" is outside 1 to 31"),
        (
            json!({"cron": "0 9 * 1OCT *"}),
            "cron",
            "cron: month (field 4): \"1OCT\" is outside 1 to 12 and JAN to DEC",
        ),
        (json!({"cron": "MON 9 * * *"}), "cron", "cron: minute (field 1): \"MON\" is outside 0 to 59"),
        (
            json!({"cron": "0 9 * * 8"}),
            "cron",
            "cron: day of week (field 5): \"8\" is outside 0 to 7 and SUN to SAT",
        ),
        (
            json!({"cron": "0 9 * * FRI-MON"}),
            "cron",
            "cron: day of week (field 5): \"FRI-MON\" is a range whose end",
        ),
        (
            json!({"cron": "0/10 * * * *"}),
            "cron",
            "cron: minute (field 1): \"0/10\" has a step without a range",
        ),
        (json!({"cron": "*/0 * * * *"}), "cron", "cron: minute (field 1): \"*/0\" has a step outside 1"),
        (json!({"cron": "*,5 * * * *"}), "cron", "cron: minute (field 1): \"*\" cannot be part of a list"),
        (json!({"cron": "5,,7 * * * *"}), "cron", "cron: minute (field 1): \"\" is outside 0 to 59"),
        (json!({"cron": "0 9 * * 5#6"}), "cron", "cron: day of week (field 5): \"5#6\" has a number after #"),
        (json!({"cron": "0 9 * * L"}), "cron", "cron: day of week (field 5): \"L\" is outside 0 to 7"),
        (
            json!({"cron": "0 9 L,LW * *"}),
            "cron",
            "cron: day of month (field 3): \"LW\" cannot be part of a list",
        ),
        (json!({"cron": "0 9 L-3 * *"}), "cron", "cron: day of month (field 3): \"L-3\" is outside 1 to 31"),
        (json!({"cron": "0 9 * * +1"}), "cron", "cron: day of week (field 5): \"+1\" is outside 0 to 7"),
        (
            json!({"cron": "0 0 30 2 *"}),
            "cron",
            "cron \"0 0 30 2 *\" has no occurrence in the next fifty years",
        ),
        (json!({"cron": "0 0 31 4,6,9,11 *"}), "cron", "cron \"0 0 31 4,6,9,11 *\" has no occurrence"),
    ] {
        let error = resolve(spec.clone(), NOW).expect_err(&spec.to_string());
        assert!(error.to_string().starts_with(message), "{spec}: {error}");
        assert!(error.to_string().len() < 300, "{error}");
        assert_eq!(error.field(), field, "{spec}");
    }
}

#[test]
fn stored_schedules_are_readable() {
    for (schedule, stored) in [
        (Schedule::At(at(NOW)), json!({"executeAt": "2026-11-21T14:30:00.000Z"})),
        (every(90_000, NOW), json!({"everyMs": 90_000, "anchor": "2026-11-21T14:30:00.000Z"})),
        (cron("0 9 * * 1", "Europe/Berlin"), json!({"cron": "0 9 * * 1", "timezone": "Europe/Berlin"})),
        (
            Schedule::Cron(
                CronSchedule::new(
                    "0 9 * * 1",
                    "UTC",
                    DstPolicy { gap: GapPolicy::Skip, fold: FoldPolicy::Both },
                )
                .expect("cron"),
            ),
            json!({"cron": "0 9 * * 1", "timezone": "UTC", "dst": {"gap": "skip", "fold": "both"}}),
        ),
    ] {
        assert_eq!(serde_json::to_value(&schedule).expect("JSON"), stored);
        assert_eq!(serde_json::from_value::<Schedule>(stored).expect("a schedule"), schedule);
    }
    let unknown = serde_json::from_value::<Schedule>(json!({"cron": "@daily", "timezone": "Mars/Crater"}));
    assert!(unknown.expect_err("no such zone").to_string().contains("Mars/Crater"));
    let never = serde_json::from_value::<Schedule>(json!({"everyMs": 0, "anchor": NOW})).expect("a schedule");
    assert_eq!(never.next_after(at(NOW)), None);
}

#[test]
fn policies_have_their_names_on_the_wire() {
    assert_eq!(
        json!([MisfirePolicy::RunOnce, MisfirePolicy::Skip, MisfirePolicy::RunAll]),
        json!(["runOnce", "skip", "runAll"])
    );
    assert_eq!(json!([OverlapPolicy::Skip, OverlapPolicy::Queue]), json!(["skip", "queue"]));
    assert_eq!(json!(DstPolicy::default()), json!({"gap": "runAfter", "fold": "first"}));
    assert_eq!(
        (MisfirePolicy::default(), OverlapPolicy::default()),
        (MisfirePolicy::RunOnce, OverlapPolicy::Skip)
    );
}

#[test]
fn missed_occurrences_are_caught_up_by_the_policy() {
    let hourly = cron("0 * * * *", "UTC");
    let once = Schedule::At(at("2026-11-21T01:00:00Z"));
    let minutely = every(60_000, "2026-01-01T00:00:00Z");
    for (schedule, due, now, misfire, run, next) in [
        // Too early, also because the clock was set back.
        (&hourly, "02:00:00", "01:59:59.999", MisfirePolicy::RunOnce, None, Some("02:00:00")),
        // On time.
        (&hourly, "02:00:00", "02:00:00", MisfirePolicy::RunOnce, Some("02:00:00"), Some("03:00:00")),
        (&hourly, "02:00:00", "02:00:00", MisfirePolicy::Skip, Some("02:00:00"), Some("03:00:00")),
        (&hourly, "02:00:00", "02:00:00", MisfirePolicy::RunAll, Some("02:00:00"), Some("03:00:00")),
        // Three occurrences missed.
        (&hourly, "02:00:00", "04:30:00", MisfirePolicy::RunOnce, Some("02:00:00"), Some("05:00:00")),
        (&hourly, "02:00:00", "04:30:00", MisfirePolicy::Skip, None, Some("05:00:00")),
        (&hourly, "02:00:00", "04:30:00", MisfirePolicy::RunAll, Some("02:00:00"), Some("03:00:00")),
        // The latest is within the grace period.
        (&hourly, "02:00:00", "04:00:59.999", MisfirePolicy::Skip, Some("04:00:00"), Some("05:00:00")),
        (&hourly, "02:00:00", "04:01:00", MisfirePolicy::Skip, None, Some("05:00:00")),
        (&hourly, "02:00:00", "02:00:59.999", MisfirePolicy::Skip, Some("02:00:00"), Some("03:00:00")),
        // The interval equals the grace period.
        (&minutely, "02:00:00", "04:00:30", MisfirePolicy::Skip, Some("04:00:00"), Some("04:01:00")),
        // A one-off schedule runs however late.
        (&once, "01:00:00", "23:00:00", MisfirePolicy::Skip, Some("01:00:00"), None),
        (&once, "01:00:00", "23:00:00", MisfirePolicy::RunAll, Some("01:00:00"), None),
    ] {
        let time = |text: &str| at(&format!("2026-11-21T{text}Z"));
        let expected = CatchUp { run: run.map(time), next: next.map(time) };
        let result = catch_up(schedule, time(due), time(now), misfire);
        assert_eq!(result, expected, "{schedule:?} due {due} at {now}, {misfire:?}");
    }
}

#[test]
fn run_all_catches_up_within_the_window() {
    let secondly = every(1000, "2020-01-01T00:00:00Z");
    let result = catch_up(&secondly, at("2021-01-01T00:00:00Z"), at(NOW), MisfirePolicy::RunAll);
    assert_eq!(result.run, Some(at("2021-01-01T00:00:00Z")));
    assert_eq!(result.next, Some(at("2026-10-21T14:30:01Z")));
}

#[test]
fn overlapping_occurrences_are_skipped_or_queued() {
    let hourly = cron("0 * * * *", "UTC");
    for (overlap, next, started, ended, expected) in [
        (OverlapPolicy::Skip, "03:00", "02:00", "02:10", "03:00"),
        (OverlapPolicy::Queue, "03:00", "02:00", "02:10", "03:00"),
        (OverlapPolicy::Skip, "03:00", "02:00", "04:10", "05:00"),
        (OverlapPolicy::Queue, "03:00", "02:00", "04:10", "03:00"),
        // Missed before the run began: left to the misfire policy.
        (OverlapPolicy::Skip, "03:00", "03:30", "03:40", "03:00"),
    ] {
        let time = |text: &str| at(&format!("2026-11-21T{text}:00Z"));
        let occurrence = overlap.next_after_run(&hourly, Some(time(next)), time(started), time(ended));
        assert_eq!(occurrence, Some(time(expected)), "{overlap:?} {started} {ended}");
    }
    assert_eq!(OverlapPolicy::Queue.next_after_run(&Schedule::At(at(NOW)), None, at(NOW), at(NOW)), None);
}

const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Santiago",
    "America/Asuncion",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "Asia/Kathmandu",
];

fn moments() -> impl Strategy<Value = Timestamp> {
    let seconds = -5_000_000_000..8_000_000_000_i64;
    (seconds, 0..1_000_000_000_i32)
        .prop_map(|(seconds, nanos)| Timestamp::new(seconds, nanos).expect("a time"))
}

fn expressions() -> impl Strategy<Value = String> {
    let field = |low: u8, high: u8| {
        prop_oneof![
            4 => (low..=high).prop_map(|value| value.to_string()),
            3 => Just("*".to_owned()),
            2 => (1..=30_u8).prop_map(|step| format!("*/{step}")),
            2 => (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (low..=high, low..=high, 1..=9_u8).prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
            1 => (low..=high, low..=high).prop_map(|(a, b)| format!("{a},{b}")),
        ]
    };
    let second = prop_oneof![2 => Just(None), 1 => field(0, 59).prop_map(Some)];
    (second, field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).prop_map(
        |(second, m, h, d, mo, w)| {
            let five = format!("{m} {h} {d} {mo} {w}");
            second.map_or(five.clone(), |second| format!("{second} {five}"))
        },
    )
}

fn crons() -> impl Strategy<Value = Schedule> {
    let dst = (
        prop_oneof![Just(GapPolicy::RunAfter), Just(GapPolicy::Skip)],
        prop_oneof![Just(FoldPolicy::First), Just(FoldPolicy::Both)],
    )
        .prop_map(|(gap, fold)| DstPolicy { gap, fold });
    (expressions(), prop::sample::select(&ZONES[..]), dst).prop_map(|(expression, zone, dst)| {
        Schedule::Cron(CronSchedule::new(&expression, zone, dst).expect("well formed"))
    })
}

fn intervals() -> impl Strategy<Value = Schedule> {
    (1..=u64::MAX / 2, moments()).prop_map(|(millis, anchor)| Schedule::Every {
        every: Duration::from_millis(millis),
        anchor: ceil_to_millis(anchor),
    })
}

fn schedules() -> impl Strategy<Value = Schedule> {
    prop_oneof![4 => crons(), 1 => intervals(), 1 => moments().prop_map(|time| Schedule::At(ceil_to_millis(time)))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn occurrences_go_forward(schedule in schedules(), after in moments()) {
        let mut last = after;
        for next in following(&schedule, after).take(50) {
            prop_assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn the_next_occurrence_is_the_same_until_it_is_reached(schedule in schedules(), a in moments(), distance in 0..400_000_000_000_000_i64) {
        // `next_after` is the same from every time between `a` and its next occurrence.
        if let Some(next) = schedule.next_after(a) {
            let room = i64::try_from((next.as_nanosecond() - a.as_nanosecond()).min(i64::MAX.into())).expect("bounded");
            let b = a + SignedDuration::from_nanos(distance % room);
            prop_assert_eq!(schedule.next_after(b), Some(next), "from {} and from {}", a, b);
        }
    }

    #[test]
    fn a_later_start_never_gives_an_earlier_occurrence(schedule in schedules(), a in moments(), b in moments()) {
        let (first, second) = (schedule.next_after(a.min(b)), schedule.next_after(a.max(b)));
        if let (Some(first), Some(second)) = (first, second) {
            prop_assert!(first <= second);
        }
    }

    #[test]
    fn intervals_do_not_drift(millis in 1..=315_360_000_000_u64, anchor in moments(), after in moments()) {
        let anchor = ceil_to_millis(anchor);
        let schedule = Schedule::Every { every: Duration::from_millis(millis), anchor };
        let next = schedule.next_after(after).expect("within the calendar");
        let elapsed = next.as_nanosecond() - anchor.as_nanosecond();
        prop_assert_eq!(elapsed % (i128::from(millis) * 1_000_000), 0);
        prop_assert!(elapsed > 0);
        prop_assert!(after < anchor || next.as_nanosecond() - after.as_nanosecond() <= i128::from(millis) * 1_000_000);
    }

    #[test]
    fn schedules_survive_serialization(schedule in schedules()) {
        let stored = serde_json::to_string(&schedule).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Schedule>(&stored).expect("a schedule"), schedule, "{}", stored);
    }

    #[test]
    fn catching_up_moves_forward(
        schedule in schedules(), start in moments(), late in 0..100_000_000_i64,
        misfire in prop_oneof![Just(MisfirePolicy::RunOnce), Just(MisfirePolicy::Skip), Just(MisfirePolicy::RunAll)],
    ) {
        let Some(due) = schedule.first(start) else { return Ok(()) };
        let now = due + SignedDuration::from_secs(late);
        let CatchUp { run, next } = catch_up(&schedule, due, now, misfire);
        prop_assert!(run.is_none_or(|run| (due..=now).contains(&run)));
        prop_assert!(next.is_none_or(|next| next > run.unwrap_or(due)));
        prop_assert!(misfire == MisfirePolicy::RunAll || next.is_none_or(|next| next > now));
        prop_assert!(run.is_some() || next.is_some() || misfire == MisfirePolicy::Skip);
    }

    #[test]
    fn any_text_is_resolved_or_rejected(
        expression in prop_oneof![
            string_regex("[-0-9A-Za-z*/,?#@+ LW]{0,40}").expect("a pattern"),
            string_regex("([-0-9*/,?#LWSUNMOJA]{1,6} ){4,5}[-0-9*/,?#LWSUNMOJA]{1,6}").expect("a pattern"),
            any::<String>(),
        ],
        timezone in prop_oneof![Just(None), any::<String>().prop_map(Some)],
        now in moments(),
    ) {
        let spec = ScheduleSpec { cron: Some(expression.clone()), timezone, ..ScheduleSpec::default() };
        if let Ok(schedule) = spec.resolve(now) {
            prop_assert!(schedule.next_after(now).is_some_and(|next| next > now));
        }
        let spec = ScheduleSpec { execute_at: Some(expression), ..ScheduleSpec::default() };
        prop_assert!(spec.resolve(now).is_ok_and(|schedule| !schedule.is_periodic()) || spec.resolve(now).is_err());
    }

    #[test]
    fn well_formed_expressions_are_accepted(expression in expressions()) {
        prop_assert!(CronSchedule::new(&expression, "UTC", DstPolicy::default()).is_ok());
    }
}
