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
export function createAgent<A extends new (config: any) => any>(HttpAgent: A, options?: AgentOptions): InstanceType<A>;
/**
 * Returns the `resume` of `runAgent` that decides about all interrupts of the previous run.
 *
 * @param {Interrupt[]} interrupts `outcome.interrupts` of the run's last event.
 * @param {(interrupt: Interrupt) => Decision} decide
 * @returns {({interruptId: string, status: 'resolved', payload: Exclude<Decision, undefined>}
 *   | {interruptId: string, status: 'cancelled'})[]}
 */
export function resumeWith(interrupts: Interrupt[], decide: (interrupt: Interrupt) => Decision): ({
    interruptId: string;
    status: "resolved";
    payload: Exclude<Decision, undefined>;
} | {
    interruptId: string;
    status: "cancelled";
})[];
/**
 * `baseUrl` is the application's address, and the page's own by default; `token` a session token, or a function that
 * returns one for each run; `visitorKey` goes with a widget token. Without them, the browser's cookie is the credential.
 * `fields` are those of a chat request (docs/http-api.md), such as `todoListId`; `forwardedProps` of a run override them.
 * Other options, such as `threadId` and `initialMessages`, are passed to the agent's class.
 */
export type AgentOptions = {
    baseUrl?: string | URL;
    token?: string | (() => string | Promise<string>);
    widgetToken?: string;
    visitorKey?: string;
    agentId?: string;
    fields?: Record<string, unknown>;
    fetch?: (url: string, init: RequestInit) => Promise<Response>;
    [config: string]: unknown;
};
/**
 * An interrupt of a run, as its last event has it.
 */
export type Interrupt = {
    id: string;
    [member: string]: any;
};
/**
 * A decision about a tool call: `true`, `false`, or an object with details; `undefined` withdraws the question.
 */
export type Decision = boolean | {
    approved: boolean;
    editedArgs?: Record<string, unknown>;
    reason?: string;
} | undefined;
