/** The documents of an agent: which it reads, the state of their index, and uploads. */

import { html, useEffect, useMemo, useRef, useState } from '../vendor/ui.js';
import { counted, dateTime, number, size } from '../lib/format.js';
import { Menu, keepFocus, useFirst } from '../lib/lists.js';
import { address, call, listAll } from '../lib/store.js';
import { Code, Dot, ErrorNote, Search, pending, useAction, useConfirm, useGet, useLoad } from '../lib/ui.js';
import { ACCEPT, documentId, extracted, upload } from '../lib/upload.js';

/** Documents of the role whose index is loaded at first; that of the others is loaded when they are opened. */
const INDEXED_AT_FIRST = 20;
/** Documents that are shown at first. */
const SHOWN = 100;

const STATES = { pending: 'waits for extraction', extracting: 'text is extracted', failed: 'extraction failed' };

/** @param {{agent: {data: object, etag: string}, isOwner: boolean, onSaved: () => void}} props */
export function Documents({ agent, isOwner, onSaved }) {
  const { content = {} } = agent.data;
  const list = useLoad(() => listAll('GET /api/documents', 'documents'), 'documents');
  const [search, setSearch] = useState('');
  const { error, run } = useAction();
  const [inPrompt, searched] = [new Set(content.documentIds), new Set(content.ragDocumentIds)];
  const isNamed = ({ id }) => inPrompt.has(id) || searched.has(id);
  // Those that the role named when it was opened are first: a row keeps its place when it is ticked.
  const first = useMemo(() => new Set([...inPrompt, ...searched]), [agent.data.id]);
  const words = search.trim().toLowerCase();
  const all = (list.data ?? []).filter(({ id, title }) => `${id} ${title}`.toLowerCase().includes(words)).sort((one, other) => first.has(other.id) - first.has(one.id));
  const [shown, more] = useFirst(all, SHOWN);
  const known = new Set((list.data ?? []).map(({ id }) => id));
  const missing = list.data ? [...new Set([...inPrompt, ...searched])].filter((id) => !known.has(id)) : [];
  const index = useIndexes(all.filter(isNamed).slice(0, INDEXED_AT_FIRST));
  const changes = useRef();
  const change = async (field, id, isOn) => {
    const params = { id: agent.data.id };
    const { data: { warnings, companyId, ownerId, ...role }, etag } = await call('GET /api/agents/{id}', { params });
    const rest = (role.content[field] ?? []).filter((one) => one !== id);
    const body = { ...role, content: { ...role.content, [field]: isOn ? [...rest, id] : rest } };
    await call('PUT /api/agents/{id}', { params, body, ifMatch: etag });
    onSaved();
  };
  // A change begins when the one before it is saved: the role that is shown may be older.
  const name = (...what) => (changes.current = Promise.resolve(changes.current).then(() => run(() => change(...what))));
  return html`
    <p class="muted">Documents of the company. The agent reads those that stand in its prompt, and finds passages of those that are searched.</p>
    <${Uploads} known=${known} onDone=${list.reload} />
    <${ErrorNote} error=${error} />
    ${pending(list)}
    ${missing.length > 0 && html`<p class="note">The role names documents that do not exist: ${missing.map((id, place) => html`${place > 0 ? ', ' : ''}<code>${id}</code>`)}.</p>`}
    ${(list.data?.length ?? 0) > 8 && html`<p><${Search} label="Search the documents" hint="Search documents" value=${search} onSearch=${setSearch} /></p>`}
    <ul class="rows" ref=${keepFocus}>${shown.map((one) => html`<${DocumentRow} key=${one.id} document=${one} index=${index.get(one.id)} inPrompt=${inPrompt.has(one.id)} searched=${searched.has(one.id)}
      isOwner=${isOwner} onName=${name} onChange=${list.reload} />`)}</ul>
    ${more}
    ${list.data?.length === 0 && html`<p class="muted">The company has no documents yet.</p>`}
    ${list.data?.length > 0 && all.length === 0 && html`<p class="muted">No document has this in its title.</p>`}`;
}

/** Asks for the indexes of documents, one after the other. @returns {Map<string, object | null>} */
function useIndexes(documents) {
  const [found, setFound] = useState(new Map());
  const key = documents.map(({ id, version }) => `${id} ${version}`).join('\n');
  useEffect(() => {
    const abort = new AbortController();
    (async () => {
      for (const { id } of documents) {
        const { data } = await call('GET /api/documents/{id}', { params: { id }, signal: abort.signal });
        if (abort.signal.aborted) return;
        setFound((found) => new Map(found).set(id, data.indexed ?? null));
      }
    })().catch(() => {});
    return () => abort.abort();
  }, [key]);
  return found;
}

const EMBEDDING_FAILURES = {
  unavailable: 'the embedding model did not answer', invalidAnswer: 'the embedding model’s answer was not valid',
  rejected: 'the embedding model rejected the text', tooLarge: 'the index would be too large',
};

/** The state of an index in words. */
function indexWords(indexed) {
  if (indexed === undefined) return '';
  if (indexed === null) return 'not indexed';
  const { chunks, embedder, embedded, embeddingFailure: failure } = indexed;
  const words = `${counted(chunks, 'chunk')} indexed${embedder || failure ? `, ${number(embedded)} with vectors` : ''}`;
  if (!failure) return words;
  return `${words}: ${EMBEDDING_FAILURES[failure.reason] ?? failure.reason}${failure.retryAt ? `, next attempt ${dateTime(failure.retryAt)}` : ''}`;
}

function DocumentRow({ document, index, inPrompt, searched, isOwner, onName, onChange }) {
  const { id, title, bytes, version, status } = document;
  const [isShown, setShown] = useState(false);
  const { error, run } = useAction();
  const act = (route) => run(() => call(route, { params: { id } }).then(onChange));
  const words = [size(bytes), `version ${version}`, STATES[status], isShown ? '' : indexWords(index)].filter(Boolean);
  const dot = status === 'failed' ? 'failed' : STATES[status] ? 'running' : index?.embeddingFailure ? 'paused' : index ? 'done' : 'idle';
  const [question, ask] = useConfirm(() => ({
    title: 'Delete this document?', text: `“${title || id}” is deleted with its versions and its index. This cannot be undone. One that agents name is not deleted.`, action: 'Delete',
    onConfirm: () => act('DELETE /api/documents/{id}'),
  }));
  const items = [
    ...(status ? [
      { name: 'Download the original', href: address(`api/documents/${encodeURIComponent(id)}/content`), download: id },
      { name: 'Extract the text again', run: () => act('POST /api/documents/{id}/reindex') },
    ] : []),
    { name: 'Delete', isDanger: true, run: ask },
  ];
  const box = (field, isOn, label) => html`<${Box} isOn=${isOn} isOwner=${isOwner} label=${label} title=${title || id} onTick=${(isTicked) => onName(field, id, isTicked)} />`;
  return html`<li class="item">
    <div class="item-main">
      <button type="button" class="item-title as-link" aria-expanded=${isShown} onClick=${() => setShown(!isShown)}>${title || id}</button>
      <p class="meta"><${Dot} state=${dot} /> <code>${id}</code> · ${words.join(' · ')}</p>
      <${ErrorNote} error=${error} />
      ${isShown && html`<${DocumentText} id=${id} />`}
    </div>
    <div class="row doc-use">${box('documentIds', inPrompt, 'in the prompt')}${box('ragDocumentIds', searched, 'searched')}<${Menu} label=${`More for ${title || id}`} items=${items} /></div>
    ${question}
  </li>`;
}

/** A box that is as it was ticked while that is saved, and again as it was if it cannot be saved. */
function Box({ isOn, isOwner, label, title, onTick }) {
  const [isTicked, setTicked] = useState(isOn);
  useEffect(() => setTicked(isOn), [isOn]);
  const onChange = async ({ target: { checked } }) => {
    setTicked(checked);
    if (!await onTick(checked)) setTicked(!checked);
  };
  return html`<label class="check"><input type="checkbox" checked=${isTicked} disabled=${!isOwner} aria-label=${`${label}: ${title}`} onChange=${onChange} /><span>${label}</span></label>`;
}

function DocumentText({ id }) {
  const load = useGet('GET /api/documents/{id}', { params: { id } });
  const wait = pending(load);
  if (wait) return wait;
  const { text, indexed, content } = load.data;
  return html`${content?.error && html`<p class="field-error">${content.error}</p>`}
    <p class="meta">${[indexWords(indexed ?? null), indexed?.language && `language ${indexed.language}`, indexed?.embedder && `vectors by ${indexed.embedder}`, content?.mediaType, content?.needsOcr && `pages without text: ${[content.needsOcr].flat().join(', ')}`].filter(Boolean).join(' · ')}</p>
    <${Code} text=${text || 'The text is too long to be shown here.'} label=${`text of ${id}`} wrap />`;
}

/** The button that uploads files, and the states of the uploads. */
function Uploads({ known, onDone }) {
  const [uploads, setUploads] = useState([]);
  const [isOver, setOver] = useState(false);
  const input = useRef(null);
  const abort = useRef(undefined);
  useEffect(() => () => abort.current?.abort(), []);
  const change = (name, state) => setUploads((all) => all.map((one) => (one.name === name ? { ...one, ...state } : one)));
  const begin = async (files) => {
    abort.current ??= new AbortController();
    const { signal } = abort.current;
    const taken = new Set(known);
    setUploads([...files].map(({ name }) => ({ name, state: 'waits' })));
    for (const file of files) {
      const id = documentId(file.name);
      change(file.name, { id, state: taken.has(id) ? 'replaces the document of this name' : 'is uploaded' });
      taken.add(id);
      try {
        await upload({ id, file, signal });
        change(file.name, { state: 'text is extracted' });
        const document = await extracted(id, signal);
        const fault = document?.content?.error;
        change(file.name, fault ? { state: 'failed', error: { code: 'EXTRACTION_FAILED', message: fault } } : { state: document ? 'ready' : 'text is still extracted' });
      } catch (error) {
        if (signal.aborted) return;
        change(file.name, { state: 'failed', error });
      }
      onDone();
    }
  };
  const isBusy = uploads.some(({ state }) => !['ready', 'failed', 'text is still extracted'].includes(state));
  const choose = (event) => {
    begin([...event.target.files]);
    event.target.value = '';
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    if (!isBusy) begin([...event.dataTransfer.files]);
  };
  return html`<div class=${`drop ${isOver ? 'over' : ''}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <div class="row between"><span class="muted">PDF, Office, HTML, Markdown, CSV, JSON or text. Drop files here, or choose them.</span>
      <button type="button" class="button primary" disabled=${isBusy} onClick=${() => input.current.click()}>Upload</button></div>
    <input ref=${input} type="file" multiple accept=${ACCEPT} class="visually-hidden" tabindex="-1" aria-label="Files to upload" onChange=${choose} />
    ${uploads.length > 0 && html`<div role="status"><ul class="plain uploads">${uploads.map(({ name, id, state, error }) => html`<li key=${name}>
      <${Dot} state=${{ ready: 'done', failed: state }[state] ?? 'running'} /> <span class="tool-name">${name}</span>
      <span class="meta">${state}${state === 'ready' ? html` as <code>${id}</code>` : ''}</span><${ErrorNote} error=${error} /></li>`)}</ul></div>`}
  </div>`;
}
