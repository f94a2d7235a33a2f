/** Files that go with the next message. */

import { signal } from '../vendor/ui.js';
import { newId } from './format.js';
import { call } from './store.js';

/** Maximum number of files of a message. */
const MAX_FILES = 16;

/** The files in their order: `{key, name, abort, fileId?, mimeType?, error?}`. */
export const attachments = signal([]);

/** Returns true if a file of the list is not, or not yet, stored. */
export const isIncomplete = () => attachments.value.some(({ fileId }) => !fileId);

/** Uploads files, up to the maximum number. @param {Iterable<File>} files */
export function attach(files) {
  for (const file of [...files].slice(0, MAX_FILES - attachments.value.length)) {
    const added = { key: newId(), name: file.name, abort: new AbortController() };
    const change = (fields) => (attachments.value = attachments.value.map((one) => (one.key === added.key ? { ...one, ...fields } : one)));
    attachments.value = [...attachments.value, added];
    // Loaded by the first upload only, so that the page's start is small.
    const upload = async () => (await import('./upload.js')).uploadFile(file, added.abort.signal);
    upload().then(({ fileId, mimeType }) => change({ fileId, mimeType }), (error) => change({ error }));
  }
}

/** Removes a file from the list and from the server. */
export function remove({ key, abort, fileId }) {
  abort.abort();
  attachments.value = attachments.value.filter((one) => one.key !== key);
  // A file that is not deleted here is deleted when it expires.
  if (fileId) call('DELETE /api/files/{id}', { params: { id: fileId } }).catch(() => {});
}

/** Kinds of parts by the beginning of their media types; any other file is a document. */
const KINDS = ['image', 'audio', 'video'];

/** Returns the files as parts of a message. */
const parts = () => attachments.value.filter(({ fileId }) => fileId).map(({ fileId, mimeType }) => {
  const kind = mimeType.split('/')[0];
  return { type: KINDS.includes(kind) ? kind : 'document', source: { type: 'file', value: fileId } };
});

/** Returns the content of a message with the files: its text alone if there are none. @param {string} text */
export function withFiles(text) {
  return withText(parts(), text);
}

/** Returns a content with another text: its files stay. @param {string | object[]} content @param {string} text */
export function withText(content, text) {
  const files = Array.isArray(content) ? content.filter(({ type }) => type !== 'text') : [];
  if (files.length === 0) return text;
  return [...(text ? [{ type: 'text', text }] : []), ...files];
}
