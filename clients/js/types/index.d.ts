/**
 * Creates a client.
 *
 * @param {ClientOptions} [options]
 */
export function createClient(options?: ClientOptions): AgentdClient;
export { AgentdError } from "./errors.js";
export { ChatRun } from "./run.js";
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
    /** @param {ClientOptions} options */
    constructor({ baseUrl, fetch, parse, ...options }?: ClientOptions);
    /**
     * Sends a message and returns the run, which has started when this returns.
     *
     * @param {ChatRequest} request
     * @param {{signal?: AbortSignal, onEvent?: (event: AgentEvent) => void, onBatch?: (events: AgentEvent[]) => void}} [options]
     * @returns {ChatRun}
     */
    chat(request: ChatRequest, options?: {
        signal?: AbortSignal;
        onEvent?: (event: AgentEvent) => void;
        onBatch?: (events: AgentEvent[]) => void;
    }): ChatRun;
    /**
     * Attaches to a stored run: returns its events from the first one, and later ones as they come. The server must have
     * `GET /api/runs/{id}/events`.
     *
     * @param {string} runId
     * @param {{wait?: boolean, signal?: AbortSignal, onEvent?: (event: AgentEvent) => void,
     *   onBatch?: (events: AgentEvent[]) => void}} [options] Without `wait`, the response ends after the events so far.
     * @returns {ChatRun}
     */
    attach(runId: string, { wait, ...options }?: {
        wait?: boolean;
        signal?: AbortSignal;
        onEvent?: (event: AgentEvent) => void;
        onBatch?: (events: AgentEvent[]) => void;
    }): ChatRun;
    /**
     * Returns the debug layer of a turn: the members of {@link DebugTurn}. Nothing is sent to a model. It needs a session;
     * visitors of widgets have no access.
     *
     * @param {ChatRequest} request
     * @param {{signal?: AbortSignal}} [options]
     * @returns {Promise<DebugTurn>}
     */
    debugTurn(request: ChatRequest, options?: {
        signal?: AbortSignal;
    }): Promise<DebugTurn>;
    /**
     * Returns the whole preview of a turn (docs/http-api.md, previews).
     *
     * @param {ChatRequest} request
     * @param {{signal?: AbortSignal}} [options]
     * @returns {Promise<any>}
     */
    preview(request: ChatRequest, { signal }?: {
        signal?: AbortSignal;
    }): Promise<any>;
    /**
     * Calls a route and returns its JSON; `undefined` if the response has no body.
     *
     * @template {import('../types/routes.js').Route} R
     * @param {R} route Method and path pattern, such as `GET /api/agents/{id}`.
     * @param {import('../types/routes.js').RouteArguments<R>} options `params` of the path, `query`, `body`, `ifMatch`,
     *   `ifNoneMatch` and `signal`.
     * @returns {Promise<import('../types/routes.js').RouteResult<R>>}
     */
    api<R extends import("../types/routes.js").Route>(route: R, ...options: import("../types/routes.js").RouteArguments<R>): Promise<import("../types/routes.js").RouteResult<R>>;
    /**
     * Calls a route as {@link api} does, and returns the JSON with status and version.
     *
     * @template {import('../types/routes.js').Route} R
     * @param {R} route
     * @param {import('../types/routes.js').RouteArguments<R>} options
     * @returns {Promise<{data: import('../types/routes.js').RouteResult<R>, status: number, etag?: string}>}
     */
    request<R extends import("../types/routes.js").Route>(route: R, ...[options]: import("../types/routes.js").RouteArguments<R>): Promise<{
        data: import("../types/routes.js").RouteResult<R>;
        status: number;
        etag?: string;
    }>;
    #private;
}
export type AgentEvent = import("./stream.js").AgentEvent;
export type RunResult = import("./run.js").RunResult;
/**
 * A chat request; docs/http-api.md describes the fields.
 */
export type ChatRequest = {
    agentId?: string;
    message?: string | object;
    messages?: Record<string, any>[];
    threadId?: string;
    runId?: string;
    parentId?: string | null;
    timezone?: string;
    todoListId?: string;
    tabId?: string;
    pageContext?: unknown;
    blocksContext?: unknown[];
    toolChoice?: unknown;
    [field: string]: unknown;
};
/**
 * A part of the system prompt, as a preview shows it.
 */
export type PromptPart = {
    id: string;
    source: string;
    content: string;
    stability: string;
    placement: string;
    tokens: number;
    bytes: number;
    sha256: string;
};
/**
 * The debug layer of a turn: the prompt and the tools that the model would receive for a request.
 */
export type DebugTurn = {
    blocksContext: string | null;
    pageContext: string | null;
    combinedContext: string;
    tools: {
        name: string;
        description?: string;
        inputSchema?: object;
    }[];
    systemPromptParts: PromptPart[];
};
/**
 * `baseUrl` is the application's address, and the page's own by default; `token` a session token, or a function that
 * returns one for each request. Without token and widget token, the browser's cookie is the credential. `parse` reads
 * the JSON of results and events in place of `JSON.parse`, which rounds whole numbers beyond 2^53. `cancelRoute` stops
 * runs by `POST /api/runs/{id}/cancel`; `reattach` continues by `GET /api/runs/{id}/events` when a connection is
 * lost, for requests with `onDisconnect: "continue"`.
 */
export type ClientOptions = {
    baseUrl?: string | URL;
    token?: string | (() => string | Promise<string>);
    widgetToken?: string;
    fetch?: typeof globalThis.fetch;
    parse?: (text: string) => any;
    cancelRoute?: boolean;
    reattach?: boolean;
};
export type RouteCall = {
    params?: Record<string, string>;
    query?: Record<string, any>;
    body?: unknown;
    ifMatch?: string;
    ifNoneMatch?: string;
    signal?: AbortSignal;
};
import { ChatRun } from './run.js';
export { LineSplitter, isTerminal, parseEvent, readEventBatches } from "./stream.js";
