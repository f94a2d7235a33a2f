/** Schedules of jobs in words, and the days of a calendar. */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const SHORT_DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const UNITS = [['day', 86_400_000], ['hour', 3_600_000], ['minute', 60_000], ['second', 1000], ['millisecond', 1]];

const isNumber = (text) => /^\d{1,2}$/.test(text);
const two = (text) => text.padStart(2, '0');

/** Returns the days of a cron expression's last field in words; `undefined` if they are a pattern. */
function weekdays(field) {
  if (/^(1-5|mon-fri)$/i.test(field)) return 'on weekdays';
  const numbers = field.split(',').map((name) => (isNumber(name) ? Number(name) % 7 : SHORT_DAYS.indexOf(name.toLowerCase())));
  if (numbers.some((number) => !(number >= 0 && number < 7))) return undefined;
  return `on ${numbers.map((number) => `${DAYS[number]}s`).join(', ').replace(/, ([^,]*)$/, ' and $1')}`;
}

/** Returns a cron expression in words, if it is one of the usual forms; else the expression. @param {string} cron */
export function cronWords(cron) {
  const fields = cron.trim().split(/\s+/);
  const [minute, hour, day, month, weekday] = fields;
  if (fields.length !== 5 || month !== '*') return cron;
  if (day === '*' && weekday === '*' && hour === '*') {
    const step = /^\*(?:\/(\d{1,2}))?$/.exec(minute);
    if (step) return !step[1] || step[1] === '1' ? 'every minute' : `every ${step[1]} minutes`;
    return isNumber(minute) ? `every hour at :${two(minute)}` : cron;
  }
  if (!isNumber(minute) || !isNumber(hour)) return cron;
  const time = `at ${two(hour)}:${two(minute)}`;
  if (day === '*') {
    const on = weekday === '*' ? 'every day' : weekdays(weekday);
    return on ? `${on} ${time}` : cron;
  }
  return weekday === '*' && isNumber(day) ? `on day ${Number(day)} of each month ${time}` : cron;
}

/** Returns an interval in words, such as `every 2 hours`. @param {number} ms */
export function intervalWords(ms) {
  const [unit, length] = UNITS.find(([, length]) => ms % length === 0) ?? UNITS.at(-1);
  const count = ms / length;
  return count === 1 ? `every ${unit}` : `every ${count} ${unit}s`;
}

/** Returns a job's schedule in words. */
export function scheduleWords({ cron, everyMs, timezone } = {}) {
  if (cron) return `${cronWords(cron)}${timezone ? `, ${timezone}` : ''}`;
  return everyMs ? intervalWords(everyMs) : 'once';
}

/** Returns the midnight that begins a day of the browser's zone, `days` after the one of `time`. */
const midnight = (time, days = 0) => new Date(time.getFullYear(), time.getMonth(), time.getDate() + days);

/**
 * Sorts jobs by the days of their runs, in the browser's zone. Overdue ones are on the first day. Of the runs of one job on a
 * day, `more` counts those after the first.
 *
 * @param {{jobId?: string, executeAt: string, state: string, isRepeat?: boolean}[]} jobs
 * @param {Date} now
 * @param {number} count Number of days.
 */
export function calendarDays(jobs, now, count) {
  const days = Array.from({ length: count }, (_, place) => {
    const [start, end] = [midnight(now, place), midnight(now, place + 1)];
    // On a day on which the clocks change, the offset at its end is another one.
    return { start, end, jobs: [], byId: new Map(), shiftMinutes: start.getTimezoneOffset() - end.getTimezoneOffset() };
  });
  const later = [];
  for (const job of [...jobs].sort((one, other) => one.executeAt.localeCompare(other.executeAt))) {
    const time = new Date(job.executeAt);
    const day = days.find(({ end }) => time < end);
    const first = job.jobId && day?.byId.get(job.jobId);
    if (first) first.more += 1;
    else if (day) {
      const entry = { ...job, more: 0 };
      day.jobs.push(entry);
      day.byId.set(job.jobId, entry);
    } else if (!job.isRepeat) later.push(job);
  }
  return { days, later };
}
