/** The preview of a role that is not saved, beside that of the saved one. */

import { html, useState } from '../vendor/ui.js';
import { Diff } from '../lib/diff.js';
import { number } from '../lib/format.js';
import { call, client } from '../lib/store.js';
import { Code, ErrorNote, useLoad, usePaused } from '../lib/ui.js';

const STATES = { same: 'unchanged', changed: 'changed', added: 'new', removed: 'left out' };

/** Returns the parts of both previews in the order of the edited one: `{key, state, before, after}`. */
export function compareParts(before = [], after = []) {
  const keyOf = ({ source, id }) => `${source} ${id}`;
  const old = new Map(before.map((part) => [keyOf(part), part]));
  const found = after.map((part) => {
    const key = keyOf(part);
    const was = old.get(key);
    old.delete(key);
    return { key, state: was ? (was.sha256 === part.sha256 ? 'same' : 'changed') : 'added', before: was, after: part };
  });
  return [...found, ...[...old].map(([key, part]) => ({ key, state: 'removed', before: part }))];
}

/** @param {{id: string, role: object, isNew: boolean}} props `id` is empty for a new agent without one. */
export function RolePreview({ id, role, isNew }) {
  const [message, setMessage] = useState('');
  const asked = usePaused(JSON.stringify([id, role, message.trim()]));
  const edited = useLoad(async (signal) => {
    const body = { role, message: message.trim() || undefined };
    return (await call('POST /api/agents/{id}/preview', { params: { id: id || 'new' }, body, signal })).data;
  }, asked);
  const saved = useLoad((signal) => (isNew ? Promise.resolve(undefined)
    : client.preview({ agentId: id, message: message.trim() || undefined }, { signal }).catch(() => undefined)), usePaused(message.trim()));
  return html`<section class="role-preview" aria-label="Preview">
    <div class="field"><label for="preview-message">Message <span class="muted">for which documents are searched; may be empty</span></label>
      <input id="preview-message" value=${message} autocomplete="off" placeholder="When are you open?" onInput=${(event) => setMessage(event.target.value)} /></div>
    ${edited.error && html`<${ErrorNote} error=${edited.error} />`}
    ${!edited.data && !edited.error && html`<p class="muted">Loading…</p>`}
    ${edited.data && html`<${Comparison} edited=${edited.data} saved=${saved.data} isNew=${isNew} />`}
  </section>`;
}

function Comparison({ edited, saved, isNew }) {
  const parts = compareParts(saved?.systemPromptParts, edited.systemPromptParts);
  const changes = parts.filter(({ state }) => state !== 'same').length;
  return html`
    <${Figures} edited=${edited} saved=${saved} />
    <h2 class="label">System prompt</h2>
    ${!isNew && html`<p class="muted small" role="status">${changes === 0 ? 'The prompt is the saved one.' : changes === 1 ? 'One part differs from the saved role.' : `${changes} parts differ from the saved role.`}</p>`}
    <ol class="plain">${parts.map((part) => html`<${PartRow} key=${part.key} part=${part} isNew=${isNew} />`)}</ol>
    <${ToolChanges} edited=${edited} saved=${saved} />
    <details class="fold"><summary>Payload <code class="meta">${edited.requestSha256.slice(0, 12)}</code></summary>
      <div class="fold-body"><${Code} text=${typeof edited.payload === 'string' ? edited.payload : JSON.stringify(edited.payload, null, 2)} label="payload" /></div></details>`;
}

/** The figures of the saved and the edited role. */
function Figures({ edited, saved }) {
  const rows = [
    ['Tokens of the prompt', ({ budget }) => number(budget.promptTokens)],
    ['of which system prompt', ({ budget }) => number(budget.tokens.system)],
    ['of which tools', ({ budget }) => number(budget.tokens.tools)],
    ['Limit', ({ budget }) => number(budget.maxPromptTokens)],
    ['Backend', ({ selection }) => selection.chosen],
  ];
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label="Figures"><table class="table compare">
    <thead><tr><th scope="col"></th>${saved && html`<th scope="col" class="num">Saved</th>`}<th scope="col" class="num">Edited</th></tr></thead>
    <tbody>${rows.map(([name, value]) => {
      const [was, is] = [saved && value(saved), value(edited)];
      return html`<tr key=${name}><th scope="row">${name}</th>${saved && html`<td class="num">${was}</td>`}<td class="num">${saved && was !== is ? html`<strong>${is}</strong>` : is}</td></tr>`;
    })}</tbody></table></div>`;
}

function PartRow({ part: { state, before, after }, isNew }) {
  const { id, source, content, tokens } = after ?? before;
  const cost = state === 'changed' ? `${number(before.tokens)} → ${number(after.tokens)}` : number(tokens);
  return html`<li><details class=${`fold part-${state}`} open=${state === 'changed'}>
    <summary><span class="tool-name">${id}</span>${!isNew && state !== 'same' && html`<span class=${`chip state-${state}`}>${STATES[state]}</span>`}<span class="meta">${source} · ${cost} tokens</span></summary>
    <div class="fold-body">${state === 'changed' ? html`<${Diff} before=${before.content} after=${after.content} label=${`difference of ${id}`} />` : html`<${Code} text=${content} label=${`part ${id}`} wrap />`}</div>
  </details></li>`;
}

function ToolChanges({ edited, saved }) {
  const names = (preview) => (preview?.tools ?? []).map(({ name }) => name);
  const [was, is] = [new Set(names(saved)), new Set(names(edited))];
  const all = [...new Set([...is, ...was])].sort();
  const state = (name) => (!saved || (was.has(name) && is.has(name)) ? 'same' : is.has(name) ? 'added' : 'removed');
  return html`<h2 class="label">Tools</h2>
    ${all.length === 0 ? html`<p class="muted">None.</p>` : html`<ul class="chips plain">${all.map((name) => html`<li key=${name} class=${`chip state-${state(name)}`}><code>${name}</code>${state(name) !== 'same' && html`<span class="visually-hidden">, ${STATES[state(name)]}</span>`}</li>`)}</ul>`}`;
}
