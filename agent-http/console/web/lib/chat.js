/** The open conversation: its messages as the server keeps them, and the run in progress. */

import { AgentdError } from '../client/index.js';
import { computed, signal } from '../vendor/ui.js';
import { withFiles } from './attachments.js';
import { here, newId, parseJson, textOf } from './format.js';
import { RunState, keptRun } from './run.js';
import { call, chatClient, endSession, has, href, replaceRoute, status } from './store.js';

/** Maximum number of pages of a thread that the page reads. */
const MAX_PAGES = 50;

export const agentId = signal(undefined);
/** The thread as the server has it; `undefined` for a new one. */
export const thread = signal(undefined);
export const threadId = signal(undefined);
/** All messages of the thread, also those of other branches. */
export const nodes = signal([]);
const head = signal(undefined);
/** The thread's runs as the server has them, by id. */
export const runs = signal(new Map());
/** Returns the thread's runs, the newest first. One of the queue may never start. */
export const latestRuns = () => [...runs.value.values()].sort((one, other) => other.createdAt.localeCompare(one.createdAt));
/** The run in progress with its place, and the content of its message: `{run, parentId, content}`. */
export const live = signal(undefined);
/** The run that the debug layer shows. @type {import('../vendor/ui.js').Signal<RunState | undefined>} */
export const inspected = signal(undefined);
export const loadError = signal(undefined);
export const isLoading = signal(false);
/** True if the server keeps nothing of the conversation, so that it is the page's alone. */
const isLocal = signal(false);

/** Returns true if the server keeps the conversation. */
export const isKept = () => has('threads') && !isLocal.value;

export const draft = signal('');
/** A message that was not sent, because tool calls of its thread wait for decisions: `{fields, parentId, content}`. */
export const heldMessage = signal(undefined);
/** The error of the last decisions. */
export const decisionError = signal(undefined);

/** Choices among the tools that name none of them. */
const CHOICES = new Set(['auto', 'none', 'required']);

/** Texts of the context editors, sent with the next message. */
export const context = {
  page: signal(''),
  blocks: signal(''),
  todoListId: signal(''),
  toolChoice: signal(''),
  timezone: signal(here),
};

/** Grows when something changes that a preview depends on. */
export const promptVersion = signal(0);

let current;

const byId = computed(() => new Map(nodes.value.map((node) => [node.id, node])));
const children = computed(() => {
  const found = new Map();
  for (const node of nodes.value) {
    const key = node.parentId ?? null;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(node);
  }
  return found;
});

/** Messages from the root to a node. */
function pathTo(id) {
  const path = [];
  for (let node = byId.value.get(id); node; node = byId.value.get(node.parentId)) path.push(node);
  return path.reverse();
}

/** Messages that are shown: up to the place of the run in progress, or to the head. */
export const path = computed(() => pathTo(live.value ? live.value.parentId : head.value));

const isUser = (node) => node.message.role === 'user';

/** The alternatives of a node: its siblings of the same kind, the node among them. */
function siblings(node) {
  const all = children.value.get(node.parentId ?? null) ?? [];
  return all.filter((other) => isUser(other) === isUser(node));
}

/** Grows when the time for a decision has run out. */
export const expiries = signal(0);

/** The thread's run that waits for decisions about tool calls. */
export const waitingRun = computed(() => {
  // Open calls depend on the time, which is not a signal.
  expiries.value;
  const run = runs.value.get(thread.value?.openRunId);
  return run?.state === 'waiting' && run.approvals?.some(isOpen) ? run : undefined;
});

/** Returns true if a decision about an approval is awaited. */
export const isOpen = ({ state, expiresAt }) => state === 'open' && Date.parse(expiresAt) > Date.now();

/** Returns the open approvals of a run, each with the schema of its tool's arguments: `{approval, schema}`. */
export function openCalls(run) {
  const interrupts = new Map((run?.outcome?.interrupts ?? []).map((one) => [one.id, one]));
  return (run?.approvals ?? []).filter(isOpen).map((approval) => (
    { approval, schema: interrupts.get(approval.id)?.responseSchema?.properties?.editedArgs }));
}

/** Puts the result of a call into the answer that has called, which a withdrawn call's result comes after. */
function addLateResult(answers, { toolCallId, content }) {
  const of = ({ nodes }) => nodes.some(({ message }) => message.toolCalls?.some(({ id }) => id === toolCallId));
  const answer = answers.findLast((item) => item.kind === 'answer' && of(item));
  answer?.results.set(toolCallId, content);
}

/** The conversation as it is drawn: user messages and answers, each answer with all messages of its turn. */
export const items = computed(() => {
  const found = [];
  for (const node of path.value) {
    if (node.message.role === 'tool' && node.status !== 'deleted') addLateResult(found, node.message);
    if (isUser(node)) {
      found.push({ kind: 'user', key: node.id, node, siblings: siblings(node) });
      continue;
    }
    const last = found.at(-1);
    if (last?.kind === 'answer' && last.turnId === node.turnId) last.nodes.push(node);
    else {
      const key = `turn-${node.runId ?? node.turnId}`;
      const results = new Map();
      found.push({ kind: 'answer', key, turnId: node.turnId, nodes: [node], results, siblings: siblings(node) });
    }
  }
  return found;
});

/** The parts of an answer's stored messages, as a run in progress has them. Runs of this page know their times too. */
export function answerParts({ nodes: of, results }) {
  const runIds = [...new Set(of.map(({ runId }) => runId))];
  const known = new Map(runIds.flatMap((id) => keptRun(id)?.parts ?? []).map((part) => [part.id, part]));
  const parts = [];
  const tools = new Map();
  for (const { id, message, status, runId } of of) {
    if (status === 'deleted') {
      parts.push({ kind: 'deleted', id });
      continue;
    }
    const text = typeof message.content === 'string' ? message.content : '';
    if (message.role === 'reasoning') parts.push({ ...known.get(id), kind: 'reasoning', id, text, isOpen: false });
    else if (message.role === 'tool') {
      const tool = tools.get(message.toolCallId);
      if (tool) tool.result = text;
    } else {
      if (text) parts.push({ kind: 'text', id, text });
      for (const call of message.toolCalls ?? []) {
        const { name, arguments: text } = call.function;
        const approval = runs.value.get(runId)?.approvals?.find(({ toolCallId }) => toolCallId === call.id);
        const isContinued = live.value && runId === thread.value?.openRunId;
        const result = results.get(call.id) ?? (isContinued ? live.value.run.results.get(call.id) : undefined);
        const part = { ...known.get(call.id), kind: 'tool', id: call.id, name, text, isOpen: false, approval, result };
        tools.set(call.id, part);
        parts.push(part);
      }
    }
  }
  return parts;
}

/** The error of the run that has left the last message without an answer. */
export const unanswered = computed(() => {
  const last = path.value.at(-1);
  if (live.value || !last || !isUser(last)) return undefined;
  const error = keptRun(last.runId)?.error ?? runs.value.get(last.runId)?.error;
  return error && { error, node: last };
});

/** Removes the thread that was shown. */
function clear() {
  thread.value = undefined;
  nodes.value = [];
  runs.value = new Map();
  head.value = undefined;
  live.value = undefined;
  isLoading.value = false;
  isLocal.value = false;
  loadError.value = undefined;
  heldMessage.value = undefined;
  decisionError.value = undefined;
  inspected.value = undefined;
}

/** Shows an agent with a thread, or with a new one, and one of the thread's runs in the debug layer. */
export async function open(agent, id, runId) {
  if (agentId.value !== agent || threadId.value !== id) {
    if (agentId.value !== agent) context.todoListId.value = context.toolChoice.value = '';
    leave();
    agentId.value = agent;
    threadId.value = id;
    clear();
    promptVersion.value += 1;
    if (!id || !has('threads')) return;
    await reopen();
  }
  if (runId && threadId.value === id) inspect(runId);
}

/** Reads the shown thread again, and shows its run in progress. */
export async function reopen() {
  const id = threadId.value;
  await reload(id);
  if (live.value?.isOver && isStored(live.value.run)) live.value = undefined;
  attachRunning(id);
}

addEventListener('online', () => loadError.value && reopen());

/** Returns true if messages of a run are among those of the thread. */
const isStored = (run) => nodes.value.some(({ runId }) => runId === run.runId);

/** Returns the address of the shown chat with parameters. @param {Record<string, any>} query */
export const chatLink = (query) => `${href('chat', agentId.value, threadId.value)}?${new URLSearchParams(query)}`;

/** Shows the thread's run in progress, if it has one. */
async function attachRunning(id) {
  const running = thread.value?.activeRunId;
  if (!running || !has('runEvents') || threadId.value !== id || live.value) return;
  try {
    await attach(id, running);
  } catch (error) {
    if (threadId.value === id) loadError.value = error;
  }
}

/** Reads the run that waits again, and the thread if it goes on because of decisions elsewhere. */
export async function refreshWaiting() {
  const run = waitingRun.value;
  const id = threadId.value;
  if (!run || live.value) return;
  const { data } = await call('GET /api/runs/{id}', { params: { id: run.id } });
  if (threadId.value !== id || live.value) return;
  if (data.state === 'waiting') {
    if (JSON.stringify(data.approvals) !== JSON.stringify(run.approvals)) runs.value = new Map(runs.value).set(run.id, data);
    return;
  }
  status.value = 'the tool calls were decided elsewhere';
  await reload(id);
  await attachRunning(id);
}

/** Shows a run in progress, such as one that was running when the page was reloaded. */
async function attach(id, runId) {
  const begun = runs.value.get(runId) ?? (await call('GET /api/runs/{id}', { params: { id: runId } })).data;
  if (threadId.value !== id || live.value) return;
  const run = new RunState(runId);
  live.value = { run, parentId: begun.parentId };
  inspected.value = run;
  await follow(chatClient.value.attach(runId, { onBatch: (events) => run.add(events) }), { id, run, parentId: begun.parentId });
}

/** Reads the thread with all its branches. A thread that another one has replaced meanwhile is not shown. */
async function reload(id) {
  isLoading.value = true;
  try {
    const found = [];
    let data;
    let cursor;
    // An answer is shown without its figures if they cannot be read.
    const list = call('GET /api/runs', { query: { threadId: id, limit: 200 } }).catch(() => undefined);
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const query = { messages: 'tree', limit: 200, cursor };
      ({ data } = await call('GET /api/threads/{id}', { params: { id }, query }));
      found.push(...data.nodes);
      cursor = data.nextCursor;
      if (!cursor) break;
    }
    const ended = (await list)?.data.runs ?? [];
    if (threadId.value !== id) return;
    runs.value = new Map(ended.map((run) => [run.id, run]));
    thread.value = data;
    nodes.value = found;
    head.value = data.head;
    loadError.value = undefined;
  } catch (error) {
    if (threadId.value === id) loadError.value = error;
  } finally {
    // Another thread that is being loaded says itself when it is there.
    if (threadId.value === id) isLoading.value = false;
  }
}

/** Parses the text of a context editor; `undefined` if it is empty. Throws what is wrong with it. */
export function parseContext(name) {
  const text = context[name].value.trim();
  if (text === '') return undefined;
  let value;
  try {
    value = parseJson(text);
  } catch (cause) {
    throw new Error(`is not JSON: ${cause.message}`, { cause });
  }
  if (name === 'blocks' && !Array.isArray(value)) throw new Error('must be an array');
  return value;
}

/** Returns the error of a context editor's text, if it has one. */
export function contextError(name) {
  try {
    parseContext(name);
    return undefined;
  } catch (error) {
    return error.message;
  }
}

/** Fields that go with each message. Editors with an error send nothing. */
function contextFields() {
  const choice = context.toolChoice.value.trim();
  return {
    toolChoice: choice && !CHOICES.has(choice) ? { type: 'function', function: { name: choice } } : choice || undefined,
    timezone: context.timezone.value || undefined,
    todoListId: context.todoListId.value || undefined,
    pageContext: contextError('page') ? undefined : parseContext('page'),
    blocksContext: contextError('blocks') ? undefined : parseContext('blocks'),
  };
}

/** The request of a preview: what would be sent with the draft. */
export function previewRequest() {
  const content = withFiles(draft.value.trim());
  const message = content.length > 0 ? messageOf(content) : undefined;
  const request = { agentId: agentId.value, message, ...contextFields() };
  const spoken = path.value.filter(({ status, message }) => status !== 'deleted' && message.role !== 'reasoning');
  let messages = spoken.map(({ id, message }) => ({ ...message, id }));
  if (live.value?.content) messages.push({ role: 'user', content: live.value.content });
  // A conversation ends with a user's message; that of the latest turn stands for a draft that is not written yet.
  if (!message) while (messages.length > 0 && messages.at(-1).role !== 'user') messages.pop();
  if (thread.value) {
    const { id, openRunId, activeRunId } = thread.value;
    request.threadId = id;
    if (live.value) request.parentId = live.value.parentId ?? null;
    // The server has the history of a thread whose next run can begin.
    else if (!openRunId && !activeRunId) {
      messages = message ? [] : messages.slice(-1);
      request.parentId = messages[0]?.id;
    }
  }
  return messages.length > 0 ? { ...request, messages } : request;
}

/** Returns a content as the field `message`: a text, or a message with parts. */
const messageOf = (content) => (typeof content === 'string' ? content : { role: 'user', content });

/** Sends a message below the head, or below `parentId`. @param {string | object[]} content */
export function send(content, parentId) {
  const place = parentId === undefined ? head.value : parentId;
  const fields = { message: messageOf(content) };
  if (parentId !== undefined) fields.parentId = parentId;
  return start(fields, place, content);
}

/** Makes the answer to a user message again. */
export const regenerate = (node) => start({ parentId: node.id }, node.id);

/** Continues the run that waits, with a decision for each of its open calls: AG-UI's `resume`. */
export function resume(decisions) {
  dismiss();
  return start({ messages: [], resume: decisions }, head.value);
}

/** Sends the message that was not sent, and withdraws the open questions. */
export function withdrawAndSend() {
  const { fields, parentId, content } = heldMessage.value;
  dismiss();
  return start({ ...fields, onBusy: 'interrupt' }, parentId, content);
}

async function start(fields, parentId, content) {
  if (live.value) return;
  if (waitingRun.value && !fields.resume && !fields.onBusy) {
    heldMessage.value = { fields, parentId, content };
    return;
  }
  heldMessage.value = undefined;
  decisionError.value = undefined;
  const id = threadId.value ?? newId();
  const runId = newId();
  const run = new RunState(runId);
  live.value = { run, parentId, content, fields };
  inspected.value = run;
  status.value = 'answering';
  if (!threadId.value) {
    threadId.value = id;
    if (has('threads')) replaceRoute('chat', agentId.value, id);
  }
  const request = { agentId: agentId.value, runId, ...contextFields(), ...fields };
  if (isKept()) request.threadId = id;
  else Object.assign(request, withHistory(content, parentId));
  // Closing the page leaves the run; the stop button cancels it.
  if (has('runEvents')) request.onDisconnect = 'continue';
  await follow(chatClient.value.chat(request, { onBatch: (events) => run.add(events) }), { id, run, content, parentId, fields });
}

/** Waits for the end of a run. */
async function follow(started, { id, run, content, parentId, fields }) {
  current = started;
  // Tabs in the background leave the few connections of a browser to the others.
  const show = () => (document.hidden ? started.pause() : started.resume());
  document.addEventListener('visibilitychange', show);
  show();
  try {
    await started.result;
  } catch (error) {
    if (error.status === 401) endSession();
    // The events have it already if the run itself failed.
    if (run.status === 'running') run.fail(error instanceof AgentdError ? error : new AgentdError(String(error), { code: 'INTERNAL' }));
  }
  document.removeEventListener('visibilitychange', show);
  if (current === started) current = undefined;
  status.value = run.interrupts ? 'tool calls wait for your decision' : run.status === 'finished' ? 'answer complete' : `answer ${run.status}`;
  if (isStale(run, fields)) await reloadStale(id, run, { fields, parentId, content });
  else await finish(id, run, content, parentId);
}

/** Returns true if a request was refused because of decisions that are missing, or were made elsewhere. */
function isStale({ acceptedAt, error }, fields) {
  const isRefused = acceptedAt === undefined && error?.status >= 400 && error.status < 500;
  return isRefused && Boolean(fields?.resume || error.code === 'INTERRUPTS_OPEN');
}

/** Shows the thread as it is now, after a refusal that says it has changed. A message is held, not lost. */
async function reloadStale(id, run, held) {
  if (threadId.value !== id || live.value?.run !== run) return;
  await reload(id);
  if (live.value?.run !== run) return;
  live.value = undefined;
  if (held.fields.resume) decisionError.value = run.error;
  else heldMessage.value = held;
  promptVersion.value += 1;
  await attachRunning(id);
}

/** Replaces the drawn events of a run by the stored ones. */
async function finish(id, run, content, parentId) {
  if (threadId.value !== id || live.value?.run !== run) return;
  if (isKept() && run.acceptedAt !== undefined) {
    await reload(id);
    threadsVersion.value += 1;
    if (live.value?.run !== run) return;
    // The agent's role may say that nothing is kept.
    isLocal.value = run.status !== 'failed' && !thread.value && loadError.value?.status === 404;
    if (isLocal.value) loadError.value = undefined;
  }
  if (!isKept()) keepLocally(run, content, parentId);
  // A run of which nothing is stored, or which cannot be read, stays as it is.
  if (isStored(run) || (run.status === 'finished' && !loadError.value)) live.value = undefined;
  else live.value = { ...live.value, isOver: true };
  promptVersion.value += 1;
}

/** Puts a run's messages into the page's own tree, for servers that keep none. */
function keepLocally(run, content, parentId) {
  const added = [];
  let parent = parentId;
  const add = (message, id = newId()) => {
    const node = { id, parentId: parent, turnId: run.runId, runId: run.runId, status: 'complete', message };
    added.push(node);
    parent = node.id;
  };
  if (content) add({ role: 'user', content });
  for (const part of run.parts) {
    if (part.kind === 'text') add({ role: 'assistant', content: part.text }, part.id);
  }
  nodes.value = [...nodes.value, ...added];
  head.value = parent;
}

function withHistory(content, parentId) {
  const messages = pathTo(parentId).map(({ message }) => message);
  return content ? { messages, message: messageOf(content), parentId: undefined } : { messages, parentId: undefined };
}

/** Removes a failed run from the view. The text of a message that the server has not taken is not lost. */
export function dismiss() {
  const { run, content, isOver } = live.value ?? {};
  if (!isOver) return;
  if (run.acceptedAt === undefined) draft.value ||= textOf(content);
  live.value = undefined;
}

/** Sends what has failed again. If the answer to the request was lost, its run may have started, and is shown instead. */
export async function retry() {
  const { run, content, parentId, fields } = live.value;
  const params = { id: run.runId };
  const isLost = has('runEvents') && !run.error.status;
  const status = isLost ? await call('GET /api/runs/{id}', { params }).then(() => 200, (error) => error.status) : 404;
  if (live.value?.run !== run || ![200, 404].includes(status)) return;
  live.value = undefined;
  await (status === 404 ? start(fields, parentId, content) : reopen());
}

/** Stops the run in progress. */
export function stop() {
  current?.cancel();
}

/** Selects the branch of a node. */
export async function select(node) {
  const id = threadId.value;
  if (!isKept()) {
    let leaf = node;
    while (children.value.has(leaf.id)) leaf = children.value.get(leaf.id).at(-1);
    head.value = leaf.id;
    return;
  }
  try {
    await call('PATCH /api/threads/{id}', { params: { id }, body: { head: node.id } });
  } catch (error) {
    if (threadId.value === id) loadError.value = error;
    return;
  }
  // The user may have gone on to another thread, or have sent a message.
  if (threadId.value !== id || live.value) return;
  await reload(id);
  promptVersion.value += 1;
}

/**
 * Rates a message, or removes its rating.
 *
 * @param {{id: string}} node
 * @param {{rating: string, comment?: string, share?: boolean} | undefined} feedback
 */
export async function rate(node, feedback) {
  const params = { id: threadId.value, node: node.id };
  const route = '/api/threads/{id}/messages/{node}/feedback';
  const given = feedback ? (await call(`PUT ${route}`, { params, body: feedback })).data : undefined;
  if (!feedback) await call(`DELETE ${route}`, { params });
  nodes.value = nodes.value.map((one) => (one.id === node.id ? { ...one, feedback: given } : one));
  status.value = feedback ? 'rated' : 'rating removed';
}

/** Leaves the run in progress, which continues if the server supports attaching to it. */
function leave() {
  if (has('runEvents')) current?.detach();
  else current?.cancel();
}

/** Shows a run in the debug layer: a run of this page, or a run whose events the server has stored. */
export async function inspect(runId) {
  const kept = keptRun(runId);
  if (kept) {
    inspected.value = kept;
    return;
  }
  const run = new RunState(runId, { isReplay: true });
  inspected.value = run;
  try {
    await chatClient.value.attach(runId, { wait: false, onBatch: (events) => run.add(events) }).result;
  } catch (error) {
    if (run.status === 'running') run.fail(error);
  }
}

/** Grows when the list of threads changes. */
export const threadsVersion = signal(0);
