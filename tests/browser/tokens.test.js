import assert from 'node:assert/strict';

import { before, test } from './harness.js';
import { base, close, launch, openPage, link, pageTests, picture, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

/** The status of a chat with a widget token, from a page of an origin. */
async function chatStatus(token, origin) {
  const response = await fetch(new URL('api/agent/chat', base), {
    method: 'POST',
    headers: { 'X-Widget-Token': token, 'Content-Type': 'application/json', Origin: origin },
    body: JSON.stringify({ message: 'Hello' }),
  });
  await response.text();
  return response.status;
}

const { inPage } = pageTests(() => browser);

/** Adds a test that begins in the form of a new token. */
const inTokens = (name, run) => inPage(name, async (page) => {
  await visit(page, 'agents/text/tokens');
  await page.getByRole('button', { name: 'New token' }).click();
  await run(page);
});

inTokens('a widget token is made, shown once with its snippet, and revoked', async (page) => {
  const label = `Shop ${Date.now()}`;
  await page.getByLabel('Label').fill(label);
  await page.getByLabel('Origins').fill('shop.example');
  await page.getByLabel('Messages a day').fill('many');
  await page.getByRole('button', { name: 'Make the token' }).click();
  await page.locator('.field-error').first().waitFor();
  await picture(page, 'token-refused');
  await page.getByLabel('Messages a day').fill('100');
  await page.getByLabel('Origins').fill('https://shop.example, http://localhost:5173');
  await page.getByRole('button', { name: 'Make the token' }).click();
  const token = await page.getByRole('region', { name: 'token', exact: true }).innerText();
  assert.match(token, /^agw_/);
  const snippet = await page.getByRole('region', { name: 'snippet' }).innerText();
  assert.ok(snippet.includes(`src="${new URL('widget.js', base)}"`) && snippet.includes(`data-token="${token}"`), snippet);
  await page.getByText('It works in pages of https://shop.example, http://localhost:5173.').waitFor();
  await page.evaluate(() => (navigator.clipboard.writeText = async (text) => (globalThis.copied = text)));
  await page.getByRole('button', { name: 'Copy the token' }).click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => globalThis.copied), token);
  assert.equal(await chatStatus(token, 'https://shop.example'), 200);
  assert.equal(await chatStatus(token, 'https://other.example'), 403);
  await page.getByRole('button', { name: 'Done' }).click();
  assert.ok(!(await page.content()).includes(token), 'it is shown once');
  const row = page.locator('.item', { hasText: label });
  assert.match(await row.innerText(), /https:\/\/shop\.example, http:\/\/localhost:5173 · 20 a minute · 100 a day/);
  await row.getByRole('button', { name: `Revoke ${label}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await chatStatus(token, 'https://shop.example'), 200, 'a question alone revokes nothing');
  await row.getByRole('button', { name: `Revoke ${label}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await row.getByText('revoked', { exact: true }).waitFor();
  assert.equal(await chatStatus(token, 'https://shop.example'), 401);
});

inTokens('the server’s words are at the field of a token', async (page) => {
  await page.getByLabel('Origins').fill('shop.example');
  await page.getByRole('button', { name: 'Make the token' }).click();
  const origins = page.getByLabel('Origins');
  await page.locator('#role-origins-error', { hasText: 'must be an origin, such as https://shop.example' }).waitFor();
  assert.equal(await origins.getAttribute('aria-invalid'), 'true');
  await origins.fill('https://shop.example');
  await page.locator('#role-origins-error').waitFor({ state: 'detached' });
});

inTokens('an MCP token has tools and a todo list', async (page) => {
  await page.getByText('MCP: a program').click();
  const label = `Program ${Date.now()}`;
  await page.getByLabel('Label').fill(label);
  await page.getByLabel('Only these tools').fill('readTodos');
  await page.getByLabel('Todo list').fill('l1');
  await page.getByLabel('It is valid').selectOption({ label: 'one day' });
  await page.getByRole('button', { name: 'Make the token' }).click();
  assert.match(await page.getByRole('region', { name: 'token', exact: true }).innerText(), /^agm_/);
  assert.equal(await page.getByRole('region', { name: 'address' }).innerText(), String(new URL('api/agent/mcp', base)));
  await page.getByRole('button', { name: 'Done' }).click();
  assert.match(await page.locator('.item', { hasText: label }).innerText(), /for u1 · todo list l1 · tools: readTodos[^]*expires/);
});

inTokens('an API token has the address of the API', async (page) => {
  await page.getByText('API: a client of OpenAI’s API').click();
  const label = `Client ${Date.now()}`;
  await page.getByLabel('Label').fill(label);
  await page.getByRole('button', { name: 'Make the token' }).click();
  assert.match(await page.getByRole('region', { name: 'token', exact: true }).innerText(), /^aga_/);
  assert.equal(await page.getByRole('region', { name: 'address' }).innerText(), String(new URL('v1', base)));
  await page.getByRole('button', { name: 'Done' }).click();
  assert.match(await page.locator('.item', { hasText: label }).innerText(), /API[^]*for u1/);
});

test('tokens are the owner’s alone', async () => {
  const opened = await openPage(browser);
  const { page, faults } = opened;
  await page.goto(await link('u2'));
  await page.locator('.layout').waitFor();
  await visit(page, 'agents/text/tokens');
  await page.getByRole('alert').filter({ hasText: 'FORBIDDEN' }).waitFor();
  assert.deepEqual(faults, []);
  await close(opened);
});
