/** The forms of jobs: a new one, a turn of an agent or a call of a tool, and the fields of a schedule, for one that is rescheduled too. */

import { html, useRef, useState } from '../vendor/ui.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { here, newId } from '../lib/format.js';
import { NextRuns, cronWords } from '../lib/jobs.js';
import { agentNames, agents, call, client, go, href } from '../lib/store.js';
import { ErrorNote, Page, options, pending, useAction, useLoad } from '../lib/ui.js';

export function NewJob() {
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
export function useSchedule(job) {
  const [values, setValues] = useState(() => initial(job));
  const input = (name) => ({ id: `schedule-${name}`, value: values[name], onInput: (event) => setValues({ ...values, [name]: event.target.value }) });
  return { values, input, schedule: scheduleOf(values) };
}

/** The fields, with the runs to which they lead. */
export function ScheduleFields({ state: { values, input, schedule } }) {
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
