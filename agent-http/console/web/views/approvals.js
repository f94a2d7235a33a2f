/** Tool calls of all threads that wait for the user's decision, and decided ones. */

import { html, useState } from '../vendor/ui.js';
import { decide, loadOpen, mayDecide, openApprovals } from '../lib/approvals.js';
import { moment } from '../lib/format.js';
import { keepFocus } from '../lib/lists.js';
import { agentName, call, href } from '../lib/store.js';
import { Code, Dot, ErrorNote, Page, Select, Time, pending, useGet, useLoad } from '../lib/ui.js';
import { ApprovalCard, Decision } from './approval-card.js';

const DOTS = { approved: 'done', denied: 'failed' };

export function Approvals() {
  const [state, setState] = useState('open');
  return html`<${Page} name="approvals" title="Approvals" actions=${html`<${Select} label="Show" value=${state} all=${[['open', 'Open'], ['decided', 'Decided, of your chats']]} onSelect=${setState} />`}>
    ${state === 'open' ? html`<${Open} />` : html`<${Decided} />`}
  <//>`;
}

function Open() {
  // The navigation reads the list every few seconds; this is for its errors.
  const load = useLoad(loadOpen, 'open');
  const [done, setDone] = useState([]);
  const open = openApprovals.value ?? [];
  const isDone = ({ id }) => done.some((approval) => approval.id === id);
  const onDone = (approval) => {
    setDone((done) => [...done.filter(({ id }) => id !== approval.id), approval]);
    load.reload();
  };
  return html`
    <${ErrorNote} ...${load} />
    ${openApprovals.value && open.length === 0 && html`<p class="muted">Nothing waits. Calls of tools that a role’s <code>approvals</code> name wait here, and in their chats.</p>`}
    <ul class="rows" ref=${keepFocus}>${[...open.filter((approval) => !isDone(approval)), ...done].map((approval) => html`<li key=${approval.id}>
      <${OpenItem} approval=${approval} isOver=${isDone(approval)} onDone=${onDone} /></li>`)}</ul>`;
}

function OpenItem({ approval, isOver, onDone }) {
  const { id, runId, agentId, threadId, createdAt, message, tool } = approval;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(undefined);
  // Other people's runs are not found.
  const run = useGet('GET /api/runs/{id}', { params: { id: runId } });
  const interrupt = run.data?.outcome?.interrupts?.find((one) => one.id === id);
  const onDecide = async (decision) => {
    setBusy(true);
    setError(undefined);
    try {
      onDone(await decide(id, decision));
    } catch (error) {
      setError(error);
      // Another person or page may have decided, or the time is over.
      if ([409, 410].includes(error.status)) await call('GET /api/approvals/{id}', { params: { id } }).then(({ data }) => data.state !== 'open' && onDone(data), () => {});
    }
    setBusy(false);
  };
  const agent = agentName(agentId);
  const title = html`${agent} · <${Time} at=${createdAt} words=${moment} /> · `;
  const chat = run.data && html`<a class="button quiet small" href=${href('chat', agentId, threadId)}>Open the chat</a>`;
  if (isOver) {
    return html`<div class="approval" role="group" aria-label=${`Approval of ${tool}`}>
      <header class="approval-head"><${Dot} state=${DOTS[approval.state] ?? 'idle'} /><span class="tool-name">${tool}</span><span class="meta">${agent}</span></header>
      ${error && html`<p class="note" role="alert">Your decision came too late: ${error.message}.</p>`}
      <${Decision} approval=${approval} />
      ${chat}
    </div>`;
  }
  // The schema decides whether there is a form, so that the card waits for it.
  if (run.isLoading && !run.data) return html`<p class="muted">${message ?? tool}…</p>`;
  return html`<${ApprovalCard} approval=${approval} schema=${interrupt?.responseSchema?.properties?.editedArgs} title=${title} isBusy=${isBusy}
    error=${error} onDecide=${mayDecide(approval) ? onDecide : undefined}>${chat}<//>`;
}

function Decided() {
  const load = useGet('GET /api/approvals', {});
  const { data } = load;
  const decided = (data?.approvals ?? []).filter(({ state }) => state !== 'open');
  return html`
    ${pending(load)}
    ${data && decided.length === 0 && html`<p class="muted">Nothing was decided in your latest chats.</p>`}
    <ul class="rows">${decided.map((approval) => html`<li key=${approval.id} class="item">
      <div class="item-main">
        <p class="item-title"><${Dot} state=${DOTS[approval.state] ?? 'idle'} /> <code>${approval.tool}</code></p>
        <${Decision} approval=${approval} />
        <details><summary class="meta">Arguments of the model</summary><${Code} value=${approval.arguments} label=${`arguments of ${approval.tool}`} wrap /></details>
      </div>
      <a class="button quiet small" href=${href('chat', approval.agentId, approval.threadId)}>Open the chat</a>
    </li>`)}</ul>`;
}
