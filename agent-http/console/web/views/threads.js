/** The list of threads: search, rename, archive, fork, export and delete. */

import { html, useState } from '../vendor/ui.js';
import { threadsVersion } from '../lib/chat.js';
import { moment } from '../lib/format.js';
import { agentNames, agents, call, go, href, listAll } from '../lib/store.js';
import { Confirm, Dot, ErrorNote, Menu, Page, Search, Select, Time, pending, useAction, useLoad } from '../lib/ui.js';

/** Pages of the list that are read, of 200 threads each. */
const PAGES = 5;
/** Threads that are shown at first. */
const SHOWN = 100;

/** Returns the entries of a menu that export a thread. @param {string} id @param {string} [owner] A visitor, for the agent's owner. */
export function exportLinks(id, owner) {
  const address = (format) => {
    const url = new URL(`api/threads/${encodeURIComponent(id)}/export`, document.baseURI);
    if (format) url.searchParams.set('format', format);
    if (owner) url.searchParams.set('owner', owner);
    return url.href;
  };
  const name = `thread-${id.replace(/[^\w.-]/g, '_')}`;
  return [
    { name: 'Export as Markdown', href: address('markdown'), download: `${name}.md` },
    { name: 'Export as JSON', href: address(), download: `${name}.json` },
  ];
}

const name = (thread) => thread.title || 'Untitled';

export function Threads() {
  const [archived, setArchived] = useState('false');
  const [search, setSearch] = useState('');
  const [agentId, setAgent] = useState('');
  const [isWhole, setWhole] = useState(false);
  const list = useLoad(() => listAll('GET /api/threads', 'threads', { query: { archived, agentId: agentId || undefined }, pages: PAGES }), `${archived} ${agentId} ${threadsVersion.value}`);
  const words = search.trim().toLowerCase();
  const shown = (list.data ?? []).filter((thread) => name(thread).toLowerCase().includes(words));
  return html`<${Page} name="threads" title="Threads" actions=${html`<div class="row">
      <${Search} label="Search the titles" hint="Search titles" value=${search} onSearch=${setSearch} />
      <${Select} label="Agent" value=${agentId} all=${[['', 'All agents'], ...agentNames()]} onSelect=${setAgent} />
      <${Select} label="Show" value=${archived} all=${[['false', 'Active'], ['true', 'Archived']]} onSelect=${setArchived} />
    </div>`}>
    ${pending(list)}
    ${list.data && shown.length === 0 && html`<p class="muted">No thread${words ? ' has this in its title' : ' yet. A chat makes one'}.</p>`}
    ${list.data?.length === PAGES * 200 && html`<p class="muted small">The latest ${PAGES * 200} threads are here and searched.</p>`}
    <ul class="rows">${(isWhole ? shown : shown.slice(0, SHOWN)).map((thread) => html`<${ThreadRow} key=${thread.id} thread=${thread} />`)}</ul>
    ${!isWhole && shown.length > SHOWN && html`<p class="table-foot"><button type="button" class="button" onClick=${() => setWhole(true)}>Show all ${shown.length}</button></p>`}
  <//>`;
}

function ThreadRow({ thread }) {
  const [title, setTitle] = useState(undefined);
  const [asks, setAsks] = useState(false);
  const { error, run } = useAction();
  const params = { id: thread.id };
  const change = (route, body, then) => run(async () => {
    const found = await call(route, { params, body });
    threadsVersion.value += 1;
    then?.(found.data);
  });
  const rename = (event) => {
    event.preventDefault();
    setTitle(undefined);
    change('PATCH /api/threads/{id}', { title: title.trim() });
  };
  const fork = () => change('POST /api/threads/{id}/fork', {}, ({ agentId, id }) => go('chat', agentId, id));
  const agent = agents.value.find(({ id }) => id === thread.agentId);
  return html`<li class="item">
    <div class="item-main">
      ${title === undefined
        ? html`<a class="item-title" href=${href('chat', thread.agentId, thread.id)}>${name(thread)}</a>`
        : html`<form class="row" onSubmit=${rename}><input aria-label="Title" value=${title} maxlength="200" onInput=${(event) => setTitle(event.target.value)} />
            <button class="button small primary">Save</button><button type="button" class="button small" onClick=${() => setTitle(undefined)}>Cancel</button></form>`}
      <p class="meta"><${Dot} state=${thread.status} /> ${thread.status} · ${agent?.name || thread.agentId} · ${thread.messageCount} messages · <${Time} at=${thread.lastActivityAt} words=${moment} /></p>
      ${error && html`<${ErrorNote} error=${error} />`}
    </div>
    <div class="row">
      <button type="button" class="button quiet small" onClick=${() => setTitle(thread.title ?? '')}>Rename</button>
      <button type="button" class="button quiet small" onClick=${() => change('PATCH /api/threads/{id}', { archived: !thread.archived })}>${thread.archived ? 'Restore' : 'Archive'}</button>
      <${Menu} label=${`More for ${name(thread)}`} items=${[{ name: 'Fork', run: fork }, ...exportLinks(thread.id), { name: 'Delete', isDanger: true, run: () => setAsks(true) }]} />
    </div>
    ${asks && html`<${Confirm} title="Delete this thread?" text=${`“${name(thread)}” is deleted with its messages and runs. This cannot be undone.`} action="Delete"
      onConfirm=${() => change('DELETE /api/threads/{id}')} onClose=${() => setAsks(false)} />`}
  </li>`;
}
