/** The user's scheduled jobs: the list by state, a calendar of their next runs, and what can be done with several at once. */

import { html, useEffect, useState } from '../vendor/ui.js';
import { dateTime, moment, number } from '../lib/format.js';
import { ACTIONS, STATES, actOn, jobHint, jobName } from '../lib/jobs.js';
import { scheduleWords } from '../lib/schedule.js';
import { go, href, listAll } from '../lib/store.js';
import { Confirm, ErrorNote, Tabs, useLoad } from '../lib/ui.js';
import { Calendar } from './calendar.js';
import { NewJob } from './new-job.js';
import { JobDetail } from './job.js';

const TABS = [{ id: 'list', name: 'List' }, { id: 'calendar', name: 'Next 14 days' }];

/** @param {{id?: string}} props `calendar`, `new`, or a job's id; the list without it. */
export function Jobs({ id }) {
  if (id === 'new') return html`<${NewJob} />`;
  if (id && id !== 'calendar') return html`<${JobDetail} key=${id} id=${id} />`;
  return html`<section class="page" aria-labelledby="jobs-title">
    <header class="page-head"><h1 id="jobs-title">Jobs</h1><a class="button primary" href=${href('jobs', 'new')}>New job</a></header>
    <${Tabs} label="Jobs" tabs=${TABS} selected=${id ?? 'list'} onSelect=${(tab) => go('jobs', tab === 'list' ? undefined : tab)} panel="jobs-panel" />
    <div class="tab-panel" id="jobs-panel" role="tabpanel" aria-labelledby=${`tab-${id ?? 'list'}`}>${id ? html`<${Calendar} />` : html`<${JobList} />`}</div>
  </section>`;
}

function JobList() {
  const [state, setState] = useState('');
  const list = useLoad(() => listAll('GET /api/pulse/jobs', 'jobs', { query: { state }, pages: 3 }), state);
  const [selected, setSelected] = useState(new Set());
  const jobs = list.data ?? [];
  const chosen = jobs.filter(({ jobId }) => selected.has(jobId));
  useEffect(() => setSelected(new Set()), [state]);
  const select = (id, isSelected) => {
    const next = new Set(selected);
    if (isSelected) next.add(id);
    else next.delete(id);
    setSelected(next);
  };
  const done = () => {
    setSelected(new Set());
    list.reload();
  };
  const selectAll = (isSelected) => setSelected(new Set(isSelected ? jobs.map(({ jobId }) => jobId) : []));
  return html`
    <div class="row between list-head">
      <label class="check"><input type="checkbox" disabled=${jobs.length === 0} checked=${jobs.length > 0 && chosen.length === jobs.length}
        indeterminate=${chosen.length > 0 && chosen.length < jobs.length} onChange=${(event) => selectAll(event.target.checked)} /> Select all</label>
      <div class="row">
        <label><span class="visually-hidden">State</span><select value=${state} onChange=${(event) => setState(event.target.value)}>
          ${STATES.map((one) => html`<option key=${one} value=${one}>${one || 'All states'}</option>`)}</select></label>
        <button type="button" class="button" onClick=${list.reload}>Reload</button>
      </div>
    </div>
    <${Bulk} chosen=${chosen} filter=${state} onDone=${done} />
    ${list.error && html`<${ErrorNote} error=${list.error} />`}
    ${list.data && jobs.length === 0 && html`<p class="muted">${state ? 'No job is in this state.' : html`No jobs yet. Schedule one here; agents with <code>scheduleTool</code> and assignments make them too.`}</p>`}
    <ul class="rows">${jobs.map((job) => html`<${Row} key=${job.jobId} job=${job} isSelected=${selected.has(job.jobId)} onSelect=${select} />`)}</ul>`;
}

function Row({ job, isSelected, onSelect }) {
  const { jobId, state, payload = {}, schedule, executeAt, attempt, lastError } = job;
  const [name, hint] = [jobName(job), jobHint(job)];
  return html`<li class="item">
    <input type="checkbox" class="select" aria-label=${`Select ${name}${hint ? ` ${hint}` : ''}`} checked=${isSelected} onChange=${(event) => onSelect(jobId, event.target.checked)} />
    <div class="item-main">
      <a class="item-title" href=${href('jobs', jobId)}>${name}${hint && html` <span class="job-hint">${hint}</span>`}</a>
      <p class="meta"><span class=${`dot ${state}`} aria-hidden="true"></span> ${state} · ${payload.agentId} · ${scheduleWords(schedule)} · <time datetime=${executeAt} title=${dateTime(executeAt)}>${moment(executeAt)}</time>${attempt ? ` · attempt ${attempt}` : ''}</p>
      ${lastError && html`<p class="field-error">${String(lastError)}</p>`}
    </div>
  </li>`;
}

/** Does one thing with each of the jobs, one after the other, and keeps which have failed. */
function useBulk(onDone) {
  const [progress, setProgress] = useState(undefined);
  const run = async (action, jobs) => {
    const failed = [];
    let changed = 0;
    for (const [done, job] of jobs.entries()) {
      setProgress({ action, done, of: jobs.length, failed });
      try {
        await actOn(action, job);
        changed += 1;
      } catch (error) {
        failed.push({ job, error });
        // Those that follow would be refused for the same reason.
        if (error.status === 401 || error.status === 429) break;
      }
    }
    setProgress({ action, failed, isOver: true, done: changed, of: jobs.length });
    onDone();
  };
  return { progress, run, isRunning: Boolean(progress) && !progress.isOver };
}

const jobCount = (count) => (count === 1 ? '1 job' : `${number(count)} jobs`);

function Bulk({ chosen, filter, onDone }) {
  const { progress, run, isRunning } = useBulk(onDone);
  const [asks, setAsks] = useState(undefined);
  const fitting = ({ fits }) => chosen.filter((job) => fits(job, filter));
  return html`<div class="bulk" hidden=${chosen.length === 0 && !progress}>
    <p class="meta" role="status">${bulkStatus(progress, chosen.length)}</p>
    <div class="row">${ACTIONS.map((action) => html`<button type="button" key=${action.id} class="button small" disabled=${isRunning || fitting(action).length === 0}
      onClick=${() => setAsks({ action, jobs: fitting(action) })}>${action.name}</button>`)}</div>
    ${progress?.failed.length > 0 && html`<div class="note note-error" role="alert"><p>${jobCount(progress.failed.length)} could not be changed.</p>
      <ul class="plain">${progress.failed.slice(0, 5).map(({ job, error }) => html`<li key=${job.jobId}>${jobName(job)}: <code class="code-word">${error.code}</code> ${error.message}</li>`)}</ul></div>`}
    ${asks && html`<${Confirm} title=${asks.action.ask(jobCount(asks.jobs.length))} text=${confirmText(asks, chosen.length)}
      action=${asks.action.isFinal ? `Cancel ${jobCount(asks.jobs.length)}` : asks.action.name} onConfirm=${() => run(asks.action, asks.jobs)} onClose=${() => setAsks(undefined)} />`}
  </div>`;
}

function bulkStatus(progress, selected) {
  if (progress && !progress.isOver) return `${progress.action.name}: ${progress.done} of ${progress.of}…`;
  if (selected > 0 || !progress) return `${jobCount(selected)} selected`;
  return `${progress.action.name}: done for ${progress.done} of ${jobCount(progress.of)}.`;
}

function confirmText({ action, jobs }, selected) {
  const others = selected - jobs.length;
  if (others === 0) return action.text;
  return `${action.text} ${others === 1 ? '1 selected job is left as it is.' : `${number(others)} selected jobs are left as they are.`}`;
}
