// The prompts of runs beside each other, calls that are tried again, assignments, and what is laid out in narrow windows.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { alterResponses, ask, base, forbidden, launch, pageTests, picture, visit } from './support.js';
import { usageRows } from './usage-rows.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

/** Sends a request as the page does, and returns its JSON. */
const send = (page, method, path, body) => page.evaluate(async ([method, path, body]) => {
  const response = await fetch(path, { method, headers: { 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${text}`);
  return text && JSON.parse(text);
}, [method, path, body]);

/** Creates an agent with the fake model, and shows its chat. */
async function openAgent(page, id) {
  const { content, children } = await send(page, 'GET', 'api/agents/text');
  children[0].content.apiKey = 'k';
  await send(page, 'PUT', `api/agents/${id}`, { name: 'Recorded', content, children });
  await page.reload();
  await page.locator('.layout').waitFor();
  await visit(page, `chat/${id}`);
}

async function changeRule(page, id, rule) {
  const agent = await send(page, 'GET', `api/agents/${id}`);
  agent.content.rules[0] = rule;
  await send(page, 'PUT', `api/agents/${id}`, agent);
}

const record = (page) => page.getByRole('region', { name: 'Prompt of the run' });
const openRecord = async (page) => {
  await page.locator('.fold > summary', { hasText: 'Prompt of the inspected run' }).click();
  await record(page).waitFor();
};

/** Gives the records of prompts texts as `RUN_PROMPTS=keep` does: that of the rules is the rule of the run. */
const keepTexts = (page, rules) => alterResponses(page, '**/api/runs/*/prompt', (prompt) => {
  const [hash] = prompt.parts.filter(({ id }) => id === 'rules').map(({ sha256 }) => sha256);
  if (!rules.has(hash)) rules.set(hash, rules.texts[rules.size]);
  return { ...prompt, parts: prompt.parts.map((part) => ({ ...part, content: part.id === 'rules' ? rules.get(hash) : 'A text.' })) };
});

inPage('the prompt of a run is shown beside that of the run before', async (page) => {
  const id = `recorded-${Date.now()}`;
  await openAgent(page, id);
  await ask(page, 'Hello');
  await changeRule(page, id, 'Be long.');
  await ask(page, 'Again');
  await openRecord(page);
  const rules = record(page).locator('details', { hasText: 'rules' });
  assert.equal(await rules.locator('.chip').innerText(), 'changed');
  assert.equal(await record(page).locator('details', { hasText: 'system-prompt' }).locator('.chip').count(), 0);
  await rules.locator('summary').click();
  assert.match(await rules.innerText(), /The text was not kept\. Its SHA-256 is\s+[0-9a-f]{64}/);
  const bundle = await page.evaluate(async (href) => (await fetch(href)).json(), await record(page).getByRole('link', { name: 'Save for a replay' }).getAttribute('href'));
  assert.equal(bundle.format, 'agentd-run-bundle/1');
  await record(page).getByRole('button', { name: 'Inspect the run before' }).click();
  await record(page).waitFor({ state: 'detached' });
  await openRecord(page);
  await record(page).getByText('No run before it was remembered.').waitFor();
  assert.equal(await record(page).locator('.chip.state-changed, .chip.state-added').count(), 0, 'nothing of the first run is new');
  await keepTexts(page, Object.assign(new Map(), { texts: ['Be long.', 'Be brief.'] }));
  await page.locator('.message.answer').last().getByRole('button', { name: 'Inspect' }).click();
  await openRecord(page);
  await rules.locator('del').waitFor();
  assert.deepEqual([await rules.locator('del').innerText(), await rules.locator('ins').innerText()], ['brief', 'long']);
  await picture(page, 'prompt-record');
  await send(page, 'DELETE', `api/agents/${id}`);
});

inPage('the difference of a broken prompt is there after a reload, where the server keeps the texts', async (page) => {
  const id = `reloaded-${Date.now()}`;
  await openAgent(page, id);
  await ask(page, 'Hello');
  await changeRule(page, id, 'Be long.');
  const broken = page.getByRole('region', { name: 'Cache' });
  await page.reload();
  await broken.getByText('Neither this page nor the server has the text').waitFor();
  assert.equal(await broken.locator('.diff').count(), 0);
  await keepTexts(page, Object.assign(new Map(), { texts: ['Rules: Be brief.'] }));
  await page.reload();
  await broken.locator('.diff').waitFor();
  assert.match(await broken.locator('ins').allInnerTexts().then((texts) => texts.join(' ')), /long/);
  assert.match(await broken.locator('del').allInnerTexts().then((texts) => texts.join(' ')), /brief/);
  await send(page, 'DELETE', `api/agents/${id}`);
});

inPage('a call of the chat is tried again with its arguments', async (page) => {
  await visit(page, 'chat/approvals');
  const title = `Basil ${Date.now()}`;
  await page.getByRole('textbox', { name: 'Message' }).fill(`Write ${title}`);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Approve', exact: true }).click();
  await page.getByText('Result: ').waitFor();
  await page.locator('.answer details.tool > summary').last().click();
  const again = page.getByRole('link', { name: 'Try again in Tools' });
  const tried = page.locator('#debug-panel details[open] .try');
  await again.click();
  await tried.waitFor();
  assert.equal(await tried.getByLabel('title').inputValue(), title);
  assert.equal(await page.locator('#debug-panel .try:visible').count(), 1, 'the other tools stay folded');
  // The same link works again after another tab was chosen, and after a reload.
  await page.getByRole('tab', { name: 'Prompt' }).click();
  await page.locator('.part').first().waitFor();
  await page.reload();
  await tried.waitFor();
  assert.equal(await tried.getByLabel('title').inputValue(), title);
});

inPage('a call of a new chat is tried again within the chat, before its thread is read', async (page) => {
  const threads = '**/api/threads/*';
  let release;
  const held = new Promise((resolve) => (release = resolve));
  await visit(page, 'chat/tools');
  await page.route(threads, async (route) => {
    await held;
    await route.continue();
  });
  await page.getByRole('textbox', { name: 'Message' }).fill('What is open?');
  await page.keyboard.press('Enter');
  await page.locator('.answer details.tool > summary').last().click();
  const chat = await page.evaluate(() => location.hash);
  await page.getByRole('link', { name: 'Try again in Tools' }).click();
  await page.waitForFunction((chat) => location.hash.startsWith(`${chat}?tab=tools`), chat);
  assert.equal(await page.locator('.message.user').count(), 1);
  release();
  await page.locator('.thread-title span:not(.visually-hidden)').waitFor();
  await page.unroute(threads);
});

inPage('runs that have never started are among the runs of a thread', async (page) => {
  await visit(page, 'chat/text');
  for (const text of ['one', 'two']) await ask(page, text);
  await alterResponses(page, '**/api/runs?*', ({ runs, ...more }) => ({ ...more, runs: runs.map(({ startedAt, ...run }) => run) }));
  await page.reload();
  await page.getByRole('tab', { name: 'Events' }).click();
  const runs = page.locator('.run-pick option', { hasText: '– ·' });
  await runs.nth(1).waitFor({ state: 'attached' });
  assert.equal(await runs.count(), 2);
});

/** An assignment in the form of the route. */
const assignment = (id, more) => ({
  id, userId: 'u1', companyId: 'c1', agentId: 'text', kind: 'tool', toolId: 'createTodo', arguments: { title: 'Water the basil' }, todoListId: 'l1',
  schedule: { enabled: true, cron: '0 9 * * *', timezone: 'Europe/Berlin' }, sync: { inStep: true, jobId: 'j', executeAt: '2030-01-01T08:00:00.000Z' }, ...more,
});

inPage('assignments are listed with their synchronization, disabled, enabled and deleted', async (page) => {
  const id = `morning-${Date.now()}`;
  const { userId, companyId, agentId, sync, ...body } = assignment(id);
  await send(page, 'PUT', `api/agents/text/assignments/${id}`, body);
  await visit(page, 'agents/text');
  await page.getByRole('tab', { name: 'Assignments' }).click();
  const row = page.locator('.item', { hasText: id });
  await row.waitFor();
  assert.match(await row.innerText(), /createTodo Water the basil\s+(enabled|waits for the scheduler) · every day at 09:00, Europe\/Berlin · for u1/);
  await row.getByRole('button', { name: 'Disable' }).click();
  // Not by the text of the row, where "Disable" and "Delete" follow each other.
  await row.locator('.meta', { hasText: 'disabled' }).waitFor();
  assert.equal((await send(page, 'GET', `api/agents/text/assignments/${id}`)).schedule.enabled, false);
  await row.getByRole('button', { name: 'Enable' }).click();
  await row.getByRole('link', { name: 'job' }).waitFor();
  const stored = await send(page, 'GET', `api/agents/text/assignments/${id}`);
  assert.deepEqual([stored.schedule, stored.arguments], [body.schedule, body.arguments], 'nothing else has changed');
  // A change elsewhere between the two requests is not lost.
  await page.route(`**/api/agents/text/assignments/${id}`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, headers: { ...response.headers(), etag: '"99"' } });
  }, { times: 1 });
  await row.getByRole('button', { name: 'Disable' }).click();
  await row.getByRole('alert').filter({ hasText: 'PRECONDITION_FAILED' }).waitFor();
  await row.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await row.waitFor({ state: 'detached' });
});

const HOSTILE = ['<img src=x onerror=alert(1)>', '"><script>alert(1)</script>', 'javascript:alert(1)', '${alert(1)}', '__proto__', '\u202egnp.exe'];

inPage('no text of an assignment becomes anything but text', async (page) => {
  const assignments = HOSTILE.flatMap((text, place) => [
    assignment(text, { userId: text, toolId: text, arguments: { [text]: text } }),
    assignment(`${place}`, { kind: 'agent', message: text, schedule: { enabled: true, cron: text, timezone: text }, sync: { inStep: false, problem: text } }),
  ]);
  await page.route('**/api/agents/text/assignments?*', (route) => route.fulfill({ json: { assignments } }));
  await visit(page, 'agents/text/assignments');
  await page.locator('.item').nth(assignments.length - 1).waitFor();
  assert.deepEqual(await page.evaluate(forbidden), []);
});

inPage('threads are narrowed to one agent', async (page) => {
  const titles = Object.fromEntries(['text', 'echo'].map((agentId) => [agentId, `Of ${agentId} ${Date.now()}`]));
  for (const [agentId, title] of Object.entries(titles)) await send(page, 'POST', 'api/threads', { agentId, title });
  await visit(page, 'threads');
  await page.getByText(titles.echo).waitFor();
  await page.locator('.page').getByRole('combobox', { name: 'Agent' }).selectOption('text');
  await page.getByText(titles.echo).waitFor({ state: 'detached' });
  await page.locator('.page').getByText(titles.text).waitFor();
});

inOwnPage('in a narrow window figures have room, and rules of approvals are within their row', async (page) => {
  await page.route('**/api/usage?*', (route) => {
    const rows = usageRows(new URL(route.request().url()).searchParams.get('groupBy').split(','));
    return route.fulfill({ json: { currency: 'USD', asOf: new Date().toISOString(), rows: rows.map((row) => ({ ...row, inputTokens: row.inputTokens * 20_000 })) } });
  });
  await visit(page, 'usage');
  await page.locator('.figures dd', { hasText: /\d{1,3}(,\d{3}){3}/ }).waitFor();
  const apart = await page.evaluate(() => {
    const boxes = [...document.querySelectorAll('.figures dd')].map((node) => {
      const range = document.createRange();
      range.selectNodeContents(node);
      return range.getBoundingClientRect();
    });
    const overlaps = boxes.some((one, place) => boxes.some((other, next) => next > place && one.top === other.top && one.right + 8 > other.left));
    return { overlaps, right: Math.max(...boxes.map(({ right }) => right)), width: innerWidth };
  });
  assert.ok(!apart.overlaps && apart.right <= apart.width, JSON.stringify(apart));
  await picture(page, 'usage-narrow');
  await visit(page, 'agents/approvals');
  await page.locator('.section > summary', { hasText: 'Approvals' }).click();
  const [row, last] = [page.locator('.list-row', { hasText: 'Who decides' }), page.getByText('The arguments may be changed')];
  const [outer, inner] = [await row.boundingBox(), await last.boundingBox()];
  assert.ok(inner.y > outer.y && inner.y + inner.height < outer.y + outer.height, JSON.stringify([outer, inner]));
}, { viewport: { width: 360, height: 740 } });

inPage('the dialog that cancels jobs says which button keeps them', async (page) => {
  const payload = { kind: 'tool', agentId: 'text', toolId: 'createTodo', todoListId: 'l1', arguments: { title: `keep ${Date.now()}` } };
  const { jobId } = await send(page, 'POST', 'api/pulse/jobs', { payload, everyMs: 7_200_000 });
  await visit(page, 'jobs');
  const row = page.locator('.item', { hasText: payload.arguments.title });
  await row.getByRole('checkbox').check();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  assert.deepEqual(await dialog.getByRole('button').allInnerTexts(), ['Keep 1 job', 'Cancel 1 job']);
  await dialog.getByRole('button', { name: 'Keep 1 job' }).click();
  await dialog.waitFor({ state: 'detached' });
  assert.equal((await send(page, 'GET', `api/pulse/jobs/${jobId}`)).state, 'scheduled');
  await visit(page, `jobs/${jobId}`);
  await page.locator('.facts').waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await dialog.waitFor();
  assert.deepEqual(await dialog.getByRole('button').allInnerTexts(), ['Keep the job', 'Cancel the job']);
  await dialog.getByRole('button', { name: 'Cancel the job' }).click();
  await page.locator('.facts', { hasText: 'cancelled' }).waitFor();
});

inOwnPage('the browser keeps nothing of a session but the theme', async (page, { context }) => {
  await visit(page, 'chat/text');
  await ask(page, 'A word that is not kept: canary-words');
  await visit(page, 'agents/text/tokens');
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByRole('button', { name: 'Make the token' }).click();
  const token = await page.getByRole('region', { name: 'token', exact: true }).innerText();
  assert.match(token, /^ag/);
  await page.getByRole('button', { name: 'Done' }).click();
  const kept = await page.evaluate(async () => ({
    local: { ...localStorage }, session: { ...sessionStorage }, databases: (await indexedDB.databases()).length, caches: (await globalThis.caches?.keys()) ?? [],
    state: history.state, name: globalThis.name, cookies: document.cookie, content: document.documentElement.outerHTML, address: location.href,
  }));
  assert.deepEqual({ ...kept, content: '', address: '' }, { local: { 'agent-console.theme': 'auto' }, session: {}, databases: 0, caches: [], state: null, name: '', cookies: '', content: '', address: '' });
  assert.ok(![kept.content, kept.address].some((text) => text.includes(token)), 'the token is gone with its page');
  // The link's code is in no entry of the history either.
  const entries = await context.newCDPSession(page).then((session) => session.send('Page.getNavigationHistory'));
  assert.deepEqual(entries.entries.map(({ url }) => url).filter((url) => /enter=/.test(url) && new URL(url).origin === new URL(base).origin), []);
});

inOwnPage('the selected tab and the current view stay in their rows while the window gets narrower', async (page) => {
  await visit(page, 'audit');
  await page.locator('.nav-link[aria-current]', { hasText: 'Audit' }).waitFor();
  const isInRow = (selector) => {
    const item = document.querySelector(selector);
    const row = item.parentElement;
    const [inner, outer] = [item, row].map((node) => node.getBoundingClientRect());
    return row.scrollWidth > row.clientWidth && inner.left >= outer.left - 1 && inner.right <= outer.right + 1;
  };
  const narrow = { width: 320, height: 500 };
  await page.setViewportSize(narrow);
  await page.waitForFunction(isInRow, '.nav-link[aria-current]');
  await page.setViewportSize({ width: 1280, height: 500 });
  await visit(page, 'agents/text/visitors');
  await page.locator('.page > .tabs [aria-selected=true]', { hasText: 'Visitors' }).waitFor();
  await page.setViewportSize(narrow);
  await page.waitForFunction(isInRow, '.page > .tabs [aria-selected=true]');
});
