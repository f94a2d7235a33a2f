import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { readRun } from '../src/follow.js';
import { AgentdError, LineSplitter, createClient, readEventBatches } from '../src/index.js';

const EVENTS = [
  { type: 'RUN_STARTED', threadId: 't', runId: 'r' },
  { type: 'TEXT_MESSAGE_START', messageId: 'm1', role: 'assistant' },
  { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta: 'Grüße — 🌱' },
  { type: 'TEXT_MESSAGE_END', messageId: 'm1' },
  { type: 'TOOL_CALL_START', toolCallId: 'c', toolCallName: 'readTodos' },
  { type: 'TOOL_CALL_ARGS', toolCallId: 'c', delta: '{"a":' },
  { type: 'TOOL_CALL_ARGS', toolCallId: 'c', delta: '1}' },
  { type: 'TOOL_CALL_RESULT', toolCallId: 'c', content: 'none', metadata: { isError: true } },
  { type: 'TEXT_MESSAGE_START', messageId: 'm2', role: 'assistant' },
  { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm2', delta: 'Done.' },
  { type: 'TEXT_MESSAGE_END', messageId: 'm2' },
  { type: 'RUN_FINISHED', threadId: 't', runId: 'r', result: { finishReason: 'stop' }, usage: [{ inputTokens: 3 }] },
];
const lines = (events, end = '\n') => events.map((event) => JSON.stringify(event) + end).join('');
const DEBUG_MEMBERS = ['blocksContext', 'combinedContext', 'pageContext', 'systemPromptParts', 'tools'];

/** Responders, by the message of a chat request. */
const responders = {
  whole: (response) => stream(response, lines(EVENTS)),
  cut: (response) => stream(response, lines(EVENTS.slice(0, 3))),
  error: (response) =>
    stream(response, lines([...EVENTS.slice(0, 3), { type: 'RUN_ERROR', code: 'BACKEND_FAILED', message: 'it broke' }])),
  garbage: (response) => stream(response, 'no event\n'),
  html: (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<p>A proxy.</p>'),
  busy: (response) =>
    response
      .writeHead(429, { 'content-type': 'application/problem+json', 'retry-after': '7', 'x-request-id': 'q' })
      .end('{"code":"RATE_LIMITED","detail":"slower","status":429}'),
  gateway: (response) => response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>502</h1>'),
  wait: (response) => {
    const cancelled = [EVENTS[0], { type: 'RUN_FINISHED', threadId: 't', runId: 'own', outcome: { type: 'cancelled' } }];
    asked(() => stream(response, lines(cancelled)));
  },
  open: (response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.write(lines(EVENTS.slice(0, 3)));
    response.on('close', () => closed());
  },
};

let server, baseUrl, closed, asked;
/** Number of requests for events to which a proxy without a server responds. */
let gatewayErrors = 0;
/** Event in place of the third one, which the previous server process did not store. */
let replacementEvent;
const requests = [];

function stream(response, text) {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' }).end(text);
}

before(async () => {
  server = createServer(async (request, response) => {
    let text = '';
    for await (const piece of request) text += piece;
    const body = text === '' ? undefined : JSON.parse(text);
    requests.push({ method: request.method, url: request.url, headers: request.headers, body });
    if (request.url.endsWith('/previewPrompt')) {
      const preview = { finalSystemPrompt: 'x', combinedContext: 'now', tools: [], systemPromptParts: [{ id: 'p' }], payload: {} };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ ...preview, pageContext: 'page' }));
    } else if (request.method === 'DELETE' || request.url.endsWith('/cancel')) {
      response.writeHead(204).end();
    } else if (request.url.includes('/events') && gatewayErrors > 0) {
      gatewayErrors -= 1;
      responders.gateway(response);
    } else if (request.url.includes('/events') && replacementEvent) {
      if (request.url.endsWith('after=2')) response.writeHead(204).end();
      else stream(response, lines([replacementEvent]));
    } else if (request.url.includes('/events')) {
      const after = Number(new URL(request.url, baseUrl).searchParams.get('after') ?? -1);
      // The connection is lost once more before the end.
      stream(response, lines(EVENTS.slice(after + 1, after === 2 ? 6 : undefined)));
    } else if (request.url.includes('/api/agents')) {
      response.writeHead(200, { 'content-type': 'application/json', etag: '"7"' }).end('{"id":"a"}');
    } else {
      responders[body.message](response);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  baseUrl = `http://127.0.0.1:${server.address().port}/base`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

const chat = (message, options, clientOptions = {}) =>
  createClient({ baseUrl, token: 'secret', ...clientOptions }).chat({ agentId: 'a', message }, options);

async function failure(promise) {
  const error = await promise.then(() => assert.fail('it succeeds'), (error) => error);
  assert.ok(error instanceof AgentdError, String(error));
  return error;
}

test('a run has its events, its text and its result', async () => {
  const received = [];
  const run = chat('whole', { onEvent: (event) => received.push(event) });
  const read = [];
  for await (const event of run) read.push(event);
  assert.deepEqual(read, EVENTS);
  assert.deepEqual(received, EVENTS);
  assert.equal(await run.text, 'Grüße — 🌱\n\nDone.');
  assert.deepEqual(await run.result, {
    threadId: 't', runId: 'r', text: 'Grüße — 🌱\n\nDone.', isCancelled: false, finishReason: 'stop',
    toolCalls: [{ id: 'c', name: 'readTodos', arguments: '{"a":1}', result: 'none', isError: true }],
    usage: [{ inputTokens: 3 }],
  });
  const reread = [];
  for await (const event of run) reread.push(event);
  assert.deepEqual(reread, EVENTS, 'a later reader gets all of them');
  const { headers, url } = requests.at(-1);
  assert.equal(url, '/base/api/agent/chat');
  assert.equal(headers.authorization, 'Bearer secret');
});

test('the object of an answer in JSON is in the result', async () => {
  const object = { item: 'pear', count: 3 };
  const events = EVENTS.map((event) => (event.type === 'RUN_FINISHED' ? { ...event, result: { finishReason: 'stop', object } } : event));
  responders.object = (response) => stream(response, lines(events));
  assert.deepEqual((await chat('object').result).object, object);
  assert.equal('object' in (await chat('whole').result), false);
});

test('a stream in pieces of any size has the same events', async () => {
  for (const text of [lines(EVENTS), lines(EVENTS, '\r\n'), `\n\n${lines(EVENTS)}`, lines(EVENTS).trimEnd()]) {
    const bytes = new TextEncoder().encode(text);
    for (const size of [1, 2, 3, 7, 64, bytes.length]) {
      let sent = 0;
      const body = new ReadableStream({
        pull(controller) {
          if (sent >= bytes.length) return controller.close();
          controller.enqueue(bytes.slice(sent, (sent += size)));
        },
      });
      const read = [];
      for await (const batch of readEventBatches(body)) read.push(...batch);
      assert.deepEqual(read, EVENTS, `in pieces of ${size}`);
    }
  }
});

/** Returns a body of the pieces. */
function bodyOf(...pieces) {
  return new ReadableStream({
    pull(controller) {
      const piece = pieces.shift();
      if (piece === undefined) controller.close();
      else controller.enqueue(piece);
    },
  });
}

test('a stream cut at any byte has only whole events', async () => {
  // Cuts fall between CR and LF, and within characters of two, three and four bytes.
  const bytes = new TextEncoder().encode(lines(EVENTS, '\r\n'));
  const ends = EVENTS.map((_, index) => new TextEncoder().encode(lines(EVENTS.slice(0, index + 1), '\r\n')).length - 2);
  const terminal = ends.at(-1);
  for (let cut = 0; cut < terminal; cut += 1) {
    const whole = [];
    for await (const batch of readEventBatches(bodyOf(bytes.slice(0, cut), bytes.slice(cut)))) whole.push(...batch);
    assert.deepEqual(whole, EVENTS, `in two pieces at ${cut}`);

    const read = [];
    const error = await failure((async () => {
      for await (const batch of readEventBatches(bodyOf(bytes.slice(0, cut)))) read.push(...batch);
    })());
    // The rest of a line is an event only if all of it has arrived.
    assert.deepEqual(read, EVENTS.slice(0, ends.filter((end) => end <= cut).length), `lost at ${cut}`);
    assert.equal(error.code, 'STREAM_TRUNCATED', `lost at ${cut}`);
  }
});

test('a __proto__ key changes no prototype', async () => {
  const line = '{"type":"RUN_FINISHED","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"result":{"__proto__":{"polluted":true}}}\n';
  const read = [];
  for await (const batch of readEventBatches(new Response(line).body)) read.push(...batch);
  assert.equal(read.length, 1);
  assert.equal({}.polluted, undefined);
  assert.equal(Object.getPrototypeOf(read[0]), Object.prototype);
});

test('events after the terminal one are not read', async () => {
  const text = lines([...EVENTS, { type: 'TEXT_MESSAGE_CONTENT', delta: 'late' }]);
  const read = [];
  for await (const batch of readEventBatches(new Response(text).body)) read.push(...batch);
  assert.deepEqual(read, EVENTS);
});

test('a line has a maximum length', () => {
  const splitter = new LineSplitter();
  const piece = 'x'.repeat(16 * 1024 * 1024);
  splitter.push(piece);
  splitter.push(piece);
  assert.throws(() => splitter.push('x'), { code: 'INVALID_RESPONSE' });
});

test('errors have a code', async () => {
  for (const [message, expected] of [
    ['cut', { code: 'STREAM_TRUNCATED' }],
    ['error', { code: 'BACKEND_FAILED', message: 'it broke' }],
    ['garbage', { code: 'INVALID_RESPONSE' }],
    ['html', { code: 'INVALID_RESPONSE', status: 200 }],
    ['busy', { code: 'RATE_LIMITED', status: 429, retryAfter: 7, requestId: 'q', message: 'slower' }],
    ['gateway', { code: 'INVALID_RESPONSE', status: 502 }],
  ]) {
    const error = await failure(chat(message).result);
    for (const [name, value] of Object.entries(expected)) assert.equal(error[name], value, `${name} of ${message}`);
  }
  const unreachable = createClient({ baseUrl: 'http://127.0.0.1:9/', token: 'x' });
  assert.equal((await failure(unreachable.api('GET /api/agents'))).code, 'NETWORK');
});

test('an iterator throws the error of the connection, and not that of the run', async () => {
  const run = chat('error');
  let last;
  for await (const event of run) last = event;
  assert.equal(last.type, 'RUN_ERROR');
  const cut = chat('cut');
  await assert.rejects(async () => {
    for await (const event of cut) last = event;
  }, { code: 'STREAM_TRUNCATED' });
  assert.equal(last.delta, 'Grüße — 🌱');
});

test('a run is cancelled by closing its connection', async () => {
  for (const stop of [(run) => run.cancel(), (_, abort) => abort.abort()]) {
    const isClosed = new Promise((resolve) => (closed = resolve));
    const abort = new AbortController();
    const run = chat('open', { signal: abort.signal });
    for await (const event of run) {
      if (event.type === 'TEXT_MESSAGE_CONTENT') break;
    }
    assert.equal(run.currentText, 'Grüße — 🌱');
    await stop(run, abort);
    const error = await failure(run.result);
    assert.ok(error.isAborted);
    await isClosed;
  }
});

test('a signal that outlives its runs keeps none of them', async () => {
  const { signal } = new AbortController();
  for (const message of ['whole', 'error']) {
    const run = chat(message, { signal });
    assert.equal(getEventListeners(signal, 'abort').length, 1);
    await run.result.catch(() => {});
    assert.equal(getEventListeners(signal, 'abort').length, 0, message);
  }
});

test('a run is cancelled by the route if cancelRoute is set', async () => {
  const isClosed = new Promise((resolve) => (closed = resolve));
  const abort = new AbortController();
  const run = chat('open', { signal: abort.signal }, { cancelRoute: true });
  for await (const event of run) {
    if (event.type === 'TEXT_MESSAGE_CONTENT') break;
  }
  await run.cancel();
  assert.equal(requests.at(-1).url, '/base/api/runs/r/cancel');
  abort.abort();
  await failure(run.result);
  await isClosed;
});

test('a run that has not started is cancelled by the route, under the id of its request', async () => {
  const isAsked = new Promise((resolve) => (asked = resolve));
  const run = createClient({ baseUrl, token: 't', cancelRoute: true }).chat({ agentId: 'a', message: 'wait', runId: 'own' });
  assert.equal(run.runId, 'own');
  const end = await isAsked;
  await run.cancel();
  assert.equal(requests.at(-1).url, '/base/api/runs/own/cancel');
  // The server answers with the end of the run.
  end();
  assert.ok((await run.result).isCancelled);
});

test('a run continues over another connection when one is lost', async () => {
  const run = chat('cut', {}, { reattach: true });
  const read = [];
  for await (const event of run) read.push(event);
  assert.deepEqual(read, EVENTS);
  assert.equal((await run.result).finishReason, 'stop');
  const urls = requests.slice(-2).map(({ url }) => url);
  assert.deepEqual(urls, ['/base/api/runs/r/events?after=2', '/base/api/runs/r/events?after=5']);
});

test('a silent connection of a run is replaced', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval', 'Date'] });
  let isClosed = new Promise((resolve) => (closed = resolve));
  const run = chat('open', {}, { reattach: true });
  for await (const event of run) {
    if (event.type === 'TEXT_MESSAGE_CONTENT') break;
  }
  const requestCount = requests.length;
  t.mock.timers.tick(19_000);
  assert.equal(requests.length, requestCount, 'a model may think for a while');
  t.mock.timers.tick(1000);
  await isClosed;
  assert.equal((await run.result).finishReason, 'stop');
  assert.deepEqual(run.events, EVENTS);
  assert.deepEqual(requests.slice(requestCount).map(({ url }) => url), ['/base/api/runs/r/events?after=2', '/base/api/runs/r/events?after=5']);

  // The connection of a run that cannot be attached to is not replaced.
  isClosed = new Promise((resolve) => (closed = resolve));
  const plain = chat('open');
  for await (const event of plain) {
    if (event.type === 'TEXT_MESSAGE_CONTENT') break;
  }
  t.mock.timers.tick(60_000);
  assert.equal(plain.events.length, 3);
  plain.detach();
  assert.ok((await failure(plain.result)).isAborted);
  await isClosed;
});

test('a run whose last event was lost with its server ends with an error', async () => {
  replacementEvent = { type: 'RUN_ERROR', code: 'RUN_INTERRUPTED', message: 'the process has ended' };
  const run = chat('cut', {}, { reattach: true });
  assert.equal((await failure(run.result)).code, 'RUN_INTERRUPTED');
  assert.deepEqual(run.events, [...EVENTS.slice(0, 3), replacementEvent]);
  assert.deepEqual(requests.slice(-2).map(({ url }) => url), ['/base/api/runs/r/events?after=2', '/base/api/runs/r/events?after=1']);
  replacementEvent = undefined;
});

test('a run continues after a proxy has had no server', async () => {
  gatewayErrors = 2;
  const run = chat('cut', {}, { reattach: true });
  await run.result;
  assert.equal(gatewayErrors, 0);
  assert.deepEqual(run.events, EVENTS);
});

test('a server that says when to come again is asked no sooner, and a minute later at most', async (t) => {
  const waits = [];
  const delays = [];
  const { setTimeout } = globalThis;
  let isLost = false;
  t.mock.method(globalThis, 'setTimeout', (run, ms, ...values) => {
    if (!isLost) return setTimeout(run, ms, ...values);
    isLost = false;
    waits.push(ms);
    return setTimeout(run);
  });
  const onLost = (seconds) => {
    delays.push(seconds);
    isLost = true;
  };
  const answers = [
    () => { throw new AgentdError('busy', { code: 'STORE_UNAVAILABLE', status: 503, retryAfter: 20 }); },
    () => ({ body: bodyOf(new TextEncoder().encode(lines(EVENTS.slice(0, 3)))) }),
    () => { throw new AgentdError('slower', { code: 'RATE_LIMITED', status: 429, retryAfter: 3600 }); },
    () => ({ body: bodyOf(new TextEncoder().encode(lines(EVENTS.slice(3)))) }),
  ];
  const open = async () => answers.shift()();
  const read = [];
  for await (const batch of readRun(open, { signal: new AbortController().signal, attach: () => open, onLost })) read.push(...batch);
  assert.deepEqual(read, EVENTS);
  assert.deepEqual(delays, [20, 0, 60]);
  assert.deepEqual(waits.map((ms) => Math.floor(ms / 10_000)), [2, 0, 6]);
  // The caller must repeat a request that started no run.
  const refused = readRun(async () => { throw new AgentdError('slower', { code: 'RATE_LIMITED', status: 429, retryAfter: 1 }); }, { signal: new AbortController().signal, attach: () => open });
  assert.equal((await failure(refused.next())).status, 429);
});

test('a detached run opens no further connection', async () => {
  const isClosed = new Promise((resolve) => (closed = resolve));
  const run = chat('open', {}, { reattach: true, cancelRoute: true });
  for await (const event of run) {
    if (event.type === 'TEXT_MESSAGE_CONTENT') break;
  }
  const requestCount = requests.length;
  run.detach();
  assert.ok((await failure(run.result)).isAborted);
  await isClosed;
  assert.equal(requests.length, requestCount);
});

test('a paused run has no connection until it is resumed', async () => {
  let isClosed = new Promise((resolve) => (closed = resolve));
  const run = chat('open', {}, { reattach: true, cancelRoute: true });
  const read = [];
  for await (const event of run) {
    read.push(event);
    if (event.type === 'TEXT_MESSAGE_CONTENT') break;
  }
  const requestCount = requests.length;
  run.pause();
  run.pause();
  await isClosed;
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(requests.length, requestCount, 'no request is sent while it is paused');
  run.resume();
  assert.equal((await run.result).finishReason, 'stop');
  assert.deepEqual(run.events, EVENTS);
  assert.deepEqual(requests.slice(requestCount).map(({ url }) => url), ['/base/api/runs/r/events?after=2', '/base/api/runs/r/events?after=5']);
  run.pause();

  // A run that is paused before its first event is read up to that, and can be detached.
  isClosed = new Promise((resolve) => (closed = resolve));
  const early = chat('open', {}, { reattach: true });
  early.pause();
  await isClosed;
  assert.equal(early.runId, 'r');
  early.detach();
  assert.ok((await failure(early.result)).isAborted);

  // A run that cannot be attached to keeps its connection.
  const plain = chat('whole');
  plain.pause();
  assert.equal((await plain.result).finishReason, 'stop');
});

test('a stored run is attached to from its first event', async () => {
  const run = createClient({ baseUrl, token: 'x' }).attach('r', { wait: false });
  const read = [];
  for await (const event of run) read.push(event);
  assert.deepEqual(read, EVENTS);
  assert.equal(requests.at(-1).url, '/base/api/runs/r/events?wait=false');
});

test('the debug layer has its five members', async () => {
  const turn = await createClient({ baseUrl, token: 'x' }).debugTurn({ agentId: 'a', message: 'hello' });
  assert.deepEqual(Object.keys(turn).sort(), DEBUG_MEMBERS);
  assert.equal(turn.pageContext, 'page');
  assert.equal(turn.blocksContext, null);
  assert.equal(requests.at(-1).url, '/base/api/svcchat/previewPrompt');
});

test('routes are called with parameters, query and version', async () => {
  const client = createClient({ baseUrl, widgetToken: 'agw_x' });
  const { data, etag, status } = await client.request('PUT /api/agents/{id}', {
    params: { id: 'a/b c' }, query: { limit: 5, cursor: undefined }, body: { name: 'A' }, ifMatch: '"6"',
  });
  assert.deepEqual([data, etag, status], [{ id: 'a' }, '"7"', 200]);
  const { url, headers, body } = requests.at(-1);
  assert.equal(url, '/base/api/agents/a%2Fb%20c?limit=5');
  assert.deepEqual([headers['if-match'], headers['x-widget-token'], body], ['"6"', 'agw_x', { name: 'A' }]);
  assert.equal(headers.authorization, undefined);
  assert.equal(await client.api('DELETE /api/agents/{id}', { params: { id: 'a' } }), undefined);
  assert.throws(() => createClient({ baseUrl, token: 'a', widgetToken: 'b' }), TypeError);
});

test('results and events are read by a parser of the caller', async () => {
  const parse = (text) => JSON.parse(text.replace(/(?<=:)\d{16,}/g, '"$&"'));
  const fetched = [
    new Response('{"ledger":9007199254740993}', { headers: { 'content-type': 'application/json' } }),
    new Response(lines([EVENTS[0]]) + '{"type":"RUN_FINISHED","result":{"object":{"ledger":9007199254740993}}}', { headers: { 'content-type': 'application/x-ndjson' } }),
  ];
  const client = createClient({ baseUrl, parse, fetch: async () => fetched.shift() });
  assert.deepEqual(await client.api('GET /api/agents/{id}', { params: { id: 'a' } }), { ledger: '9007199254740993' });
  const { object } = await client.chat({ message: 'x' }).result;
  assert.deepEqual(object, { ledger: '9007199254740993' });
});

/** Maximum size of the client in bytes, without comments and compressed file by file, as the server sends it. */
const MAX_GZIP_BYTES = 6 * 1024;

test('the client is small', () => {
  const folder = new URL('../src/', import.meta.url);
  const sizes = readdirSync(folder).map((name) => {
    const script = readFileSync(new URL(name, folder), 'utf8');
    const code = script.replace(/^\s*\/\*\*[^]*?\*\/$/gm, '').replace(/^\s*\/\/ .*$/gm, '');
    return gzipSync(code, { level: 9 }).length;
  });
  const total = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(total <= MAX_GZIP_BYTES, `${total} bytes`);
});
