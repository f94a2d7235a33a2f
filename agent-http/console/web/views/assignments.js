/** The assignments of an agent: what it does by a schedule for its owner, and whether the scheduler has each as it is. */

import { html } from '../vendor/ui.js';
import { jobHint, jobName, scheduleWords } from '../lib/jobs.js';
import { keepFocus } from '../lib/lists.js';
import { call, href, listAll } from '../lib/store.js';
import { Dot, ErrorNote, Time, pending, useAction, useConfirm, useLoad } from '../lib/ui.js';

export function Assignments({ id }) {
  const list = useLoad(() => listAll('GET /api/agents/{id}/assignments', 'assignments', { params: { id } }), id);
  return pending(list) ?? html`
    <div class="row between"><p class="muted">What the agent does by a schedule, for the user of each assignment. A program of yours makes them.</p>
      <button type="button" class="button" onClick=${list.reload}>Reload</button></div>
    ${list.data.length === 0 && html`<p class="muted">The agent has no assignments.</p>`}
    <ul class="rows" ref=${keepFocus}>${list.data.map((one) => html`<${Row} key=${one.id} assignment=${one} onChange=${list.reload} />`)}</ul>`;
}

/** Returns the state of an assignment in words, and its colour. */
function stateOf({ schedule: { enabled }, sync: { inStep, problem } }) {
  if (problem) return [problem, 'failed'];
  if (!inStep) return ['waits for the scheduler', 'waiting'];
  return enabled ? ['enabled', 'done'] : ['disabled', 'idle'];
}

function Row({ assignment, onChange }) {
  const { id, agentId, userId, schedule, sync } = assignment;
  const { error, isBusy, run } = useAction();
  const params = { id: agentId, assignmentId: id };
  const path = '/api/agents/{id}/assignments/{assignmentId}';
  const change = async () => {
    // Another user may have changed it since the list was read, which the condition detects.
    const { data, etag } = await call(`GET ${path}`, { params });
    const { sync, ...body } = data;
    await call(`PUT ${path}`, { params, body: { ...body, schedule: { ...body.schedule, enabled: !schedule.enabled } }, ifMatch: etag });
    onChange();
  };
  const [question, ask] = useConfirm(() => ({
    title: 'Delete this assignment?', text: `“${id}” is deleted, and its jobs are cancelled. This cannot be undone.`, action: 'Delete',
    onConfirm: () => run(() => call(`DELETE ${path}`, { params }).then(onChange)),
  }));
  const [words, dot] = stateOf(assignment);
  const hint = jobHint({ payload: assignment });
  const verb = schedule.enabled ? 'Disable' : 'Enable';
  return html`<li class="item">
    <div class="item-main">
      <p class="item-title">${jobName({ payload: assignment })}${hint && html` <span class="job-hint">${hint}</span>`}</p>
      <p class="meta"><${Dot} state=${dot} /> ${words} · ${scheduleWords(schedule)} · for ${userId} · <code>${id}</code></p>
      ${sync.jobId && schedule.enabled && html`<p class="meta">next run <${Time} at=${sync.executeAt} /> · <a href=${href('jobs', sync.jobId)}>job</a></p>`}
      <${ErrorNote} error=${error} />
    </div>
    <div class="row">
      <button type="button" class="button quiet small" disabled=${isBusy} aria-label=${`${verb} ${id}`} onClick=${() => run(change)}>${verb}</button>
      <button type="button" class="button quiet small danger-text" aria-label=${`Delete ${id}`} onClick=${ask}>Delete</button>
    </div>
    ${question}
  </li>`;
}
