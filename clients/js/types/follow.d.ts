/**
 * Reads the events of a run up to the terminal one. Where a connection is lost or silent, another one is opened.
 *
 * @param {(signal: AbortSignal) => Promise<StreamResponse>} open Sends the first request.
 * @param {{signal: AbortSignal, attach: (count: number) => ((signal: AbortSignal) => Promise<StreamResponse>) | undefined,
 *   onOpen?: (close: () => void) => void, held?: () => Promise<void> | undefined, onLost?: () => void,
 *   maxAttempts?: number}} options `attach` returns what sends the request for the events after the first `count`;
 *   `undefined` if the run cannot be attached to. `onOpen` gets what closes the connection; while `held` returns a promise, no
 *   other one is opened.
 * @returns {AsyncGenerator<import('./stream.js').AgentEvent[], void>}
 */
export function readRun(open: (signal: AbortSignal) => Promise<StreamResponse>, { signal, attach, onOpen, held, onLost, maxAttempts }: {
    signal: AbortSignal;
    attach: (count: number) => ((signal: AbortSignal) => Promise<StreamResponse>) | undefined;
    onOpen?: (close: () => void) => void;
    held?: () => Promise<void> | undefined;
    onLost?: () => void;
    maxAttempts?: number;
}): AsyncGenerator<import("./stream.js").AgentEvent[], void>;
/**
 * A response with a body.
 */
export type StreamResponse = Response & {
    body: ReadableStream<Uint8Array>;
};
