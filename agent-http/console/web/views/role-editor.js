/** The editor of a role: a form and the JSON of the same object, saved under the version that was read. The form does not change unknown fields. */

import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/ui.js';
import { CATALOGUE } from '../lib/catalogue.js';
import { Choice, Count, List, Notes, Secret, Switch, Text, Words, described, fieldErrors, getAt, hiddenFields, isWithin, listAt, setAt, toggled } from '../lib/fields.js';
import { parseJson } from '../lib/format.js';
import { call, go, hasUnsaved, listAll, loadAgents } from '../lib/store.js';
import { ErrorNote, Fold, Search, Select, lazy, pending, useConfirm, useLoad } from '../lib/ui.js';

const RolePreview = lazy(() => import('../lib/compare.js'), 'RolePreview');

const NEW_ROLE = {
  name: 'Guide',
  content: { systemPrompt: 'You are a friendly guide. Be brief.', mcpPreset: ['readTodos', 'createTodo'] },
  children: [{ name: 'EmbeddedAI', content: { provider: 'auto' } }],
};

/** `form`, `json` or `preview`, for all agents of this page. */
const shownView = signal('form');

/** Leaves out what is not the editor's to change. */
function editable(role) {
  const { warnings, companyId, ownerId, ...rest } = role;
  return rest;
}

const VIEWS = [['form', 'Form'], ['json', 'JSON'], ['preview', 'Preview']];

const write = (role) => JSON.stringify(role, null, 2);

/** Returns the role of a text, or what is wrong with it: `{role}` or `{fault}`. */
function read(text) {
  try {
    const role = parseJson(text);
    return Object(role) === role && !Array.isArray(role) ? { role } : { fault: 'The role is not a JSON object.' };
  } catch (error) {
    return { fault: `The role is not JSON: ${error.message}` };
  }
}

/** Asks before the page or the view is left with changes that are not saved. */
function useGuard(isChanged, saved) {
  useEffect(() => {
    if (!isChanged) return undefined;
    const warn = (event) => hasUnsaved.value && event.preventDefault();
    hasUnsaved.value = true;
    addEventListener('beforeunload', warn);
    return () => {
      hasUnsaved.value = false;
      removeEventListener('beforeunload', warn);
    };
  }, [isChanged, saved]);
}

/** @param {{agent?: {data: object, etag: string}, isReadOnly?: boolean, onSaved?: () => void}} props A new role without `agent`. */
export function RoleEditor({ agent, isReadOnly = false, onSaved }) {
  const saved = useMemo(() => (agent ? editable(agent.data) : NEW_ROLE), [agent]);
  const savedText = useMemo(() => write(saved), [saved]);
  const [text, setText] = useState(savedText);
  const [id, setId] = useState('');
  const [state, setState] = useState({});
  const root = useRef(null);
  const isSaving = useRef(false);
  // The saved text, and the edited one.
  const sent = useRef(savedText);
  const latest = useRef();
  latest.current = text;
  const [version, setVersion] = useState(agent?.etag);
  const isChanged = text !== savedText;
  const { role, fault } = useMemo(() => read(text), [text]);
  const view = fault ? 'json' : isReadOnly && shownView.value === 'preview' ? 'form' : shownView.value;
  useGuard(isChanged, saved);
  useLayoutEffect(() => {
    // A new role is written first, whatever was shown of another one.
    if (!agent) shownView.value = 'form';
  }, []);
  useLayoutEffect(() => {
    // Text written during the save stays.
    if (latest.current !== sent.current) return;
    sent.current = savedText;
    setText(savedText);
    setVersion(agent?.etag);
  }, [saved]);
  const fail = (error) => setState({ error, errors: fieldErrors(error.status === 400 ? error.message : '') });
  // What the server has said about a field is out of date when the field changes.
  const set = (path, value) => {
    setText((text) => write(setAt(parseJson(text), path, value)));
    setState(({ error, errors = new Map() }) => ({ error, errors: new Map([...errors].filter(([of]) => !isWithin(of, path) && !isWithin(path, of))) }));
  };
  const save = async (event) => {
    event.preventDefault();
    if (isSaving.current) return undefined;
    if (fault) return fail({ code: 'INVALID_REQUEST', message: fault });
    isSaving.current = true;
    sent.current = text;
    const params = { id: agent ? agent.data.id : id.trim() };
    try {
      // A new agent must not replace one that has its identifier.
      const condition = agent ? { ifMatch: agent.etag } : { ifNoneMatch: '*' };
      const { data } = await call('PUT /api/agents/{id}', { params, body: role, ...condition });
      setState({ isSaved: true, warnings: data.warnings });
      // The user may have left the editor, and have opened another one.
      if (root.current && latest.current === text) hasUnsaved.value = false;
      await loadAgents();
      if (agent) return onSaved();
      return root.current && go('agents', params.id);
    } catch (error) {
      return fail(error);
    } finally {
      isSaving.current = false;
    }
  };
  const remove = async () => {
    try {
      await call('DELETE /api/agents/{id}', { params: { id: agent.data.id }, ifMatch: agent.etag });
      if (root.current) hasUnsaved.value = false;
      await loadAgents();
      if (root.current) go('agents');
    } catch (error) {
      fail(error);
    }
  };
  const [question, ask] = useConfirm(() => ({
    title: 'Delete this agent?', text: 'Its tokens are revoked, and its assignments and memory are deleted. This cannot be undone.', action: 'Delete', onConfirm: remove,
  }));
  useEffect(() => reveal(root.current), [state.error]);
  const warnings = state.warnings ?? agent?.data.warnings ?? [];
  const form = { value: role, saved: agent ? saved : {}, errors: state.errors ?? new Map(), set };
  return html`<form class="stack-form" ref=${root} onSubmit=${save} noValidate=${Boolean(agent)}>
    ${!agent && html`<div class="field"><label for="agent-id">Identifier</label><input id="agent-id" required value=${id} placeholder="guide" onInput=${(event) => setId(event.target.value)} /></div>`}
    <div class="row between view-bar">
      <div class="row" role="group" aria-label="View of the role">
        ${(isReadOnly ? VIEWS.slice(0, 2) : VIEWS).map(([name, words]) => html`<button type="button" key=${name} class="button small" aria-pressed=${view === name}
          disabled=${Boolean(fault) && name !== 'json'} onClick=${() => (shownView.value = name)}>${words}</button>`)}
      </div>
      ${agent && html`<span class="muted small">Version ${agent.etag.replace(/\D/g, '')}. Saved secrets are shown as <code>***</code>${isReadOnly ? '' : ', and kept unless you change them'}.</span>`}
    </div>
    ${isReadOnly && html`<p class="note">This is the agent of <strong>${agent.data.ownerId}</strong>. You can read its role and chat with it.</p>`}
    ${fault && html`<p class="field-error">${fault} The form is there again when it is.</p>`}
    ${view === 'form' && html`<fieldset disabled=${isReadOnly}><${RoleForm} key=${version} form=${form} /></fieldset>`}
    ${view === 'json' && html`<div class="field"><label for="role-json">Role block</label>
      <textarea id="role-json" class="code-input tall" spellcheck="false" readonly=${isReadOnly} value=${text} onInput=${(event) => { setText(event.target.value); setState({}); }}></textarea></div>`}
    ${view === 'preview' && html`<${RolePreview} id=${agent ? agent.data.id : id.trim()} role=${role} isNew=${!agent} />`}
    ${warnings.map(({ path, message }) => html`<p key=${path} class="note"><code>${path}</code> ${message}</p>`)}
    <${ErrorNote} error=${state.error} />
    ${!isReadOnly && html`<div class="row between save-bar">
      <div class="row">
        <button class="button primary" disabled=${agent && !isChanged}>Save</button>
        <button type="button" class="button" disabled=${!isChanged} onClick=${() => { setText(savedText); setState({}); }}>Revert</button>
        <span class="muted small" role="status">${state.isSaved && !isChanged ? 'Saved' : isChanged ? 'Not saved' : ''}</span>
      </div>
      ${agent && html`<button type="button" class="button quiet danger-text" onClick=${ask}>Delete agent</button>`}
    </div>`}
    ${question}
  </form>`;
}

/** Opens the sections with fields about which the server has said something, and goes to the first one. */
function reveal(root) {
  for (const section of root?.querySelectorAll('.section') ?? []) if (section.querySelector('.field-error')) section.open = true;
  root?.querySelector('[aria-invalid=true]')?.focus();
}

const HOUR_MS = 3_600_000;
const BY = [[undefined, 'the user of the chat'], ['user', 'the user of the chat (named)'], ['visitor', 'the user of the chat, also a visitor'], ['owner', 'the agent’s owner'], ['company', 'everybody of the company']];
const UNATTENDED = [[undefined, 'deny the call'], ['deny', 'deny the call (named)'], ['wait', 'wait'], ['allow', 'allow it']];

/** A choice whose default is absent: a role that names it keeps the name. */
const named = (options, value) => options.filter(([of], place) => place === 0 || of !== options[1][0] || value === of);

/** @param {{form: import('../lib/fields.js').Form}} props */
function RoleForm({ form }) {
  const hidden = hiddenFields(form.value);
  return html`<div class="role-form">
    <${Section} title="Prompt" isOpen>
      <${Text} form=${form} path="name" label="Name" />
      <${Text} form=${form} path="content.systemPrompt" label="System prompt" rows=${4} hint="Who the agent is, and what it is for." />
      <${Text} form=${form} path="content.personality" label="Personality" rows=${2} hint="Its manner of speaking." />
      <${List} form=${form} path="content.rules" label="Rules" name="rule" fresh=""
        row=${(path, place) => html`<${Text} form=${form} path=${path} label=${`Rule ${place + 1}`} rows=${1} isKept />`} />
      <${List} form=${form} path="content.promptBlocks" label="Blocks of text" name="block" fresh=${{ title: '', text: '' }} row=${(path) => html`<${Block} form=${form} path=${path} />`} />
      <${Council} form=${form} />
    <//>
    <${Section} title="Tools"><${Tools} form=${form} /><//>
    <${Section} title="Approvals"><${Approvals} form=${form} /><//>
    <${Section} title="Documents and retrieval"><${Documents} form=${form} /><//>
    <${Section} title="Backends"><${Backends} form=${form} /><//>
    <${Section} title="Limits, memory and conversations"><${More} form=${form} /><//>
    ${hidden.length > 0 && html`<p class="muted small">The JSON view has the rest: ${hidden.map((name, place) => html`${place > 0 ? ', ' : ''}<code>${name}</code>`)}.</p>`}
  </div>`;
}

function Section({ title, isOpen = false, children }) {
  return html`<${Fold} kind="section" open=${isOpen} summary=${html`<h2>${title}</h2>`}>${children}<//>`;
}

/** A block is a text, or a text with a title. */
function Block({ form, path }) {
  if (typeof getAt(form.value, path) === 'string') return html`<${Text} form=${form} path=${path} label="Text" rows=${2} isKept />`;
  return html`<${Text} form=${form} path=${`${path}.title`} label="Title" isKept /><${Text} form=${form} path=${`${path}.text`} label="Text" rows=${2} isKept />`;
}

/** A council of text. One with members is in the JSON view. */
function Council({ form }) {
  const value = getAt(form.value, 'content.council');
  if (value !== undefined && typeof value !== 'string') return null;
  return html`<${Text} form=${form} path="content.council" label="Council" rows=${2} hint="The other agents that this one may consult, in words. One with members is edited in the JSON view." />`;
}

function Approvals({ form }) {
  return html`<p class="muted small">Calls of these tools wait for a person. The first rule that matches a tool counts.</p>
    <${List} form=${form} path="content.approvals" label="Rules of approval" name="approval rule" fresh=${{ tools: [] }} row=${(path) => html`<${Rule} form=${form} path=${path} />`} />`;
}

function Rule({ form, path }) {
  const at = (name) => `${path}.${name}`;
  const hints = listAt(form.value, at('annotations'));
  const toggle = (hint) => ({ target }) => form.set(at('annotations'), toggled(hints, hint, target.checked));
  return html`<div class="rule">
    <${Words} form=${form} path=${at('tools')} label="Tools" hint="Names, with commas between them." />
    <div class="field" role="group" aria-label="Tools by their effects">
      <label class="check"><input type="checkbox" ...${described(form, at('annotations'))} checked=${hints.includes('destructive')} onChange=${toggle('destructive')} /><span>and tools that may delete or overwrite</span></label>
      <label class="check"><input type="checkbox" checked=${hints.includes('openWorld')} onChange=${toggle('openWorld')} /><span>and tools that reach other systems</span></label>
      <${Notes} form=${form} path=${at('annotations')} /></div>
    <${Text} form=${form} path=${at('message')} label="Question" />
    <div class="field-row">
      <${Choice} form=${form} path=${at('by')} label="Who decides" options=${named(BY, getAt(form.value, at('by')))} />
      <${Choice} form=${form} path=${at('unattended')} label="Where nobody can be asked" options=${named(UNATTENDED, getAt(form.value, at('unattended')))} />
      <${Count} form=${form} path=${at('ttlMs')} label="Time to decide, in hours" hint="Absent: a day." unit=${HOUR_MS} />
    </div>
    <${Switch} form=${form} path=${at('editable')} label="The arguments may be changed" otherwise=${true} />
  </div>`;
}

function Documents({ form }) {
  const load = useLoad(() => listAll('GET /api/documents', 'documents'), 'documents');
  const { data } = load;
  const [search, setSearch] = useState('');
  const lists = { documentIds: listAt(form.value, 'content.documentIds'), ragDocumentIds: listAt(form.value, 'content.ragDocumentIds') };
  const titles = new Map((data ?? []).map(({ id, title }) => [id, title || id]));
  const isMissing = (id) => Boolean(data) && !titles.has(id);
  const all = [...new Set([...lists.documentIds, ...lists.ragDocumentIds, ...titles.keys()])];
  const words = search.trim().toLowerCase();
  const shown = all.filter((id) => `${id} ${titles.get(id) ?? ''}`.toLowerCase().includes(words));
  const toggle = (name, id) => ({ target }) => form.set(`content.${name}`, toggled(lists[name], id, target.checked));
  const box = (name, id, label) => html`<input type="checkbox" aria-label=${`${label}: ${titles.get(id) ?? id}`} checked=${lists[name].includes(id)} onChange=${toggle(name, id)} />`;
  return html`
    ${pending(load)}
    ${all.length > 12 && html`<p><${Search} label="Search the documents" hint="Search documents" value=${search} onSearch=${setSearch} /></p>`}
    ${all.length === 0 && data && html`<p class="muted">The company has no documents.</p>`}
    ${all.length > 0 && html`<div class="picker" tabindex="0" role="group" aria-label="Documents of the role"><table class="md-table">
      <thead><tr><th scope="col">Document</th><th scope="col">In the prompt</th><th scope="col">Searched</th></tr></thead>
      <tbody>${shown.map((id) => html`<tr key=${id}><th scope="row">${titles.get(id) ?? id} <span class="meta">${isMissing(id) ? 'does not exist' : titles.get(id) === id ? '' : id}</span></th>
        <td>${box('documentIds', id, 'In the prompt')}</td><td>${box('ragDocumentIds', id, 'Searched')}</td></tr>`)}</tbody></table></div>`}
    <${Notes} form=${form} path="content.documentIds" /><${Notes} form=${form} path="content.ragDocumentIds" />
    <${Switch} form=${form} path="content.enableAutoRag" label="Search the documents for each message" hint="Those that are marked as searched, or else those of the prompt." />
    <${Choice} form=${form} path="content.ragPlacement" label="Place of what is found" options=${[[undefined, 'the default'], ['systemPrompt', 'the end of the system prompt'], ['latestTurn', 'before the latest message']]} />
    <${Switch} form=${form} path="content.showSources" label="Visitors of widgets see the titles of the documents that are cited" />`;
}

function More({ form }) {
  return html`
    <div class="field-row">
      <${Count} form=${form} path="content.contextWindow" label="Context window, in tokens" />
      <${Count} form=${form} path="content.maxOutputTokens" label="Longest answer, in tokens" />
      <${Text} form=${form} path="content.memoryFolder" label="Folder of the memory" />
      <${Choice} form=${form} path="content.memoryScope" label="Memory belongs to" options=${[[undefined, 'each user'], ['user', 'each user (named)'], ['company', 'the company']]} />
      <${Choice} form=${form} path="content.conversations.store" label="Conversations" options=${[[undefined, 'are kept'], [true, 'are kept (named)'], [false, 'are not kept']]} />
      <${Choice} form=${form} path="content.conversations.clientTools" label="Clients may bring tools" options=${[[undefined, 'with a session'], ['session', 'with a session (named)'], ['all', 'visitors too'], ['off', 'never']]} />
    </div>
    <${Secret} form=${form} path="content.messengerToken" label="Token of the messenger’s bot" />`;
}

const KNOWN = new Map(CATALOGUE.map((tool) => [tool.name, tool]));
const DEFAULT = CATALOGUE.filter(({ isDefault }) => isDefault).map(({ name }) => name);
/** Words of a workspace file, which the server stores as lists. */
const PRESETS = { base: DEFAULT, none: [] };

/** The tools of a role: the preset, further tools, and those of a widget's visitors. */
function Tools({ form }) {
  const given = getAt(form.value, 'content.mcpPreset');
  const preset = Array.isArray(given) ? given : PRESETS[given] ?? DEFAULT;
  const isOwnList = given !== undefined && given !== null && given !== 'base';
  const tools = listAt(form.value, 'content.tools');
  const visitors = listAt(form.value, 'content.widgetTools');
  const names = [...new Set([...KNOWN.keys(), ...preset, ...tools, ...visitors])].filter((name) => typeof name === 'string');
  const change = (name, isIn) => {
    if (tools.includes(name) && !isIn) form.set('content.tools', toggled(tools, name, false));
    if (isOwnList && !KNOWN.get(name)?.mustBeListed && (isIn || preset.includes(name))) form.set('content.mcpPreset', toggled(preset, name, isIn) ?? []);
    else if (isIn) form.set('content.tools', toggled(tools, name, true));
  };
  return html`
    <fieldset class="field choice"><legend>Begins with</legend>
      <label class="check"><input type="radio" name="preset" checked=${!isOwnList} onChange=${() => form.set('content.mcpPreset', undefined)} /><span>the default tools</span></label>
      <label class="check"><input type="radio" name="preset" checked=${isOwnList} onChange=${() => form.set('content.mcpPreset', preset)} /><span>the tools that are marked here</span></label>
    </fieldset>
    <${Notes} form=${form} path="content.mcpPreset" /><${Notes} form=${form} path="content.tools" /><${Notes} form=${form} path="content.widgetTools" />
    <div class="picker tall" tabindex="0" role="group" aria-label="Tools of the role"><table class="md-table">
      <thead><tr><th scope="col">Tool</th><th scope="col">Agent</th><th scope="col">Visitors</th></tr></thead>
      <tbody>${names.map((name) => {
        const isFixed = !isOwnList && preset.includes(name) && !tools.includes(name);
        return html`<tr key=${name}>
          <th scope="row"><${Name} name=${name} /></th>
          <td><input type="checkbox" aria-label=${`${name} for the agent`} checked=${preset.includes(name) || tools.includes(name)} disabled=${isFixed} onChange=${({ target }) => change(name, target.checked)} /></td>
          <td><input type="checkbox" aria-label=${`${name} for visitors`} checked=${visitors.includes(name)} onChange=${({ target }) => form.set('content.widgetTools', toggled(visitors, name, target.checked))} /></td>
        </tr>`;
      })}</tbody></table></div>`;
}

/** A tool with what it does, and the hints about its effects. */
function Name({ name }) {
  const tool = KNOWN.get(name);
  if (!tool) return html`<code>${name}</code> <span class="meta">not a built-in tool</span>`;
  return html`<code>${name}</code> ${tool.hints.filter((hint) => hint !== 'idempotent').map((hint) => html`<span key=${hint} class=${`chip hint-${hint.replace(' ', '-')}`}>${hint}</span>`)}
    <p class="meta">${tool.description}</p>`;
}

const THINKING = [[undefined, 'the model’s default'], [true, 'on'], [false, 'off']];
const providers = (...names) => [[undefined, 'not set'], ...names.map((name) => [name, name])];
const EMBEDDED = providers('anthropic', 'auto', 'local', 'ollama', 'openai', 'openai-responses');
const SERVER = providers('anthropic', 'ollama', 'openai');
const TEMPERATURES = [[undefined, 'the model’s default'], ...[0, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2].map((value) => [value, String(value)])];
const AUTH = [[undefined, 'not set'], ['none', 'none'], ['basic', 'user and password'], ['header', 'a header'], ['jwt', 'a signed token (JWT)']];

/** Containers that are backends, by name, with what they are. */
const KINDS = {
  EmbeddedAI: { words: 'a model that the application calls', view: Embedded },
  AgentServer: { words: 'an agent runtime', view: Server },
  WorkflowConnector: { words: 'a workflow’s webhook', view: Workflow },
  SubscriptionConnector: { words: 'a coding subscription of the user', view: Subscription },
};

const SERVER_FIELDS = ['agentServerUrl', 'agentServerProvider', 'agentServerModel', 'agentServerEnableThinking', 'agentServerTools', 'agentServerLocalUrl', 'agentServerApiKey'];

/** The backends of a role: containers below it, and the agent server that it names itself. */
function Backends({ form }) {
  const children = listAt(form.value, 'children');
  const content = form.value.content ?? {};
  const [kind, setKind] = useState('EmbeddedAI');
  const remove = (place) => form.set('children', toggled(children, children[place], false));
  const add = () => form.set(`children[${children.length}]`, { name: kind, content: {} });
  return html`<p class="muted small">Five rules select the backend, which the tab Backend shows. A key is sent to the address for which it was saved, and deleted with it.</p>
    ${children.map((child, place) => html`<fieldset class="backend" key=${`${place}-${child?.name}`}>
      <legend><code>${child?.name}</code> <span class="meta">${KINDS[child?.name]?.words ?? ''}</span></legend>
      ${Object.hasOwn(KINDS, child?.name) ? html`<${KINDS[child.name].view} form=${form} path=${`children[${place}].content`} savedPath=${savedPath(form.saved, child.name)} />`
        : html`<p class="muted small">It is edited in the JSON view.</p>`}
      <button type="button" class="button quiet small danger-text" onClick=${() => remove(place)}>Remove ${child?.name}</button>
    </fieldset>`)}
    ${SERVER_FIELDS.some((name) => content[name] !== undefined) && html`<fieldset class="backend"><legend>Agent server of the role itself</legend>
      <${Server} form=${form} path="content" savedPath="content" /></fieldset>`}
    <div class="row"><${Select} label="Kind of backend" value=${kind} all=${Object.entries(KINDS).map(([name, { words }]) => [name, `${name}: ${words}`])} onSelect=${setKind} />
      <button type="button" class="button small" onClick=${add}>Add</button></div>`;
}

/** Place of a container's content in the saved role, where its secrets are known by its name. */
function savedPath(saved, name) {
  const place = listAt(saved, 'children').findIndex((child) => child?.name === name);
  return place < 0 ? 'absent' : `children[${place}].content`;
}

/** Says that a key is not kept for another address. */
function keyHint(form, path, savedPath, address) {
  const [now, before] = [getAt(form.value, `${path}.${address}`), getAt(form.saved, `${savedPath}.${address}`)];
  return savedPath !== 'absent' && (now ?? '') !== (before ?? '') ? 'The address has changed: a saved key is deleted, unless it is given again.' : undefined;
}

function Embedded({ form, path, savedPath }) {
  const at = (name) => `${path}.${name}`;
  return html`<div class="field-row">
      <${Choice} form=${form} path=${at('provider')} label="Provider" options=${EMBEDDED} />
      <${Text} form=${form} path=${at('model')} label="Model" />
    </div>
    <${Text} form=${form} path=${at('baseUrl')} label="Address" placeholder="https://api.openai.com/v1" />
    <${Secret} form=${form} path=${at('apiKey')} savedPath=${`${savedPath}.apiKey`} label="API key" hint=${keyHint(form, path, savedPath, 'baseUrl')} />
    <${Reasoning} form=${form} path=${path} />
    <${Parameters} form=${form} path=${path} />`;
}

function Parameters({ form, path }) {
  return html`<div class="field-row">
    <${Choice} form=${form} path=${`${path}.parameters.temperature`} label="Temperature" options=${TEMPERATURES} />
    <${Count} form=${form} path=${`${path}.parameters.maxOutputTokens`} label="Longest answer" hint="In tokens. The JSON view has the other parameters." />
  </div>`;
}

function Reasoning({ form, path }) {
  return html`<div class="field-row">
    <${Choice} form=${form} path=${`${path}.enableThinking`} label="Reasoning" options=${THINKING} />
    <${Text} form=${form} path=${`${path}.reasoningEffort`} label="Effort" hint="In the provider’s words, such as low." />
  </div>`;
}

function Server({ form, path, savedPath }) {
  const at = (name) => `${path}.agentServer${name}`;
  return html`<${Text} form=${form} path=${at('Url')} label="Address of the runtime" />
    <div class="field-row">
      <${Choice} form=${form} path=${at('Provider')} label="Provider" options=${SERVER} />
      <${Text} form=${form} path=${at('Model')} label="Model" />
      <${Text} form=${form} path=${at('LocalUrl')} label="Address of a local model" />
      <${Choice} form=${form} path=${at('EnableThinking')} label="Reasoning" options=${THINKING} />
    </div>
    <${Secret} form=${form} path=${at('ApiKey')} savedPath=${`${savedPath}.agentServerApiKey`} label="API key" hint=${keyHint(form, path, savedPath, 'agentServerUrl')} />
    <${Parameters} form=${form} path=${path} />
    <${Words} form=${form} path=${at('Tools')} label="Only these tools" hint="Names, with commas between them. Absent: all of the agent’s." />`;
}

function Workflow({ form, path, savedPath }) {
  const auth = getAt(form.value, `${path}.auth.type`);
  const secret = (name, label) => html`<${Secret} form=${form} path=${`${path}.auth.${name}`} savedPath=${`${savedPath}.auth.${name}`} label=${label} hint=${keyHint(form, path, savedPath, 'webhookUrl')} />`;
  // Each kind has other fields, so that a change of the kind resets them.
  const set = (at, type) => form.set(at.replace(/\.type$/, ''), type && { type });
  return html`<${Text} form=${form} path=${`${path}.webhookUrl`} label="Address of the webhook" />
    <${Choice} form=${{ ...form, set }} path=${`${path}.auth.type`} label="Authentication" options=${AUTH} />
    ${auth === 'basic' && html`<${Text} form=${form} path=${`${path}.auth.user`} label="User" isKept />${secret('password', 'Password')}`}
    ${auth === 'header' && html`<${Text} form=${form} path=${`${path}.auth.name`} label="Name of the header" isKept />${secret('value', 'Value of the header')}`}
    ${auth === 'jwt' && secret('secret', 'Secret that signs')}`;
}

function Subscription({ form, path }) {
  return html`<${Text} form=${form} path=${`${path}.model`} label="Model" />
    <${Text} form=${form} path=${`${path}.instructions`} label="Instructions" rows=${2} hint="For a vendor that accepts only its own; the system prompt follows." />
    <${Reasoning} form=${form} path=${path} />`;
}
