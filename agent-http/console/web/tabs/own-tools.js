/** The tools that an agent's role defines: their states, and the definitions of tool servers that its owner accepts. */

import { html, useState } from '../vendor/ui.js';
import { promptVersion } from '../lib/chat.js';
import { Diff } from '../lib/diff.js';
import { call } from '../lib/store.js';
import { Code, ErrorNote, useLoad } from '../lib/ui.js';

const SOURCES = { http: 'HTTP', openApi: 'OpenAPI', toolServer: 'tool server' };

/** Returns true if a role defines tools. */
export const definesTools = ({ httpTools = [], openApi = [], toolServers = [] }) => httpTools.length + openApi.length + toolServers.length > 0;

export function OwnTools({ id, servers = [] }) {
  const { data, error, reload } = useLoad(() => call('GET /api/agents/{id}/tools', { params: { id } }), id);
  const own = data?.data.tools.filter(({ source }) => source !== 'builtIn') ?? [];
  const skipped = data?.data.skipped ?? [];
  return html`<h2 class="label">Defined by the role</h2>
    ${error && html`<${ErrorNote} error=${error} />`}
    <ul class="plain">${own.map(({ name, source, approval, status, fingerprint }) => html`<li key=${name} class="between row"><code>${name}</code>
      <span class="meta">${SOURCES[source]}${approval === 'ask' && ', asks'} · <span class=${status === 'ok' ? 'good' : 'bad'}>${status}</span>${fingerprint && ` · ${fingerprint.slice(0, 8)}`}</span></li>`)}</ul>
    ${skipped.length > 0 && html`<h2 class="label">Operations that cannot be tools</h2>
      <ul class="plain">${skipped.map(({ openApiId, operation, reason }) => html`<li key=${`${openApiId} ${operation}`} class="denied"><code>${operation}</code> <span class="muted">of ${openApiId} ${reason}</span></li>`)}</ul>`}
    ${servers.map((server) => html`<${Server} key=${`${id} ${server.id}`} id=${id} serverId=${server.id} onPinned=${reload} />`)}`;
}

/** A tool server, whose list is asked for and accepted. */
function Server({ id, serverId, onPinned }) {
  const [found, setFound] = useState(undefined);
  const [error, setError] = useState(undefined);
  const run = (work) => async () => {
    setError(undefined);
    try {
      await work();
      onPinned();
    } catch (error) {
      setError(error);
    }
  };
  const discover = run(async () => setFound((await call('POST /api/agents/{id}/tools/discover', { params: { id }, body: { serverId } })).data));
  const accepted = found?.tools.filter(({ isAllowed, fingerprint, fault }) => isAllowed && fingerprint && !fault) ?? [];
  const accept = run(async () => {
    const fingerprints = Object.fromEntries(accepted.map(({ name, fingerprint }) => [name, fingerprint]));
    await call('POST /api/agents/{id}/tools/pin', { params: { id }, body: { serverId, fingerprints } });
    setFound(undefined);
    promptVersion.value += 1;
  });
  return html`<section aria-label=${`tool server ${serverId}`}>
    <p class="between row"><span>Tool server <code>${serverId}</code></span>
      <button type="button" class="button small" onClick=${discover}>Compare</button></p>
    ${error && html`<${ErrorNote} error=${error} />`}
    ${found?.error && html`<p class="note note-error" role="alert">${found.error}</p>`}
    ${found && html`<ul class="plain">${found.tools.map((tool) => html`<${Definition} key=${tool.name} ...${tool} />`)}</ul>
      <button type="button" class="button small primary" disabled=${found.status === 'unreachable'} onClick=${accept}>Accept ${accepted.length} as they are now</button>`}
  </section>`;
}

/** A tool as its server defines it now, beside the definition that was accepted. */
function Definition({ name, status, isAllowed, fault, definition, pinned }) {
  const label = `definition of ${name}`;
  const [before, now] = [pinned, definition].map((value) => value && JSON.stringify(value, null, 2));
  return html`<li><details class="fold"><summary><code>${name}</code> <span class=${`meta ${status === 'ok' ? '' : 'bad'}`}>${isAllowed ? status : 'not named in the role'}${fault && `: ${fault}`}</span></summary>
    <div class="fold-body">${before && now ? html`<${Diff} before=${before} after=${now} label=${label} />` : html`<${Code} text=${now ?? before} label=${label} wrap />`}</div>
  </details></li>`;
}
