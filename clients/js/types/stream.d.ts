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
export function isTerminal(event: AgentEvent): boolean;
/**
 * Parses one line; `undefined` for an empty one.
 *
 * @param {string} line
 * @param {(text: string) => any} [parse] Parser of JSON.
 * @returns {AgentEvent | undefined}
 */
export function parseEvent(line: string, parse?: (text: string) => any): AgentEvent | undefined;
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
export function readEventBatches(body: ReadableStream<Uint8Array>, onRead?: () => void, parse?: (text: string) => any): AsyncGenerator<AgentEvent[], void>;
/** Maximum length of one line in UTF-16 code units. The server's own limit on a run's output is lower. */
export const MAX_LINE_LENGTH: number;
/**
 * Splits decoded text into lines, in whatever pieces it arrives.
 */
export class LineSplitter {
    /**
     * Adds a piece and returns the lines that are complete now, without their ends.
     *
     * @param {string} piece
     * @returns {string[]}
     */
    push(piece: string): string[];
    /** Returns the text after the last line's end. */
    end(): string;
    #private;
}
/**
 * An AG-UI event. Types that are not listed in docs/http-api.md may be added.
 */
export type AgentEvent = {
    type: string;
    [field: string]: any;
};
