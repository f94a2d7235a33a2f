// The recipes of docs/clients.md that run in Node.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentdUrl, assertEvent, token } from './setting.js';

const recipe = (name) => import(`../../examples/clients/${name}`);
const said = (messages) => messages.filter(({ role, content }) => role === 'assistant' && content);

function assertLooked(messages) {
  assert.deepEqual(said(messages).map(({ content }) => content), ['Let me look.', 'I have looked.']);
  const calls = messages.flatMap(({ toolCalls }) => toolCalls ?? []);
  assert.deepEqual(calls.map((call) => call.function), [{ name: 'readTodos', arguments: '{}' }]);
  const results = messages.filter(({ role }) => role === 'tool');
  assert.equal(results.length, 1);
  assert.match(results[0].content, /Water the basil/);
}

test('AG-UI', async () => {
  const { ask, guide } = await recipe('ag-ui.js');
  const events = [];
  guide.subscribe({ onEvent: ({ event }) => void events.push(event) });
  assertLooked(await ask('Any todos?'));
  const [answer, ...more] = await ask('And now?');
  assert.deepEqual([answer.content, more], ['I have looked.', []], 'the agent has the conversation');
  events.forEach(assertEvent);
});

for (const version of [7, 6]) {
  test(`AI SDK ${version}`, async () => {
    const { createChat } = await recipe(`ai-sdk.js?${version}`);
    const chat = createChat(agentdUrl, token);
    await chat.sendMessage({ text: 'Any todos?' });
    assert.deepEqual([chat.status, chat.error], ['ready', undefined]);
    const { parts } = chat.lastMessage;
    const texts = parts.filter(({ type }) => type === 'text').map(({ text }) => text);
    assert.deepEqual(texts, ['Let me look.', 'I have looked.']);
    const [call] = parts.filter(({ type }) => type === 'tool-readTodos');
    assert.equal(call.state, 'output-available');
    assert.equal(call.output.todos[0].title, 'Water the basil');
    await chat.sendMessage({ text: 'And now?' });
    assert.equal(chat.lastMessage.parts.at(-1).text, 'I have looked.');
  });
}

test('CopilotKit', async () => {
  const { server } = await recipe('copilotkit.js');
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  // CopilotKit's client connects in browsers only, which it recognises by `window`.
  globalThis.window = globalThis;
  const { CopilotKitCore } = await import('@copilotkit/core');
  const runtimeUrl = `http://127.0.0.1:${server.address().port}/api/copilotkit`;
  const copilot = new CopilotKitCore({ runtimeUrl, runtimeTransport: 'rest', deferInitialConnection: true });
  const errors = [];
  const connected = new Promise((resolve) => {
    copilot.subscribe({
      onError: ({ code, error }) => void errors.push([code, String(error)]),
      onRuntimeConnectionStatusChanged: ({ status }) => status === 'connected' && resolve(),
    });
  });
  copilot.connect();
  await connected;
  const agent = copilot.getAgent('guide');
  agent.addMessage({ id: 'u1', role: 'user', content: 'Any todos?' });
  assertLooked((await copilot.runAgent({ agent })).newMessages);
  agent.addMessage({ id: 'u2', role: 'user', content: 'And now?' });
  const { newMessages } = await copilot.runAgent({ agent });
  assert.deepEqual(newMessages.map(({ content }) => content), ['I have looked.']);
  assert.deepEqual(errors, []);
  server.close();
  server.closeAllConnections();
});
