/** The state of a run, folded from its events, with the times at which they arrived. */

import { signal } from '../vendor/ui.js';

/** Maximum number of runs whose events the page keeps, and of the events of all but the latest one. */
const MAX_RUNS = 12;
const MAX_KEPT_EVENTS = 8000;

/** Runs of this page by id, the oldest first. @type {Map<string, RunState>} */
const kept = new Map();

/** Returns a run of this page. @param {string | undefined} id */
export const keptRun = (id) => kept.get(id);

/** Drops the oldest runs that are more than the page keeps. Those in progress go on without being kept. */
function forget() {
  let events = 0;
  for (const [place, [id, run]] of [...kept].reverse().entries()) {
    events += run.events.length;
    if (place + 1 >= MAX_RUNS || events > MAX_KEPT_EVENTS) kept.delete(id);
  }
}

/** Calls a function before the next frame, or soon if the page is hidden and has no frames. */
function beforeFrame(draw) {
  if (document.hidden) setTimeout(draw, 100);
  else requestAnimationFrame(draw);
}

export class RunState {
  /** Grows with each drawing. */
  version = signal(0);
  /** `running`, `finished`, `cancelled` or `failed`. */
  status = 'running';
  /** Parts of the answer: reasoning, text and tool calls. */
  parts = [];
  /** Results of calls that an earlier run has started, by call. */
  results = new Map();
  /** Attempts at the calls that were repeated or made with a fallback. */
  attempts = [];
  /** Rounds by name: `{name, from, to}`. */
  steps = new Map();
  /** All events with the time of their arrival, in milliseconds since the start. */
  events = [];
  startedAt = performance.now();
  #isScheduled = false;
  #byId = new Map();

  /**
   * @param {string} runId
   * @param {{isReplay?: boolean}} [options] The events of a replay arrive at once, so that their times tell nothing.
   */
  constructor(runId, { isReplay = false } = {}) {
    this.runId = runId;
    this.isReplay = isReplay;
    if (isReplay) return;
    forget();
    kept.set(runId, this);
  }

  /** Milliseconds since the start. */
  now() {
    return performance.now() - this.startedAt;
  }

  add(events) {
    const at = this.now();
    for (const event of events) {
      this.events.push({ at, event });
      this.#fold(event, at);
    }
    this.schedule();
  }

  fail(error) {
    this.endedAt = this.now();
    this.status = error.isAborted ? 'cancelled' : 'failed';
    this.error = error;
    for (const part of this.parts) part.isOpen = false;
    this.schedule();
  }

  /** Draws the run before the next frame, however many events arrive until then. */
  schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    beforeFrame(() => {
      this.#isScheduled = false;
      this.version.value += 1;
    });
  }

  #open(kind, id, at, more) {
    const part = { kind, id, text: '', isOpen: true, startedAt: at, ...more };
    this.#byId.set(`${kind}-${id}`, part);
    this.parts.push(part);
    return part;
  }

  #fold(event, at) {
    const text = this.#byId.get(`text-${event.messageId}`);
    const reasoning = this.#byId.get(`reasoning-${event.messageId}`);
    const tool = this.#byId.get(`tool-${event.toolCallId}`);
    switch (event.type) {
      case 'RUN_STARTED':
        this.threadId = event.threadId;
        this.acceptedAt = at;
        break;
      case 'STEP_STARTED':
        this.steps.set(event.stepName, { name: event.stepName, from: at });
        break;
      case 'STEP_FINISHED':
        if (this.steps.has(event.stepName)) this.steps.get(event.stepName).to = at;
        break;
      case 'CUSTOM':
        this.#custom(event);
        break;
      case 'REASONING_MESSAGE_START':
        this.#open('reasoning', event.messageId, at);
        break;
      case 'REASONING_MESSAGE_CONTENT':
        if (reasoning) reasoning.text += event.delta;
        this.firstContentAt ??= at;
        break;
      case 'REASONING_MESSAGE_END':
        if (reasoning) Object.assign(reasoning, { isOpen: false, endedAt: at });
        break;
      case 'TEXT_MESSAGE_START':
        this.#open('text', event.messageId, at);
        break;
      case 'TEXT_MESSAGE_CONTENT':
        if (text) text.text += event.delta;
        this.firstContentAt ??= at;
        this.firstTextAt ??= at;
        this.lastTextAt = at;
        break;
      case 'TEXT_MESSAGE_END':
        if (text) Object.assign(text, { isOpen: false, endedAt: at });
        break;
      case 'TOOL_CALL_START':
        this.#open('tool', event.toolCallId, at, { name: event.toolCallName });
        break;
      case 'TOOL_CALL_ARGS':
        if (tool) tool.text += event.delta;
        break;
      case 'TOOL_CALL_END':
        if (tool) tool.calledAt = at;
        break;
      case 'TOOL_CALL_RESULT':
        if (tool) {
          const isError = event.metadata?.isError === true;
          Object.assign(tool, { result: event.content, isError, isOpen: false, endedAt: at });
        } else this.results.set(event.toolCallId, event.content);
        break;
      case 'RUN_FINISHED':
        this.endedAt = at;
        this.status = event.outcome?.type === 'cancelled' ? 'cancelled' : 'finished';
        this.finishReason = event.result?.finishReason;
        if (event.outcome?.type === 'interrupt') this.interrupts = event.outcome.interrupts;
        this.usage = event.usage;
        break;
      case 'RUN_ERROR':
        this.endedAt = at;
        this.status = 'failed';
        this.usage = event.usage;
        this.error = { code: event.code, message: event.message };
        for (const part of this.parts) part.isOpen = false;
        break;
      default:
    }
  }

  #custom({ name, value }) {
    if (name === 'agent.prompt') this.prompt = value;
    if (name === 'agent.thread') this.thread = value;
    if (name === 'agent.sources') this.sources = value;
    if (name === 'agent.debug' && value.kind === 'modelAttempt') this.attempts.push(value);
    if (name === 'agent.debug' && value.kind === 'toolProgress') {
      const tool = this.#byId.get(`tool-${value.toolCallId}`);
      if (tool) tool.progress = value;
    }
  }

  /** Milliseconds from the request to the first text or reasoning. */
  get timeToFirst() {
    return this.firstContentAt;
  }

  /** Output tokens of all models. */
  get outputTokens() {
    return total(this.usage, 'outputTokens');
  }

  /** Tokens a second, from the first text to the last; undefined for answers that are too short to tell. */
  get tokensPerSecond() {
    const ms = (this.lastTextAt ?? 0) - (this.firstContentAt ?? 0);
    return this.outputTokens && ms > 50 ? this.outputTokens / (ms / 1000) : undefined;
  }
}

/** Returns the sum of a field over all models; undefined if none reports it. */
export function total(usage, field) {
  const values = (usage ?? []).map((of) => of[field]).filter((value) => value !== undefined);
  return values.length > 0 ? values.reduce((sum, value) => sum + Number(value), 0) : undefined;
}
