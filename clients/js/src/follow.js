/** Reader of a run that continues over another connection when one is lost. */

import { connectionError } from './errors.js';
import { readEventBatches } from './stream.js';

/** Maximum number of consecutive attempts that bring no event. */
const MAX_ATTEMPTS = 8;
/** Silence after which a connection counts as dead, in milliseconds, and the interval at which it is checked. */
const MAX_SILENCE_MS = 20_000;
const SILENCE_CHECK_MS = 1000;
/** First and longest pause before an attempt, in milliseconds. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;
/** Longest time that a server may ask for, in seconds. */
const MAX_RETRY_AFTER = 60;

/** A response with a body, and the parser of its JSON. @typedef {Response & {body: ReadableStream<Uint8Array>, parse?: (text: string) => any}} StreamResponse */

/** Error codes of a lost connection whose run may continue. */
const LOST_CODES = new Set(['NETWORK', 'STREAM_TRUNCATED']);
/** Statuses of a proxy without a server, and of a server that starts or stops. */
const UNAVAILABLE = new Set([502, 503, 504]);

/**
 * Waits before an attempt: as long as the server requested, and then twice as long each time, at most half of it random.
 * Ends early when the signal aborts; if the server has not asked, also when the browser is online again or its page is shown
 * or hidden.
 *
 * @param {number} attempt
 * @param {AbortSignal} signal
 * @param {number} seconds
 */
function pause(attempt, signal, seconds) {
  const ms = seconds * 1000 + Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
  /** @type {Promise<void>} */
  const waited = new Promise((resolve) => {
    const done = new AbortController();
    const end = () => { clearTimeout(timer); done.abort(); resolve(); };
    const timer = setTimeout(end, ms);
    const options = { signal: done.signal };
    signal.addEventListener('abort', end, options);
    if (seconds) return;
    globalThis.addEventListener?.('online', end, options);
    globalThis.document?.addEventListener('visibilitychange', end, options);
  });
  return waited;
}

/**
 * Calls a function once a connection has been silent for too long, since a connection from before a computer slept never
 * ends. The wall clock is used because it counts the sleep. Returns `hear`, to be called for each received piece, and `end`.
 *
 * @param {() => void} onSilence
 */
function watchSilence(onSilence) {
  let heardAt = Date.now();
  const timer = setInterval(() => {
    if (Date.now() - heardAt >= MAX_SILENCE_MS) onSilence();
  }, SILENCE_CHECK_MS);
  return { hear: () => { heardAt = Date.now(); }, end: () => clearInterval(timer) };
}

/**
 * Reads the events of a run up to the terminal one. Where a connection is lost or silent, another one is opened.
 *
 * @param {(signal: AbortSignal) => Promise<StreamResponse>} open Sends the first request.
 * @param {{signal: AbortSignal, attach: (count: number) => ((signal: AbortSignal) => Promise<StreamResponse>) | undefined,
 *   onOpen?: (close: () => void) => void, paused?: () => Promise<void> | undefined, onLost?: (seconds: number) => void,
 *   maxAttempts?: number}} options `attach` returns the function that requests the events after the first `count`;
 *   `undefined` if the run cannot be attached to. `onOpen` gets a function that closes the connection. `paused` returns a
 *   promise while no other connection may be opened; it resolves when one may. `onLost` gets the time that the server has
 *   asked for with `Retry-After`, at most a minute; 0 if it has not.
 * @returns {AsyncGenerator<import('./stream.js').AgentEvent[], void>}
 */
export async function* readRun(open, { signal, attach, onOpen, paused, onLost, maxAttempts = MAX_ATTEMPTS }) {
  let count = 0;
  for (let attempt = 0; ; attempt += 1) {
    const before = count;
    if (attempt > 0) await paused?.();
    const connection = new AbortController();
    const close = () => connection.abort();
    if (signal.aborted) close();
    signal.addEventListener('abort', close);
    onOpen?.(close);
    let isSilent = false;
    let isOpen = false;
    const silence = watchSilence(() => {
      // Before its first event, a run may wait for its model, and cannot be attached to.
      if (count === 0 || !attach(count)) return;
      isSilent = true;
      close();
    });
    try {
      let response = await open(connection.signal);
      // The last event was lost with the server's process, and the terminal one has its number.
      const openLast = response.status === 204 && count > 1 ? attach(count - 1) : undefined;
      if (openLast) response = await openLast(connection.signal);
      isOpen = true;
      // Some pages replace `fetch` by one whose responses have no stream.
      const body = response.body === undefined ? new Blob([await response.text()]).stream() : response.body;
      for await (const batch of readEventBatches(body, silence.hear, response.parse)) {
        count += batch.length;
        yield batch;
      }
      return;
    } catch (cause) {
      const error = connectionError(cause, signal);
      const isPaused = connection.signal.aborted && !signal.aborted && !isSilent;
      // A server that opens a connection is reachable, even if the run sends no event for long.
      if (count > before || isPaused || (isSilent && isOpen)) attempt = 0;
      const next = attach(count);
      const { code, status = 0, retryAfter = 0 } = error;
      // A request that begins a run, and of which there are too many, is the caller's to repeat.
      const isLost = isPaused || isSilent || LOST_CODES.has(code) || UNAVAILABLE.has(status) || (count && retryAfter);
      if (!next || !isLost || attempt >= maxAttempts) throw error;
      open = next;
      if (isPaused || isSilent) continue;
      const seconds = Math.min(retryAfter, MAX_RETRY_AFTER);
      onLost?.(seconds);
      await pause(attempt, signal, seconds);
    } finally {
      silence.end();
      signal.removeEventListener('abort', close);
    }
  }
}
