/** The user's scheduled jobs: the list by state, and what can be done with each. */

import { html, useState } from '../vendor/ui.js';
import { dateTime, moment } from '../lib/format.js';
import { call, listAll } from '../lib/store.js';
import { Code, Confirm, ErrorNote, useLoad } from '../lib/ui.js';

const STATES = ['', 'open', 'scheduled', 'running', 'retryable', 'paused', 'completed', 'discarded', 'cancelled'];
const FINAL = new Set(['completed', 'discarded', 'cancelled']);

export function Jobs() {
  const [state, setState] = useState('');
  const list = useLoad(() => listAll('GET /api/pulse/jobs', 'jobs', { query: { state }, pages: 3 }), state);
  return html`<section class="page" aria-labelledby="jobs-title">
    <header class="page-head"><h1 id="jobs-title">Jobs</h1>
      <div class="row">
        <label><span class="visually-hidden">State</span><select value=${state} onChange=${(event) => setState(event.target.value)}>
          ${STATES.map((one) => html`<option key=${one} value=${one}>${one || 'All states'}</option>`)}</select></label>
        <button type="button" class="button" onClick=${list.reload}>Reload</button>
      </div>
    </header>
    ${list.error && html`<${ErrorNote} error=${list.error} />`}
    ${list.data && list.data.length === 0 && html`<p class="muted">No jobs. An agent with <code>scheduleTool</code>, an assignment, or <code>POST /api/pulse/jobs</code> makes them.</p>`}
    <ul class="rows">${(list.data ?? []).map((job) => html`<${Job} key=${job.jobId} job=${job} onChange=${list.reload} />`)}</ul>
  </section>`;
}

/** A schedule in words. */
function words({ cron, everyMs, executeAt, timezone } = {}) {
  if (cron) return `${cron}${timezone ? `, ${timezone}` : ''}`;
  if (everyMs) return `every ${everyMs / 1000} s`;
  return executeAt ? 'once' : '';
}

function Job({ job, onChange }) {
  const [asks, setAsks] = useState(false);
  const [error, setError] = useState(undefined);
  const { jobId, state, payload = {}, schedule, executeAt, attempt, occurrence, lastError } = job;
  const act = async (route) => {
    try {
      await call(route, { params: { id: jobId }, body: route.startsWith('POST') ? {} : undefined });
      onChange();
    } catch (error) {
      setError(error);
    }
  };
  return html`<li class="item">
    <div class="item-main">
      <p class="item-title"><span class=${`dot ${state}`} aria-hidden="true"></span> ${payload.toolId ?? payload.message ?? payload.kind}</p>
      <p class="meta">${state} · ${payload.agentId} · ${words(schedule)} · <time datetime=${executeAt} title=${dateTime(executeAt)}>${moment(executeAt)}</time>${attempt ? ` · attempt ${attempt}` : ''}${occurrence > 1 ? ` · occurrence ${occurrence}` : ''}</p>
      ${lastError && html`<p class="field-error">${typeof lastError === 'string' ? lastError : JSON.stringify(lastError)}</p>`}
      ${error && html`<${ErrorNote} error=${error} />`}
      <details><summary class="meta">Payload</summary><${Code} text=${JSON.stringify(job, null, 2)} label=${`job ${jobId}`} /></details>
    </div>
    <div class="row">
      ${state === 'paused' ? html`<button type="button" class="button quiet small" onClick=${() => act('POST /api/pulse/jobs/{id}/resume')}>Resume</button>` : ''}
      ${state === 'scheduled' ? html`<button type="button" class="button quiet small" onClick=${() => act('POST /api/pulse/jobs/{id}/pause')}>Pause</button>` : ''}
      ${state === 'discarded' ? html`<button type="button" class="button quiet small" onClick=${() => act('POST /api/pulse/jobs/{id}/redrive')}>Run again</button>` : ''}
      ${!FINAL.has(state) ? html`<button type="button" class="button quiet small" onClick=${() => setAsks(true)}>Cancel</button>` : ''}
    </div>
    ${asks && html`<${Confirm} title="Cancel this job?" text="It does not run again. A run in progress goes on." action="Cancel the job" onConfirm=${() => act('DELETE /api/pulse/jobs/{id}')} onClose=${() => setAsks(false)} />`}
  </li>`;
}
