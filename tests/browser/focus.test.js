// Keyboard focus, window titles, and placeholders of empty views.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { alterResponses, ask, frames, launch, pageTests, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

/** Returns the element that has the focus, in words. */
const focused = (page) => page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.tagName);

inPage('a dialog of a menu gives the focus back to the button of the menu', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'Where is the focus?');
  await visit(page, 'threads');
  const more = page.getByRole('button', { name: /^More for/ }).first();
  const name = await more.getAttribute('aria-label');
  await more.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Delete', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.equal(await focused(page), name);
});

inPage('the comment on a rating gives the focus back to its button', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'How do I rate this?');
  const rate = page.getByRole('button', { name: 'Bad answer' });
  const comment = page.getByLabel('What was wrong?');
  const isGone = async () => {
    await comment.waitFor({ state: 'detached' });
    assert.equal(await focused(page), 'Bad answer');
  };
  await rate.press('Enter');
  await comment.fill('All of it.');
  await page.keyboard.press('Escape');
  await isGone();
  await page.locator('.rate[aria-label="Bad answer"][aria-pressed=true]').waitFor();
  await rate.press('Enter');
  await page.locator('.rate[aria-label="Bad answer"][aria-pressed=false]').waitFor();
  await rate.press('Enter');
  await comment.fill('Most of it.');
  await page.getByRole('button', { name: 'Save' }).press('Enter');
  await isGone();
});

inPage('a form has the focus when it is opened, and its button when it is closed', async (page) => {
  await page.evaluate(() => fetch('api/threads', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ agentId: 'text', title: 'To be renamed' }) }));
  await visit(page, 'threads');
  const row = page.locator('.item', { hasText: /To be renamed|A new title/ }).first();
  const rename = row.getByRole('button', { name: 'Rename', exact: true });
  const hasFocus = (target) => target.evaluate((node) => node === document.activeElement);
  for (const key of ['Escape', 'Enter']) {
    await rename.focus();
    await page.keyboard.press('Enter');
    const field = page.getByRole('textbox', { name: 'Title' });
    await field.waitFor();
    assert.ok(await hasFocus(field), 'the field has the focus');
    if (key === 'Enter') await field.fill('A new title');
    await page.keyboard.press(key);
    await field.waitFor({ state: 'detached' });
    assert.ok(await hasFocus(rename), `the button has the focus after ${key}`);
  }
  await page.getByRole('link', { name: 'A new title' }).first().waitFor();

  await visit(page, 'agents/text/tokens');
  const button = page.getByRole('button', { name: 'New token' });
  for (const end of ['Cancel', 'Make the token']) {
    await button.focus();
    await page.keyboard.press('Enter');
    await page.locator('.token-form').waitFor();
    assert.ok(await hasFocus(page.getByRole('radio').first()), 'the first field has the focus');
    await page.getByRole('button', { name: end }).focus();
    await page.keyboard.press('Enter');
    if (end !== 'Cancel') await page.getByRole('button', { name: 'Done' }).click();
    await button.waitFor();
    assert.ok(await hasFocus(button), `the button has the focus after ${end}`);
  }
});

/** Waits until the button `name` of the row with `text` has the focus. */
const buttonFocused = (page, name, text) => page.waitForFunction(
  ([name, text]) => document.activeElement.textContent === name && document.activeElement.closest('.item')?.innerText.includes(text), [name, text]);

inPage('a row that is archived or deleted gives the focus to the same button of the next one, of the last one, or to the content', async (page) => {
  const run = `focus ${Date.now()}`;
  await page.evaluate(async (run) => {
    const make = (title) => fetch('api/threads', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ agentId: 'text', title }) });
    for (const name of ['one', 'two', 'three']) await make(`${name} ${run}`);
  }, run);
  await visit(page, 'threads');
  await page.getByRole('searchbox', { name: 'Search the titles' }).fill(run);
  const titles = page.locator('a.item-title');
  await page.waitForFunction((run) => {
    const shown = [...document.querySelectorAll('a.item-title')];
    return shown.length === 3 && shown.every(({ textContent }) => textContent.includes(run));
  }, run);
  const [first, second, third] = await titles.allInnerTexts();
  const row = (title) => page.locator('.item', { hasText: title });
  const archive = async (title) => {
    await row(title).getByRole('button', { name: 'Archive' }).focus();
    await page.keyboard.press('Enter');
    await row(title).waitFor({ state: 'detached' });
  };
  await archive(second);
  await buttonFocused(page, 'Archive', third);
  await row(third).getByRole('button', { name: /^More for/ }).focus();
  await page.keyboard.press('Enter');
  await row(third).getByRole('button', { name: 'Delete', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).focus();
  await page.keyboard.press('Enter');
  await row(third).waitFor({ state: 'detached' });
  await buttonFocused(page, 'More', first);
  await archive(first);
  await page.waitForFunction(() => document.activeElement.id === 'main');
});

inPage('a token that is revoked gives the focus to the button of another one', async (page) => {
  const labels = ['one', 'two'].map((name) => `${name} ${Date.now()}`);
  await page.evaluate(async (labels) => {
    const make = (label) => fetch('api/agents/text/tokens', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ kind: 'api', label }) });
    for (const label of labels) await make(label);
  }, labels);
  await visit(page, 'agents/text/tokens');
  for (const label of labels) await page.getByRole('button', { name: `Revoke ${label}` }).waitFor();
  const revoke = page.getByRole('button', { name: `Revoke ${labels[0]}` });
  await revoke.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).focus();
  await page.keyboard.press('Enter');
  await revoke.waitFor({ state: 'detached' });
  await buttonFocused(page, 'Revoke', '');
});

inOwnPage('a row that moves keeps the focus, unless the user has left it, also where the browser cannot move elements in one step', async (page) => {
  await page.addInitScript(() => delete Element.prototype.moveBefore);
  await page.reload();
  await page.locator('.layout').waitFor();
  // Each time a text is extracted again, the server lists the documents in another order.
  let order = 'abcde';
  await page.route('**/api/documents?*', (route) => route.fulfill({ json: { documents: [...order].map((id) => ({ id, title: id, bytes: 1, version: 1, status: 'ready' })) } }));
  await page.route('**/api/documents/*/reindex', (route) => route.fulfill({ json: {} }));
  await visit(page, 'agents/text/documents');
  const areInOrder = () => page.waitForFunction((titles) => [...document.querySelectorAll('.rows .item-title')].map(({ textContent }) => textContent).join('') === titles, order);
  const extract = async (next) => {
    order = next;
    await page.getByRole('button', { name: 'More for e' }).focus();
    for (const key of ['Enter', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
  };
  await areInOrder();
  await extract('aebcd');
  await areInOrder();
  assert.equal(await focused(page), 'More for e');
  await extract('abcde');
  await areInOrder();
  assert.equal(await focused(page), 'More for e');
  await extract('aebcd');
  await page.evaluate(() => document.activeElement.blur());
  await areInOrder();
  assert.equal(await focused(page), 'BODY');
});

inPage('a link that is gone with its view leaves the focus to the content, and each view names the window', async (page) => {
  await visit(page, 'agents');
  const link = page.getByRole('link', { name: 'Pip', exact: true });
  await link.waitFor();
  assert.equal(await page.title(), 'Agents · Agent console');
  await link.focus();
  await page.keyboard.press('Enter');
  await page.locator('.section').first().waitFor();
  await page.waitForFunction(() => document.activeElement.id === 'main' && document.title === 'Pip · Agent console');
  // A view that takes the focus keeps it.
  await page.getByRole('link', { name: 'Chat', exact: true }).last().click();
  await page.waitForFunction(() => document.activeElement.id === 'composer' && document.title === 'New chat · Pip · Agent console');
  await visit(page, 'chat/text');
  await ask(page, 'How do you call it?');
  await page.waitForFunction(() => document.title === 'How do you call it? · Text · Agent console');
  await page.locator('.nav-link', { hasText: 'Jobs' }).click();
  await page.waitForFunction(() => document.title === 'Jobs · Agent console');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Jobs');
});

inOwnPage('the window says nothing of a session that has ended', async (page, { context }) => {
  await visit(page, 'agents/garden');
  await page.waitForFunction(() => document.title.startsWith('Pip'));
  await context.clearCookies();
  await visit(page, 'threads');
  await page.locator('.sign-in').waitFor();
  await page.waitForFunction(() => document.title === 'Sign in · Agent console');
});

inPage('keys that a browser sends without a name, as it does where it fills in a form, do no harm', async (page) => {
  await visit(page, 'chat/text');
  await page.evaluate(() => document.getElementById('composer').dispatchEvent(new Event('keydown', { bubbles: true })));
  await page.keyboard.press('Control+k');
  await page.locator('.palette').waitFor();
});

inPage('the key that ends a composition sends nothing, also where the browser has ended the composition before', async (page) => {
  await visit(page, 'chat/text');
  const field = page.getByRole('textbox', { name: 'Message' });
  await field.fill('こんにちは');
  const press = (init) => field.evaluate((field, init) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true, ...init })), init);
  // A key that sends takes the line's end from the browser.
  assert.deepEqual([await press({ isComposing: true }), await press({ keyCode: 229 })], [true, true]);
  assert.equal(await field.inputValue(), 'こんにちは');
  await ask(page, 'こんにちは');
});

inPage('the key that cancels a composition closes no form', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'Hello');
  await page.locator('.message.user').getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('textbox', { name: 'Edit the message' });
  await editor.fill('こんばんは');
  await editor.evaluate((field) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', isComposing: true, bubbles: true })));
  await frames(page);
  assert.equal(await editor.count(), 1);
  await editor.press('Escape');
  await editor.waitFor({ state: 'detached' });
});

inPage('a view whose list is empty, or is not there yet, says so', async (page) => {
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route('**/api/threads?*', async (route) => {
    await held;
    await route.continue().catch(() => {});
  });
  await visit(page, 'threads');
  await page.locator('.page', { hasText: 'Loading…' }).waitFor();
  release();
  await page.locator('.item').first().waitFor();
  await alterResponses(page, '**/api/agents?*', () => ({ agents: [] }));
  await page.reload();
  await visit(page, 'agents');
  await page.locator('.page', { hasText: 'No agent yet.' }).waitFor();
});

inPage('an address of an agent that does not exist says so, and leads to the others', async (page) => {
  await page.evaluate(() => (location.hash = '#/chat/no-such-agent'));
  await page.getByRole('heading', { name: 'No such agent' }).waitFor();
  await page.waitForFunction(() => document.title === 'No such agent · Agent console');
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Chat' }).click();
  await page.locator('#composer').waitFor();
});

inPage('the chat goes on with another agent when the shown one is deleted', async (page) => {
  await visit(page, 'agents/new');
  await page.getByLabel('Identifier').fill('passing');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('tab', { name: 'Backend' }).waitFor();
  await visit(page, 'chat/passing');
  await visit(page, 'agents/passing');
  await page.getByRole('button', { name: 'Delete agent' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Agents' }).waitFor();
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Chat' }).click();
  await page.locator('#composer').waitFor();
});

inPage('a row of tabs is reached by the keyboard where the address selects none of them', async (page) => {
  await visit(page, 'agents/text/no-such-tab');
  const tab = page.locator('.page [role=tab]:not([tabindex="-1"])');
  await tab.waitFor();
  assert.equal(await tab.innerText(), 'Role');
  await tab.press('ArrowRight');
  await page.getByRole('tab', { name: 'Backend', selected: true }).waitFor();
});

inPage('a thread says that it is loaded', async (page) => {
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await page.route('**/api/threads/absent?*', async (route) => {
    await held;
    await route.continue().catch(() => {});
  });
  await visit(page, 'chat/text/absent');
  const chat = page.locator('.conversation');
  await chat.filter({ hasText: 'Loading…' }).waitFor();
  release();
  await chat.filter({ hasText: 'NOT_FOUND' }).waitFor();
  assert.equal(await chat.getByText('Loading…').count(), 0);
});
