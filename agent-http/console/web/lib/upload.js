/** Uploads of documents, and of the files of messages. */

import { connectionError, responseError } from '../client/errors.js';
import { call, endSession } from './store.js';

/** Media types by the ends of names, for browsers that do not know them. */
const TYPES = {
  pdf: 'application/pdf', docx: 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  pptx: 'application/vnd.openxmlformats-officedocument.presentationml.presentation',
  html: 'text/html', htm: 'text/html', md: 'text/markdown', markdown: 'text/markdown', txt: 'text/plain', csv: 'text/csv', json: 'application/json',
};

/** Value of `accept` of an input. */
export const ACCEPT = Object.keys(TYPES).map((end) => `.${end}`).join(',');

/** Pause between two looks at an extraction, in milliseconds, and how many there are. */
const POLL_MS = 700;
const MAX_POLLS = 200;

/** Returns an identifier for a document from the name of its file. */
export function documentId(name) {
  const stem = name.normalize('NFC').replace(/\.[^.]*$/, '').toLowerCase();
  return stem.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'document';
}

/**
 * Uploads a file as the original of a document, and returns `{id, version, status}`.
 *
 * @param {{id: string, file: File, signal?: AbortSignal}} options
 */
export function upload({ id, file, signal }) {
  const title = file.name.replace(/\.[^.]*$/, '').slice(0, 200);
  return sendFile('PUT', `api/documents/${encodeURIComponent(id)}/content?${new URLSearchParams({ title })}`, file, signal);
}

/** Uploads a file for messages, and returns `{fileId, mimeType, …}`. @param {File} file @param {AbortSignal} [signal] */
export function uploadFile(file, signal) {
  return sendFile('POST', `api/files?${new URLSearchParams({ name: file.name.slice(-60) })}`, file, signal);
}

async function sendFile(method, path, file, signal) {
  const type = TYPES[file.name.split('.').at(-1).toLowerCase()] ?? file.type;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method, headers: { 'Content-Type': type || 'application/octet-stream' }, body: file, credentials: 'same-origin', redirect: 'error', signal,
    });
  } catch (cause) {
    throw connectionError(cause, signal);
  }
  if (response.status === 401) endSession();
  if (!response.ok) throw await responseError(response);
  return response.json();
}

/** Waits until the text of an upload is extracted, and returns the document; `undefined` if that takes long. */
export async function extracted(id, signal) {
  for (let poll = 0; poll < MAX_POLLS && !signal?.aborted; poll += 1) {
    const { data } = await call('GET /api/documents/{id}', { params: { id }, signal });
    if (!['pending', 'extracting'].includes(data.content?.status)) return data;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return undefined;
}
