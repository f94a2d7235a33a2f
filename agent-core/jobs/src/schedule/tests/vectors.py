#!/usr/bin/env python3
"""Writes vectors.txt: what cron does around changes of the clock, by a daemon that is simulated minute by minute.

It shares nothing with the code that is tested: the zones come from Python's zoneinfo (with the tzdata package of the
version below), the expressions are read here, and the rules are those of man 8 cron, word by word:

- "Local time changes of less than three hours [...] only apply to jobs that run at a specific time": those without a
  star in the second, minute or hour.
- "If time was adjusted one hour forward, those jobs that would have run in the interval that has been skipped will be
  run immediately."
- "If time was adjusted backward, running the same job twice is avoided."
- "Time changes of more than 3 hours are considered to be corrections, and the new time is used immediately."

Where the manual leaves exactly three hours open, they are not more than three. A run is known by its moment: what is
to run several times in one second is one run.

    python3 vectors.py > vectors.txt
"""

import calendar
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import tzdata

MINUTE = timedelta(minutes=1)
THREE_HOURS = timedelta(hours=3)
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
DAYS = "SUN MON TUE WED THU FRI SAT".split()
NICKNAMES = {"@yearly": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
             "@hourly": "0 * * * *"}


def number(text, names, base):
    return names.index(text) + base if text in names else int(text)


def matches(field, value, low, high, names=(), base=0):
    """Whether a value is in a field of lists, ranges and steps."""
    for item in field.split(","):
        part, _, step = item.partition("/")
        if part in "*?":
            first, last = low, high
        elif "-" in part:
            first, last = (number(end, names, base) for end in part.split("-"))
            if part.endswith("-SUN"):
                last = 7
        else:
            first = last = number(part, names, base)
        if value in range(first, last + 1, int(step or 1)):
            return True
    return False


def day_of_month_matches(field, date):
    length = calendar.monthrange(date.year, date.month)[1]
    month = [date.replace(day=day) for day in range(1, length + 1)]
    workdays = [day for day in month if day.isoweekday() <= 5]
    for item in field.split(","):
        if item == "L":
            found = date.day == length
        elif item == "LW":
            found = date.day == workdays[-1].day
        elif item.endswith("W"):
            meant = int(item[:-1])
            # The nearest day from Monday to Friday in the same month.
            found = meant <= length and date.day == min(workdays, key=lambda day: abs(day.day - meant)).day
        else:
            found = matches(item, date.day, 1, 31)
        if found:
            return True
    return False


def day_of_week_matches(field, date):
    length = calendar.monthrange(date.year, date.month)[1]
    for item in field.split(","):
        if item.endswith("L"):
            found = date.isoweekday() % 7 == number(item[:-1], DAYS, 0) % 7 and date.day + 7 > length
        elif "#" in item:
            day, nth = item.split("#")
            found = date.isoweekday() % 7 == number(day, DAYS, 0) % 7 and (date.day - 1) // 7 + 1 == int(nth)
        else:
            found = any(matches(item, day, 0, 7, DAYS) for day in {date.isoweekday(), date.isoweekday() % 7})
        if found:
            return True
    return False


class Job:
    def __init__(self, expression):
        fields = NICKNAMES.get(expression, expression).upper().split()
        fields = ["0"] * (6 - len(fields)) + fields
        self.second, self.minute, self.hour, self.day, self.month, self.weekday = fields
        self.wildcard = any("*" in field for field in fields[:3])
        self.seconds = [second for second in range(60) if matches(self.second, second, 0, 59)]

    def on_date(self, date):
        if not matches(self.month, date.month, 1, 12, MONTHS, 1):
            return False
        of_month, of_week = day_of_month_matches(self.day, date), day_of_week_matches(self.weekday, date)
        if set("*?") & set(self.day + self.weekday):
            return of_month and of_week
        return of_month or of_week

    def in_minute(self, wall):
        return (matches(self.minute, wall.minute, 0, 59) and matches(self.hour, wall.hour, 0, 23)
                and self.on_date(wall))


class Daemon:
    """Wakes each minute of real time and looks at the wall clock."""

    def __init__(self, zone, start, end):
        self.zone, self.minutes = ZoneInfo(zone), []
        moment = start
        while moment < end:
            self.minutes.append((moment, moment.astimezone(self.zone).replace(tzinfo=None, fold=0)))
            moment += MINUTE

    def runs(self, job, policy):
        seen, previous = set(), None
        for moment, wall in self.minutes:
            change = timedelta(0) if previous is None else wall - previous - MINUTE
            if abs(change) > THREE_HOURS:
                seen.clear()
            elif change > timedelta(0) and not job.wildcard and policy != "gap=skip":
                skipped = previous + MINUTE
                while skipped < wall:
                    if job.in_minute(skipped):
                        yield moment
                        break
                    skipped += MINUTE
            again = wall in seen and not job.wildcard and policy != "fold=both"
            if job.in_minute(wall) and not again:
                yield from (moment + timedelta(seconds=second) for second in job.seconds)
            seen.add(wall)
            previous = wall


def changes(zone, year):
    """The first moments after changes of a zone's offset in a year, with the wall times before and after."""
    zone, moment = ZoneInfo(zone), datetime(year, 1, 1, tzinfo=timezone.utc)
    while moment.year == year:
        later = moment + timedelta(hours=1)
        if moment.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            offset = moment.astimezone(zone).utcoffset()
            while (moment + MINUTE).astimezone(zone).utcoffset() == offset:
                moment += MINUTE
            moment += MINUTE
            yield moment, (moment + offset).replace(tzinfo=None), moment.astimezone(zone).replace(tzinfo=None)
            moment = later
        else:
            moment = later


def expressions(old, new):
    """Jobs around a change from one wall time to another."""
    low, high = min(old, new), max(old, new)
    middle = low + (high - low) / 2
    middle -= timedelta(seconds=middle.second)
    m, h = middle.minute, middle.hour
    hours = sorted({low.hour, middle.hour, high.hour})
    yield from [
        (f"{m} {h} * * *", "-"),
        (f"{m} {h} * * *", "gap=skip" if new > old else "fold=both"),
        (f"{low.minute} {low.hour} * * *", "-"),
        (f"{high.minute} {high.hour} * * *", "-"),
        (f"0,{m or 20},50 {','.join(map(str, hours))} * * *", "-"),
        (f"{m} {low.hour}-{max(low.hour, high.hour)} * * *", "-"),
        (f"{m} {h} {middle.day} {middle.month} *", "-"),
        (f"{m} {h} * * {DAYS[middle.isoweekday() % 7]}", "-"),
        (f"30 {m} {h} * * *", "-"),
        ("@daily", "-"),
        (f"{m} * * * *", "-"),
        (f"*/15 {h} * * *", "-"),
        ("*/30 * * * *", "-"),
        ("0 */2 * * *", "-"),
        (f"*/20 {m} {h} * * *", "-"),
        ("@hourly", "-"),
    ]


YEARS = [
    ("Europe/Berlin", 2025), ("Europe/London", 2025), ("Europe/Dublin", 2025), ("America/New_York", 2025),
    ("America/St_Johns", 2010), ("America/Santiago", 2025), ("America/Asuncion", 2023), ("America/Havana", 2024),
    ("Africa/Casablanca", 2025), ("Africa/Cairo", 2024), ("Asia/Tehran", 2022), ("Asia/Pyongyang", 2015),
    ("Australia/Sydney", 2025), ("Australia/Lord_Howe", 2025), ("Pacific/Chatham", 2025), ("Pacific/Apia", 2011),
    ("Pacific/Kwajalein", 1993), ("Antarctica/Troll", 2025), ("Antarctica/Casey", 2009), ("Antarctica/Casey", 2010),
    ("Antarctica/Macquarie", 2010),
]

CALENDAR = [
    "0 0 1 1 *", "@yearly", "@monthly", "@weekly", "0 12 29 2 *", "0 12 29 2 */7", "0 0 31 * *", "0 9 L * *",
    "0 9 LW * *", "0 9 1W * *", "0 9 15W * *", "0 9 31W * *", "0 9 1,15,L * *", "0 9 30W,2 * *", "0 9 * * 5L",
    "0 9 * * FRI#2", "0 9 * * 1#5", "0 9 * * 7#1", "0 9 * * MON#1,THUL", "0 9 13 * 5", "0 9 1,15 * 1", "0 9 */2 * 1",
    "0 9 1-7 * */2", "0 9 ? * MON-FRI", "0 9 15 * ?", "0 0 * JAN-MAR,DEC SAT-SUN", "5-25/10 8 1-7 6-8/2 *",
    "0 6 * * 0,7", "0 6 * * 5-7", "0 6 * * mon,wed", "59 23 31 12 *", "15 10 L 2 5L", "0,30 9-17/4 * * 1-5",
    "20-59/20 0 0 1 */3 *",
]


def show(moments, zone):
    local = (moment.astimezone(ZoneInfo(zone)).isoformat() for moment in moments)
    return " ".join(local)


def row(zone, expression, policy, after, found):
    print(f"{zone} | {expression} | {policy} | {show([after], zone)} | {show(found, zone)}")


def around_changes():
    for zone, year in YEARS:
        for change, old, new in changes(zone, year):
            daemon = Daemon(zone, change - timedelta(days=1), change + timedelta(days=9))
            shift = abs(new - old)
            for index, (expression, policy) in enumerate(expressions(old, new)):
                runs = sorted(set(daemon.runs(Job(expression), policy)))
                # Before the change; in what follows it, where what came before must not be forgotten.
                afters = [change - timedelta(hours=1, minutes=30), change + shift / 3]
                after = afters[index % 2] if index > 1 else afters[0]
                after = after.replace(second=0)
                found = [run for run in runs if run > after][:4]
                row(zone, expression, policy, after, found or within_a_year(zone, expression, policy, after))


def within_a_year(zone, expression, policy, after):
    daemon = Daemon(zone, after - timedelta(days=1), after + timedelta(days=370))
    return [run for run in daemon.runs(Job(expression), policy) if run > after][:1]


def by_calendar():
    start = datetime(2026, 1, 30, 10, 0, tzinfo=timezone.utc)
    for expression in CALENDAR:
        job, day, found = Job(expression), start.replace(hour=0), []
        while len(found) < 5:
            if job.on_date(day):
                minutes = (day + MINUTE * minute for minute in range(24 * 60))
                found += [minute + timedelta(seconds=second) for minute in minutes if job.in_minute(minute)
                          for second in job.seconds if minute + timedelta(seconds=second) > start]
            day += timedelta(days=1)
        row("UTC", expression, "-", start, found[:5])


def without_changes():
    after = datetime(2025, 3, 29, 20, 17, tzinfo=timezone.utc)
    daemon = Daemon("Asia/Kathmandu", after, after + timedelta(days=9))
    for expression, policy in expressions(datetime(2025, 3, 30, 2), datetime(2025, 3, 30, 3)):
        runs = daemon.runs(Job(expression), policy)
        row("Asia/Kathmandu", expression, policy, after, [run for run in runs if run > after][:4])


if __name__ == "__main__":
    print(f"# Made by vectors.py from tzdata {tzdata.IANA_VERSION}; not to be edited.")
    print("# zone | expression | policy at changes, - for the default | after | the occurrences that follow")
    around_changes()
    without_changes()
    by_calendar()
    sys.stdout.flush()
