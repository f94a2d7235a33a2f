/** The user's scheduled jobs: the list by state, a calendar of their next runs, one job, what can be done with several at once, and the forms of new and rescheduled ones. */

import { html, useEffect, useRef, useState } from '../vendor/ui.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { counted, day, duration, here, moment, newId, number } from '../lib/format.js';
import { ACTIONS, FINAL, NextRuns, STATES, actOn, calendarDays, cronWords, isChangeable, jobHint, jobName, scheduleWords, withRepeats } from '../lib/jobs.js';
import { agentNames, agents, call, client, go, href, listAll } from '../lib/store.js';
import { Code, Dot, ErrorNote, Facts, Page, Select, Table, Tabs, Time, options, pending, useAction, useConfirm, useGet, useLoad } from '../lib/ui.js';

const TABS = [{ id: 'list', name: 'List' }, { id: 'calendar', name: 'Next 14 days' }];

/** @param {{id?: string}} props `calendar`, `new`, or a job's id; the list without it. */
export function Jobs({ id }) {
  if (id === 'new') return html`<${NewJob} />`;
  if (id && id !== 'calendar') return html`<${JobDetail} key=${id} id=${id} />`;
  return html`<${Page} name="jobs" title="Jobs" actions=${html`<a class="button primary" href=${href('jobs', 'new')}>New job</a>`}>
    <${Tabs} label="Jobs" tabs=${TABS} selected=${id ?? 'list'} onSelect=${(tab) => go('jobs', tab === 'list' ? undefined : tab)} panel="jobs-panel" />
    <div class="tab-panel" id="jobs-panel" tabindex="-1" role="tabpanel" aria-labelledby=${`tab-${id ?? 'list'}`}>${id ? html`<${Calendar} />` : html`<${JobList} />`}</div>
  <//>`;
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
        <${Select} label="State" value=${state} onSelect=${setState} all=${STATES.map((one) => [one, one || 'All states'])} />
        <button type="button" class="button" onClick=${list.reload}>Reload</button>
      </div>
    </div>
    <${Bulk} chosen=${chosen} filter=${state} onDone=${done} />
    ${pending(list)}
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
      <p class="meta"><${Dot} state=${state} /> ${state} · ${payload.agentId} · ${scheduleWords(schedule)} · <${Time} at=${executeAt} words=${moment} />${attempt ? ` · attempt ${attempt}` : ''}</p>
      ${lastError && html`<p class="field-error">${String(lastError)}</p>`}
    </div>
  </li>`;
}

/** Applies an action to each of the jobs, one after another, and remembers the failed ones. */
function useBulk(onDone) {
  const [progress, setProgress] = useState(undefined);
  const run = async (action, jobs) => {
    // The dialog gives the focus back to a button that is disabled from now on.
    queueMicrotask(() => document.getElementById('jobs-panel').focus({ preventScroll: true }));
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

const jobCount = (count) => counted(count, 'job');

/** Returns the question about an action. A dialog that cancels says in both of its buttons what they do to `jobs`. */
const questionOf = ({ name, ask, text, isFinal }, jobs) => (
  { title: ask(jobs), text, action: isFinal ? `Cancel ${jobs}` : name, keep: isFinal ? `Keep ${jobs}` : undefined });

function Bulk({ chosen, filter, onDone }) {
  const { progress, run, isRunning } = useBulk(onDone);
  const fitting = ({ fits }) => chosen.filter((job) => fits(job, filter));
  const [question, ask] = useConfirm((action) => {
    const jobs = fitting(action);
    return {
      ...questionOf(action, jobCount(jobs.length)), text: confirmText({ action, jobs }, chosen.length), onConfirm: () => run(action, jobs),
    };
  });
  return html`<div class="bulk" hidden=${chosen.length === 0 && !progress}>
    <p class="meta" role="status">${bulkStatus(progress, chosen.length)}</p>
    <div class="row">${ACTIONS.map((action) => html`<button type="button" key=${action.id} class="button small" disabled=${isRunning || fitting(action).length === 0}
      onClick=${() => ask(action)}>${action.name}</button>`)}</div>
    ${progress?.failed.length > 0 && html`<div class="note note-error" role="alert"><p>${jobCount(progress.failed.length)} could not be changed.</p>
      <ul class="plain">${progress.failed.slice(0, 5).map(({ job, error }) => html`<li key=${job.jobId}>${jobName(job)}: <code class="code-word">${error.code}</code> ${error.message}</li>`)}</ul></div>`}
    ${question}
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
  return `${action.text} ${counted(others, 'selected job')} ${others === 1 ? 'is left as it is' : 'are left as they are'}.`;
}

/** One job: its work, its schedule, its attempts and the possible actions. */
function JobDetail({ id }) {
  const found = useGet('GET /api/pulse/jobs/{id}', { params: { id } });
  const job = found.data?.jobId === id ? found.data : undefined;
  const isAbsent = found.error?.status === 404;
  return html`<${Page} name="job" title=${job ? jobName(job) : 'Job'} back=${html`<p class="back"><a href=${href('jobs')}>Jobs</a></p>`}
    actions=${job && html`<${Actions} job=${job} onChange=${found.reload} />`}>
    ${isAbsent ? html`<p class="muted">You have no such job. The scheduler forgets final ones after a time.</p>` : pending({ ...found, data: job })}
    ${job && html`<${Details} job=${job} onChange=${found.reload} />`}
  <//>`;
}

function Details({ job, onChange }) {
  const { jobId, state, payload = {}, schedule = {}, executeAt, occurrence, attempt, lastError, createdAt } = job;
  const agent = agents.value.find(({ id }) => id === payload.agentId);
  const facts = [
    ['State', html`<${Dot} state=${state} /> ${state}`],
    ['Does', payload.kind === 'tool' ? html`calls the tool <code>${payload.toolId}</code>` : payload.message ? `runs a turn with “${payload.message}”` : payload.kind],
    ['Agent', agent ? html`<a href=${href('agents', agent.id)}>${agent.name || agent.id}</a>` : payload.agentId],
    ['Schedule', html`${scheduleWords(schedule)}${schedule.cron && cronWords(schedule.cron) !== schedule.cron && html` <code class="meta nowrap">${schedule.cron}</code>`}`],
    [FINAL.has(state) ? 'Last due' : state === 'retryable' ? 'Next attempt' : 'Next run', html`<${Time} at=${executeAt} />`],
    ['Occurrence', html`${number(occurrence)}${attempt > 0 && html`<span class="muted">, attempt ${attempt}</span>`}`],
    ['Assignment', payload.assignmentId],
    ['Created', html`<${Time} at=${createdAt} />`],
    ['Identifier', html`<code>${jobId}</code>`],
  ];
  return html`
    ${lastError && html`<div class="note note-error"><p>The last attempt failed:</p><p>${String(lastError)}</p></div>`}
    <${Facts} facts=${facts} kind="facts block" />
    ${job.attempts?.length > 0 && html`<${Attempts} attempts=${job.attempts} />`}
    ${isChangeable(job) && html`<${Reschedule} key=${JSON.stringify(schedule) + executeAt} job=${job} onChange=${onChange} />`}
    ${payload.arguments !== undefined && html`<h2 class="label">Arguments</h2><${Code} value=${payload.arguments} label="arguments" wrap />`}
    <h2 class="label">Payload</h2><${Code} value=${payload} label="payload" wrap />`;
}

/** The latest attempts, the last one first. */
function Attempts({ attempts }) {
  const isPeriodic = attempts.some(({ occurrence }) => occurrence !== attempts[0].occurrence);
  return html`<h2 class="label" id="attempts">Attempts</h2>
    <${Table} aria-labelledby="attempts" head=${[...(isPeriodic ? ['Occurrence'] : []), 'Attempt', 'Ended', 'Took', 'Status', 'Outcome']}><tbody>${[...attempts].reverse().map(({ occurrence, attempt, endedAt, durationMs, status, error }) => html`<tr key=${`${occurrence}-${attempt}-${endedAt}`}>
        ${isPeriodic && html`<td>${number(occurrence)}</td>`}<td>${number(attempt)}</td><td class="nowrap"><${Time} at=${endedAt} /></td>
        <td>${durationMs === undefined ? html`<span class="muted">not known</span>` : duration(durationMs)}</td><td>${status ?? html`<span class="muted">none</span>`}</td>
        <td class="wide">${error === undefined ? html`<span class="good">succeeded</span>` : html`<span class="bad">failed</span> ${String(error)}`}</td></tr>`)}</tbody><//>`;
}

function Actions({ job, onChange }) {
  const { error, run } = useAction();
  const [question, ask] = useConfirm((action) => ({ ...questionOf(action, 'the job'), onConfirm: () => run(() => actOn(action, job).then(onChange)) }));
  return html`<div>
    <div class="row">
      <button type="button" class="button" onClick=${onChange}>Reload</button>
      ${ACTIONS.filter(({ fits }) => fits(job)).map((action) => html`<button type="button" key=${action.id} class="button" onClick=${() => ask(action)}>${action.name}</button>`)}
    </div>
    <${ErrorNote} error=${error} />
    ${question}
  </div>`;
}

/** A form that replaces the schedule. */
function Reschedule({ job, onChange }) {
  const state = useSchedule(job);
  const { error, isBusy, run } = useAction();
  const [isOpen, setOpen] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    run(() => call('POST /api/pulse/jobs/{id}/reschedule', { params: { id: job.jobId }, body: state.schedule }).then(onChange));
  };
  return html`<details class="fold block" onToggle=${(event) => setOpen(event.target.open)}><summary>Reschedule</summary>
    ${isOpen && html`<form class="fold-body" onSubmit=${submit}>
      <${ScheduleFields} state=${state} />
      <${ErrorNote} error=${error} />
      <button class="button primary" disabled=${isBusy}>Replace the schedule</button>
    </form>`}
  </details>`;
}

const DAYS = 14;
/** Entries of a day that are shown at first. */
const SHOWN = 8;
const weekday = new Intl.DateTimeFormat('en', { weekday: 'short' });

/** Returns the clock's time in a zone; in the browser's if the zone is unknown. */
function clock(iso, timeZone) {
  const options = { hour: 'numeric', minute: '2-digit' };
  try {
    return new Intl.DateTimeFormat(undefined, { ...options, timeZone }).format(new Date(iso));
  } catch {
    return new Intl.DateTimeFormat(undefined, options).format(new Date(iso));
  }
}

/** A calendar of the next runs of the jobs. */
function Calendar() {
  const now = new Date();
  const until = new Date(now.getFullYear(), now.getMonth(), now.getDate() + DAYS);
  const list = useLoad(async (signal) => withRepeats(await listAll('GET /api/pulse/jobs', 'jobs', { query: { state: 'open' }, pages: 3, signal }), until, signal), '');
  const wait = pending(list);
  if (wait) return wait;
  const { days, later } = calendarDays(list.data.jobs, now, DAYS);
  return html`
    <p class="muted lead">The runs of your open jobs, in your time zone, ${here}.${list.data.isWhole ? '' : ' Of jobs that run very often, not all runs are shown.'}</p>
    <ol class="calendar">${days.map((of, place) => html`<${Day} key=${place} of=${of} isToday=${place === 0} />`)}</ol>
    ${later.length > 0 && html`<h2 class="label">Later</h2>
      <ul class="plain">${later.map((job) => html`<li key=${job.jobId} class="entry"><a href=${href('jobs', job.jobId)}>${jobName(job)} <span class="job-hint">${jobHint(job)}</span></a> <span class="meta"><${Time} at=${job.executeAt} /></span></li>`)}</ul>`}`;
}

function Day({ of: { start, jobs, shiftMinutes }, isToday }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole || jobs.length <= SHOWN + 1 ? jobs : jobs.slice(0, SHOWN);
  return html`<li class=${`day ${jobs.length === 0 ? 'free' : ''}`}>
    <h2 class="day-name">${isToday ? 'Today' : weekday.format(start)} <span class="muted">${day.format(start)}</span></h2>
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
    <a href=${href('jobs', jobId)} title=${`${jobName(job)}: ${scheduleWords(schedule)}`}><${Dot} state=${isRepeat ? 'idle' : state} /><time datetime=${executeAt}>${mine}</time> <span class="entry-name">${jobHint(job) ?? jobName(job)}</span></a>
    ${more > 0 && html`<p class="meta">and ${counted(more, 'more run')}</p>`}
    ${state !== 'scheduled' && !isRepeat && html`<p class="meta">${state}</p>`}
    ${isLate && state === 'scheduled' && html`<p class="meta">overdue</p>`}
    ${theirs && theirs !== mine && html`<p class="meta">${theirs} in ${zone.split('/').at(-1).replaceAll('_', ' ')}</p>`}
  </li>`;
}

function NewJob() {
  const [agentId, setAgent] = useState(agents.value[0]?.id);
  const [kind, setKind] = useState('agent');
  const preview = useLoad(async (signal) => (agentId ? { agentId, ...await client.preview({ agentId }, { signal }) } : undefined), agentId);
  const isKind = (name, words) => html`<label class="check"><input type="radio" name="kind" checked=${kind === name} onChange=${() => setKind(name)} /><span>${words}</span></label>`;
  return html`<${Page} name="job" title="New job" back=${html`<p class="back"><a href=${href('jobs')}>Jobs</a></p>`}>
    ${agents.value.length === 0 ? html`<p class="muted">A job needs an agent.</p>` : html`<div class="stack-form narrow-form">
      <div class="field"><label for="job-agent">Agent</label><select id="job-agent" value=${agentId} onChange=${(event) => setAgent(event.target.value)}>
        ${options(agentNames())}</select></div>
      <fieldset class="field choice"><legend>Does</legend>
        ${isKind('agent', 'a turn of the agent, with a message')}
        ${isKind('tool', 'a call of one of the agent’s tools')}
      </fieldset>
      ${kind === 'agent' && html`<${Turn} key=${agentId} agentId=${agentId} />`}
      ${kind === 'tool' && pending(preview)}
      ${kind === 'tool' && preview.data?.agentId === agentId && html`<${Tool} key=${agentId} agentId=${agentId} tools=${preview.data.tools ?? []} />`}
    </div>`}
  <//>`;
}

/** The schedule, the button and the request, which both kinds share. `read` returns the payload, or `undefined`. */
function useJob(read) {
  const state = useSchedule();
  const { error, isBusy, run } = useAction();
  // The same form sent twice makes one job.
  const sent = useRef({});
  const submit = (event) => {
    event.preventDefault();
    const payload = read();
    if (!payload || !state.schedule) return;
    run(async () => {
      const job = { payload, ...state.schedule };
      if (sent.current.text !== JSON.stringify(job)) sent.current = { text: JSON.stringify(job), key: newId() };
      const { data } = await call('POST /api/pulse/jobs', { body: { ...job, idempotencyKey: sent.current.key } });
      // The user may have left the form.
      if (event.target.isConnected) go('jobs', data.jobId);
    });
  };
  const rest = html`<${ScheduleFields} state=${state} />
    <${ErrorNote} error=${error} />
    <div class="row"><button class="button primary" disabled=${isBusy || !state.schedule}>Schedule</button><a class="button quiet" href=${href('jobs')}>Cancel</a></div>`;
  return { submit, rest };
}

function Turn({ agentId }) {
  const [message, setMessage] = useState('');
  const { submit, rest } = useJob(() => ({ kind: 'agent', agentId, message: message.trim() }));
  return html`<form onSubmit=${submit}>
    <div class="field"><label for="job-message">Message</label><textarea id="job-message" rows="3" required value=${message} onInput=${(event) => setMessage(event.target.value)}></textarea></div>
    ${rest}
  </form>`;
}

function Tool({ agentId, tools }) {
  const [name, setName] = useState(tools[0]?.name);
  const tool = tools.find((one) => one.name === name) ?? tools[0];
  if (!tool) return html`<p class="muted">The agent has no tools that a job could call.</p>`;
  return html`<div class="field"><label for="job-tool">Tool</label><select id="job-tool" value=${tool.name} onChange=${(event) => setName(event.target.value)}>
      ${options(tools.map(({ name }) => [name, name]))}</select>
      <p class="meta">${tool.description}</p></div>
    <${Call} key=${tool.name} agentId=${agentId} tool=${tool} />`;
}

function Call({ agentId, tool }) {
  const editor = useArguments({}, tool.inputSchema);
  const [todoListId, setTodoList] = useState('');
  const { submit, rest } = useJob(() => {
    const found = editor.read();
    return found && { kind: 'tool', agentId, toolId: tool.name, arguments: found.value, todoListId: todoListId.trim() || undefined };
  });
  return html`<form onSubmit=${submit} noValidate>
    <${ArgumentsEditor} id="job-argument" state=${editor} />
    <div class="field"><label for="job-list">Todo list <span class="muted">for the tools of todos and plans</span></label>
      <input id="job-list" value=${todoListId} autocomplete="off" spellcheck="false" onInput=${(event) => setTodoList(event.target.value)} /></div>
    ${rest}
  </form>`;
}

const KINDS = { once: 'Once', interval: 'At an interval', cron: 'By a cron expression' };
const UNITS = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 };

/** Returns a time as an input of the browser's zone has it. @param {Date} time */
const localTime = (time) => new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** The values of the form at first: a job's own schedule. */
function initial({ schedule: { cron, everyMs, timezone } = {}, executeAt } = {}) {
  const unit = Object.keys(UNITS).findLast((name) => everyMs >= UNITS[name] && everyMs % UNITS[name] === 0) ?? 'minutes';
  const due = new Date(executeAt ?? Date.now() + UNITS.hours);
  return {
    kind: cron ? 'cron' : everyMs ? 'interval' : 'once',
    at: localTime(Number.isNaN(due.getTime()) ? new Date() : due),
    count: String(everyMs ? everyMs / UNITS[unit] : 1), unit, cron: cron ?? '0 9 * * *', timezone: timezone ?? here,
  };
}

/** Returns the schedule that the form's values make; `undefined` while they make none. */
function scheduleOf({ kind, at, count, unit, cron, timezone }) {
  if (kind === 'once') {
    const time = new Date(at);
    return Number.isNaN(time.getTime()) ? undefined : { executeAt: time.toISOString() };
  }
  if (kind === 'interval') return Number(count) > 0 ? { everyMs: Math.round(Number(count) * UNITS[unit]) } : undefined;
  return cron.trim() ? { cron: cron.trim(), timezone: timezone.trim() || undefined } : undefined;
}

/** The state of the fields, with the schedule that they make. @param {object} [job] */
function useSchedule(job) {
  const [values, setValues] = useState(() => initial(job));
  const input = (name) => ({ id: `schedule-${name}`, value: values[name], onInput: (event) => setValues({ ...values, [name]: event.target.value }) });
  return { values, input, schedule: scheduleOf(values) };
}

/** The fields, with the runs to which they lead. */
function ScheduleFields({ state: { values, input, schedule } }) {
  return html`<div class="field"><label for="schedule-kind">Runs</label>
      <select ...${input('kind')}>${options(Object.entries(KINDS))}</select></div>
    <${Fields} values=${values} input=${input} />
    <${NextRuns} schedule=${schedule} />`;
}

function Fields({ values: { kind, cron }, input }) {
  if (kind === 'once') return html`<div class="field"><label for="schedule-at">Time, in ${here}</label><input ...${input('at')} type="datetime-local" required /></div>`;
  if (kind === 'interval') {
    return html`<div class="field-row">
      <div class="field"><label for="schedule-count">Every</label><input ...${input('count')} type="number" min="0" step="any" required /></div>
      <div class="field"><label for="schedule-unit">Unit</label><select ...${input('unit')}>${options(Object.keys(UNITS).map((unit) => [unit, unit]))}</select></div>
    </div>`;
  }
  const words = cronWords(cron);
  return html`<div class="field-row">
    <div class="field"><label for="schedule-cron">Cron expression</label><input ...${input('cron')} class="code-input" required spellcheck="false" autocomplete="off" />
      ${words !== cron && html`<p class="meta">${words}</p>`}</div>
    <div class="field"><label for="schedule-timezone">Time zone</label><input ...${input('timezone')} spellcheck="false" autocomplete="off" /></div>
  </div>`;
}
