import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { before, test } from './harness.js';
import { mint } from './host.js';
import { base, launch, link, openPage, pageTests, picture, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

/** Returns a visitor of an agent's widget: a function that sends requests. */
function visitor(token, key) {
  const headers = { 'X-Widget-Token': token, 'X-Visitor-Key': key.padEnd(32, '_'), 'Content-Type': 'application/json' };
  return async (method, path, body) => {
    const response = await fetch(new URL(path, base), { method, headers, body: body && JSON.stringify(body) });
    return { status: response.status, text: await response.text() };
  };
}

/** Sends a message of a visitor and returns the thread of the answer. */
async function write(send, agentId, message) {
  const threadId = randomUUID();
  const { status, text } = await send('POST', 'api/agent/chat', { agentId, message, threadId });
  assert.equal(status, 200, text);
  assert.match(text, /RUN_FINISHED/);
  return threadId;
}

/** Creates an agent that repeats its message, and returns its id. */
async function newAgent(page) {
  const id = `visited-${Date.now()}`;
  const status = await page.evaluate(async (id) => {
    const { content, children } = await (await fetch('api/agents/echo')).json();
    children[0].content.apiKey = 'k';
    const body = JSON.stringify({ name: 'Visited', content, children });
    return (await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body })).status;
  }, id);
  assert.equal(status, 201);
  return id;
}

inPage('the owner reads, exports and deletes the threads of visitors, and reads their ratings', async (page) => {
  const id = await newAgent(page);
  const { token } = await mint(id, { label: 'shop' });
  await visit(page, `agents/${id}/visitors`);
  await page.getByText('No visitor has written yet').waitFor();
  const [ada, bob] = [visitor(token, 'ada'), visitor(token, 'bob')];
  const first = await write(ada, id, 'When are **you** open?');
  await write(bob, id, 'Do you sell ferns?');
  const { nodes } = JSON.parse((await ada('GET', `api/threads/${first}`)).text);
  const rated = await ada('PUT', `api/threads/${first}/messages/${nodes.at(-1).id}/feedback`, { rating: 'down', comment: 'That is no answer.', share: true });
  assert.equal(rated.status, 200, rated.text);

  await visit(page, 'agents');
  await visit(page, `agents/${id}/visitors`);
  const items = page.locator('.item');
  await items.nth(1).waitFor();
  assert.deepEqual(await page.locator('a.item-title').allInnerTexts(), ['Do you sell ferns?', 'When are **you** open?']);
  await picture(page, 'visitors');
  await page.getByRole('link', { name: 'When are **you** open?' }).click();
  const thread = page.locator('.read-only');
  await thread.locator('.answer strong', { hasText: 'you' }).waitFor();
  assert.equal(await thread.locator('.user .bubble').innerText(), 'When are **you** open?');
  await thread.getByText('rated down: That is no answer.').waitFor();
  await picture(page, 'visitor-thread');
  const menu = page.getByRole('button', { name: 'More for this thread' });
  await menu.click();
  for (const [name, start] of [['Export as Markdown', '# '], ['Export as JSON', '{"thread"']]) {
    const [status, text] = await page.evaluate(async (href) => {
      const response = await fetch(href);
      return [response.status, await response.text()];
    }, await page.getByRole('link', { name }).getAttribute('href'));
    assert.equal(status, 200, text);
    assert.ok(text.startsWith(start) && text.includes('open?'), text.slice(0, 200));
  }
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.locator('a.item-title', { hasText: 'ferns' }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 1);
  assert.equal((await ada('GET', `api/threads/${first}`)).status, 404, 'it is gone for the visitor too');

  await page.getByRole('navigation', { name: 'Visitors' }).getByRole('link', { name: 'Feedback' }).click();
  await page.getByText(/No answer was rated yet|0 % good/).waitFor();
  await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
});

inPage('a list of many visitors is read page by page', async (page) => {
  const at = (place) => new Date(Date.UTC(2026, 0, 2) - place * 1000).toISOString();
  const threads = Array.from({ length: 120 }, (_, place) => ({ id: `t${place}`, owner: 'widget:x', agentId: 'echo', title: `Question ${place}`, status: 'idle', messageCount: 2, createdAt: at(place), lastActivityAt: at(place) }));
  await page.route('**/api/agents/echo/threads?*', (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get('cursor') ?? 0);
    const to = from + Number(query.get('limit'));
    return route.fulfill({ json: { threads: threads.slice(from, to), nextCursor: to < threads.length ? String(to) : undefined } });
  });
  await visit(page, 'agents/echo/visitors');
  for (const count of [50, 100, 120]) {
    await page.waitForFunction((count) => document.querySelectorAll('.item').length === count, count);
    const older = page.getByRole('button', { name: 'Load older ones' });
    if (count === 100) {
      await page.route('**/api/agents/echo/threads?*', (route) => route.abort(), { times: 1 });
      await older.click();
      await page.getByRole('alert').filter({ hasText: 'NETWORK' }).waitFor();
    }
    if (count < 120) await older.click();
  }
  assert.equal(await page.getByRole('button', { name: 'Load older ones' }).count(), 0);
  const titles = await page.locator('a.item-title').allInnerTexts();
  assert.equal(new Set(titles).size, 120);
});

test('colleagues see nothing of an agent’s visitors', async () => {
  const { page, context, faults } = await openPage(browser);
  await page.goto(await link('u6'));
  await page.locator('.layout').waitFor();
  await visit(page, 'agents/echo');
  await page.getByRole('tab', { name: 'Documents' }).waitFor();
  assert.equal(await page.getByRole('tab', { name: 'Visitors' }).count(), 0);
  await visit(page, 'agents/echo/visitors');
  await page.getByRole('alert').filter({ hasText: 'NOT_FOUND' }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});
