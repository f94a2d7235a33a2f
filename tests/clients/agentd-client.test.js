// The package's own client reads what AG-UI's client reads: the same bytes of real runs, event by event and message by message.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { HttpAgent } from '@ag-ui/client';
import { createClient } from '../../clients/js/src/index.js';
import { agents, authorization, chatUrl, paintTool } from './setting.js';

/** Number of runs. */
const RUNS = 200;

/** The request of a run, by its number. */
const KINDS = [
  { agent: agents.text }, { agent: agents.tools }, { agent: agents.error }, { agent: agents.paint, tools: [paintTool] }, { agent: agents.guarded },
];

let server, address;
/** Bodies of the runs as the application sent them, by number. */
const recorded = new Map();

/** Passes a run on from the application and records it; sends a recorded run again as lines of JSON. */
async function serve(request, response) {
  let body = '';
  for await (const piece of request) body += piece;
  const number = Number(/\d+/.exec(request.url)[0]);
  if (request.url.startsWith('/record/')) {
    const answer = await fetch(chatUrl(KINDS[number % KINDS.length].agent), { method: 'POST', headers: { ...authorization, 'Content-Type': 'application/json', Accept: 'text/event-stream' }, body });
    recorded.set(number, await answer.text());
    response.writeHead(answer.status, { 'Content-Type': answer.headers.get('content-type') }).end(recorded.get(number));
    return;
  }
  const events = recorded.get(number).split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice('data: '.length));
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).end(events.map((event) => `${event}\n`).join(''));
}

before(async () => {
  server = createServer(serve).listen(0, '127.0.0.1');
  await once(server, 'listening');
  address = `http://127.0.0.1:${server.address().port}`;
});
after(() => server.close());

/** Runs an agent by AG-UI's client: its events, and the messages that it has built from them. */
async function runByAgUi(number) {
  const agent = new HttpAgent({ url: `${address}/record/${number}`, initialMessages: [{ id: 'u1', role: 'user', content: `Hello ${number}` }] });
  const events = [];
  const { newMessages = [] } = await agent.runAgent({ tools: KINDS[number % KINDS.length].tools }, { onEvent: ({ event }) => void events.push(event) }).catch(() => ({}));
  return { events, messages: newMessages };
}

/** Reads the same run by the package's client. */
async function readByOwn(number) {
  const events = [];
  const run = createClient({ baseUrl: `${address}/replay/${number}/` }).chat({ agentId: 'a', message: 'x' }, { onEvent: (event) => void events.push(event) });
  const result = await run.result.catch((error) => ({ error }));
  return { events, result };
}

/** Removes members that are absent. */
const plain = (value) => JSON.parse(JSON.stringify(value));

test(`${RUNS} runs are read alike`, async () => {
  let count = 0;
  for (let number = 0; number < RUNS; number += 1) {
    const [theirs, own] = [await runByAgUi(number), await readByOwn(number)];
    assert.ok(own.events.length >= 3, `run ${number}: ${recorded.get(number)}`);
    assert.deepEqual(own.events.map(({ type }) => type), theirs.events.map(({ type }) => type), `run ${number}`);
    for (const [place, event] of own.events.entries()) {
      const other = plain(theirs.events[place]);
      for (const name of ['messageId', 'toolCallId', 'toolCallName', 'delta', 'content', 'code', 'message', 'threadId', 'runId', 'name', 'value', 'result', 'usage', 'outcome']) {
        assert.deepEqual(event[name], other[name], `run ${number}, event ${place}: ${name} of ${event.type}`);
      }
    }
    count += own.events.length;
    if (own.result.error) {
      assert.equal(own.result.error.code, theirs.events.at(-1).code);
      continue;
    }
    const said = theirs.messages.filter(({ role, content }) => role === 'assistant' && content).map(({ content }) => content);
    assert.equal(own.result.text, said.join('\n\n'), `run ${number}`);
    const calls = theirs.messages.flatMap(({ toolCalls }) => toolCalls ?? []);
    assert.deepEqual(own.result.toolCalls.map(({ id, name, arguments: text }) => [id, name, text]), calls.map(({ id, function: { name, arguments: text } }) => [id, name, text]));
    const results = new Map(theirs.messages.filter(({ role }) => role === 'tool').map(({ toolCallId, content }) => [toolCallId, content]));
    for (const { id, result } of own.result.toolCalls) assert.equal(result, results.get(id));
  }
  assert.ok(count >= RUNS * 4, `${count} events`);
});
