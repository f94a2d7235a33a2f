/** Jobs: their names, actions, schedules in words, and next runs. */

import { html } from '../vendor/ui.js';
import { call } from './store.js';
import { Time, useLoad, usePaused } from './ui.js';

export const STATES = ['', 'open', 'scheduled', 'running', 'retryable', 'paused', 'completed', 'discarded', 'cancelled'];
export const FINAL = new Set(['completed', 'discarded', 'cancelled']);

/** Returns true if a job can be cancelled and rescheduled. The periodic job of an assignment changes with its assignment only. */
export const isChangeable = ({ state, payload = {}, schedule = {} }) => !FINAL.has(state) && !(payload.assignmentId && !schedule.executeAt);

/** Actions, and the jobs for which each is. A periodic job that goes on is among the discarded ones for its dead letters. */
export const ACTIONS = [
  { id: 'pause', name: 'Pause', route: 'POST /api/pulse/jobs/{id}/pause', fits: ({ state }) => !FINAL.has(state) && state !== 'paused',
    ask: (jobs) => `Pause ${jobs}?`,
    text: 'No run begins until you resume. A run in progress goes on.' },
  { id: 'resume', name: 'Resume', route: 'POST /api/pulse/jobs/{id}/resume', fits: ({ state }) => state === 'paused',
    ask: (jobs) => `Resume ${jobs}?`,
    text: 'Runs begin by the schedule again.' },
  { id: 'redrive', name: 'Run again', route: 'POST /api/pulse/jobs/{id}/redrive', fits: ({ state }, filter) => state === 'discarded' || filter === 'discarded',
    ask: (jobs) => `Run ${jobs} again?`,
    text: 'The last discarded run is made again, now.' },
  { id: 'cancel', name: 'Cancel', route: 'DELETE /api/pulse/jobs/{id}', fits: isChangeable, isFinal: true,
    ask: (jobs) => `Cancel ${jobs}?`, text: 'No further run begins. A run in progress goes on.' },
];

/** A job's action, in a few words. */
export const jobName = ({ payload = {} }) => payload.toolId ?? payload.message ?? payload.kind ?? 'job';

/** The first text among the arguments of a job's tool, which tells jobs of one tool apart. */
export function jobHint({ payload = {} }) {
  const text = Object.values(payload.arguments ?? {}).find((value) => typeof value === 'string' && value !== '');
  return text && (text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

/** Does something with a job. @param {{route: string}} action @param {{jobId: string}} job */
export const actOn = ({ route }, { jobId }) =>
  call(route, { params: { id: jobId }, body: route.startsWith('POST') ? {} : undefined });

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

/** Returns a job's schedule in words. An expression that has none is not wrapped. */
export function scheduleWords({ cron, everyMs, timezone } = {}) {
  const words = cron && cronWords(cron);
  if (cron) return `${words === cron ? cron.replaceAll(' ', '\u00a0') : words}${timezone ? `, ${timezone}` : ''}`;
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

/** Number of occurrences that a form shows. */
const SHOWN = 5;

/** Maximum number of occurrences that one request gives. */
const PAGE = 100;
/** Maximum number of requests for one schedule, and of schedules that are requested. */
const MAX_PAGES = 4;
const MAX_SCHEDULES = 20;

/** Returns the next occurrences of a schedule. @returns {Promise<string[]>} */
const nextOccurrences = async (schedule, { count, after, signal }) =>
  (await call('POST /api/pulse/next', { body: { schedule, count, after }, signal })).data.next;

/** Returns the occurrences of a cron expression up to a time, as far as a few requests give them. */
async function cronRuns({ cron, timezone, dst }, until, signal) {
  const found = [];
  try {
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const next = await nextOccurrences({ cron, timezone, dst }, { count: PAGE, after: found.at(-1), signal });
      found.push(...next);
      if (next.length < PAGE || new Date(next.at(-1)) >= until) return { runs: found, isWhole: true };
    }
  } catch (error) {
    // A schedule that the server cannot read does not affect the others.
    if (error.status !== 400) throw error;
  }
  return { runs: found, isWhole: false };
}

/** Returns the runs of an interval after a job's next one, up to a time. */
function intervalRuns({ everyMs }, executeAt, until) {
  const found = [];
  for (let time = Date.parse(executeAt) + everyMs; time < until && found.length < PAGE * MAX_PAGES; time += everyMs) found.push(new Date(time).toISOString());
  return { runs: found, isWhole: found.length < PAGE * MAX_PAGES };
}

/**
 * Returns jobs with the runs after their next ones as further elements, which are marked as repeated.
 *
 * @param {object[]} jobs
 * @param {Date} until
 * @returns {Promise<{jobs: object[], isWhole: boolean}>} `isWhole` is false if some runs before `until` are absent.
 */
export async function withRepeats(jobs, until, signal) {
  const asked = new Map();
  const all = [...jobs];
  let isWhole = true;
  for (const job of jobs) {
    const { schedule = {}, state, executeAt } = job;
    if (state === 'paused' || (!schedule.cron && !schedule.everyMs)) continue;
    const key = JSON.stringify(schedule);
    if (schedule.cron && !asked.has(key) && asked.size < MAX_SCHEDULES) asked.set(key, cronRuns(schedule, until, signal));
    const found = schedule.cron ? await asked.get(key) : intervalRuns(schedule, executeAt, until);
    isWhole &&= Boolean(found?.isWhole);
    for (const time of found?.runs ?? []) if (time > executeAt) all.push({ ...job, executeAt: time, isRepeat: true });
  }
  return { jobs: all, isWhole };
}

/** The next occurrences of the schedule of a form, which may be undefined. */
export function NextRuns({ schedule }) {
  const key = usePaused(JSON.stringify(schedule ?? null));
  const { data, error } = useLoad((signal) => (schedule ? nextOccurrences(schedule, { count: SHOWN, signal }) : Promise.resolve([])), key);
  if (error) return html`<p class="next-runs field-error">${error.message}</p>`;
  if (!data || data.length === 0) return html`<p class="next-runs meta"> </p>`;
  return html`<div class="next-runs"><p class="label">${data.length === 1 ? 'Runs' : 'Next runs'}</p>
    <ol class="chips plain">${data.map((time) => html`<li key=${time} class="chip"><${Time} at=${time} /></li>`)}</ol></div>`;
}
