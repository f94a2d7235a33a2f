/** Two prompts beside each other, with their differences: the prompt of an edited role beside the saved role's, and the prompt of a run beside the previous run's. */

import { html, useState } from '../vendor/ui.js';
import { inspect } from './chat.js';
import { Diff } from './diff.js';
import { fileName, number } from './format.js';
import { address, call, client } from './store.js';
import { Code, Facts, Fold, Table, pending, useLoad, usePaused } from './ui.js';

const STATES = { same: 'unchanged', changed: 'changed', added: 'new', removed: 'left out' };

/** Returns what both lists have in the order of the second one: `{key, state, before, after}`. `sha256` tells what has changed. */
function compare(before = [], after = [], keyOf) {
  const old = new Map(before.map((one) => [keyOf(one), one]));
  const found = after.map((one) => {
    const key = keyOf(one);
    const was = old.get(key);
    old.delete(key);
    return { key, state: was ? (was.sha256 === one.sha256 ? 'same' : 'changed') : 'added', before: was, after: one };
  });
  return [...found, ...[...old].map(([key, one]) => ({ key, state: 'removed', before: one }))];
}

/** Compares the parts of two prompts. */
const compareParts = (before, after) => compare(before, after, ({ source, id }) => `${source} ${id}`);

/** The parts of two prompts. With `isAlone` there is no earlier prompt, and nothing is called new. */
function Parts({ parts, isAlone }) {
  return html`<ol class="plain">${parts.map((part) => html`<${PartRow} key=${part.key} part=${part} isAlone=${isAlone} />`)}</ol>`;
}

function PartRow({ part: { state, before, after }, isAlone }) {
  const { id, source, content, tokens, sha256 } = after ?? before;
  const cost = state === 'changed' ? `${number(before.tokens)} → ${number(after.tokens)}` : number(tokens);
  const isDiff = state === 'changed' && before.content !== undefined && after.content !== undefined;
  const summary = html`<span class="tool-name">${id}</span>${!isAlone && state !== 'same' && html`<span class=${`chip state-${state}`}>${STATES[state]}</span>`}<span class="meta">${source} · ${cost} tokens</span>`;
  return html`<li><${Fold} kind=${`part-${state}`} open=${isDiff} summary=${summary}>
    ${isDiff ? html`<${Diff} before=${before.content} after=${after.content} label=${`difference of ${id}`} />`
      : content === undefined ? html`<p class="muted small">The text was not kept. Its SHA-256 is <code class="hash">${sha256}</code></p>`
        : html`<${Code} text=${content} label=${`part ${id}`} wrap />`}
  <//></li>`;
}

/** The tools of two prompts. */
function Tools({ before, after = [] }) {
  const all = compare(before ?? after, after, ({ name }) => name).sort((one, other) => one.key.localeCompare(other.key));
  return html`<h2 class="label">Tools</h2>
    ${all.length === 0 ? html`<p class="muted">None.</p>` : html`<ul class="chips plain">${all.map(({ key, state }) => html`<li key=${key} class=${`chip state-${state}`}><code>${key}</code>${state !== 'same' && html`<span class="visually-hidden">, ${STATES[state]}</span>`}</li>`)}</ul>`}`;
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
    ${pending(edited)}
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
    <${Parts} parts=${parts} isAlone=${isNew} />
    <${Tools} before=${saved?.tools} after=${edited.tools} />
    <${Fold} summary=${html`Payload <code class="meta">${edited.requestSha256.slice(0, 12)}</code>`}>
      <${Code} text=${typeof edited.payload === 'string' ? edited.payload : undefined} value=${edited.payload} label="payload" /><//>`;
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
  const columns = saved ? ['Saved', 'Edited'] : ['Edited'];
  return html`<${Table} label="Figures" kind="compare" head=${['', ...columns]} numbers=${columns}><tbody>${rows.map(([name, value]) => {
      const [was, is] = [saved && value(saved), value(edited)];
      return html`<tr key=${name}><th scope="row">${name}</th>${saved && html`<td class="num">${was}</td>`}<td class="num">${saved && was !== is ? html`<strong>${is}</strong>` : is}</td></tr>`;
    })}</tbody><//>`;
}

const read = async (id, signal) => (await call('GET /api/runs/{id}/prompt', { params: { id }, signal })).data;

/** Reads the record of a run, and of the run before it, which may be deleted. */
async function readPair(id, signal) {
  const prompt = await read(id, signal);
  const { previousRunId } = prompt.cache;
  return { prompt, previous: previousRunId && await read(previousRunId, signal).catch(() => undefined) };
}

/** @param {{runId: string}} props A run that has ended. */
export function RunPrompt({ runId }) {
  const found = useLoad((signal) => readPair(runId, signal), runId);
  if (found.error?.status === 404) return html`<p class="muted">The server has no record of this run’s prompt.</p>`;
  if (!found.data) return pending(found);
  const { prompt, previous } = found.data;
  const { backend, cache, messages, requestSha256, tokens, trimmedMessages } = prompt;
  const parts = compareParts(previous?.parts, prompt.parts);
  const changes = parts.filter(({ state }) => state !== 'same').length;
  const count = (value) => value !== undefined && `${number(value)} tokens`;
  return html`<section class="role-preview" aria-label="Prompt of the run">
    <${Facts} facts=${[
      ['Request', html`<code class="hash" title=${requestSha256}>${requestSha256?.slice(0, 12)}</code>`], ['Backend', backend],
      ['System prompt', count(tokens.system)], ['Tools', count(tokens.tools)],
      ['Messages', `${number(messages)} · ${count(tokens.messages)}${trimmedMessages ? ` · ${number(trimmedMessages)} left out` : ''}`],
    ]} />
    <h2 class="label">${previous ? 'Beside the run before' : 'Parts'}</h2>
    ${previous && html`<p class="row between"><span class="muted small" role="status">${changes === 0 ? 'All parts are the same.' : changes === 1 ? 'One part differs.' : `${changes} parts differ.`}</span>
      <button type="button" class="button quiet small" onClick=${() => inspect(cache.previousRunId)}>Inspect the run before</button></p>`}
    ${!previous && html`<p class="muted small">${cache.previousRunId ? 'The run before has no record any more.' : 'No run before it was remembered.'}</p>`}
    <${Parts} parts=${parts} isAlone=${!previous} />
    <${Tools} before=${previous?.tools} after=${prompt.tools} />
    <a class="button quiet small" href=${address(`api/runs/${encodeURIComponent(runId)}/bundle`)} download=${fileName(`run-${runId}.json`)}>Save for a replay</a>
  </section>`;
}

/** Returns the texts of the parts of a run's prompt, by id; `undefined` if the server has not kept them. */
export async function keptTexts(id, signal) {
  const { parts } = await read(id, signal);
  return parts.some(({ content }) => content !== undefined) ? new Map(parts.map(({ id, content }) => [id, content])) : undefined;
}
