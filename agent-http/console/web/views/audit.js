/** The audit log of an agent's tool calls: who called which tool, with which outcome. */

import { html, useState } from '../vendor/ui.js';
import { csv, save } from '../lib/csv.js';
import { duration, fileName, number } from '../lib/format.js';
import { usePages } from '../lib/lists.js';
import { agents, go, session } from '../lib/store.js';
import { Dot, ErrorNote, Page, Search, Select, Table, Time } from '../lib/ui.js';

const PAGE = 100;
/** Outcomes in words, and the state whose colour they have. */
const OUTCOMES = {
  ok: ['ok', 'done'],
  toolError: ['error of the tool', 'retryable'],
  refused: ['refused', 'retryable'],
  timedOut: ['timed out', 'failed'],
  cancelled: ['cancelled', 'idle'],
  failed: ['failed', 'failed'],
};
const outcomeWords = (outcome) => OUTCOMES[outcome]?.[0] ?? outcome;
const caller = ({ credentialId, runId }) => (credentialId === 'internal' ? 'run or job' : runId ? 'workflow' : 'tool server');

/** Agents whose log the user may read: the own ones, and all for an admin. */
function auditable() {
  const { userId, roles } = session.value;
  return agents.value.filter(({ ownerId }) => ownerId === userId || roles.includes('admin'));
}

export function Audit({ id }) {
  const known = auditable();
  const agentId = id ?? known[0]?.id;
  const log = usePages(agentId && 'GET /api/agent/tools/audit', 'calls', { query: { agentId, limit: PAGE } });
  const calls = log.items ?? [];
  const [search, setSearch] = useState('');
  const [outcome, setOutcome] = useState('');
  const words = search.trim().toLowerCase();
  const shown = calls.filter((entry) => (!outcome || entry.outcome === outcome)
    && [entry.userId, entry.tool, entry.runId, caller(entry)].some((text) => text?.toLowerCase().includes(words)));
  const all = known.some((agent) => agent.id === agentId) || !agentId ? known : [{ id: agentId }, ...known];
  const none = agentId && !log.error && 'No tool has been called yet.';
  const count = calls.length > 0 ? `${number(shown.length)} of ${number(calls.length)} loaded calls${log.cursor ? '' : '; there are no older ones'}` : none;
  return html`<${Page} name="audit" title="Audit" actions=${html`<div class="row">
      <${Select} label="Agent" value=${agentId} disabled=${all.length === 0} all=${all.map(({ id, name }) => [id, name || id])} onSelect=${(id) => go('audit', id)} />
      <${Search} label="Search users and tools" hint="User or tool" value=${search} onSearch=${setSearch} />
      <${Select} label="Outcome" value=${outcome} all=${[['', 'All outcomes'], ...Object.keys(OUTCOMES).map((name) => [name, outcomeWords(name)])]} onSelect=${setOutcome} />
      <button type="button" class="button" onClick=${log.reload}>Reload</button>
      <button type="button" class="button" disabled=${shown.length === 0} onClick=${() => exportCsv(agentId, shown)}>Export CSV</button>
    </div>`}>
    <p class="muted lead">Each call of the agent’s tools, by runs, jobs and the tool server. Arguments and results are not kept.</p>
    <${ErrorNote} ...${log} />
    ${all.length === 0 && html`<p class="muted">You own no agent. The log of an agent is its owner’s.</p>`}
    ${calls.length > 0 && html`<${Calls} calls=${shown} />`}
    <div class="row between table-foot">
      <p class="meta" role="status">${log.isLoading ? 'Loading…' : count}</p>
      ${log.cursor && html`<button type="button" class="button small" disabled=${log.isLoading} onClick=${log.loadMore}>Load older calls</button>`}
    </div>
  <//>`;
}

function Calls({ calls }) {
  return html`<${Table} label="tool calls" head=${['Time', 'User', 'Tool', 'Outcome', 'Time taken', 'By']} numbers=${['Time taken']}>
      <tbody>${calls.map((entry, place) => html`<tr key=${`${entry.at} ${place}`}>
        <td class="nowrap"><${Time} at=${entry.at} /></td>
        <td>${entry.userId}</td>
        <td><code>${entry.tool}</code></td>
        <td class="nowrap"><${Dot} state=${OUTCOMES[entry.outcome]?.[1] ?? ''} /> ${outcomeWords(entry.outcome)}</td>
        <td class="num">${duration(entry.durationMs)}</td>
        <td class="nowrap" title=${entry.runId ? `run ${entry.runId}` : entry.credentialId}>${caller(entry)}</td>
      </tr>`)}</tbody>
  <//>`;
}

function exportCsv(agentId, calls) {
  const names = ['at', 'agentId', 'userId', 'tool', 'outcome', 'durationMs', 'credentialId', 'runId'];
  const rows = calls.map((entry) => names.map((name) => (name === 'agentId' ? agentId : entry[name])));
  save(fileName(`audit-${agentId}.csv`), 'text/csv', csv(names, rows));
}
