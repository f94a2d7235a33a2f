// The recipe of docs/clients.md for assistant-ui: its list of threads and its history, rendered by React.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Window } from 'happy-dom';
import { agentdUrl, token } from './setting.js';
import { until } from './wait.js';

const page = new Window({ url: agentdUrl });
for (const name of ['document', 'navigator', 'HTMLElement', 'Node', 'MutationObserver', 'getComputedStyle']) {
  Object.defineProperty(globalThis, name, { value: page[name], configurable: true });
}
globalThis.window = page;

const { createElement } = await import('react');
const { createRoot } = await import('react-dom/client');
const { AssistantRuntimeProvider } = await import('@assistant-ui/react');
const { useAgentRuntime } = await import('../../examples/clients/assistant-ui.js');

/** Renders the recipe as a page that is opened again, and returns its runtime and a function that closes it. */
async function open() {
  let runtime;
  function App() {
    runtime = useAgentRuntime(agentdUrl, token);
    return createElement(AssistantRuntimeProvider, { runtime });
  }
  const root = createRoot(page.document.body.appendChild(page.document.createElement('div')));
  root.render(createElement(App));
  await until(() => runtime && !runtime.threads.getState().isLoading);
  return { runtime, close: () => root.unmount() };
}

const texts = (runtime) => runtime.thread.getState().messages
  .map(({ content }) => content.filter(({ type }) => type === 'text').map(({ text }) => text).join(' '));

async function ask(runtime, text) {
  const before = runtime.thread.getState().messages.length;
  runtime.thread.append(text);
  await until(() => {
    const { isRunning, messages } = runtime.thread.getState();
    return !isRunning && messages.length === before + 2;
  });
}

/** Returns the stored thread, with the texts of its messages. */
async function stored(id) {
  const response = await fetch(`${agentdUrl}/api/threads/${id}`, { headers: { Authorization: `Bearer ${token}` } });
  return { status: response.status, thread: await response.json() };
}

test('assistant-ui keeps its threads and their histories', async () => {
  const { runtime, close } = await open();
  await ask(runtime, 'Any todos?');
  await ask(runtime, 'And now?');
  const conversation = ['Any todos?', 'Let me look. I have looked.', 'And now?', 'I have looked.'];
  assert.deepEqual(texts(runtime), conversation);
  const { remoteId } = runtime.threads.mainItem.getState();
  await until(() => runtime.threads.mainItem.getState().title === 'Any todos?');
  close();

  const again = (await open()).runtime;
  await until(() => again.threads.getState().threadIds.includes(remoteId));
  assert.deepEqual(texts(again), [], 'a new page begins a new thread');
  await again.threads.switchToThread(remoteId);
  await until(() => again.thread.getState().messages.length === 4);
  assert.deepEqual(texts(again), conversation);
  await ask(again, 'Still there?');
  const { thread } = await stored(remoteId);
  assert.equal(thread.messageCount, thread.nodes.length);
  const users = thread.nodes.filter(({ message }) => message.role === 'user').map(({ message }) => message.content);
  assert.deepEqual(users, ['Any todos?', 'And now?', 'Still there?'], 'the resent history adds nothing');

  const item = again.threads.getItemById(remoteId);
  await item.rename('Garden');
  assert.equal((await stored(remoteId)).thread.title, 'Garden');
  await item.archive();
  assert.equal((await stored(remoteId)).thread.archived, true);
  assert.ok(again.threads.getState().archivedThreadIds.includes(remoteId));
  await item.unarchive();
  assert.equal((await stored(remoteId)).thread.archived, false);
  await item.delete();
  assert.equal((await stored(remoteId)).status, 404);
});
