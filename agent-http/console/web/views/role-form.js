/** The form of a role. It edits the object that the JSON view shows, and leaves what it does not know as it is. */

import { html, useState } from '../vendor/ui.js';
import { Choice, Count, List, Notes, Secret, Switch, Text, Words, described } from '../lib/fields.js';
import { getAt, hiddenFields, listAt } from '../lib/role.js';
import { listAll } from '../lib/store.js';
import { ErrorNote, useLoad } from '../lib/ui.js';
import { Backends } from './role-backends.js';
import { Tools } from './role-tools.js';

const HOUR_MS = 3_600_000;
const BY = [[undefined, 'the user of the chat'], ['user', 'the user of the chat (named)'], ['visitor', 'the user of the chat, also a visitor'], ['owner', 'the agent’s owner'], ['company', 'everybody of the company']];
const UNATTENDED = [[undefined, 'deny the call'], ['deny', 'deny the call (named)'], ['wait', 'wait'], ['allow', 'allow it']];

/** A choice whose default is absent: a role that names it keeps the name. */
const named = (options, value) => options.filter(([of], place) => place === 0 || of !== options[1][0] || value === of);

/** @param {{form: import('../lib/fields.js').Form}} props */
export function RoleForm({ form }) {
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
  return html`<details class="fold section" open=${isOpen}><summary><h2>${title}</h2></summary><div class="fold-body">${children}</div></details>`;
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
  const toggle = (hint) => ({ target }) => {
    const rest = hints.filter((one) => one !== hint);
    const chosen = target.checked ? [...rest, hint] : rest;
    form.set(at('annotations'), chosen.length > 0 ? chosen : undefined);
  };
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
  const { data, error } = useLoad(() => listAll('GET /api/documents', 'documents'), 'documents');
  const [search, setSearch] = useState('');
  const lists = { documentIds: listAt(form.value, 'content.documentIds'), ragDocumentIds: listAt(form.value, 'content.ragDocumentIds') };
  const titles = new Map((data ?? []).map(({ id, title }) => [id, title || id]));
  const isMissing = (id) => Boolean(data) && !titles.has(id);
  const all = [...new Set([...lists.documentIds, ...lists.ragDocumentIds, ...titles.keys()])];
  const words = search.trim().toLowerCase();
  const shown = all.filter((id) => `${id} ${titles.get(id) ?? ''}`.toLowerCase().includes(words));
  const toggle = (name, id) => ({ target }) => {
    const rest = lists[name].filter((one) => one !== id);
    const chosen = target.checked ? [...rest, id] : rest;
    form.set(`content.${name}`, chosen.length > 0 ? chosen : undefined);
  };
  const box = (name, id, label) => html`<input type="checkbox" aria-label=${`${label}: ${titles.get(id) ?? id}`} checked=${lists[name].includes(id)} onChange=${toggle(name, id)} />`;
  return html`
    ${error && html`<${ErrorNote} error=${error} />`}
    ${all.length > 12 && html`<div class="field"><input type="search" aria-label="Search the documents" placeholder="Search the documents" value=${search} onInput=${({ target }) => setSearch(target.value)} /></div>`}
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
