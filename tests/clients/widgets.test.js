// The recipes of docs/clients.md for chat widgets, on a page whose origin the widget token names.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentdUrl, widgetTokens } from './setting.js';
import './page.js';
import { until } from './wait.js';

const recipe = (name) => import(`../../examples/clients/${name}`);

test('deep-chat', async () => {
  const { createChat } = await recipe('deep-chat.js');
  // Later changes of an attribute would recreate the element, without its messages. While it waits to draw itself with the
  // present ones, a timer of its constructor may have drawn it already.
  const open = async (widgetToken) => {
    const chat = createChat(agentdUrl, widgetToken);
    const seen = { chat, answers: [], errors: [] };
    chat.onMessage = ({ message }) => message.role === 'ai' && seen.answers.push(message.text);
    chat.onError = (error) => seen.errors.push(error);
    document.body.appendChild(chat);
    await until(() => chat.shadowRoot?.querySelector('#text-input') && !chat._waitingToRender_);
    return seen;
  };
  const { chat, answers, errors } = await open(widgetTokens.guide);
  for (const count of [1, 2]) {
    chat.submitUserMessage({ text: 'Any todos?' });
    await until(() => answers.length === count);
    assert.equal(answers.at(-1).trim(), 'Let me look.\n\nI have looked.');
  }
  // The element adds a message to its list after it has announced the message.
  await until(() => chat.getMessages().length === 4);
  assert.deepEqual(errors, []);

  const broken = await open(widgetTokens.error);
  broken.chat.submitUserMessage({ text: 'Hello' });
  await until(() => broken.errors.length > 0 && broken.answers.length > 0);
  assert.deepEqual(broken.answers, ['Half an']);
  assert.deepEqual(broken.errors, ["the model's server reported an error"]);
});

for (const format of ['n8n', 'json']) {
  test(`@n8n/chat, format=${format}`, async () => {
    const { openChat } = await recipe('n8n-chat.js');
    const ask = async (widgetToken) => {
      const app = openChat(agentdUrl, widgetToken, format);
      const { $chat } = app.config.globalProperties;
      await $chat.sendMessage('Any todos?');
      const texts = $chat.messages.value.filter(({ sender }) => sender === 'bot').map(({ text }) => text);
      app.unmount();
      return texts;
    };
    const looked = format === 'n8n' ? ['Let me look.', 'I have looked.'] : ['Let me look.\n\nI have looked.'];
    assert.deepEqual(await ask(widgetTokens.guide), looked);
    const broken = (await ask(widgetTokens.error)).join('\n');
    assert.match(broken, /the model's server reported an error/);
    assert.equal(broken.startsWith('Half an'), format === 'n8n');
  });
}
