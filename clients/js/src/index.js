/** Client of the agent chat platform. */

import { AgentdError, connectionError, responseError } from './errors.js';
import { ChatRun } from './run.js';

export { AgentdError } from './errors.js';
export { ChatRun } from './run.js';
export { LineSplitter, isTerminal, parseEvent, readEventBatches } from './stream.js';

/**
 * @typedef {import('./stream.js').AgentEvent} AgentEvent
 * @typedef {import('./run.js').RunResult} RunResult
 */

/**
 * A chat request; docs/http-api.md describes the fields.
 *
 * @typedef {{agentId?: string, message?: string | object, messages?: Record<string, any>[], threadId?: string, runId?: string,
 *   parentId?: string | null, timezone?: string, todoListId?: string, tabId?: string, pageContext?: unknown,
 *   blocksContext?: unknown[], toolChoice?: unknown, [field: string]: unknown}} ChatRequest
 */

/**
 * A part of the system prompt, as a preview shows it.
 *
 * @typedef {{id: string, source: string, content: string, stability: string, placement: string, tokens: number,
 *   bytes: number, sha256: string}} PromptPart
 */

/**
 * The debug layer of a turn: the prompt and the tools that the model would receive for a request.
 *
 * @typedef {{blocksContext: string | null, pageContext: string | null, combinedContext: string,
 *   tools: {name: string, description?: string, inputSchema?: object}[], systemPromptParts: PromptPart[]}} DebugTurn
 */

/**
 * @typedef {{baseUrl?: string | URL, token?: string | (() => string | Promise<string>), widgetToken?: string,
 *   fetch?: typeof globalThis.fetch, parse?: (text: string) => any, cancelRoute?: boolean, reattach?: boolean}} ClientOptions
 *   `baseUrl` is the application's address, and the page's own by default; `token` a session token, or a function that
 *   returns one for each request. Without token and widget token, the browser's cookie is the credential. `parse` reads
 *   the JSON of results and events in place of `JSON.parse`, which rounds whole numbers beyond 2^53. `cancelRoute` stops
 *   runs by `POST /api/runs/{id}/cancel`; `reattach` continues by `GET /api/runs/{id}/events` when a connection is
 *   lost, for requests with `onDisconnect: "continue"`.
 */

/**
 * @typedef {{params?: Record<string, string>, query?: Record<string, any>, body?: unknown, ifMatch?: string,
 *   ifNoneMatch?: string, signal?: AbortSignal}} RouteCall
 */

/** A client of one application with one credential. */
export class AgentdClient {
  #base;
  /** @type {ClientOptions & {fetch: typeof globalThis.fetch, parse: (text: string) => any}} */
  #options;

  /** @param {ClientOptions} options */
  constructor({ baseUrl, fetch = globalThis.fetch.bind(globalThis), parse = JSON.parse, ...options } = {}) {
    if (options.token !== undefined && options.widgetToken !== undefined) {
      throw new TypeError('a client has either a token or a widget token');
    }
    const base = new URL(baseUrl ?? globalThis.document?.baseURI);
    // A base address is a folder: `https://agents.example/base` means what is below `base/`.
    if (!base.pathname.endsWith('/')) base.pathname += '/';
    this.#base = base;
    this.#options = { ...options, fetch, parse };
  }

  /**
   * Sends a message and returns the run, which has started when this returns.
   *
   * @param {ChatRequest} request
   * @param {{signal?: AbortSignal, onEvent?: (event: AgentEvent) => void, onBatch?: (events: AgentEvent[]) => void}} [options]
   * @returns {ChatRun}
   */
  chat(request, options = {}) {
    return this.#run((signal) => this.#openStream('POST', 'api/agent/chat', { body: request, signal }), { ...options, runId: request.runId });
  }

  /**
   * Attaches to a stored run: returns its events from the first one, and later ones as they come. The server must have
   * `GET /api/runs/{id}/events`.
   *
   * @param {string} runId
   * @param {{wait?: boolean, signal?: AbortSignal, onEvent?: (event: AgentEvent) => void,
   *   onBatch?: (events: AgentEvent[]) => void}} [options] Without `wait`, the response ends after the events so far.
   * @returns {ChatRun}
   */
  attach(runId, { wait = true, ...options } = {}) {
    return this.#run((signal) => this.#openEvents(runId, { wait }, signal), { ...options, runId });
  }

  #run(open, options) {
    const { cancelRoute, reattach } = this.#options;
    const cancelRun = (id) => this.api('POST /api/runs/{id}/cancel', { params: { id } });
    const attach = (id, after, signal) => this.#openEvents(id, { after }, signal);
    return new ChatRun(open, {
      ...options,
      cancelRun: cancelRoute ? cancelRun : undefined,
      attach: reattach ? attach : undefined,
    });
  }

  #openEvents(runId, query, signal) {
    return this.#openStream('GET', `api/runs/${encodeURIComponent(runId)}/events?${new URLSearchParams(query)}`, { signal });
  }

  /** @returns {Promise<import('./follow.js').StreamResponse>} */
  async #openStream(method, path, options) {
    /** @type {any} */
    const response = await this.#send(method, path, { ...options, headers: { Accept: 'application/x-ndjson' } });
    // A 204 answers for a run that has ended and of which the client has every event.
    if (response.status !== 204 && (!response.body || !response.headers.get('content-type')?.includes('ndjson'))) {
      throw new AgentdError('the answer is not an event stream', { code: 'INVALID_RESPONSE', status: response.status });
    }
    response.parse = this.#options.parse;
    return response;
  }

  /**
   * Returns the debug layer of a turn: the members of {@link DebugTurn}. Nothing is sent to a model. It needs a session;
   * visitors of widgets have no access.
   *
   * @param {ChatRequest} request
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<DebugTurn>}
   */
  async debugTurn(request, options = {}) {
    const preview = await this.preview(request, options);
    const { blocksContext = null, pageContext = null, combinedContext, tools, systemPromptParts } = preview;
    return { blocksContext, pageContext, combinedContext, tools, systemPromptParts };
  }

  /**
   * Returns the whole preview of a turn (docs/http-api.md, previews).
   *
   * @param {ChatRequest} request
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<any>}
   */
  preview(request, { signal } = {}) {
    return this.api('POST /api/svcchat/previewPrompt', { body: request, signal });
  }

  /**
   * Calls a route and returns its JSON; `undefined` if the response has no body.
   *
   * @template {import('../types/routes.js').Route} R
   * @param {R} route Method and path pattern, such as `GET /api/agents/{id}`.
   * @param {import('../types/routes.js').RouteArguments<R>} options `params` of the path, `query`, `body`, `ifMatch`,
   *   `ifNoneMatch` and `signal`.
   * @returns {Promise<import('../types/routes.js').RouteResult<R>>}
   */
  async api(route, ...options) {
    return (await this.request(route, ...options)).data;
  }

  /**
   * Calls a route as {@link api} does, and returns the JSON with status and version.
   *
   * @template {import('../types/routes.js').Route} R
   * @param {R} route
   * @param {import('../types/routes.js').RouteArguments<R>} options
   * @returns {Promise<{data: import('../types/routes.js').RouteResult<R>, status: number, etag?: string}>}
   */
  async request(route, ...[options = /** @type {any} */ ({})]) {
    const { params = {}, query = {}, body, ifMatch, ifNoneMatch, signal } = /** @type {RouteCall} */ (options);
    const [method, pattern] = route.split(' ');
    const path = pattern.slice(1).replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(params[name]));
    const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
    const search = entries.length > 0 ? `?${new URLSearchParams(entries)}` : '';
    /** @type {Record<string, string>} */
    const headers = { Accept: 'application/json' };
    if (ifMatch !== undefined) headers['If-Match'] = ifMatch;
    if (ifNoneMatch !== undefined) headers['If-None-Match'] = ifNoneMatch;
    const response = await this.#send(method, path + search, { body, headers, signal });
    const result = { status: response.status, etag: response.headers.get('etag') ?? undefined, data: /** @type {any} */ (undefined) };
    if (response.status === 204) return result;
    try {
      result.data = this.#options.parse(await response.text());
    } catch (cause) {
      const fields = { code: 'INVALID_RESPONSE', status: response.status, cause };
      throw signal?.aborted ? connectionError(cause, signal) : new AgentdError('the answer is not JSON', fields);
    }
    return result;
  }

  async #send(method, path, { body, headers, signal }) {
    const { token, widgetToken, fetch } = this.#options;
    const sent = { ...headers };
    if (token !== undefined) sent.Authorization = `Bearer ${typeof token === 'function' ? await token() : token}`;
    if (widgetToken !== undefined) sent['X-Widget-Token'] = widgetToken;
    if (body !== undefined) sent['Content-Type'] = 'application/json';
    let response;
    try {
      response = await fetch(new URL(path, this.#base), {
        method,
        headers: sent,
        body: body === undefined ? undefined : JSON.stringify(body),
        // The server refuses two credentials, and accepts a cookie from its own pages only.
        credentials: (token ?? widgetToken) === undefined ? 'same-origin' : 'omit',
        redirect: 'error',
        signal,
      });
    } catch (cause) {
      throw connectionError(cause, signal);
    }
    if (!response.ok) throw await responseError(response);
    return response;
  }
}

/**
 * Creates a client.
 *
 * @param {ClientOptions} [options]
 */
export function createClient(options) {
  return new AgentdClient(options);
}
