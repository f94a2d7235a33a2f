/** The agents: the list, and an agent's role, backend, documents and memory. */

import { html, useState } from '../vendor/ui.js';
import { client, agents, call, go, href, listAll } from '../lib/store.js';
import { size } from '../lib/format.js';
import { Code, ErrorNote, Tabs, lazy, useLoad } from '../lib/ui.js';
import { Selection } from '../tabs/selection.js';
import { RoleEditor } from './role-editor.js';

const Tokens = lazy(async () => (await import('./tokens.js')).Tokens);

export function Agents() {
  return html`<section class="page" aria-labelledby="agents-title">
    <header class="page-head"><h1 id="agents-title">Agents</h1><a class="button primary" href="#/agents/new">New agent</a></header>
    <ul class="cards">${agents.value.map((agent) => html`<li key=${agent.id} class="card">
      <span class="avatar" aria-hidden="true">${[...(agent.name || agent.id)][0]?.toUpperCase()}</span>
      <div class="item-main">
        <a class="item-title" href=${href('agents', agent.id)}>${agent.name || agent.id}</a>
        <p class="meta"><code>${agent.id}</code>${agent.ownerId ? ` · ${agent.ownerId}` : ''}</p>
        <p class="clamp muted">${agent.content?.systemPrompt ?? ''}</p>
      </div>
      <a class="button quiet small" href=${href('chat', agent.id)} aria-label=${`Chat with ${agent.name || agent.id}`}>Chat</a>
    </li>`)}</ul>
  </section>`;
}

const TABS = [{ id: 'role', name: 'Role' }, { id: 'backend', name: 'Backend' }, { id: 'documents', name: 'Documents' }, { id: 'tokens', name: 'Tokens' }];

export function Agent({ id, tab = 'role' }) {
  const isNew = id === 'new';
  const found = useLoad((signal) => (isNew ? Promise.resolve(undefined) : call('GET /api/agents/{id}', { params: { id }, signal })), id);
  const name = isNew ? 'New agent' : found.data?.data.name || id;
  const select = (tab) => go('agents', id, tab);
  return html`<section class="page" aria-labelledby="agent-title">
    <header class="page-head">
      <div><p class="meta"><a href="#/agents">Agents</a></p><h1 id="agent-title">${name}</h1></div>
      ${!isNew && html`<a class="button" href=${href('chat', id)}>Chat</a>`}
    </header>
    ${found.error && html`<${ErrorNote} error=${found.error} />`}
    ${!isNew && html`<${Tabs} label="Agent" tabs=${TABS} selected=${tab} onSelect=${select} panel="agent-panel" />`}
    <div id="agent-panel" class="agent-panel" role=${isNew ? undefined : 'tabpanel'} aria-labelledby=${isNew ? undefined : `tab-${tab}`}>
      ${isNew && html`<${RoleEditor} key="new" />`}
      ${found.data && tab === 'role' && html`<${RoleEditor} key=${found.data.etag} agent=${found.data} onSaved=${found.reload} />`}
      ${found.data && tab === 'backend' && html`<${Backend} id=${id} />`}
      ${found.data && tab === 'tokens' && html`<${Tokens} key=${id} id=${id} />`}
      ${found.data && tab === 'documents' && html`<${Documents} content=${found.data.data.content ?? {}} />`}
    </div>
  </section>`;
}

/** The backend that answers, and the outcome of each rule that selects it. */
function Backend({ id }) {
  const { data, error } = useLoad((signal) => client.preview({ agentId: id }, { signal }), id);
  const rules = data?.selection.rules ?? error?.problem?.selection?.rules;
  return html`
    ${error && html`<${ErrorNote} error=${error} />`}
    ${data && html`<p class="figure"><strong>${data.selection.chosen}</strong> <span class="muted">answers. The first rule that matches decides.</span></p>`}
    <${Selection} rules=${rules} />`;
}

function Documents({ content }) {
  const named = new Set([...(content.documentIds ?? []), ...(content.ragDocumentIds ?? [])]);
  const { data, error } = useLoad(() => listAll('GET /api/documents', 'documents'), 'documents');
  const [shown, setShown] = useState(undefined);
  if (error) return html`<${ErrorNote} error=${error} />`;
  const of = (data ?? []).map((one) => ({ ...one, isNamed: named.has(one.id) })).sort((one, other) => other.isNamed - one.isNamed);
  return html`
    <p class="muted">Documents of the company. The agent reads those that its role names.</p>
    <ul class="rows">${of.map((one) => html`<li key=${one.id} class="item">
      <div class="item-main">
        <button type="button" class="item-title as-link" aria-expanded=${shown === one.id} onClick=${() => setShown(shown === one.id ? undefined : one.id)}>${one.title || one.id}</button>
        <p class="meta"><code>${one.id}</code> · ${size(one.bytes)} · version ${one.version}${one.status ? ` · ${one.status}` : ''}</p>
        ${shown === one.id && html`<${DocumentText} id=${one.id} />`}
      </div>
      ${one.isNamed && html`<span class="chip">named by the role</span>`}
    </li>`)}</ul>
    ${data && data.length === 0 && html`<p class="muted">The company has no documents.</p>`}`;
}

function DocumentText({ id }) {
  const { data, error } = useLoad((signal) => call('GET /api/documents/{id}', { params: { id }, signal }), id);
  if (error) return html`<${ErrorNote} error=${error} />`;
  if (!data) return html`<p class="muted">Loading…</p>`;
  const { text, indexed, content } = data.data;
  return html`<p class="meta">${indexed ? `${indexed.chunks} chunks indexed${indexed.embedder ? `, ${indexed.embedded} embedded by ${indexed.embedder}` : ''}` : 'not indexed yet'}${content ? ` · ${content.mediaType}` : ''}</p>
    <${Code} text=${text || 'The text is too long to be shown here.'} label=${`text of ${id}`} wrap />`;
}
