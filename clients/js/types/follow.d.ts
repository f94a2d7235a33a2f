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
export function readRun(open: (signal: AbortSignal) => Promise<StreamResponse>, { signal, attach, onOpen, paused, onLost, maxAttempts }: {
    signal: AbortSignal;
    attach: (count: number) => ((signal: AbortSignal) => Promise<StreamResponse>) | undefined;
    onOpen?: (close: () => void) => void;
    paused?: () => Promise<void> | undefined;
    onLost?: (seconds: number) => void;
    maxAttempts?: number;
}): AsyncGenerator<import("./stream.js").AgentEvent[], void>;
/**
 * A response with a body, and the parser of its JSON.
 */
export type StreamResponse = Response & {
    body: ReadableStream<Uint8Array>;
    parse?: (text: string) => any;
};
