/** Reader of a run's event stream: NDJSON, one AG-UI event a line. */

import { AgentdError } from './errors.js';

/** Maximum length of one line in UTF-16 code units. The server's own limit on a run's output is lower. */
export const MAX_LINE_LENGTH = 32 * 1024 * 1024;

/** Types of the events that end a run. */
const TERMINAL = new Set(['RUN_FINISHED', 'RUN_ERROR']);

/**
 * An AG-UI event. Types that are not listed in docs/http-api.md may be added.
 *
 * @typedef {{type: string, [field: string]: any}} AgentEvent
 */

/**
 * Returns true if no event follows this one.
 *
 * @param {AgentEvent} event
 */
export function isTerminal(event) {
  return TERMINAL.has(event.type);
}

/**
 * Splits decoded text into lines, in whatever pieces it arrives.
 */
export class LineSplitter {
  #rest = '';

  /**
   * Adds a piece and returns the lines that are complete now, without their ends.
   *
   * @param {string} piece
   * @returns {string[]}
   */
  push(piece) {
    const lines = piece.split('\n');
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop() ?? '';
    if (this.#rest.length > MAX_LINE_LENGTH) {
      throw new AgentdError('a line of the stream is too long', { code: 'INVALID_RESPONSE' });
    }
    return lines;
  }

  /** Returns the text after the last line's end. */
  end() {
    const rest = this.#rest;
    this.#rest = '';
    return rest;
  }
}

/**
 * Parses one line; `undefined` for an empty one.
 *
 * @param {string} line
 * @param {(text: string) => any} [parse] Parser of JSON.
 * @returns {AgentEvent | undefined}
 */
export function parseEvent(line, parse = JSON.parse) {
  const text = line.trim();
  if (text === '') return undefined;
  let event;
  try {
    event = parse(text);
  } catch (cause) {
    throw new AgentdError('the stream has a line that is not JSON', { code: 'INVALID_RESPONSE', cause });
  }
  if (typeof event?.type !== 'string') {
    throw new AgentdError('the stream has a line that is not an event', { code: 'INVALID_RESPONSE' });
  }
  return event;
}

/**
 * Reads the events of a body up to the terminal one. Bytes after it are not read.
 *
 * @param {ReadableStream<Uint8Array>} body
 * @param {() => void} [onRead] Called at each piece, also of a line that is not complete yet.
 * @param {(text: string) => any} [parse] Parser of JSON.
 * @returns {AsyncGenerator<AgentEvent[], void>} The events of each piece of the body together, so that a reader that
 *   draws can do so once a piece.
 * @throws {AgentdError} `STREAM_TRUNCATED` if the body ends without a terminal event.
 */
export async function* readEventBatches(body, onRead, parse) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const splitter = new LineSplitter();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      onRead?.();
      const text = done ? decoder.decode() : decoder.decode(value, { stream: true });
      const parsed = splitter.push(text).map((line) => parseEvent(line, parse));
      try {
        if (done) parsed.push(parseEvent(splitter.end(), parse));
      } catch {
        // The beginning of an event that was cut off.
      }
      const events = parsed.filter((event) => event !== undefined);
      const end = events.findIndex(isTerminal);
      if (end >= 0) {
        yield events.slice(0, end + 1);
        return;
      }
      if (events.length > 0) yield events;
      if (done) throw new AgentdError('the stream ended before the run', { code: 'STREAM_TRUNCATED' });
    }
  } finally {
    // Runs also when the caller stops early: closing the connection cancels the run.
    await reader.cancel().catch(() => {});
  }
}
