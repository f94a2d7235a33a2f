// Environment of the tests. They drive a running application; the program that starts it sets:
//
//   BASE_URL            the application's address
//   TOKEN               a session token whose company owns the agents
//   VENDOR_CONTROL_URL  the fake vendor's control address, see below
//   TODO_LIST           the id of a todo list of the token's user
//   AGENTD_URL, AGENTD_TOKEN
//                       the same address and token, by the names that the recipes in examples/clients read. Their
//                       agent is `guide`, which answers as `tools` does, and their todo list `garden`
//   WIDGET_TOKEN_GUIDE, WIDGET_TOKEN_ERROR
//                       widget tokens of the agents `guide` and `error` for the origin http://shop.example
//   API_TOKEN, LIMITED_API_TOKEN
//                       API tokens of the agents `guide`, `text`, `tools`, `error`, `slow` and `paint`; and of `text`, with
//                       twenty runs a minute
//   ORDER_LIST          the id of another list of that user, with one todo, `Water the basil`; by default `orders`
//   AGENT_TEXT, AGENT_TOOLS, AGENT_ERROR, AGENT_SLOW, AGENT_PAINT, AGENT_ORDER, AGENT_GUARDED
//                       the agents' ids; by default `text`, `tools`, `error`, `slow`, `paint`, `order`, `guarded`. The
//                       last one answers as `tools` does, and the calls of the last two need the user's approval
//
// The vendor answers POST …/chat/completions as a Chat Completions stream and tells the agents apart
// by the request's `model`, which is the agent's id. Every chunk has `choices[0].index` 0 and ends
// with `data: [DONE]` unless said otherwise.
//
//   text    deltas of content "Hello", " from", " the ", "model."; `finish_reason` "stop"; then a chunk
//           with empty `choices` and `usage` {"prompt_tokens":7,"completion_tokens":4,"total_tokens":11}
//   tools   while no message has the role "tool": delta of content "Let me look."; a call of index 0,
//           id "call_1", function `readTodos`, whose arguments come as "{" and "}"; `finish_reason`
//           "tool_calls". Once one has: deltas of content "I have", " looked."; "stop". The agent may
//           call `readTodos`, and the call must succeed.
//   error   a delta of content "Half an"; then `data: {"error":{"message":"vendor-detail"}}`, and
//           the end of the stream with neither `finish_reason` nor [DONE]
//   paint   while no message has the role "tool": a call of index 0, id "call_1", function `paint`, whose
//           arguments are {"color":"red"}; `finish_reason` "tool_calls". Once one has: deltas of content
//           "It is", " red."; "stop". The tool is the client's
//   order   while no message has the role "tool": a call of index 0, id "call_1", function `createTodo`, whose
//           arguments are {"title":"Milk"}; `finish_reason` "tool_calls". Once one has: deltas of content
//           "It is", " ordered."; "stop". The agent may call `createTodo`
//   slow    a delta of content "tick " every 20 ms until the connection is closed
//
// GET VENDOR_CONTROL_URL?mark=… answers {"state":"none"|"open"|"dropped"} for the latest `slow` request
// whose body holds the mark: there was none, it is being answered, or the other side has closed it.

import assert from 'node:assert/strict';
import { EventSchema, EventSchemas } from '@ag-ui/core/schemas';
import { until } from './wait.js';

function required(name) {
  const value = process.env[name];
  assert.ok(value, `the environment must set ${name}`);
  return value;
}

export const token = required('TOKEN');
export const agents = {
  text: process.env.AGENT_TEXT ?? 'text',
  tools: process.env.AGENT_TOOLS ?? 'tools',
  error: process.env.AGENT_ERROR ?? 'error',
  slow: process.env.AGENT_SLOW ?? 'slow',
  paint: process.env.AGENT_PAINT ?? 'paint',
  order: process.env.AGENT_ORDER ?? 'order',
  guarded: process.env.AGENT_GUARDED ?? 'guarded',
};
export const authorization = { Authorization: `Bearer ${token}` };
export const text = 'Hello from the model.';

export const agentdUrl = required('AGENTD_URL');
export const widgetTokens = { guide: required('WIDGET_TOKEN_GUIDE'), error: required('WIDGET_TOKEN_ERROR') };

const base = required('BASE_URL');
const control = required('VENDOR_CONTROL_URL');
export const todoListId = required('TODO_LIST');
export const orderListId = process.env.ORDER_LIST ?? 'orders';

/** The chat entry for an agent. */
export function chatUrl(agentId, parameters = {}) {
  const url = new URL('/api/agent/chat', base);
  url.search = new URLSearchParams({ agentId, todoListId, ...parameters }).toString();
  return url.href;
}

/** The address at which a thread's run is resumed. */
export function resumeUrl(id) {
  return new URL(`/api/agent/chat/${encodeURIComponent(id)}/stream`, base).href;
}

/** Cancels the run of a thread. */
export async function cancelThread(id) {
  const url = new URL(`/api/threads/${encodeURIComponent(id)}/cancel`, base);
  const answer = await fetch(url, { method: 'POST', headers: authorization });
  assert.equal(answer.status, 200);
}

/** A tool that the client has, as AG-UI describes it. */
export const paintTool = {
  name: 'paint',
  description: 'Paints the page.',
  parameters: { type: 'object', properties: { color: { type: 'string' } }, required: ['color'] },
};

/** Gives role and text of the messages on a thread's path, and the number of all its messages. */
export async function storedThread(id) {
  const answer = await fetch(new URL(`/api/threads/${encodeURIComponent(id)}?messages=path`, base), { headers: authorization });
  assert.equal(answer.status, 200);
  const { nodes, messageCount } = await answer.json();
  return { path: nodes.map(({ message }) => [message.role, message.content]), messageCount };
}

/** Fails unless `event` is one of AG-UI 1.0, by both names that its schema goes by. */
export function assertEvent(event) {
  for (const schema of [EventSchema, EventSchemas]) {
    const { success, error } = schema.safeParse(event);
    assert.ok(success, `${JSON.stringify(event)} is no event: ${error?.message}`);
  }
}

/** Fails unless one terminal event ends the events, and only it. */
export function assertOneEnd(events) {
  const ends = events.map(({ type }) => ['RUN_FINISHED', 'RUN_ERROR'].includes(type));
  assert.equal(events[0]?.type, 'RUN_STARTED');
  assert.equal(ends.indexOf(true), events.length - 1, 'the terminal event is the last and the only one');
}

/** Fails unless `text` is a problem body of that status and code. */
export function assertProblem(body, status, code) {
  const problem = typeof body === 'string' ? JSON.parse(body) : body;
  assert.equal(problem.status, status);
  assert.equal(problem.code, code);
  for (const member of ['type', 'title', 'detail', 'requestId']) {
    assert.equal(typeof problem[member], 'string', `a problem has ${member}`);
  }
}

/** A message that the vendor can tell from all others. */
export const mark = () => `mark-${crypto.randomUUID()}`;

async function vendorState(mark) {
  const url = new URL(control);
  url.searchParams.set('mark', mark);
  const response = await fetch(url);
  assert.equal(response.status, 200);
  return (await response.json()).state;
}

/** Fails unless the model is answering the message. */
export async function assertOpen(mark) {
  assert.equal(await vendorState(mark), 'open');
}

/** Fails unless the vendor sees that its answer, which would never end, is dropped. */
export async function assertDropped(mark) {
  const state = await until(async () => {
    const state = await vendorState(mark);
    return state !== 'open' && state;
  });
  assert.equal(state, 'dropped');
}
