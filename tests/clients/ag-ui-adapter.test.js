// The adapter of clients/js for AG-UI's client.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HttpAgent } from '@ag-ui/client';
import { createAgent, resumeWith } from '../../clients/js/adapters/ag-ui.js';
import { agentdUrl, agents, assertProblem, mark, storedThread, text, todoListId, token } from './setting.js';

test('an agent has the address, a new token for each run, and the fields of a chat', async () => {
  const tokens = [];
  const bodies = [];
  const agent = createAgent(HttpAgent, {
    baseUrl: agentdUrl, agentId: agents.text, fields: { pageContext: { page: 'herbs' }, timezone: 'Europe/Berlin' }, threadId: `adapter-${mark()}`,
    token: async () => { tokens.push(token); return token; },
    fetch: (url, init) => { bodies.push(JSON.parse(init.body)); return fetch(url, init); },
  });
  assert.ok(agent instanceof HttpAgent);
  for (const content of ['Hello', 'And now?']) {
    agent.addMessage({ id: mark(), role: 'user', content });
    const { newMessages } = await agent.runAgent({ forwardedProps: { timezone: 'UTC' } });
    assert.deepEqual(newMessages.map(({ role, content }) => [role, content]), [['assistant', text]]);
  }
  assert.equal(tokens.length, 2);
  assert.deepEqual(bodies[1].forwardedProps, { agentId: agents.text, pageContext: { page: 'herbs' }, timezone: 'UTC' });
  const { path } = await storedThread(agent.threadId);
  assert.deepEqual(path.map(([role]) => role), ['user', 'assistant', 'user', 'assistant']);
});

test('calls that wait are decided, and others are withdrawn', async () => {
  for (const [decision, words] of [[true, 'Water the basil'], [{ approved: false, reason: 'later' }, 'later'], [undefined, 'withdrawn']]) {
    const agent = createAgent(HttpAgent, { baseUrl: agentdUrl, token, agentId: agents.guarded, fields: { todoListId }, threadId: `adapter-${mark()}` });
    agent.addMessage({ id: 'm1', role: 'user', content: 'What is to do?' });
    let interrupts;
    await agent.runAgent({}, { onRunFinishedEvent: ({ event }) => void ({ interrupts } = event.outcome) });
    const { newMessages } = await agent.runAgent({ resume: resumeWith(interrupts, () => decision) });
    assert.ok(newMessages[0].content.includes(words), newMessages[0].content);
  }
});

test('without a credential the server says what is wrong, and two are refused', async () => {
  const agent = createAgent(HttpAgent, { baseUrl: agentdUrl, agentId: agents.text, initialMessages: [{ id: 'm1', role: 'user', content: 'Hello' }] });
  await assert.rejects(agent.runAgent({}), (error) => {
    assertProblem(error.payload, 401, 'UNAUTHENTICATED');
    return error.status === 401;
  });
  assert.throws(() => createAgent(HttpAgent, { baseUrl: agentdUrl, token, widgetToken: 'agw_x' }), TypeError);
});
