/**
 * A run in progress. It is an async iterable of its events, from the first one, for any number of readers. The events
 * are kept as long as the run object; the server bounds their number and size.
 */
export class ChatRun {
    /**
     * @param {(signal: AbortSignal) => Promise<import('./follow.js').StreamResponse>} open Sends the request.
     * @param {{runId?: string, signal?: AbortSignal, onEvent?: (event: AgentEvent) => void, onBatch?: (events: AgentEvent[]) => void,
     *   cancelRun?: (runId: string) => Promise<unknown>,
     *   attach?: (runId: string, after: number, signal: AbortSignal) => Promise<import('./follow.js').StreamResponse>}} options
     */
    constructor(open: (signal: AbortSignal) => Promise<import("./follow.js").StreamResponse>, { runId, signal, onEvent, onBatch, cancelRun, attach }?: {
        runId?: string;
        signal?: AbortSignal;
        onEvent?: (event: AgentEvent) => void;
        onBatch?: (events: AgentEvent[]) => void;
        cancelRun?: (runId: string) => Promise<unknown>;
        attach?: (runId: string, after: number, signal: AbortSignal) => Promise<import("./follow.js").StreamResponse>;
    });
    /** All events so far. @type {AgentEvent[]} */
    events: AgentEvent[];
    /** The result; rejects with an {@link AgentdError} if the run fails. @type {Promise<RunResult>} */
    result: Promise<RunResult>;
    /** The answer's text; rejects as {@link result} does. @type {Promise<string>} */
    get text(): Promise<string>;
    /** The text so far. */
    get currentText(): string;
    /** Identifier of the run: that of the request, or once it has started. */
    get runId(): string | undefined;
    /**
     * Stops the run: by the server's route if `cancelRoute` is set, so that the partial answer is stored as cancelled; else
     * by closing the connection. A run that has not started is stopped by the route if its request has a `runId`.
     */
    cancel(): Promise<void>;
    /** Closes the connection. The `onDisconnect` of the request decides whether the run continues. */
    detach(): void;
    /**
     * Closes the connection of a run that can be attached to, until {@link resume}, such as while a page is hidden, since
     * browsers open at most six connections to a host. The request must have had `onDisconnect: "continue"`.
     */
    pause(): void;
    /** Continues a paused run from the event after the last one received. */
    resume(): void;
    [Symbol.asyncIterator](): AsyncGenerator<import("./stream.js").AgentEvent, void, unknown>;
    #private;
}
export type AgentEvent = import("./stream.js").AgentEvent;
export type ToolCall = {
    id: string;
    name: string;
    arguments: string;
    result?: string;
    isError?: boolean;
};
export type Usage = {
    model?: string;
    provider?: string;
    inputTokens?: number;
    outputTokens?: number;
    cachedInputTokens?: number;
    reasoningTokens?: number;
};
export type RunResult = {
    threadId: string;
    runId: string;
    text: string;
    toolCalls: ToolCall[];
    finishReason?: string;
    object?: unknown;
    isCancelled: boolean;
    usage: Usage[];
};
