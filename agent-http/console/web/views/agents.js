/** The agents: the list, and an agent's role, backend, documents and memory. */

import { html, useEffect, useState } from '../vendor/ui.js';
import { client, agents, call, go, href, listAll, loadAgents } from '../lib/store.js';
import { size } from '../lib/format.js';
import { Code, Confirm, ErrorNote, Tabs, useLoad } from '../lib/ui.js';
import { Selection } from '../tabs/selection.js';

const NEW_ROLE = {
  name: 'Guide',
  content: { systemPrompt: 'You are a friendly guide. Be brief.', mcpPreset: ['readTodos', 'createTodo'] },
  children: [{ name: 'EmbeddedAI', content: { provider: 'auto' } }],
};

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

const TABS = [{ id: 'role', name: 'Role' }, { id: 'backend', name: 'Backend' }, { id: 'documents', name: 'Documents' }];

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
      ${found.data && tab === 'documents' && html`<${Documents} content=${found.data.data.content ?? {}} />`}
    </div>
  </section>`;
}

/** Leaves out what is not the editor's to change. */
function editable(role) {
  const { warnings, companyId, ownerId, ...rest } = role;
  return rest;
}

function RoleEditor({ agent, onSaved }) {
  const saved = JSON.stringify(agent ? editable(agent.data) : NEW_ROLE, null, 2);
  const [text, setText] = useState(saved);
  const [id, setId] = useState('');
  const [state, setState] = useState({});
  const [asks, setAsks] = useState(false);
  const isChanged = text !== saved;
  useEffect(() => {
    if (!isChanged) return undefined;
    const warn = (event) => event.preventDefault();
    addEventListener('beforeunload', warn);
    return () => removeEventListener('beforeunload', warn);
  }, [isChanged]);
  const save = async (event) => {
    event.preventDefault();
    let body;
    try {
      body = JSON.parse(text);
    } catch (error) {
      setState({ error: { code: 'INVALID_REQUEST', message: `The role is not JSON: ${error.message}` } });
      return;
    }
    const params = { id: agent ? agent.data.id : id.trim() };
    try {
      // A new agent must not replace one that has its identifier.
      const condition = agent ? { ifMatch: agent.etag } : { ifNoneMatch: '*' };
      const { data } = await call('PUT /api/agents/{id}', { params, body, ...condition });
      setState({ isSaved: true, warnings: data.warnings });
      await loadAgents();
      if (agent) onSaved();
      else go('agents', params.id);
    } catch (error) {
      setState({ error });
    }
  };
  const remove = async () => {
    try {
      await call('DELETE /api/agents/{id}', { params: { id: agent.data.id }, ifMatch: agent.etag });
      await loadAgents();
      go('agents');
    } catch (error) {
      setState({ error });
    }
  };
  const warnings = state.warnings ?? agent?.data.warnings ?? [];
  return html`<form class="stack-form" onSubmit=${save}>
    ${!agent && html`<div class="field"><label for="agent-id">Identifier</label><input id="agent-id" required value=${id} placeholder="guide" onInput=${(event) => setId(event.target.value)} /></div>`}
    ${agent && html`<p class="muted small">Saved secrets are shown as <code>***</code>, and kept unless you change them. Version ${agent.etag}.</p>`}
    <div class="field"><label for="role-json">Role block</label>
      <textarea id="role-json" class="code-input tall" spellcheck="false" value=${text} onInput=${(event) => { setText(event.target.value); setState({}); }}></textarea></div>
    ${warnings.map(({ path, message }) => html`<p key=${path} class="note"><code>${path}</code> ${message}</p>`)}
    ${state.error && html`<${ErrorNote} error=${state.error} />`}
    <div class="row between">
      <div class="row">
        <button class="button primary" disabled=${agent && !isChanged}>Save</button>
        <button type="button" class="button" disabled=${!isChanged} onClick=${() => setText(saved)}>Revert</button>
        <span class="muted small" role="status">${state.isSaved && !isChanged ? 'Saved' : isChanged ? 'Not saved' : ''}</span>
      </div>
      ${agent && html`<button type="button" class="button quiet danger-text" onClick=${() => setAsks(true)}>Delete agent</button>`}
    </div>
    ${asks && html`<${Confirm} title="Delete this agent?" text="Its tokens are revoked, and its assignments and memory are deleted. This cannot be undone." action="Delete" onConfirm=${remove} onClose=${() => setAsks(false)} />`}
  </form>`;
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
