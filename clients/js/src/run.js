/** A run in progress: its events, its text and its result. */

import { AgentdError } from './errors.js';
import { readRun } from './follow.js';

/**
 * @typedef {import('./stream.js').AgentEvent} AgentEvent
 * @typedef {{id: string, name: string, arguments: string, result?: string, isError?: boolean}} ToolCall
 * @typedef {{model?: string, provider?: string, inputTokens?: number, outputTokens?: number, cachedInputTokens?: number,
 *   reasoningTokens?: number}} Usage
 * @typedef {{threadId: string, runId: string, text: string, toolCalls: ToolCall[], finishReason?: string,
 *   object?: unknown, isCancelled: boolean, usage: Usage[]}} RunResult
 */

/** Collects the result of a run from its events. */
class ResultCollector {
  /** @type {RunResult} */
  result = { threadId: '', runId: '', text: '', toolCalls: [], isCancelled: false, usage: [] };
  #messages = 0;
  #calls = new Map();

  /** @param {AgentEvent} event */
  add(event) {
    const { result } = this;
    const call = this.#calls.get(event.toolCallId);
    switch (event.type) {
      case 'RUN_STARTED':
        result.threadId = event.threadId;
        result.runId = event.runId;
        break;
      case 'TEXT_MESSAGE_START':
        if (this.#messages > 0) result.text += '\n\n';
        this.#messages += 1;
        break;
      case 'TEXT_MESSAGE_CONTENT':
        result.text += event.delta;
        break;
      case 'TOOL_CALL_START': {
        const begun = { id: event.toolCallId, name: event.toolCallName, arguments: '' };
        this.#calls.set(begun.id, begun);
        result.toolCalls.push(begun);
        break;
      }
      case 'TOOL_CALL_ARGS':
        if (call) call.arguments += event.delta;
        break;
      case 'TOOL_CALL_RESULT':
        if (call) Object.assign(call, { result: event.content, isError: event.metadata?.isError === true });
        break;
      case 'RUN_FINISHED':
        result.finishReason = event.result?.finishReason;
        if (event.result?.object !== undefined) result.object = event.result.object;
        result.isCancelled = event.outcome?.type === 'cancelled';
        result.usage = event.usage ?? [];
        break;
      default:
    }
  }
}

/**
 * A run in progress. It is an async iterable of its events, from the first one, for any number of readers. The events
 * are kept as long as the run object; the server bounds their number and size.
 */
export class ChatRun {
  /** All events so far. @type {AgentEvent[]} */
  events = [];
  /** The result; rejects with an {@link AgentdError} if the run fails. @type {Promise<RunResult>} */
  result;

  #abort = new AbortController();
  #cancelRun;
  #attach;
  #collector = new ResultCollector();
  #isDone = false;
  #error;
  /** @type {(() => void)[]} */
  #waiting = [];
  /** Closes the connection. @type {() => void} */
  #close = () => {};
  /** Promise that resolves when a paused run is resumed; `undefined` if it is not paused. @type {{promise: Promise<void>, resolve: () => void} | undefined} */
  #paused;

  /**
   * @param {(signal: AbortSignal) => Promise<import('./follow.js').StreamResponse>} open Sends the request.
   * @param {{runId?: string, signal?: AbortSignal, onEvent?: (event: AgentEvent) => void, onBatch?: (events: AgentEvent[]) => void,
   *   cancelRun?: (runId: string) => Promise<unknown>,
   *   attach?: (runId: string, after: number, signal: AbortSignal) => Promise<import('./follow.js').StreamResponse>}} options
   */
  constructor(open, { runId = '', signal, onEvent, onBatch, cancelRun, attach } = {}) {
    this.#collector.result.runId = runId;
    this.#cancelRun = cancelRun;
    this.#attach = attach;
    const abort = () => this.#abort.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    // The listener is removed, since a caller's signal may outlive many runs and would keep them in memory.
    this.result = this.#read(open, onEvent, onBatch).finally(() => signal?.removeEventListener('abort', abort));
    // The iterator throws the error, too, so that it is not unhandled if only the iterator is used.
    this.result.catch(() => {});
  }

  /** The answer's text; rejects as {@link result} does. @type {Promise<string>} */
  get text() {
    return this.result.then(({ text }) => text);
  }

  /** The text so far. */
  get currentText() {
    return this.#collector.result.text;
  }

  /** Identifier of the run: that of the request, or once it has started. */
  get runId() {
    return this.#collector.result.runId || undefined;
  }

  /**
   * Stops the run: by the server's route if `cancelRoute` is set, so that the partial answer is stored as cancelled; else
   * by closing the connection. A run that has not started is stopped by the route if its request has a `runId`.
   */
  async cancel() {
    this.resume();
    if (this.#cancelRun && this.runId && !this.#isDone) {
      try {
        await this.#cancelRun(this.runId);
        return;
      } catch {
        // Closing the connection stops the run as well.
      }
    }
    this.#abort.abort();
  }

  /** Closes the connection. The `onDisconnect` of the request decides whether the run continues. */
  detach() {
    this.#abort.abort();
  }

  /**
   * Closes the connection of a run that can be attached to, until {@link resume}, such as while a page is hidden, since
   * browsers open at most six connections to a host. The request must have had `onDisconnect: "continue"`.
   */
  pause() {
    if (!this.#attach || this.#paused || this.#isDone) return;
    let resolve = () => {};
    /** @type {Promise<void>} */
    const promise = new Promise((done) => (resolve = done));
    this.#paused = { promise, resolve };
    // Before its first event, the run cannot be attached to.
    if (this.events[0]) this.#close();
  }

  /** Continues a paused run from the event after the last one received. */
  resume() {
    this.#paused?.resolve();
    this.#paused = undefined;
  }

  async *[Symbol.asyncIterator]() {
    for (let next = 0; ; ) {
      while (next < this.events.length) yield this.events[next++];
      if (this.#isDone) break;
      /** @type {Promise<void>} */
      const woken = new Promise((resolve) => this.#waiting.push(resolve));
      await woken;
    }
    if (this.#error) throw this.#error;
  }

  async #read(open, onEvent, onBatch) {
    try {
      await this.#readAll(open, onEvent, onBatch);
    } catch (error) {
      this.#error = error;
      throw error;
    } finally {
      this.#isDone = true;
      this.#wake();
    }
    /** @type {any} */
    const last = this.events.at(-1);
    if (last.type === 'RUN_ERROR') {
      const { code, message } = last;
      throw new AgentdError(message, { code: code ?? 'INTERNAL', problem: last });
    }
    return this.#collector.result;
  }

  /** Reads to the terminal event, and attaches to the run again if the connection is lost. */
  async #readAll(open, onEvent, onBatch) {
    const { signal } = this.#abort;
    const attach = (count) => {
      const [attach, runId] = [this.#attach, this.runId];
      return attach && runId && count ? (signal) => attach(runId, count - 1, signal) : undefined;
    };
    signal.addEventListener('abort', () => this.resume());
    for await (const batch of readRun(open, { signal, attach, paused: () => this.#paused?.promise, onOpen: (close) => (this.#close = close) })) {
      for (const event of batch) {
        this.events.push(event);
        this.#collector.add(event);
        onEvent?.(event);
      }
      onBatch?.(batch);
      this.#wake();
      if (this.#paused) this.#close();
    }
  }

  #wake() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
