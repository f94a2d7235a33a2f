// The AI SDK's chat, of which `useChat` is a thin cover, over its UI message stream, in the current version and the one
// before.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as current from 'ai';
import * as previous from 'ai-6';
import {
  agents, assertDropped, assertOpen, assertProblem, authorization, cancelThread, chatUrl, mark, paintTool, resumeUrl,
  storedThread, text,
} from './setting.js';
import { until } from './wait.js';

/** State of a chat as a plain object instead of a user interface's. */
const state = () => ({
  status: 'ready',
  error: undefined,
  messages: [],
  pushMessage(message) {
    this.messages.push(message);
  },
  popMessage() {
    this.messages.pop();
  },
  replaceMessage(place, message) {
    this.messages[place] = message;
  },
  snapshot: structuredClone,
});

const ask = ({ chat }, text = 'Hello') => chat.sendMessage({ text });
const parts = ({ chat }, type) => chat.lastMessage.parts.filter((part) => part.type === type);
const texts = (seen) => parts(seen, 'text').map((part) => part.text);

/** Waits until an answer of the agent `slow` is under way. */
const hasTicked = ({ chat }) => until(() => {
  assert.equal(chat.error, undefined);
  return chat.lastMessage?.parts.some(({ text }) => text?.startsWith('tick tick tick'));
});

for (const [version, { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls }] of Object.entries({ 7: current, 6: previous })) {
  class Chat extends AbstractChat {
    constructor(options) {
      super({ ...options, state: state() });
    }
  }

  function chat(agentId, { headers = authorization, parameters = { format: 'ui-message' }, body, ...options } = {}) {
    const seen = { data: [], finish: undefined };
    seen.chat = new Chat({
      transport: new DefaultChatTransport({
        api: chatUrl(agentId, parameters),
        headers,
        body,
        prepareReconnectToStreamRequest: ({ id }) => ({ api: resumeUrl(id) }),
      }),
      onData: (part) => seen.data.push(part),
      onFinish: (finish) => {
        seen.finish = finish;
        seen.onFinish?.(finish);
      },
      ...options,
    });
    return seen;
  }

  describe(`ai ${version}`, () => {
    test('text', async () => {
      const seen = chat(agents.text);
      await ask(seen);
      assert.equal(seen.chat.error, undefined);
      assert.equal(seen.chat.status, 'ready');
      assert.equal(seen.chat.lastMessage.role, 'assistant');
      assert.deepEqual(texts(seen), [text]);
      assert.ok(parts(seen, 'text').every(({ state }) => state === 'done'));
      assert.equal(seen.finish.finishReason, 'stop');
      const { threadId, runId, usage } = seen.chat.lastMessage.metadata;
      assert.deepEqual([typeof threadId, runId], ['string', seen.chat.lastMessage.id]);
      assert.deepEqual([usage[0].inputTokens, usage[0].outputTokens], [7, 4]);
    });

    test('a thread of turns, an edit and a new answer is stored without doubles', async () => {
      const id = `ai-${version}-${mark()}`;
      const seen = chat(agents.text, { id });
      await ask(seen, 'One');
      await ask(seen, 'Two');
      const dialogue = (...asked) => asked.flatMap((question) => [['user', question], ['assistant', text]]);
      assert.deepEqual(await storedThread(id), { path: dialogue('One', 'Two'), messageCount: 4 });
      await seen.chat.regenerate();
      assert.equal(seen.chat.error, undefined);
      assert.deepEqual(await storedThread(id), { path: dialogue('One', 'Two'), messageCount: 5 });
      const messageId = seen.chat.messages.at(-2).id;
      await seen.chat.sendMessage({ text: 'Two, again', messageId });
      assert.equal(seen.chat.error, undefined);
      assert.deepEqual(await storedThread(id), { path: dialogue('One', 'Two, again'), messageCount: 7 });
    });

    test('what was sent to the model is announced as data, and stays out of the history', async () => {
      const seen = chat(agents.text);
      await ask(seen);
      assert.deepEqual(seen.data.map(({ type }) => type).filter((type) => type === 'data-agent-prompt').length, 1);
      assert.deepEqual(parts(seen, 'data-agent-prompt'), []);
    });

    test('a tool is called and has answered', async () => {
      const called = [];
      const seen = chat(agents.tools, { onToolCall: ({ toolCall }) => void called.push(toolCall) });
      await ask(seen);
      assert.equal(seen.chat.error, undefined);
      const calls = parts(seen, 'tool-readTodos');
      assert.deepEqual(calls.map(({ state, input }) => [state, input]), [['output-available', {}]]);
      assert.notEqual(calls[0].output, undefined);
      assert.deepEqual(called.map(({ toolName }) => toolName), ['readTodos']);
      assert.deepEqual(texts(seen), ['Let me look.', 'I have looked.']);
    });

    test('a tool of the client is executed, and its result goes on with the same message', async () => {
      const id = `ai-${version}-${mark()}`;
      const seen = chat(agents.paint, {
        id,
        body: { tools: [paintTool] },
        sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
        onToolCall: ({ toolCall: { toolName, toolCallId, input } }) => {
          seen.chat.addToolOutput({ tool: toolName, toolCallId, output: `painted ${input.color}` });
        },
      });
      const whole = new Promise((resolve) => {
        seen.onFinish = ({ message }) => message.parts.some(({ type }) => type === 'text') && resolve();
      });
      await ask(seen, 'Make it red');
      await whole;
      assert.equal(seen.chat.error, undefined);
      assert.deepEqual(seen.chat.messages.map(({ role }) => role), ['user', 'assistant']);
      const calls = parts(seen, 'tool-paint');
      assert.deepEqual(calls.map(({ state, output }) => [state, output]), [['output-available', 'painted red']]);
      assert.deepEqual(texts(seen), ['It is red.']);
      const { path, messageCount } = await storedThread(id);
      assert.deepEqual(path.map(([role]) => role), ['user', 'assistant', 'tool', 'assistant']);
      assert.deepEqual([path[2][1], messageCount], ['painted red', 4]);
    });

    test('a call waits for approval, and the same message goes on', async () => {
      for (const approved of [true, false]) {
        const id = `ai-${version}-${mark()}`;
        const seen = chat(agents.guarded, {
          id, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
        });
        await ask(seen, 'What is to do?');
        assert.equal(seen.chat.error, undefined);
        const [call] = parts(seen, 'tool-readTodos');
        assert.equal(call.state, 'approval-requested');
        const whole = new Promise((resolve) => (seen.onFinish = resolve));
        await seen.chat.addToolApprovalResponse({ id: call.approval.id, approved });
        await whole;
        assert.equal(seen.chat.error, undefined);
        assert.deepEqual(seen.chat.messages.map(({ role }) => role), ['user', 'assistant']);
        assert.deepEqual(texts(seen), ['Let me look.', 'I have looked.']);
        const [answered] = parts(seen, 'tool-readTodos');
        assert.equal(answered.state, approved ? 'output-available' : 'output-error');
        const { path, messageCount } = await storedThread(id);
        assert.deepEqual(path.map(([role]) => role), ['user', 'assistant', 'tool', 'assistant']);
        assert.equal(messageCount, 4);
      }
    });

    test('a chat goes on with the history that its client holds', async () => {
      const seen = chat(agents.tools);
      await ask(seen);
      await ask(seen);
      assert.equal(seen.chat.error, undefined);
      assert.deepEqual(seen.chat.messages.map(({ role }) => role), ['user', 'assistant', 'user', 'assistant']);
      assert.deepEqual(texts(seen), ['I have looked.']);
    });

    test('an error inside the stream', async () => {
      const seen = chat(agents.error);
      await ask(seen);
      assert.equal(seen.chat.status, 'error');
      assert.ok(seen.chat.error.message.length > 0);
      assert.ok(!seen.chat.error.message.includes('vendor-detail'));
      assert.deepEqual(texts(seen), ['Half an']);
    });

    test('an error instead of a stream', async () => {
      const cases = [
        [agents.text, { headers: {} }, 401, 'UNAUTHENTICATED'],
        ['nobody', {}, 404, 'NOT_FOUND'],
        [agents.text, { parameters: { format: 'xml' } }, 400, 'INVALID_REQUEST'],
      ];
      for (const [agentId, options, status, code] of cases) {
        const seen = chat(agentId, options);
        await ask(seen);
        assert.equal(seen.chat.status, 'error');
        assertProblem(seen.chat.error.message, status, code);
      }
    });

    test('a client that stops stops the model', async () => {
      const message = mark();
      const seen = chat(agents.slow);
      const asked = ask(seen, message);
      await hasTicked(seen);
      await assertOpen(message);
      await seen.chat.stop();
      await asked;
      assert.equal(seen.finish.isAbort, true);
      await assertDropped(message);
    });

    test('a run goes on while its client is away, is resumed, and is stopped by a request', async () => {
      const [id, message] = [`ai-${version}-${mark()}`, mark()];
      const parameters = { format: 'ui-message', onDisconnect: 'continue' };
      const left = chat(agents.slow, { id, parameters });
      const asked = ask(left, message);
      await hasTicked(left);
      await left.chat.stop();
      await asked;
      await assertOpen(message);
      const back = chat(agents.slow, { id });
      back.chat.messages = left.chat.messages.slice(0, 1);
      const resumed = back.chat.resumeStream();
      await hasTicked(back);
      assert.equal(back.chat.lastMessage.id, left.chat.lastMessage.id);
      await cancelThread(id);
      await resumed;
      assert.equal(back.chat.error, undefined);
      assert.equal(back.chat.status, 'ready');
      await assertDropped(message);
      const { path } = await storedThread(id);
      assert.deepEqual(path.map(([role]) => role), ['user', 'assistant']);
      assert.ok(path[1][1].startsWith(texts(back)[0]));
      await back.chat.resumeStream();
      assert.equal(back.chat.status, 'ready', 'nothing is left to resume');
    });
  });
}
