/** A run read over several connections, where one is lost. */

import { connectionError } from './errors.js';
import { readEventBatches } from './stream.js';

/** Number of attempts in a row, none of which brought an event. */
const MAX_ATTEMPTS = 8;
/** First and longest pause before an attempt, in milliseconds. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;

/** A response with a body. @typedef {Response & {body: ReadableStream<Uint8Array>}} StreamResponse */

/** Codes of connections that are lost while the run goes on. */
const LOST = new Set(['NETWORK', 'STREAM_TRUNCATED']);

/**
 * Waits before an attempt: twice as long each time, with a random half, and no longer once a browser is online again or
 * its page is shown again.
 *
 * @param {number} attempt
 * @param {AbortSignal} signal
 */
function pause(attempt, signal) {
  const ms = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
  return /** @type {Promise<void>} */ (new Promise((resolve) => {
    const done = new AbortController();
    const end = () => { clearTimeout(timer); done.abort(); resolve(); };
    const timer = setTimeout(end, ms);
    const options = { signal: done.signal };
    signal.addEventListener('abort', end, options);
    globalThis.addEventListener?.('online', end, options);
    globalThis.document?.addEventListener('visibilitychange', end, options);
  }));
}

/**
 * Reads the events of a run up to the terminal one.
 *
 * @param {(signal: AbortSignal) => Promise<StreamResponse>} open Sends the first request.
 * @param {{signal: AbortSignal, attach: (count: number) => ((signal: AbortSignal) => Promise<StreamResponse>) | undefined,
 *   onOpen?: (close: () => void) => void, held?: () => Promise<void> | undefined, onLost?: () => void,
 *   maxAttempts?: number}} options `attach` returns what sends the request for the events after the first `count`;
 *   `undefined` if the run cannot be attached to. `onOpen` gets what closes the connection; while `held` returns a promise, no
 *   other one is opened.
 * @returns {AsyncGenerator<import('./stream.js').AgentEvent[], void>}
 */
export async function* readRun(open, { signal, attach, onOpen, held, onLost, maxAttempts = MAX_ATTEMPTS }) {
  let count = 0;
  for (let attempt = 0; ; attempt += 1) {
    const before = count;
    if (attempt > 0) await held?.();
    const connection = new AbortController();
    const close = () => connection.abort();
    if (signal.aborted) close();
    signal.addEventListener('abort', close);
    onOpen?.(close);
    try {
      const response = await open(connection.signal);
      for await (const batch of readEventBatches(response.body)) {
        count += batch.length;
        yield batch;
      }
      return;
    } catch (cause) {
      const error = connectionError(cause, signal);
      const isHeld = connection.signal.aborted && !signal.aborted;
      if (count > before || isHeld) attempt = 0;
      const next = attach(count);
      if (!next || !(isHeld || LOST.has(error.code)) || attempt >= maxAttempts) throw error;
      open = next;
      if (isHeld) continue;
      onLost?.();
      await pause(attempt, signal);
    } finally {
      signal.removeEventListener('abort', close);
    }
  }
}
