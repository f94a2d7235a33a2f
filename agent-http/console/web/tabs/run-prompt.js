/** The record of a run's prompt: what the model was sent, beside the prompt of the run before it. */

import { html } from '../vendor/ui.js';
import { inspect } from '../lib/chat.js';
import { Parts, Tools, compareParts } from '../lib/compare.js';
import { number } from '../lib/format.js';
import { call } from '../lib/store.js';
import { Facts, pending, useLoad } from '../lib/ui.js';

const read = async (id, signal) => (await call('GET /api/runs/{id}/prompt', { params: { id }, signal })).data;

/** Reads the record of a run, and of the run before it, which may be deleted. */
async function load(id, signal) {
  const prompt = await read(id, signal);
  const { previousRunId } = prompt.cache;
  return { prompt, previous: previousRunId && await read(previousRunId, signal).catch(() => undefined) };
}

/** @param {{runId: string}} props A run that has ended. */
export function RunPrompt({ runId }) {
  const found = useLoad((signal) => load(runId, signal), runId);
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
    <a class="button quiet small" href=${new URL(`api/runs/${encodeURIComponent(runId)}/bundle`, document.baseURI).href} download=${`run-${runId.replace(/[^\w.-]/g, '_')}.json`}>Save for a replay</a>
  </section>`;
}

/** Returns the texts of the parts of a run's prompt, by id; `undefined` if the server has not kept them. */
export async function keptTexts(id, signal) {
  const { parts } = await read(id, signal);
  return parts.some(({ content }) => content !== undefined) ? new Map(parts.map(({ id, content }) => [id, content])) : undefined;
}
