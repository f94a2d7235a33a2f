/** A calendar of the next run of each job. */

import { html } from '../vendor/ui.js';
import { dateTime } from '../lib/format.js';
import { jobHint, jobName } from '../lib/jobs.js';
import { calendarDays, scheduleWords } from '../lib/schedule.js';
import { href, listAll } from '../lib/store.js';
import { ErrorNote, useLoad } from '../lib/ui.js';

const DAYS = 14;
const weekday = new Intl.DateTimeFormat('en', { weekday: 'short' });
const date = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns the clock's time in a zone; in the browser's if the zone is unknown. */
function clock(iso, timeZone) {
  const options = { hour: '2-digit', minute: '2-digit' };
  try {
    return new Intl.DateTimeFormat(undefined, { ...options, timeZone }).format(new Date(iso));
  } catch {
    return new Intl.DateTimeFormat(undefined, options).format(new Date(iso));
  }
}

export function Calendar() {
  const list = useLoad(() => listAll('GET /api/pulse/jobs', 'jobs', { query: { state: 'open' }, pages: 3 }), '');
  if (list.error) return html`<${ErrorNote} error=${list.error} />`;
  if (!list.data) return html`<p class="muted">Loading…</p>`;
  const { days, later } = calendarDays(list.data, new Date(), DAYS);
  return html`
    <p class="muted lead">The next run of each open job, in your time zone, ${here}. Those that repeat run again after it.</p>
    <ol class="calendar">${days.map((day, place) => html`<${Day} key=${place} day=${day} isToday=${place === 0} />`)}</ol>
    ${later.length > 0 && html`<h2 class="label">Later</h2>
      <ul class="plain">${later.map((job) => html`<li key=${job.jobId} class="entry"><a href=${href('jobs', job.jobId)}>${jobName(job)} <span class="job-hint">${jobHint(job)}</span></a> <time class="meta" datetime=${job.executeAt}>${dateTime(job.executeAt)}</time></li>`)}</ul>`}`;
}

function Day({ day: { start, jobs, shiftMinutes }, isToday }) {
  return html`<li class=${`day ${jobs.length === 0 ? 'free' : ''}`}>
    <h2 class="day-name">${isToday ? 'Today' : weekday.format(start)} <span class="muted">${date.format(start)}</span></h2>
    ${shiftMinutes !== 0 && html`<p class="chip shift">clocks ${shiftMinutes > 0 ? 'forward' : 'back'} ${Math.abs(shiftMinutes)} min</p>`}
    <ul class="plain">${jobs.map((job) => html`<${Entry} key=${job.jobId} job=${job} />`)}</ul>
  </li>`;
}

function Entry({ job }) {
  const { jobId, executeAt, state, schedule } = job;
  const zone = schedule?.timezone;
  const [mine, theirs] = [clock(executeAt), zone && zone !== here ? clock(executeAt, zone) : undefined];
  const isLate = new Date(executeAt) < new Date() && state !== 'running';
  return html`<li class="entry">
    <a href=${href('jobs', jobId)} title=${`${jobName(job)}: ${scheduleWords(schedule)}`}><span class=${`dot ${state}`} aria-hidden="true"></span><time datetime=${executeAt}>${mine}</time> <span class="entry-name">${jobHint(job) ?? jobName(job)}</span></a>
    ${state !== 'scheduled' && html`<p class="meta">${state}</p>`}
    ${isLate && state === 'scheduled' && html`<p class="meta">overdue</p>`}
    ${theirs && theirs !== mine && html`<p class="meta">${theirs} in ${zone.split('/').at(-1).replaceAll('_', ' ')}</p>`}
  </li>`;
}
