/** The Tools tab: what the agent may use here and why, what its role names and it may not use, and a form to try a tool; for its owner, the tools that the role defines. */

import { AgentdError, createClient } from '../client/index.js';
import { html, useEffect, useRef, useState } from '../vendor/ui.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { agentId, context, nodes, promptVersion } from '../lib/chat.js';
import { Diff } from '../lib/diff.js';
import { counted, duration, parseJson, pretty, size } from '../lib/format.js';
import { call, clientOptions, href, route, session } from '../lib/store.js';
import { Code, ErrorNote, Facts, Fold, pending, useAction, useConfirm, useGet } from '../lib/ui.js';

export function ToolsTab({ preview }) {
  const id = agentId.value;
  const role = useGet('GET /api/agents/{id}', { params: { id } });
  const content = role.data?.content ?? {};
  const isOwner = role.data?.ownerId === session.value.userId;
  const tools = preview.tools ?? [];
  // A call of the thread that is to be tried again.
  const wanted = route.value.query.get('call');
  const tried = wanted && nodes.value.flatMap(({ message }) => message.toolCalls ?? []).find((call) => call.id === wanted)?.function;
  const names = new Set(tools.map(({ name }) => name));
  const denied = [...new Set([...(content.mcpPreset ?? []), ...(content.tools ?? [])])].filter((name) => !names.has(name));
  return html`
    <${ErrorNote} ...${role} />
    <p class="muted">${tools.length === 0 ? 'The agent has no tools here.' : 'Allowed for you with this agent, in the order of the prompt.'}</p>
    <ul class="plain">${tools.map((tool) => html`<${Tool} key=${`${id} ${tool.name} ${tried?.name === tool.name ? wanted : ''}`} tool=${tool} tried=${tried?.name === tool.name && tried} why=${reason(tool.name, content)} isOwner=${isOwner} />`)}</ul>
    ${denied.length > 0 && html`<h2 class="label">Not allowed here</h2>
      <ul class="plain">${denied.map((name) => html`<li key=${name} class="denied"><code>${name}</code> <span class="muted">${denial(name, content)}</span></li>`)}</ul>`}
    ${isOwner && definesTools(content) && html`<${OwnTools} id=${id} servers=${content.toolServers} />`}`;
}

/** The place in the role that allows a tool. */
function reason(name, { mcpPreset, tools, widgetTools, httpTools = [], openApi = [], toolServers = [] }) {
  const isOwn = httpTools.some((tool) => tool.name === name) || [...openApi, ...toolServers].some(({ id }) => name.startsWith(`${id}_`));
  const named = isOwn ? 'defined by the role' : tools?.includes(name) ? 'named in tools' : mcpPreset ? 'in mcpPreset' : 'in the default preset';
  return widgetTools?.includes(name) ? `${named}; visitors of widgets too` : named;
}

/** The place in the role, or in the request, that takes a tool away. */
function denial(name, { agentServerTools }) {
  if (agentServerTools && !agentServerTools.includes(name)) return 'cut by agentServerTools';
  return 'needs something that this request does not have, such as a todo list, or a setting, or is left out by the tool choice';
}

/** Returns the arguments of a call; none if they are not an object. */
function argumentsOf({ arguments: text }) {
  try {
    return Object(parseJson(text));
  } catch {
    return {};
  }
}

function Tool({ tool, tried, why, isOwner }) {
  const root = useRef(null);
  useEffect(() => tried && root.current.scrollIntoView({ block: 'nearest' }), []);
  const { name, description, inputSchema } = tool;
  const fields = Object.entries(inputSchema?.properties ?? {});
  const facts = fields.map(([field, schema]) => [html`<code>${field}</code>${inputSchema.required?.includes(field) && html`<span class="meta"> required</span>`}`,
    [schema.type, schema.description].flat().filter(Boolean).join(' · ')]);
  return html`<li ref=${root}><${Fold} open=${Boolean(tried)} summary=${html`<span class="tool-name">${name}</span><span class="meta">${why}</span>`}>
    <p>${description}</p>
    ${fields.length > 0 && html`<${Facts} facts=${facts} />`}
    <details><summary class="meta">Schema</summary><${Code} value=${inputSchema} label=${`schema of ${name}`} /></details>
    <${TryTool} tool=${tool} args=${tried ? argumentsOf(tried) : {}} isOwner=${isOwner} />
  <//></li>`;
}

const SOURCES = { http: 'HTTP', openApi: 'OpenAPI', toolServer: 'tool server' };

/** Returns true if a role defines tools. */
const definesTools = ({ httpTools = [], openApi = [], toolServers = [] }) => httpTools.length + openApi.length + toolServers.length > 0;

/** Operations of OpenAPI documents, each with the reason why it is in this list. */
const Operations = ({ title, all = [] }) => all.length > 0 && html`<h2 class="label">${title}</h2>
  <ul class="plain">${all.map(({ openApiId, operation, reason }) => html`<li key=${`${openApiId} ${operation}`} class="denied"><code>${operation}</code> <span class="muted">of ${openApiId} ${reason}</span></li>`)}</ul>`;

/** The tools that the role defines: their states, and the definitions of tool servers that the agent's owner accepts. */
function OwnTools({ id, servers = [] }) {
  const load = useGet('GET /api/agents/{id}/tools', { params: { id } });
  const { data } = load;
  const own = data?.tools.filter(({ source }) => source !== 'builtIn') ?? [];
  return html`<h2 class="label">Defined by the role</h2>
    ${pending(load)}
    <ul class="plain">${own.map(({ name, source, approval, status, fingerprint }) => html`<li key=${name} class="between row"><code>${name}</code>
      <span class="meta">${SOURCES[source]}${approval === 'ask' && ', asks'} · <span class=${status === 'ok' ? 'good' : 'bad'}>${status}</span>${fingerprint && ` · ${fingerprint.slice(0, 8)}`}</span></li>`)}</ul>
    <${Operations} title="Tools without a part of their body" all=${data?.incomplete} />
    <${Operations} title="Operations that cannot be tools" all=${data?.skipped} />
    ${servers.map((server) => html`<${Server} key=${`${id} ${server.id}`} id=${id} serverId=${server.id} onPinned=${load.reload} />`)}`;
}

/** A tool server, whose list is requested and accepted. */
function Server({ id, serverId, onPinned }) {
  const [found, setFound] = useState(undefined);
  const { error, isBusy, run } = useAction();
  const after = (work) => () => run(() => work().then(onPinned));
  const discover = after(async () => setFound((await call('POST /api/agents/{id}/tools/discover', { params: { id }, body: { serverId } })).data));
  const accepted = found?.tools.filter(({ isAllowed, fingerprint, fault }) => isAllowed && fingerprint && !fault) ?? [];
  const accept = after(async () => {
    const fingerprints = Object.fromEntries(accepted.map(({ name, fingerprint }) => [name, fingerprint]));
    await call('POST /api/agents/{id}/tools/pin', { params: { id }, body: { serverId, fingerprints } });
    setFound(undefined);
    promptVersion.value += 1;
  });
  return html`<section class="server" aria-label=${`tool server ${serverId}`}>
    <p class="between row"><span>Tool server <code>${serverId}</code></span>
      <button type="button" class="button small" disabled=${isBusy} onClick=${discover}>${isBusy ? 'Waiting…' : 'Compare'}</button></p>
    <${ErrorNote} error=${error} />
    ${found?.error && html`<p class="note note-error" role="alert">${found.error}</p>`}
    ${found && html`<ul class="plain">${found.tools.map((tool) => html`<${Definition} key=${tool.name} ...${tool} />`)}</ul>
      <button type="button" class="button small primary" disabled=${isBusy || found.status === 'unreachable'} onClick=${accept}>Accept ${counted(accepted.length, 'definition')}</button>`}
  </section>`;
}

/** A tool as its server defines it now, beside the accepted definition. */
function Definition({ name, status, isAllowed, fault, definition, pinned }) {
  const label = `definition of ${name}`;
  const [before, now] = [pinned, definition].map((value) => value && JSON.stringify(value, null, 2));
  const summary = html`<code>${name}</code> <span class=${`meta ${status === 'ok' ? '' : 'bad'}`}>${isAllowed ? status : 'not named in the role'}${fault && `: ${fault}`}</span>`;
  return html`<li><${Fold} summary=${summary}>${before && now ? html`<${Diff} before=${before} after=${now} label=${label} />` : html`<${Code} text=${now ?? before} label=${label} wrap />`}<//></li>`;
}

/** Effects of a tool, by its hints. A tool without hints may do anything. */
function effects({ readOnlyHint, destructiveHint, openWorldHint } = {}) {
  return { isReading: readOnlyHint === true, isDestructive: readOnlyHint !== true && destructiveHint !== false, isOpen: openWorldHint !== false };
}

/** The form, its warning and its result. */
function TryTool({ tool, args, isOwner }) {
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
      // The changed data may be part of the prompt.
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
