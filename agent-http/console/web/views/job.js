/** One job: what it does, when, how its attempts went, and what can be done with it. */

import { html, useState } from '../vendor/ui.js';
import { dateTime, duration, number } from '../lib/format.js';
import { ACTIONS, actOn, jobName } from '../lib/jobs.js';
import { scheduleWords } from '../lib/schedule.js';
import { agents, call, href } from '../lib/store.js';
import { Code, Confirm, ErrorNote, useLoad } from '../lib/ui.js';
import { ScheduleFields, useSchedule } from './schedule-fields.js';

export function JobDetail({ id }) {
  const found = useLoad(async () => (await call('GET /api/pulse/jobs/{id}', { params: { id } })).data, id);
  const job = found.data?.jobId === id ? found.data : undefined;
  const isAbsent = found.error?.status === 404;
  return html`<section class="page" aria-labelledby="job-title">
    <p class="back"><a href=${href('jobs')}>Jobs</a></p>
    <header class="page-head"><h1 id="job-title">${job ? jobName(job) : 'Job'}</h1>${job && html`<${Actions} job=${job} onChange=${found.reload} />`}</header>
    ${found.error && !isAbsent && html`<${ErrorNote} error=${found.error} />`}
    ${found.isLoading && !job && html`<p class="muted">Loading…</p>`}
    ${isAbsent && html`<p class="muted">You have no such job. The scheduler forgets final ones after a time.</p>`}
    ${job && html`<${Facts} job=${job} onChange=${found.reload} />`}
  </section>`;
}

const time = (iso) => html`<time datetime=${iso} title=${iso}>${dateTime(iso)}</time>`;
const ENDED = new Set(['completed', 'discarded', 'cancelled']);

function Facts({ job, onChange }) {
  const { jobId, state, payload = {}, schedule = {}, executeAt, occurrence, attempt, lastError, createdAt } = job;
  const agent = agents.value.find(({ id }) => id === payload.agentId);
  const facts = [
    ['State', html`<span class=${`dot ${state}`} aria-hidden="true"></span> ${state}`],
    ['Does', payload.kind === 'tool' ? html`calls the tool <code>${payload.toolId}</code>` : payload.message ? `runs a turn with “${payload.message}”` : payload.kind],
    ['Agent', agent ? html`<a href=${href('agents', agent.id)}>${agent.name || agent.id}</a>` : payload.agentId],
    ['Schedule', html`${scheduleWords(schedule)}${schedule.cron && html` <code class="meta">${schedule.cron}</code>`}`],
    [ENDED.has(state) ? 'Last due' : state === 'retryable' ? 'Next attempt' : 'Next run', time(executeAt)],
    ['Occurrence', html`${number(occurrence)}${attempt > 0 && html`<span class="muted">, attempt ${attempt}</span>`}`],
    ['Assignment', payload.assignmentId],
    ['Created', time(createdAt)],
    ['Identifier', html`<code>${jobId}</code>`],
  ];
  return html`
    ${lastError && html`<div class="note note-error"><p>The last attempt failed:</p><p>${String(lastError)}</p></div>`}
    <dl class="facts block">${facts.filter(([, value]) => value !== undefined).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${job.attempts?.length > 0 && html`<${Attempts} attempts=${job.attempts} />`}
    ${!ENDED.has(state) && html`<${Reschedule} key=${JSON.stringify(schedule) + executeAt} job=${job} onChange=${onChange} />`}
    ${payload.arguments !== undefined && html`<h2 class="label">Arguments</h2><${Code} text=${JSON.stringify(payload.arguments, null, 2)} label="arguments" wrap />`}
    <h2 class="label">Payload</h2><${Code} text=${JSON.stringify(payload, null, 2)} label="payload" wrap />`;
}

/** The latest attempts, the last one first. */
function Attempts({ attempts }) {
  const isPeriodic = attempts.some(({ occurrence }) => occurrence !== attempts[0].occurrence);
  return html`<h2 class="label" id="attempts">Attempts</h2>
    <div class="table-scroll" tabindex="0" role="region" aria-labelledby="attempts"><table class="table">
      <thead><tr>${isPeriodic && html`<th scope="col">Occurrence</th>`}<th scope="col">Attempt</th><th scope="col">Ended</th><th scope="col">Took</th><th scope="col">Status</th><th scope="col">Outcome</th></tr></thead>
      <tbody>${[...attempts].reverse().map(({ occurrence, attempt, endedAt, durationMs, status, error }) => html`<tr key=${`${occurrence}-${attempt}-${endedAt}`}>
        ${isPeriodic && html`<td>${number(occurrence)}</td>`}<td>${number(attempt)}</td><td class="nowrap">${time(endedAt)}</td>
        <td>${durationMs === undefined ? html`<span class="muted">not known</span>` : duration(durationMs)}</td><td>${status ?? html`<span class="muted">none</span>`}</td>
        <td class="wide">${error === undefined ? html`<span class="good">succeeded</span>` : html`<span class="bad">failed</span> ${String(error)}`}</td></tr>`)}</tbody></table></div>`;
}

function Actions({ job, onChange }) {
  const [asks, setAsks] = useState(undefined);
  const [error, setError] = useState(undefined);
  const run = async (action) => {
    try {
      await actOn(action, job);
      setError(undefined);
      onChange();
    } catch (error) {
      setError(error);
    }
  };
  return html`<div>
    <div class="row">
      <button type="button" class="button" onClick=${onChange}>Reload</button>
      ${ACTIONS.filter(({ fits }) => fits(job)).map((action) => html`<button type="button" key=${action.id} class="button" onClick=${() => setAsks(action)}>${action.name}</button>`)}
    </div>
    ${error && html`<${ErrorNote} error=${error} />`}
    ${asks && html`<${Confirm} title=${asks.ask('this job')} text=${asks.text} action=${asks.isFinal ? 'Cancel the job' : asks.name} onConfirm=${() => run(asks)} onClose=${() => setAsks(undefined)} />`}
  </div>`;
}

/** A form that replaces the schedule. */
function Reschedule({ job, onChange }) {
  const state = useSchedule(job);
  const [error, setError] = useState(undefined);
  const [isSaving, setSaving] = useState(false);
  const [isOpen, setOpen] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setSaving(true);
    setError(undefined);
    try {
      await call('POST /api/pulse/jobs/{id}/reschedule', { params: { id: job.jobId }, body: state.schedule });
      onChange();
    } catch (error) {
      setError(error);
    }
    setSaving(false);
  };
  return html`<details class="fold block" onToggle=${(event) => setOpen(event.target.open)}><summary>Reschedule</summary>
    ${isOpen && html`<form class="fold-body" onSubmit=${submit}>
      <${ScheduleFields} state=${state} />
      ${error && html`<${ErrorNote} error=${error} />`}
      <button class="button primary" disabled=${isSaving}>Replace the schedule</button>
    </form>`}
  </details>`;
}
