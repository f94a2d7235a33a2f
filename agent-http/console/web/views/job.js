/** One job: what it does, when, how its last attempt went, and what can be done with it. */

import { html, useState } from '../vendor/ui.js';
import { dateTime, number } from '../lib/format.js';
import { ACTIONS, actOn, jobName } from '../lib/jobs.js';
import { scheduleWords } from '../lib/schedule.js';
import { agents, href, listAll } from '../lib/store.js';
import { Code, Confirm, ErrorNote, useLoad } from '../lib/ui.js';
import { Reschedule } from './reschedule.js';

/** Pages of the list in which the job is looked for. */
const PAGES = 5;

export function JobDetail({ id }) {
  const list = useLoad(() => listAll('GET /api/pulse/jobs', 'jobs', { pages: PAGES }), id);
  const job = list.data?.find(({ jobId }) => jobId === id);
  return html`<section class="page" aria-labelledby="job-title">
    <p class="back"><a href=${href('jobs')}>Jobs</a></p>
    <header class="page-head"><h1 id="job-title">${job ? jobName(job) : 'Job'}</h1>${job && html`<${Actions} job=${job} onChange=${list.reload} />`}</header>
    ${list.error && html`<${ErrorNote} error=${list.error} />`}
    ${list.isLoading && !list.data && html`<p class="muted">Loading…</p>`}
    ${list.data && !job && html`<p class="muted">It is not among your ${number(list.data.length)} latest jobs. The scheduler forgets final ones after a time.</p>`}
    ${job && html`<${Facts} job=${job} onChange=${list.reload} />`}
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
    [ENDED.has(state) ? 'Last due' : 'Next run', time(executeAt)],
    ['Occurrence', html`${number(occurrence)}${attempt > 0 && html`<span class="muted">, attempt ${attempt}</span>`}`],
    ['Assignment', payload.assignmentId],
    ['Created', time(createdAt)],
    ['Identifier', html`<code>${jobId}</code>`],
  ];
  return html`
    ${lastError && html`<div class="note note-error"><p>The last attempt failed:</p><p>${String(lastError)}</p></div>`}
    <dl class="facts block">${facts.filter(([, value]) => value !== undefined).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${!ENDED.has(state) && html`<${Reschedule} key=${JSON.stringify(schedule) + executeAt} job=${job} onChange=${onChange} />`}
    ${payload.arguments !== undefined && html`<h2 class="label">Arguments</h2><${Code} text=${JSON.stringify(payload.arguments, null, 2)} label="arguments" wrap />`}
    <h2 class="label">Payload</h2><${Code} text=${JSON.stringify(payload, null, 2)} label="payload" wrap />`;
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
