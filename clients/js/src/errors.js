/** Errors of the client. */

/**
 * An error of the server or of the connection to it. `code` is machine-readable: one of the server's codes
 * (docs/http-api.md), or one of the client's own: `NETWORK` for a failed connection, `ABORTED` for a cancelled request,
 * `INVALID_RESPONSE` for a response that does not have the expected form.
 */
export class AgentdError extends Error {
  /** A field, since the assignment fails on pages that freeze the built-in prototypes. */
  name = 'AgentdError';

  /**
   * @param {string} message
   * @param {{code: string, status?: number, retryAfter?: number, requestId?: string, problem?: object, cause?: unknown}} fields
   */
  constructor(message, { code, status, retryAfter, requestId, problem, cause }) {
    super(message, cause === undefined ? undefined : { cause });
    /** Machine-readable code. */
    this.code = code;
    /** HTTP status, if there was a response. */
    this.status = status;
    /** Seconds to wait before another attempt. */
    this.retryAfter = retryAfter;
    /** Identifier of the request, also in the server's log. */
    this.requestId = requestId;
    /** All members of the problem (RFC 9457). */
    this.problem = problem;
  }

  /** True if the caller has cancelled the request. */
  get isAborted() {
    return this.code === 'ABORTED';
  }
}

/**
 * Converts an error thrown by `fetch` or by the reader of a body.
 *
 * @param {any} cause
 * @param {AbortSignal} [signal]
 * @returns {AgentdError}
 */
export function connectionError(cause, signal) {
  if (cause instanceof AgentdError) return cause;
  if (signal?.aborted || cause?.name === 'AbortError') {
    return new AgentdError('the request was cancelled', { code: 'ABORTED', cause });
  }
  return new AgentdError('the server cannot be reached', { code: 'NETWORK', cause });
}

/**
 * Reads the problem of a response whose status is not a success.
 *
 * @param {Response} response
 * @returns {Promise<AgentdError>}
 */
export async function responseError(response) {
  const { status, headers } = response;
  const seconds = Number.parseInt(headers.get('retry-after') ?? '', 10);
  const fields = {
    status,
    retryAfter: seconds >= 0 ? seconds : undefined,
    requestId: headers.get('x-request-id') ?? undefined,
  };
  let problem;
  try {
    if (headers.get('content-type')?.includes('json')) problem = await response.json();
  } catch {
    // A body that is truncated or not JSON leaves the status only.
  }
  if (typeof problem?.code !== 'string') {
    return new AgentdError(`the server answered with the status ${status}`, { ...fields, code: 'INVALID_RESPONSE' });
  }
  const message = String(problem.detail ?? problem.title ?? problem.code);
  return new AgentdError(message, { ...fields, code: problem.code, problem });
}
