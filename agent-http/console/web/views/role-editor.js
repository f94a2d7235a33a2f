/** The editor of a role: a form and the JSON of the same object, saved under the version that was read. */

import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/ui.js';
import { fieldErrors, isWithin, setAt } from '../lib/fields.js';
import { parseJson } from '../lib/format.js';
import { call, go, hasUnsaved, loadAgents } from '../lib/store.js';
import { ErrorNote, lazy, useConfirm } from '../lib/ui.js';
import { RoleForm } from './role-form.js';

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
    // What was written during the save stays.
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
