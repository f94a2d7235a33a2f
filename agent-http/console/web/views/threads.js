/** The list of threads: search, rename, archive, fork, export and delete. */

import { html, useState } from '../vendor/ui.js';
import { threadsVersion } from '../lib/chat.js';
import { counted, fileName, moment } from '../lib/format.js';
import { Menu, keepFocus, useFirst, useOpenedForm } from '../lib/lists.js';
import { address, agentName, agentNames, call, go, href, listAll } from '../lib/store.js';
import { Dot, ErrorNote, Page, Search, Select, Time, pending, useAction, useConfirm, useLoad } from '../lib/ui.js';

/** Pages of the list that are read, of 200 threads each. */
const PAGES = 5;
/** Threads that are shown at first. */
const SHOWN = 100;

/** Returns the entries of a menu that export a thread. @param {string} id @param {string} [owner] A visitor, for the agent's owner. */
export function exportLinks(id, owner) {
  const entry = (words, format, end) => (
    { name: `Export as ${words}`, href: address(`api/threads/${encodeURIComponent(id)}/export?${new URLSearchParams({ format, ...owner && { owner } })}`), download: fileName(`thread-${id}.${end}`) });
  return [entry('Markdown', 'markdown', 'md'), entry('JSON', 'json', 'json')];
}

const name = (thread) => thread.title || 'Untitled';

export function Threads() {
  const [archived, setArchived] = useState('false');
  const [search, setSearch] = useState('');
  const [agentId, setAgent] = useState('');
  const list = useLoad(() => listAll('GET /api/threads', 'threads', { query: { archived, agentId: agentId || undefined }, pages: PAGES }), `${archived} ${agentId} ${threadsVersion.value}`);
  const words = search.trim().toLowerCase();
  const shown = (list.data ?? []).filter((thread) => name(thread).toLowerCase().includes(words));
  const [first, more] = useFirst(shown, SHOWN);
  return html`<${Page} name="threads" title="Threads" actions=${html`<div class="row">
      <${Search} label="Search the titles" hint="Search titles" value=${search} onSearch=${setSearch} />
      <${Select} label="Agent" value=${agentId} all=${[['', 'All agents'], ...agentNames()]} onSelect=${setAgent} />
      <${Select} label="Show" value=${archived} all=${[['false', 'Active'], ['true', 'Archived']]} onSelect=${setArchived} />
    </div>`}>
    ${pending(list)}
    ${list.data && shown.length === 0 && html`<p class="muted">No thread${words ? ' has this in its title' : ' yet. A chat makes one'}.</p>`}
    ${list.data?.length === PAGES * 200 && html`<p class="muted small">The latest ${PAGES * 200} threads are here and searched.</p>`}
    <ul class="rows" ref=${keepFocus}>${first.map((thread) => html`<${ThreadRow} key=${thread.id} thread=${thread} />`)}</ul>
    ${more}
  <//>`;
}

function ThreadRow({ thread }) {
  const [title, setTitle] = useState(undefined);
  const [question, ask] = useConfirm(() => ({
    title: 'Delete this thread?', text: `“${name(thread)}” is deleted with its messages and runs. This cannot be undone.`, action: 'Delete',
    onConfirm: () => change('DELETE /api/threads/{id}'),
  }));
  const { error, isBusy, run } = useAction();
  const root = useOpenedForm(title !== undefined);
  const params = { id: thread.id };
  const change = (route, body, then) => run(async () => {
    const found = await call(route, { params, body });
    threadsVersion.value += 1;
    then?.(found.data);
  });
  const rename = async (event) => {
    event.preventDefault();
    if (await change('PATCH /api/threads/{id}', { title: title.trim() })) setTitle(undefined);
  };
  const fork = () => change('POST /api/threads/{id}/fork', {}, ({ agentId, id }) => root.current && go('chat', agentId, id));
  return html`<li class="item" ref=${root}>
    <div class="item-main">
      ${title === undefined
        ? html`<a class="item-title" href=${href('chat', thread.agentId, thread.id)}>${name(thread)}</a>`
        : html`<form class="row" onSubmit=${rename} onKeyDown=${({ key }) => key === 'Escape' && setTitle(undefined)}><input class="grow" aria-label="Title" value=${title} maxlength="200" onInput=${(event) => setTitle(event.target.value)} />
            <button class="button small primary" disabled=${isBusy}>Save</button><button type="button" class="button small" onClick=${() => setTitle(undefined)}>Cancel</button></form>`}
      <p class="meta"><${Dot} state=${thread.status} /> ${thread.status} · ${agentName(thread.agentId)} · ${counted(thread.messageCount, 'message')} · <${Time} at=${thread.lastActivityAt} words=${moment} /></p>
      <${ErrorNote} error=${error} />
    </div>
    <div class="row">
      <button type="button" class="button quiet small" onClick=${() => setTitle(thread.title ?? '')}>Rename</button>
      <button type="button" class="button quiet small" onClick=${() => change('PATCH /api/threads/{id}', { archived: !thread.archived })}>${thread.archived ? 'Restore' : 'Archive'}</button>
      <${Menu} label=${`More for ${name(thread)}`} items=${[{ name: 'Fork', run: fork }, ...exportLinks(thread.id), { name: 'Delete', isDanger: true, run: ask }]} />
    </div>
    ${question}
  </li>`;
}
