// The chat entry without a client library: every event is one of AG-UI 1.0, whatever carries it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agents, assertEvent, assertOneEnd, assertProblem, authorization, chatUrl, text } from './setting.js';

function ask(url, headers) {
  return fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...authorization, ...headers },
    body: JSON.stringify({ message: 'Hello' }),
  });
}

const framings = {
  'application/x-ndjson': (body) => {
    assert.ok(body.endsWith('\n'));
    return body.trimEnd().split('\n').map(JSON.parse);
  },
  'text/event-stream': (body) => {
    assert.ok(body.endsWith('\n\n'));
    return body.trimEnd().split('\n\n').map((frame, number) => {
      const lines = frame.split('\n');
      assert.equal(lines.length, 2);
      assert.equal(lines[0], `id: ${number}`);
      assert.ok(lines[1].startsWith('data: '));
      return JSON.parse(lines[1].slice('data: '.length));
    });
  },
};

for (const [type, parse] of Object.entries(framings)) {
  for (const behaviour of ['text', 'tools', 'error']) {
    test(`${behaviour} as ${type}`, async () => {
      const response = await ask(chatUrl(agents[behaviour]), { Accept: type });
      assert.equal(response.status, 200);
      assert.equal(response.headers.get('content-type'), type);
      assert.equal(response.headers.get('x-accel-buffering'), 'no');
      const events = parse(await response.text());
      events.forEach(assertEvent);
      assertOneEnd(events);
      assert.equal(events.at(-1).type, behaviour === 'error' ? 'RUN_ERROR' : 'RUN_FINISHED');
    });
  }
}

test('the default of many clients gets the stream', async () => {
  const response = await ask(chatUrl(agents.text), { Accept: 'application/json, text/plain, */*' });
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  await response.text();
});

test('one object for those who ask for it alone', async () => {
  const response = await ask(chatUrl(agents.text), { Accept: 'application/json' });
  assert.equal(response.headers.get('content-type'), 'application/json');
  const { output, toolCalls, finishReason, usage } = await response.json();
  assert.deepEqual({ output, toolCalls, finishReason }, { output: text, toolCalls: [], finishReason: 'stop' });
  assert.deepEqual([usage[0].inputTokens, usage[0].outputTokens], [7, 4]);
});

test('one object holds the calls and their results', async () => {
  const response = await ask(chatUrl(agents.tools, { format: 'json' }), {});
  const { output, toolCalls } = await response.json();
  assert.equal(output, 'Let me look.\n\nI have looked.');
  assert.equal(toolCalls.length, 1);
  assert.deepEqual(toolCalls[0].function, { name: 'readTodos', arguments: '{}' });
  assert.equal(typeof toolCalls[0].result, 'string');
  assert.equal(toolCalls[0].isError, undefined);
});

test('a failed run that is asked for as one object is a problem', async () => {
  const response = await ask(chatUrl(agents.error, { format: 'json' }), {});
  assert.equal(response.status, 502);
  assertProblem(await response.text(), 502, 'BACKEND_FAILED');
});

test('a framing that there is not', async () => {
  const accept = await ask(chatUrl(agents.text), { Accept: 'text/html' });
  assert.equal(accept.status, 406);
  assertProblem(await accept.text(), 406, 'NOT_ACCEPTABLE');
  const format = await ask(chatUrl(agents.text, { format: 'xml' }), {});
  assert.equal(format.status, 400);
  assertProblem(await format.text(), 400, 'INVALID_REQUEST');
});
