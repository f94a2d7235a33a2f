/** Adapter for `@ag-ui/client`: agents whose requests have the address, the credential and the fields of a chat. */

/**
 * @typedef {{baseUrl?: string | URL, token?: string | (() => string | Promise<string>), widgetToken?: string,
 *   visitorKey?: string, agentId?: string, fields?: Record<string, unknown>,
 *   fetch?: (url: string, init: RequestInit) => Promise<Response>, [config: string]: unknown}} AgentOptions
 *   `baseUrl` is the application's address, and the page's own by default; `token` a session token, or a function that
 *   returns one for each run; `visitorKey` goes with a widget token. Without them, the browser's cookie is the credential.
 *   `fields` are those of a chat request (docs/http-api.md), such as `todoListId`; `forwardedProps` of a run override them.
 *   Other options, such as `threadId` and `initialMessages`, are passed to the agent's class.
 */

/**
 * An interrupt of a run, as its last event has it.
 *
 * @typedef {{id: string, [member: string]: any}} Interrupt
 */

/**
 * A decision about a tool call: `true`, `false`, or an object with details; `undefined` withdraws the question.
 *
 * @typedef {boolean | {approved: boolean, editedArgs?: Record<string, unknown>, reason?: string} | undefined} Decision
 */

/**
 * Creates an agent of the given class, so that this package does not depend on AG-UI's.
 *
 * @template {new (config: any) => any} A
 * @param {A} HttpAgent The class of `@ag-ui/client`.
 * @param {AgentOptions} [options]
 * @returns {InstanceType<A>}
 */
export function createAgent(HttpAgent, options = {}) {
  const { baseUrl, token, widgetToken, visitorKey, agentId, fields, fetch, ...config } = options;
  if (token !== undefined && widgetToken !== undefined) {
    throw new TypeError('an agent has either a token or a widget token');
  }
  const base = new URL(baseUrl ?? globalThis.document?.baseURI);
  if (!base.pathname.endsWith('/')) base.pathname += '/';
  const chat = { ...fields, ...(agentId === undefined ? {} : { agentId }) };

  /** @param {string} url @param {RequestInit} init */
  const send = async (url, init) => {
    const headers = new Headers(init.headers);
    if (token !== undefined) headers.set('Authorization', `Bearer ${typeof token === 'function' ? await token() : token}`);
    if (widgetToken !== undefined) headers.set('X-Widget-Token', widgetToken);
    if (visitorKey !== undefined) headers.set('X-Visitor-Key', visitorKey);
    const body = JSON.parse(String(init.body));
    body.forwardedProps = { ...chat, ...body.forwardedProps };
    const credentials = token !== undefined || widgetToken !== undefined ? 'omit' : 'same-origin';
    return (fetch ?? globalThis.fetch)(url, { ...init, headers, body: JSON.stringify(body), credentials });
  };
  return new HttpAgent({ ...config, url: new URL('api/agent/chat', base).href, fetch: send });
}

/**
 * Returns the `resume` of `runAgent` that decides about all interrupts of the previous run.
 *
 * @param {Interrupt[]} interrupts `outcome.interrupts` of the run's last event.
 * @param {(interrupt: Interrupt) => Decision} decide
 * @returns {({interruptId: string, status: 'resolved', payload: Exclude<Decision, undefined>}
 *   | {interruptId: string, status: 'cancelled'})[]}
 */
export function resumeWith(interrupts, decide) {
  return interrupts.map((interrupt) => {
    const payload = decide(interrupt);
    if (payload === undefined) return { interruptId: interrupt.id, status: 'cancelled' };
    return { interruptId: interrupt.id, status: 'resolved', payload };
  });
}
