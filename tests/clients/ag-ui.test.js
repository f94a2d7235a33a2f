// AG-UI's own clients, the current one and the last before 1.0, over server-sent events.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as current from '@ag-ui/client';
import * as previous from '@ag-ui/client-0.0.59';
import {
  agents, assertDropped, assertEvent, assertOneEnd, assertOpen, assertProblem, authorization, chatUrl, mark, orderListId,
  paintTool, storedThread, text,
} from './setting.js';

/** Runs an agent and gives what its client has made of it. */
async function run(HttpAgent, agentId, { headers = authorization, parameters, message = 'Hello', onEvent } = {}) {
  const initialMessages = [{ id: 'u1', role: 'user', content: message }];
  const agent = new HttpAgent({ url: chatUrl(agentId, parameters), headers, initialMessages });
  const seen = { events: [], errors: [], agent, messages: [] };
  const subscriber = {
    onEvent: ({ event }) => {
      seen.events.push(event);
      onEvent?.(event, agent);
    },
    onRunErrorEvent: ({ event }) => void seen.errors.push(event),
    onRunFailed: ({ error }) => void (seen.failure = error),
  };
  try {
    ({ newMessages: seen.messages } = await agent.runAgent({}, subscriber));
  } catch (error) {
    seen.thrown = error;
  }
  seen.events.forEach(assertEvent);
  return seen;
}

for (const [version, { HttpAgent }] of Object.entries({ '1.0.0': current, '0.0.59': previous })) {
  describe(`@ag-ui/client ${version}`, () => {
    test('text', async () => {
      const { thrown, events, messages } = await run(HttpAgent, agents.text);
      assert.equal(thrown, undefined);
      assertOneEnd(events);
      assert.deepEqual(messages.map(({ role, content }) => [role, content]), [['assistant', text]]);
      const { usage, result } = events.at(-1);
      assert.deepEqual([usage[0].inputTokens, usage[0].outputTokens], [7, 4]);
      assert.deepEqual(result, { finishReason: 'stop' });
    });

    test('a tool is called and has answered', async () => {
      const { thrown, events, messages } = await run(HttpAgent, agents.tools);
      assert.equal(thrown, undefined);
      assertOneEnd(events);
      const calls = messages.flatMap(({ toolCalls }) => toolCalls ?? []);
      assert.deepEqual(calls.map((call) => call.function), [{ name: 'readTodos', arguments: '{}' }]);
      const results = messages.filter(({ role }) => role === 'tool');
      assert.deepEqual(results.map(({ toolCallId }) => toolCallId), [calls[0].id]);
      assert.equal(typeof results[0].content, 'string');
      const said = messages.filter(({ role, content }) => role === 'assistant' && content);
      assert.deepEqual(said.map(({ content }) => content), ['Let me look.', 'I have looked.']);
    });

    test('an error inside the stream', async () => {
      const { events, errors } = await run(HttpAgent, agents.error);
      assertOneEnd(events);
      assert.deepEqual(errors.map(({ code }) => code), ['BACKEND_FAILED']);
      assert.ok(!errors[0].message.includes('vendor-detail'));
      assert.deepEqual(events.filter(({ delta }) => delta).map(({ delta }) => delta), ['Half an']);
    });

    test('an error instead of a stream', async () => {
      const cases = [
        [agents.text, { headers: {} }, 401, 'UNAUTHENTICATED'],
        ['nobody', {}, 404, 'NOT_FOUND'],
        [agents.text, { parameters: { format: 'xml' } }, 400, 'INVALID_REQUEST'],
      ];
      for (const [agentId, options, status, code] of cases) {
        const { events, failure, thrown } = await run(HttpAgent, agentId, options);
        assert.deepEqual(events, []);
        assert.equal(thrown, failure);
        assert.equal(thrown.status, status);
        assertProblem(thrown.payload, status, code);
      }
    });

    test('a thread of turns, an edit and a new answer is stored without doubles', async () => {
      const threadId = `ag-ui-${version}-${mark()}`;
      const agent = new HttpAgent({ url: chatUrl(agents.text), headers: authorization, threadId });
      const say = async (id, content) => {
        agent.addMessage({ id, role: 'user', content });
        await agent.runAgent({});
      };
      await say('m1', 'One');
      await say('m2', 'Two');
      const dialogue = (...asked) => asked.flatMap((question) => [['user', question], ['assistant', text]]);
      assert.deepEqual(await storedThread(threadId), { path: dialogue('One', 'Two'), messageCount: 4 });
      agent.setMessages(agent.messages.slice(0, 2));
      await say('m2', 'Two, again');
      assert.deepEqual(await storedThread(threadId), { path: dialogue('One', 'Two, again'), messageCount: 6 });
      agent.setMessages(agent.messages.slice(0, 3));
      await agent.runAgent({});
      assert.deepEqual(await storedThread(threadId), { path: dialogue('One', 'Two, again'), messageCount: 7 });
    });

    // The version before 1.0 refuses a list of pending calls.
    if (HttpAgent === current.HttpAgent) {
      test('a frontend tool is executed by the client', async () => {
        const threadId = `ag-ui-${version}-${mark()}`;
        const agent = new HttpAgent({ url: chatUrl(agents.paint), headers: authorization, threadId });
        agent.addMessage({ id: 'm1', role: 'user', content: 'Make it red' });
        const { newMessages } = await agent.runAgent({ tools: [paintTool] });
        const calls = newMessages.flatMap(({ toolCalls }) => toolCalls ?? []);
        assert.deepEqual(calls.map((call) => call.function), [{ name: 'paint', arguments: '{"color":"red"}' }]);
        assert.ok(!newMessages.some(({ role }) => role === 'tool'), 'the call is the client\'s');
        agent.addMessage({ id: 'm2', role: 'tool', toolCallId: calls[0].id, content: 'painted' });
        const after = await agent.runAgent({ tools: [paintTool] });
        assert.deepEqual(after.newMessages.map(({ role, content }) => [role, content]), [['assistant', 'It is red.']]);
        const { path, messageCount } = await storedThread(threadId);
        assert.deepEqual(path.map(([role]) => role), ['user', 'assistant', 'tool', 'assistant']);
        assert.deepEqual([path[2][1], messageCount], ['painted', 4]);
      });

      test('a call waits for approval, and its run is resumed', async () => {
        for (const [payload, isMade] of [[{ approved: true }, true], [{ approved: false, reason: 'later' }, false]]) {
          const threadId = `ag-ui-${version}-${mark()}`;
          const agent = new HttpAgent({ url: chatUrl(agents.guarded), headers: authorization, threadId });
          agent.addMessage({ id: 'm1', role: 'user', content: 'What is to do?' });
          let interrupts;
          await agent.runAgent({}, { onRunFinishedEvent: ({ event }) => void ({ interrupts } = event.outcome) });
          assert.deepEqual(interrupts.map(({ reason, toolCallId }) => [reason, toolCallId]), [['tool_call', 'call_1']]);
          const resume = [{ interruptId: interrupts[0].id, status: 'resolved', payload }];
          const { newMessages } = await agent.runAgent({ resume });
          assert.deepEqual(newMessages.map(({ role }) => role), ['tool', 'assistant']);
          assert.equal(newMessages[0].content.includes('Water the basil'), isMade);
          assert.equal(newMessages[0].content.includes('later'), !isMade);
          const { path } = await storedThread(threadId);
          assert.deepEqual(path.map(([role]) => role), ['user', 'assistant', 'tool', 'assistant']);
        }
      });

      test('a call is approved with edited arguments, which the schema of its tool checks', async () => {
        const parameters = { todoListId: orderListId };
        const threadId = `ag-ui-${version}-${mark()}`;
        const agent = new HttpAgent({ url: chatUrl(agents.order, parameters), headers: authorization, threadId });
        agent.addMessage({ id: 'm1', role: 'user', content: 'Order something to drink' });
        let interrupts;
        await agent.runAgent({}, { onRunFinishedEvent: ({ event }) => void ({ interrupts } = event.outcome) });
        assert.deepEqual(interrupts.map(({ reason, toolCallId }) => [reason, toolCallId]), [['tool_call', 'call_1']]);
        const resume = (editedArgs) => agent.runAgent({
          resume: [{ interruptId: interrupts[0].id, status: 'resolved', payload: { approved: true, editedArgs } }],
        });
        for (const invalid of [{ title: 5 }, {}]) {
          await assert.rejects(resume(invalid), (error) => {
            assertProblem(error.payload, 400, 'INVALID_REQUEST');
            return error.status === 400;
          });
        }
        const { newMessages } = await resume({ title: 'Oat milk' });
        assert.deepEqual(newMessages.map(({ role }) => role), ['tool', 'assistant']);
        assert.ok(newMessages[0].content.includes('Oat milk'), newMessages[0].content);
        assert.equal(newMessages[1].content, 'It is ordered.');
        const { messages } = await run(HttpAgent, agents.tools, { parameters });
        const { content } = messages.find(({ role }) => role === 'tool');
        assert.deepEqual(JSON.parse(content).todos.map(({ title }) => title), ['Water the basil', 'Oat milk']);
      });
    }

    test('a client that aborts stops the model', async () => {
      const message = mark();
      let ticks = 0;
      let opened;
      const { events } = await run(HttpAgent, agents.slow, {
        message,
        onEvent: ({ type }, agent) => {
          if (type !== 'TEXT_MESSAGE_CONTENT' || ++ticks !== 3) return;
          opened = assertOpen(message).finally(() => agent.abortRun());
        },
      });
      await opened;
      assert.ok(ticks >= 3);
      assert.ok(!events.some(({ type }) => type === 'RUN_FINISHED'));
      await assertDropped(message);
    });
  });
}
