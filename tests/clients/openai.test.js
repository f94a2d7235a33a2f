// The `openai` package against the API that follows OpenAI's.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { agentdUrl, agents, assertDropped, assertOpen, mark, paintTool, text } from './setting.js';

const apiKey = process.env.API_TOKEN;
const client = new OpenAI({ baseURL: `${agentdUrl}/v1`, apiKey, maxRetries: 0 });
const { completions } = client.chat;
const hello = [{ role: 'user', content: 'Hello' }];
const paint = { type: 'function', function: paintTool };

test('openai: models', async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['guide', 'text', 'tools', 'error', 'slow', 'paint']);
  assert.equal((await client.models.retrieve('text')).object, 'model');
});

test('openai: a whole completion', async () => {
  const { data, response, request_id: id } = await completions.create({ model: agents.text, messages: hello }).withResponse();
  assert.equal(data.choices[0].message.content, text);
  assert.equal(data.choices[0].finish_reason, 'stop');
  assert.equal(data.usage.total_tokens, 11);
  assert.equal(data.id, `chatcmpl-${response.headers.get('x-agent-run-id')}`);
  assert.ok(id);
});

test('openai: a stream, with usage', async () => {
  const chunks = [];
  const stream = await completions.create({ model: agents.tools, messages: hello, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) chunks.push(chunk);
  const words = chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');
  assert.equal(words, 'Let me look.\n\nI have looked.');
  assert.deepEqual([chunks.at(-1).choices, typeof chunks.at(-1).usage.total_tokens], [[], 'number']);
  const final = await completions.stream({ model: agents.text, messages: hello }).finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
});

test('openai: the package runs the client’s tools', async () => {
  const painted = [];
  const tool = { ...paint, function: { ...paintTool, parse: JSON.parse, function: ({ color }) => `painted ${painted.push(color)}` } };
  for (const stream of [false, true]) {
    const runner = completions.runTools({ model: agents.paint, messages: [{ role: 'user', content: 'Paint it' }], tools: [tool], stream });
    assert.equal(await runner.finalContent(), 'It is red.');
  }
  assert.deepEqual(painted, ['red', 'red']);
});

test('openai: errors are the package’s own', async () => {
  const refused = async (options, body, type, fields) => {
    const asked = new OpenAI({ baseURL: `${agentdUrl}/v1`, apiKey, ...options }).chat.completions.create({ model: agents.text, messages: hello, ...body });
    await assert.rejects(asked, (error) => {
      assert.ok(error instanceof type, `${error}`);
      for (const [name, value] of Object.entries(fields)) assert.equal(error[name], value);
      return true;
    });
  };
  await refused({ apiKey: 'aga_wrong' }, {}, OpenAI.AuthenticationError, { code: 'invalid_api_key' });
  await refused({}, { model: 'guarded' }, OpenAI.NotFoundError, { code: 'model_not_found', param: 'model' });
  await refused({}, { n: 2 }, OpenAI.BadRequestError, { code: 'unsupported_parameter', param: 'n', type: 'invalid_request_error' });
  // A run that had begun is not repeated.
  await refused({ maxRetries: 5 }, { model: agents.error }, OpenAI.InternalServerError, { status: 502, code: 'backend_failed' });
  const stream = await completions.create({ model: agents.error, messages: hello, stream: true });
  let seen = '';
  await assert.rejects(async () => {
    for await (const chunk of stream) seen += chunk.choices[0]?.delta.content ?? '';
  }, (error) => error instanceof OpenAI.APIError && error.code === 'backend_failed');
  assert.equal(seen, 'Half an');
});

test('openai: the package waits and repeats what is limited', async () => {
  const statuses = [];
  const limited = new OpenAI({
    baseURL: `${agentdUrl}/v1`,
    apiKey: process.env.LIMITED_API_TOKEN,
    maxRetries: 3,
    fetch: async (...request) => {
      const response = await fetch(...request);
      statuses.push(response.status);
      return response;
    },
  });
  // The token has twenty runs a minute, and then one each three seconds.
  while (!statuses.includes(429)) {
    const { choices } = await limited.chat.completions.create({ model: agents.text, messages: hello });
    assert.equal(choices[0].message.content, text);
  }
  assert.equal(statuses.at(-1), 200, 'it was repeated after the time that the server has named');
});

test('openai: a stream that is left is cancelled', async () => {
  const content = mark();
  const stream = await completions.create({ model: agents.slow, messages: [{ role: 'user', content }], stream: true });
  for await (const chunk of stream) {
    if (!chunk.choices[0].delta.content) continue;
    await assertOpen(content);
    break;
  }
  await assertDropped(content);
});
