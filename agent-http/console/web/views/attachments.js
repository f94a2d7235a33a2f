/** The files of messages: files of the next message, and files of sent messages. */

import { html, useState } from '../vendor/ui.js';
import { attachments, remove } from '../lib/attachments.js';
import { size } from '../lib/format.js';
import { address, listAll } from '../lib/store.js';
import { useLoad } from '../lib/ui.js';

/** The files of the next message. */
export function Attachments() {
  return html`<ul class="attachments plain" aria-label="Attached files">${attachments.value.map((file) => html`<li key=${file.key} class=${`attachment ${file.error ? 'failed' : ''}`}>
    <span class="attachment-name">${file.name}</span>
    ${file.error ? html`<span role="alert">${file.error.message}</span>` : !file.fileId && html`<span class="meta">uploading…</span>`}
    <button type="button" class="icon" aria-label=${`Remove ${file.name}`} onClick=${() => remove(file)}>×</button>
  </li>`)}</ul>`;
}

/** Returns the id of a stored file, as a message names it. */
function storedId({ type, value }) {
  return type === 'file' ? value : /^\/api\/files\/([\w-]+)$/.exec(value)?.[1];
}

/** The request for the list of the user's files that is sent next, for all files that are shown together. */
let request;

/** Asks for the user's files: `{fileId, name?, bytes, …}`. */
const loadFiles = () => (request ??= Promise.resolve().then(() => {
  request = undefined;
  return listAll('GET /api/files', 'files');
}));

/** A file of a sent message. Nothing is loaded from other hosts. */
function FilePart({ part }) {
  const [isGone, setGone] = useState(false);
  const id = storedId(part.source ?? {});
  const stored = useLoad(async () => (id ? loadFiles() : []), id).data;
  const { name, bytes } = stored?.find(({ fileId }) => fileId === id) ?? {};
  const kind = { image: 'Picture', audio: 'Recording', video: 'Video' }[part.type] ?? 'Document';
  if (!id) return html`<span class="meta">${kind}</span>`;
  const href = address(`api/files/${encodeURIComponent(id)}`);
  if (isGone) return html`<span class="meta">${kind}, no longer stored</span>`;
  const shown = part.type === 'image' ? html`<img src=${href} alt=${name ?? kind} onError=${() => setGone(true)} />` : html`${name ?? kind} <span class="meta">${bytes && size(bytes)}</span>`;
  return html`<a class="message-file" href=${href} download>${shown}</a>`;
}

/** The files of a sent message. */
export function MessageFiles({ files }) {
  return html`<div class="message-files">${files.map((part, place) => html`<${FilePart} key=${place} part=${part} />`)}</div>`;
}
