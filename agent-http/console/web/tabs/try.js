/** A form that calls a tool, made of the tool's schema. */

import { AgentdError, createClient } from '../client/index.js';
import { html, useEffect, useRef, useState } from '../vendor/ui.js';
import { agentId, context, promptVersion } from '../lib/chat.js';
import { duration, pretty, size } from '../lib/format.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { call, clientOptions, href, session } from '../lib/store.js';
import { Code, ErrorNote, useConfirm } from '../lib/ui.js';

/** What a tool may do, by its hints. A tool without hints may do anything. */
function effects({ readOnlyHint, destructiveHint, openWorldHint } = {}) {
  return { isReading: readOnlyHint === true, isDestructive: readOnlyHint !== true && destructiveHint !== false, isOpen: openWorldHint !== false };
}

/** The form, its warning and its result. */
export function TryTool({ tool, args, isOwner }) {
  if (!isOwner) return html`<p class="muted">Tools are tried by the agent’s owner: a call needs a token of the agent.</p>`;
  return html`<${Form} tool=${tool} args=${args} />`;
}

/** Calls the tool, and keeps what came of it: `{state: running | done | failed, …}`. */
function useCall(tool, isReading) {
  const [outcome, setOutcome] = useState(undefined);
  const abort = useRef(undefined);
  useEffect(() => () => abort.current?.abort(), []);
  const run = async (args) => {
    abort.current = new AbortController();
    const { signal } = abort.current;
    setOutcome({ state: 'running' });
    try {
      const { value: todoListId } = context.todoListId;
      setOutcome({ state: 'done', ...(await callTool({ agentId: agentId.value, name: tool.name, args, todoListId, signal })) });
      // What was changed may be part of the prompt.
      if (!isReading) promptVersion.value += 1;
    } catch (error) {
      setOutcome(error.isAborted ? undefined : { state: 'failed', error });
    }
  };
  return { outcome, run, stop: () => abort.current?.abort() };
}

function Form({ tool, args }) {
  const editor = useArguments(args, tool.inputSchema);
  const [faults, setFaults] = useState(0);
  const form = useRef(null);
  const { isReading, isDestructive, isOpen } = effects(tool.annotations);
  const { outcome, run, stop } = useCall(tool, isReading);
  const [question, ask] = useConfirm((args) => ({
    title: `Call ${tool.name}?`, text: 'The tool may delete or overwrite data, and the call cannot be undone.', action: 'Call it', onConfirm: () => run(args),
  }));
  const isRunning = outcome?.state === 'running';
  useEffect(() => form.current.querySelector('[aria-invalid="true"]')?.focus(), [faults]);
  const submit = (event) => {
    event.preventDefault();
    const found = editor.read();
    if (!found) setFaults(faults + 1);
    else if (isDestructive) ask(found.value);
    else run(found.value);
  };
  const { value: todoListId } = context.todoListId;
  const who = `as ${session.value.userId}${todoListId ? `, with the todo list ${todoListId}` : ''}`;
  return html`<form class="try" ref=${form} onSubmit=${submit} noValidate aria-label=${`try ${tool.name}`}>
    <h2 class="label">Try it</h2>
    ${!isReading && html`<p class="note note-warn"><strong>${isDestructive ? 'This may delete or overwrite data.' : 'This changes data.'}</strong>${' '}
      The tool is really called, ${who}${isOpen ? ', and may reach other systems' : ''}. There is no undo.</p>`}
    <${ArgumentsEditor} id=${`try-${tool.name}`} state=${editor} />
    <div class="row">
      <button class=${`button small ${isReading ? 'primary' : 'warn'}`} disabled=${isRunning}>${isRunning ? 'Calling…' : `Call ${isReading ? '' : 'for real'}`}</button>
      ${isRunning && html`<button type="button" class="button small" onClick=${stop}>Stop</button>`}
      ${isReading && html`<span class="meta">reads only, ${who}</span>`}
    </div>
    ${outcome && !isRunning && html`<${Outcome} outcome=${outcome} name=${tool.name} />`}
    ${question}
  </form>`;
}

function Outcome({ outcome, name }) {
  if (outcome.state === 'failed') return html`<div class="outcome"><${ErrorNote} error=${outcome.error} /></div>`;
  const { result, ms } = outcome;
  const { content = [], structuredContent, isError } = result;
  // A structured result is in the text a second time.
  const texts = structuredContent === undefined || isError ? content : content.filter(({ type }) => type !== 'text');
  return html`<div class="outcome" role="status">
    <p class="between row"><span class=${isError ? 'bad' : 'good'}>${isError ? 'The tool answers with an error' : 'Result'}</span>
      <span class="meta">${duration(ms)} · <a href=${href('audit', agentId.value)}>audit</a></span></p>
    ${structuredContent !== undefined && !isError && html`<${Code} value=${structuredContent} label=${`result of ${name}`} wrap />`}
    ${texts.map((part, place) => html`<${Part} key=${place} part=${part} label=${`result of ${name}, part ${place + 1}`} />`)}
    ${texts.length === 0 && structuredContent === undefined && html`<p class="muted">It is empty.</p>`}
  </div>`;
}

/** A part of a result. Pictures and sounds are named and not loaded. */
function Part({ part, label }) {
  if (part.type === 'text') return html`<${Code} text=${pretty(part.text ?? '')} label=${label} wrap />`;
  const { type, mimeType, data, resource } = part;
  const bytes = typeof data === 'string' ? ` · ${size(Math.floor((data.length * 3) / 4))}` : '';
  return html`<p class="meta">${type}${mimeType ? ` · ${mimeType}` : ''}${bytes}${resource?.uri ?? part.uri ? ` · ${resource?.uri ?? part.uri}` : ''}</p>`;
}

/** Lifetime of the token of a call, which is revoked after the call. */
const TOKEN_TTL_MS = 10 * 60_000;

/**
 * Calls a tool of an agent as the signed-in user, and returns its result with its duration.
 *
 * The tool server takes no cookie. The token for the call is for this tool alone, stays in this function, and is revoked
 * when it ends; where that fails, it expires.
 *
 * @param {{agentId: string, name: string, args: object, todoListId?: string, signal: AbortSignal}} options
 * @returns {Promise<{ms: number, result: {content?: any[], structuredContent?: any, isError?: boolean}}>}
 * @throws {AgentdError} `TOOL_REFUSED` if the tool server did not call the tool.
 */
async function callTool({ agentId, name, args, todoListId, signal }) {
  const label = `Console: ${name}`.slice(0, 60);
  const body = { kind: 'mcp', ttlMs: TOKEN_TTL_MS, tools: [name], label, todoListId: todoListId || undefined };
  const { data: token } = await call('POST /api/agents/{id}/tokens', { params: { id: agentId }, body, signal });
  try {
    const server = createClient({ ...clientOptions, token: token.token });
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } };
    const start = performance.now();
    const answer = await server.api('POST /api/agent/mcp', { body: message, signal });
    const ms = performance.now() - start;
    if (answer.error) throw new AgentdError(`${answer.error.message} (${answer.error.code})`, { code: 'TOOL_REFUSED' });
    return { ms, result: answer.result };
  } finally {
    const params = { id: agentId, tokenId: token.id };
    call('DELETE /api/agents/{id}/tokens/{tokenId}', { params }).catch(() => {});
  }
}
