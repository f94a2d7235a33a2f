/**
 * Converts an error thrown by `fetch` or by the reader of a body.
 *
 * @param {any} cause
 * @param {AbortSignal} [signal]
 * @returns {AgentdError}
 */
export function connectionError(cause: any, signal?: AbortSignal): AgentdError;
/**
 * Reads the problem of a response whose status is not a success.
 *
 * @param {Response} response
 * @returns {Promise<AgentdError>}
 */
export function responseError(response: Response): Promise<AgentdError>;
/** Errors of the client. */
/**
 * An error of the server or of the connection to it. `code` is machine-readable: one of the server's codes
 * (docs/http-api.md), or one of the client's own: `NETWORK` for a failed connection, `ABORTED` for a cancelled request,
 * `INVALID_RESPONSE` for a response that does not have the expected form.
 */
export class AgentdError extends Error {
    /**
     * @param {string} message
     * @param {{code: string, status?: number, retryAfter?: number, requestId?: string, problem?: object, cause?: unknown}} fields
     */
    constructor(message: string, { code, status, retryAfter, requestId, problem, cause }: {
        code: string;
        status?: number;
        retryAfter?: number;
        requestId?: string;
        problem?: object;
        cause?: unknown;
    });
    /** Machine-readable code. */
    code: string;
    /** HTTP status, if there was a response. */
    status: number | undefined;
    /** Seconds to wait before another attempt. */
    retryAfter: number | undefined;
    /** Identifier of the request, also in the server's log. */
    requestId: string | undefined;
    /** All members of the problem (RFC 9457). */
    problem: any;
    /** True if the caller has cancelled the request. */
    get isAborted(): boolean;
}
