/** The next occurrences of a schedule, as the server computes them. */

import { html } from '../vendor/ui.js';
import { call } from './store.js';
import { Time, useLoad, usePaused } from './ui.js';

/** Number of occurrences that a form shows. */
const SHOWN = 5;

/** Maximum number of occurrences that one request gives. */
const PAGE = 100;
/** Maximum number of requests for one schedule, and of schedules that are asked for. */
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
    // One schedule that the server cannot read takes nothing from the others.
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
