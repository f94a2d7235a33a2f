/** The agents: the list, and an agent's role, backend, documents, tokens, assignments and visitors. */

import { html } from '../vendor/ui.js';
import { agents, call, client, go, has, href, session } from '../lib/store.js';
import { Page, Selection, Tabs, lazy, pending, useLoad } from '../lib/ui.js';
import { initial, noAgent } from './chat.js';
import { RoleEditor } from './role-editor.js';

const Tokens = lazy(() => import('./tokens.js'), 'Tokens');
const Documents = lazy(() => import('./documents.js'), 'Documents');
const Visitors = lazy(() => import('./visitors.js'), 'Visitors');
const Assignments = lazy(() => import('./assignments.js'), 'Assignments');

/** @param {{id?: string, tab?: string, part?: string}} props The list without `id`. */
export const Agents = ({ id, ...place }) => (id ? html`<${Agent} key=${id} id=${id} ...${place} />` : html`<${List} />`);

function List() {
  return html`<${Page} name="agents" title="Agents" actions=${html`<a class="button primary" href="#/agents/new">New agent</a>`}>
    <ul class="cards">${agents.value.map((agent) => html`<li key=${agent.id} class="card">
      <span class="avatar" aria-hidden="true">${initial(agent.name || agent.id)}</span>
      <div class="item-main">
        <a class="item-title" href=${href('agents', agent.id)}>${agent.name || agent.id}</a>
        <p class="meta"><code>${agent.id}</code>${agent.ownerId ? ` · ${agent.ownerId}` : ''}</p>
        <p class="clamp muted">${agent.content?.systemPrompt ?? ''}</p>
      </div>
      <a class="button quiet small" href=${href('chat', agent.id)} aria-label=${`Chat with ${agent.name || agent.id}`}>Chat</a>
    </li>`)}</ul>
    ${agents.value.length === 0 && html`<p class="muted">No agent yet. An agent is a role: instructions, tools, documents and a backend.</p>`}
  <//>`;
}

const TABS = [{ id: 'role', name: 'Role' }, { id: 'backend', name: 'Backend' }, { id: 'documents', name: 'Documents' }, { id: 'tokens', name: 'Tokens' },
  { id: 'assignments', name: 'Assignments', feature: 'jobs' }, { id: 'visitors', name: 'Visitors', feature: 'threads' }];

/** Returns true if the user may save the role. */
const mayChange = ({ ownerId }) => ownerId === session.value.userId || session.value.roles.includes('admin');

function Agent({ id, tab = 'role', part }) {
  const isNew = id === 'new';
  const found = useLoad((signal) => (isNew ? Promise.resolve(undefined) : call('GET /api/agents/{id}', { params: { id }, signal })), id);
  if (found.error?.status === 404) return noAgent();
  const name = isNew ? 'New agent' : found.data?.data.name || id;
  const select = (tab) => go('agents', id, tab);
  const agent = found.data;
  const tabs = TABS.filter(({ feature }) => !feature || (has(feature) && agent?.data.ownerId === session.value.userId));
  return html`<${Page} name="agent" title=${name} back=${html`<p class="back"><a href="#/agents">Agents</a></p>`} actions=${!isNew && html`<a class="button" href=${href('chat', id)}>Chat</a>`}>
    ${!isNew && html`<${Tabs} label="Agent" tabs=${tabs} selected=${tab} onSelect=${select} panel="agent-panel" />`}
    <div id="agent-panel" class="agent-panel" tabindex="-1" role=${isNew ? undefined : 'tabpanel'} aria-labelledby=${isNew ? undefined : `tab-${tab}`}>
      ${isNew ? html`<${RoleEditor} key="new" />` : pending(found)}
      ${agent && tab === 'role' && html`<${RoleEditor} key=${id} agent=${agent} isReadOnly=${!mayChange(agent.data)} onSaved=${found.reload} />`}
      ${agent && tab === 'backend' && html`<${Backend} id=${id} />`}
      ${agent && tab === 'tokens' && html`<${Tokens} key=${id} id=${id} />`}
      ${agent && tab === 'assignments' && html`<${Assignments} key=${id} id=${id} />`}
      ${agent && tab === 'visitors' && html`<${Visitors} key=${id} id=${id} part=${part} />`}
      ${agent && tab === 'documents' && html`<${Documents} agent=${agent} isOwner=${mayChange(agent.data)} onSaved=${found.reload} />`}
    </div>
  <//>`;
}

/** The backend that answers, and the outcome of each rule that selects it. */
function Backend({ id }) {
  const load = useLoad((signal) => client.preview({ agentId: id }, { signal }), id);
  const { data, error } = load;
  const rules = data?.selection.rules ?? error?.problem?.selection?.rules;
  return html`
    ${pending(load)}
    ${data && html`<p class="figure"><strong>${data.selection.chosen}</strong> <span class="muted">answers. The first rule that matches decides.</span></p>`}
    <${Selection} rules=${rules} />`;
}
