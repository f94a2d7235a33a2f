/** A form that schedules a job: a turn of an agent, or a call of a tool. */

import { html, useRef, useState } from '../vendor/ui.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { newId } from '../lib/format.js';
import { agents, call, client, go, href } from '../lib/store.js';
import { ErrorNote, useLoad } from '../lib/ui.js';
import { ScheduleFields, useSchedule } from './schedule-fields.js';

export function NewJob() {
  const [agentId, setAgent] = useState(agents.value[0]?.id);
  const [kind, setKind] = useState('agent');
  const preview = useLoad(async (signal) => (agentId ? { agentId, ...await client.preview({ agentId }, { signal }) } : undefined), agentId);
  const isKind = (name, words) => html`<label class="check"><input type="radio" name="kind" checked=${kind === name} onChange=${() => setKind(name)} /><span>${words}</span></label>`;
  return html`<section class="page" aria-labelledby="job-title">
    <p class="back"><a href=${href('jobs')}>Jobs</a></p>
    <header class="page-head"><h1 id="job-title">New job</h1></header>
    ${agents.value.length === 0 ? html`<p class="muted">A job needs an agent.</p>` : html`<div class="stack-form narrow-form">
      <div class="field"><label for="job-agent">Agent</label><select id="job-agent" value=${agentId} onChange=${(event) => setAgent(event.target.value)}>
        ${agents.value.map(({ id, name }) => html`<option key=${id} value=${id}>${name || id}</option>`)}</select></div>
      <fieldset class="field choice"><legend>Does</legend>
        ${isKind('agent', 'a turn of the agent, with a message')}
        ${isKind('tool', 'a call of one of the agent’s tools')}
      </fieldset>
      ${kind === 'agent' && html`<${Turn} key=${agentId} agentId=${agentId} />`}
      ${kind === 'tool' && preview.error && html`<${ErrorNote} error=${preview.error} />`}
      ${kind === 'tool' && preview.data?.agentId === agentId && html`<${Tool} key=${agentId} agentId=${agentId} tools=${preview.data.tools ?? []} />`}
    </div>`}
  </section>`;
}

/** The schedule, the button and the request, which both kinds share. `read` returns the payload, or `undefined`. */
function useJob(read) {
  const state = useSchedule();
  const [error, setError] = useState(undefined);
  const [isSaving, setSaving] = useState(false);
  // The same form sent twice makes one job.
  const sent = useRef({});
  const submit = async (event) => {
    event.preventDefault();
    const payload = read();
    if (!payload || !state.schedule) return;
    setSaving(true);
    setError(undefined);
    try {
      const job = { payload, ...state.schedule };
      if (sent.current.text !== JSON.stringify(job)) sent.current = { text: JSON.stringify(job), key: newId() };
      const { data } = await call('POST /api/pulse/jobs', { body: { ...job, idempotencyKey: sent.current.key } });
      go('jobs', data.jobId);
    } catch (error) {
      setError(error);
      setSaving(false);
    }
  };
  const rest = html`<${ScheduleFields} state=${state} />
    ${error && html`<${ErrorNote} error=${error} />`}
    <div class="row"><button class="button primary" disabled=${isSaving || !state.schedule}>Schedule</button><a class="button quiet" href=${href('jobs')}>Cancel</a></div>`;
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
      ${tools.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select>
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
