/** A calendar of the next runs of the jobs. */

import { html, useState } from '../vendor/ui.js';
import { dateTime } from '../lib/format.js';
import { jobHint, jobName } from '../lib/jobs.js';
import { withRepeats } from '../lib/next.js';
import { calendarDays, scheduleWords } from '../lib/schedule.js';
import { href, listAll } from '../lib/store.js';
import { ErrorNote, useLoad } from '../lib/ui.js';

const DAYS = 14;
/** Entries of a day that are shown at first. */
const SHOWN = 8;
const weekday = new Intl.DateTimeFormat('en', { weekday: 'short' });
const date = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns the clock's time in a zone; in the browser's if the zone is unknown. */
function clock(iso, timeZone) {
  const options = { hour: 'numeric', minute: '2-digit' };
  try {
    return new Intl.DateTimeFormat(undefined, { ...options, timeZone }).format(new Date(iso));
  } catch {
    return new Intl.DateTimeFormat(undefined, options).format(new Date(iso));
  }
}

export function Calendar() {
  const now = new Date();
  const until = new Date(now.getFullYear(), now.getMonth(), now.getDate() + DAYS);
  const list = useLoad(async (signal) => withRepeats(await listAll('GET /api/pulse/jobs', 'jobs', { query: { state: 'open' }, pages: 3, signal }), until, signal), '');
  if (list.error) return html`<${ErrorNote} error=${list.error} />`;
  if (!list.data) return html`<p class="muted">Loading…</p>`;
  const { days, later } = calendarDays(list.data.jobs, now, DAYS);
  return html`
    <p class="muted lead">The runs of your open jobs, in your time zone, ${here}.${list.data.isWhole ? '' : ' Of jobs that run very often, not all runs are shown.'}</p>
    <ol class="calendar">${days.map((day, place) => html`<${Day} key=${place} day=${day} isToday=${place === 0} />`)}</ol>
    ${later.length > 0 && html`<h2 class="label">Later</h2>
      <ul class="plain">${later.map((job) => html`<li key=${job.jobId} class="entry"><a href=${href('jobs', job.jobId)}>${jobName(job)} <span class="job-hint">${jobHint(job)}</span></a> <time class="meta" datetime=${job.executeAt}>${dateTime(job.executeAt)}</time></li>`)}</ul>`}`;
}

function Day({ day: { start, jobs, shiftMinutes }, isToday }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole || jobs.length <= SHOWN + 1 ? jobs : jobs.slice(0, SHOWN);
  return html`<li class=${`day ${jobs.length === 0 ? 'free' : ''}`}>
    <h2 class="day-name">${isToday ? 'Today' : weekday.format(start)} <span class="muted">${date.format(start)}</span></h2>
    ${shiftMinutes !== 0 && html`<p class="chip shift">clocks ${shiftMinutes > 0 ? 'forward' : 'back'} ${Math.abs(shiftMinutes)} min</p>`}
    <ul class="plain">${shown.map((job) => html`<${Entry} key=${job.jobId} job=${job} />`)}</ul>
    ${shown.length < jobs.length && html`<button type="button" class="button quiet small" onClick=${() => setWhole(true)}>${jobs.length - shown.length} more</button>`}
  </li>`;
}

function Entry({ job }) {
  const { jobId, executeAt, state, schedule, more, isRepeat } = job;
  const zone = schedule?.timezone;
  const [mine, theirs] = [clock(executeAt), zone && zone !== here ? clock(executeAt, zone) : undefined];
  const isLate = new Date(executeAt) < new Date() && state !== 'running';
  return html`<li class="entry">
    <a href=${href('jobs', jobId)} title=${`${jobName(job)}: ${scheduleWords(schedule)}`}><span class=${`dot ${isRepeat ? 'idle' : state}`} aria-hidden="true"></span><time datetime=${executeAt}>${mine}</time> <span class="entry-name">${jobHint(job) ?? jobName(job)}</span></a>
    ${more > 0 && html`<p class="meta">and ${more} more ${more === 1 ? 'run' : 'runs'}</p>`}
    ${state !== 'scheduled' && !isRepeat && html`<p class="meta">${state}</p>`}
    ${isLate && state === 'scheduled' && html`<p class="meta">overdue</p>`}
    ${theirs && theirs !== mine && html`<p class="meta">${theirs} in ${zone.split('/').at(-1).replaceAll('_', ' ')}</p>`}
  </li>`;
}
