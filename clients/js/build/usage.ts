// What the types of the client accept and refuse. It is compiled and never run.

import { createAgent, resumeWith } from '../types/ag-ui.js';
import { AgentdError, createClient } from '../types/index.js';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const isTrue = <_ extends true>() => {};

const client = createClient({ baseUrl: 'http://127.0.0.1:3000', token: async () => 'ags_…' });

async function routes(signal: AbortSignal) {
  const agent = await client.api('GET /api/agents/{id}', { params: { id: 'guide' }, signal });
  const name: string | null | undefined = agent.name;
  const agents = await client.api('GET /api/agents', { query: { limit: 10, cursor: undefined } });
  const first: string | undefined = agents.agents[0]?.id;
  await client.api('GET /api/agents');
  const { data, etag, status } = await client.request('PUT /api/documents/{id}', {
    params: { id: 'hours' }, body: { title: 'Hours', text: 'Nine to five.' }, ifMatch: '"1"',
  });
  const nothing = await client.api('DELETE /api/threads/{id}', { params: { id: 't' } });
  isTrue<Equal<typeof nothing, undefined>>();
  isTrue<Equal<typeof status, number>>();

  // @ts-expect-error: no such route
  await client.api('GET /api/agent/{id}', { params: { id: 'guide' } });
  // @ts-expect-error: the method is another one
  await client.api('PATCH /api/agents/{id}', { params: { id: 'guide' } });
  // @ts-expect-error: the parameter is missing
  await client.api('GET /api/agents/{id}');
  // @ts-expect-error: the parameter has another name
  await client.api('GET /api/agents/{id}', { params: { agent: 'guide' } });
  // @ts-expect-error: no such parameter of the query
  await client.api('GET /api/agents', { query: { page: 2 } });
  // @ts-expect-error: the body is missing
  await client.api('POST /api/approvals/{id}', { params: { id: 'a' } });
  // @ts-expect-error: no such member
  agent.nickname;
  return [name, first, data.title, etag];
}

async function runs() {
  const run = client.chat({ agentId: 'guide', message: 'Hello' }, { onEvent: ({ type }) => type.length });
  for await (const event of run) {
    const type: string = event.type;
    if (type === 'RUN_ERROR') return undefined;
  }
  const { usage, toolCalls, finishReason, object } = await run.result;
  isTrue<Equal<typeof object, unknown>>();
  const layer = await client.debugTurn({ agentId: 'guide', message: 'Hello' });
  isTrue<Equal<keyof typeof layer, 'blocksContext' | 'pageContext' | 'combinedContext' | 'tools' | 'systemPromptParts'>>();
  // @ts-expect-error: a client has no such option
  createClient({ secret: 'x' });
  return [usage[0]?.inputTokens, toolCalls[0]?.arguments, finishReason, await run.text];
}

function errors(error: unknown) {
  return error instanceof AgentdError ? [error.code, error.status, error.retryAfter, error.requestId] : [];
}

export { errors, routes, runs };

/** Stands for `HttpAgent` of `@ag-ui/client`. */
declare class HttpAgent {
  constructor(config: { url: string; threadId?: string });
  threadId: string;
  runAgent(parameters: { resume?: { interruptId: string; status: 'resolved' | 'cancelled'; payload?: unknown }[] }): Promise<void>;
}

async function agents() {
  const agent = createAgent(HttpAgent, { baseUrl: 'http://127.0.0.1:3000', token: () => 'ags_…', agentId: 'guide', threadId: 't' });
  isTrue<Equal<typeof agent, HttpAgent>>();
  await agent.runAgent({ resume: resumeWith([{ id: 'i' }], ({ id }) => (id === 'i' ? { approved: true } : undefined)) });

  // @ts-expect-error: no such method
  agent.chat('Hello');
  // @ts-expect-error: the token is no number
  createAgent(HttpAgent, { token: 5 });
  // @ts-expect-error: no decision
  resumeWith([{ id: 'i' }], () => 'yes');
}

void agents;
