/** The preview of a role that is not saved, beside that of the saved one. */

import { html, useState } from '../vendor/ui.js';
import { Parts, Tools, compareParts } from '../lib/compare.js';
import { number } from '../lib/format.js';
import { call, client } from '../lib/store.js';
import { Code, Fold, Table, pending, useLoad, usePaused } from '../lib/ui.js';

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
