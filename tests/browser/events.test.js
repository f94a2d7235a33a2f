// The Events tab of a run with very many events: only the rows in view are in the document.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { ask, launch, pageTests, picture, visit } from './support.js';

/** Events of the run. */
const COUNT = 10_000;
/** Maximum number of rows in the document: those in view, and some above and below. */
const MAX_ROWS = 60;

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

/** Serves a run of many events as the answer to the next message. */
async function serveRun(page) {
  const deltas = Array.from({ length: COUNT - 4 }, (_, place) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta: place % 20 === 19 ? `${place}.\n\n` : `word${place} ` }));
  const events = [
    { type: 'RUN_STARTED', threadId: 't', runId: 'r' }, { type: 'TEXT_MESSAGE_START', messageId: 'm', role: 'assistant' }, ...deltas,
    { type: 'TEXT_MESSAGE_END', messageId: 'm' }, { type: 'RUN_FINISHED', threadId: 't', runId: 'r', result: { finishReason: 'stop' } },
  ];
  const body = events.map((event) => `${JSON.stringify(event)}\n`).join('');
  await page.route('**/api/agent/chat', (route) => route.fulfill({ contentType: 'application/x-ndjson', body }));
  await page.route('**/api/threads/t*', (route) => route.fulfill({ status: 404, contentType: 'application/problem+json', body: '{"code":"NOT_FOUND"}' }));
}

inPage('ten thousand events are listed, and few of them are rows', async (page) => {
  await serveRun(page);
  await visit(page, 'chat/text');
  await page.getByRole('textbox', { name: 'Message' }).fill('Go on');
  await page.keyboard.press('Enter');
  await page.getByRole('tab', { name: 'Events' }).click();
  const rows = page.locator('.event-row');
  await page.locator('.event-row[aria-setsize="10000"]').first().waitFor();
  assert.match(await page.locator('.figures').innerText(), /Events\s+10,000/);
  assert.ok(await rows.count() <= MAX_ROWS, `${await rows.count()} rows`);
  const space = await page.locator('.events-space').evaluate((space) => space.clientHeight);
  assert.equal(space / await rows.first().evaluate((row) => row.offsetHeight), COUNT, 'the list is as high as all of its rows');

  const list = page.getByRole('listbox', { name: 'Events' });
  for (const part of [0.3, 0.77, 1]) {
    await list.evaluate((list, part) => (list.scrollTop = part * list.scrollHeight), part);
    // What is in view has rows, without a gap.
    await page.waitForFunction(() => {
      const list = document.querySelector('.events');
      const [box, rows] = [list.getBoundingClientRect(), [...list.querySelectorAll('.event-row')].map((row) => row.getBoundingClientRect())];
      return rows.some(({ top }) => top <= box.top + 1) && rows.some(({ bottom }) => bottom >= box.bottom - 2);
    });
    assert.ok(await rows.count() <= MAX_ROWS);
  }
  assert.match(await rows.last().innerText(), /9999\s+RUN_FINISHED/);
  await rows.last().click();
  assert.match(await page.locator('#debug-panel .code').last().innerText(), /"finishReason": "stop"/);
  await picture(page, 'events-many');

  // The keyboard goes on from the selected row, and the row stays in view.
  await list.focus();
  for (let step = 0; step < 20; step += 1) await page.keyboard.press('ArrowUp');
  await page.locator('#event-9979[aria-selected=true]').waitFor();
  assert.equal(await list.getAttribute('aria-activedescendant'), 'event-9979');
  const isInView = await page.evaluate(() => {
    const [row, list] = [document.querySelector('[aria-selected=true].event-row'), document.querySelector('.events')].map((node) => node.getBoundingClientRect());
    return row.top >= list.top - 1 && row.bottom <= list.bottom + 1;
  });
  assert.ok(isInView, 'the selected row is in view');

  await page.getByRole('searchbox').fill('word77');
  await page.waitForFunction(() => Number(document.querySelector('.event-row')?.getAttribute('aria-setsize')) < 200);
  const found = await rows.allInnerTexts();
  assert.ok(found.length > 0 && found.every((text) => text.includes('word77')), found.join());
  await page.getByRole('searchbox').fill('no event has this');
  await rows.first().waitFor({ state: 'detached' });
});

inPage('events and previews have all digits of whole numbers beyond 2^53', async (page) => {
  const body = '{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":{"object":{"ledger":9007199254740993}}}\n';
  await page.route('**/api/agent/chat', (route) => route.fulfill({ contentType: 'application/x-ndjson', body }));
  await page.route('**/api/threads/*', (route) => route.fulfill({ status: 404, contentType: 'application/problem+json', body: '{"code":"NOT_FOUND"}' }));
  await page.route('**/api/svcchat/previewPrompt', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace('"payload":{', '"payload":{"ledger":9007199254740993,') });
  });
  await visit(page, 'chat/text');
  await page.locator('#debug-panel summary', { hasText: 'Payload' }).click();
  await page.getByRole('region', { name: 'payload' }).filter({ hasText: '"ledger": 9007199254740993,' }).waitFor();
  await page.getByRole('textbox', { name: 'Message' }).fill('Go on');
  await page.keyboard.press('Enter');
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.locator('#event-1').click();
  await page.getByRole('region', { name: 'event 1' }).filter({ hasText: '"ledger": 9007199254740993' }).waitFor();
});

inPage('a link leads to an event of a run, also where another run is shown, and to another event in the same page', async (page) => {
  await page.evaluate(() => (navigator.clipboard.writeText = async (text) => (globalThis.copied = text)));
  await visit(page, 'chat/garden');
  await ask(page, 'When are you open?');
  await page.getByRole('tab', { name: 'Events' }).click();
  const list = page.getByRole('listbox', { name: 'Events' });
  const copyLink = async (number) => {
    await list.evaluate((list, number) => (list.scrollTop = number * 28), number);
    await page.locator(`#event-${number}`).click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    return page.evaluate(() => copied);
  };
  const event = 40;
  const link = await copyLink(event);
  const text = await page.getByRole('region', { name: `event ${event}` }).innerText();
  const other = await copyLink(3);
  await ask(page, 'And on Sunday?');
  await page.goto('about:blank');
  await page.goto(link);
  const shown = page.getByRole('region', { name: `event ${event}` });
  await shown.waitFor();
  assert.equal(await shown.innerText(), text);
  const selected = page.locator(`#event-${event}[aria-selected=true]`);
  await selected.waitFor();
  assert.ok(await selected.evaluate((row) => {
    const [box, list] = [row.getBoundingClientRect(), row.closest('.events').getBoundingClientRect()];
    return box.top >= list.top && box.bottom <= list.bottom;
  }), 'the event is in view');
  await page.locator('.message', { hasText: 'And on Sunday?' }).first().waitFor();
  // A choice is the user's, until another link is followed.
  await page.locator(`#event-${event + 1}`).click();
  await page.getByRole('region', { name: `event ${event + 1}` }).waitFor();
  await page.evaluate((hash) => (location.hash = hash), new URL(other).hash);
  await page.locator('#event-3[aria-selected=true]').waitFor();
  await page.getByRole('region', { name: 'event 3' }).waitFor();
  assert.equal(await page.locator('.event-row[aria-selected=true]').count(), 1);
});

inPage('a message is shown as it is stored', async (page) => {
  await visit(page, 'chat/tools');
  await ask(page, 'What is open?');
  const stored = await page.evaluate(async () => (await (await fetch(`api/threads/${location.hash.split('/').at(-1)}?messages=tree`)).json()).nodes);
  const raw = async (message) => {
    await message.getByRole('button', { name: 'Raw' }).focus();
    await page.keyboard.press('Enter');
    return JSON.parse(await message.getByRole('group', { name: 'stored message' }).textContent());
  };
  assert.deepEqual(await raw(page.locator('.message.user')), stored[0]);
  assert.deepEqual(await raw(page.locator('.message.answer')), stored.slice(1));
  assert.ok(stored.length >= 4, 'the call and its result are messages of their own');
});

inPage('the choice among the tools goes with the preview and the message', async (page) => {
  await visit(page, 'chat/tools');
  await page.getByRole('tab', { name: 'Context' }).click();
  const choice = page.getByLabel('Tool choice');
  await choice.fill(' none ');
  await page.getByRole('tab', { name: 'Tools' }).click();
  await page.locator('.tab[aria-selected=true] .count', { hasText: /^0$/ }).waitFor();
  assert.match(await page.locator('#debug-panel .denied').first().innerText(), /createTodo[^]*left out by the tool choice/);
  await page.getByRole('tab', { name: 'Context' }).click();
  const sent = page.waitForRequest('**/api/agent/chat');
  await choice.fill('readTodos');
  await ask(page, 'What is open?');
  assert.deepEqual((await sent).postDataJSON().toolChoice, { type: 'function', function: { name: 'readTodos' } });
  await page.locator('.message.answer .tool').waitFor();
  // The choice is one among the agent's tools.
  await page.getByRole('combobox', { name: 'Agent' }).selectOption('text');
  await page.waitForFunction(() => document.getElementById('context-toolChoice')?.value === '');
});

inPage('the attempts of a run are listed with their outcomes and hashes', async (page) => {
  const hash = (digit) => digit.repeat(64);
  const attempts = [
    { round: 1, attempt: 1, entry: 0, provider: 'openai', model: 'large', reason: 'MODEL_UNAVAILABLE', status: 503, waitedMs: 0, requestSha256: hash('a') },
    { round: 1, entry: 1, provider: 'anthropic', model: 'medium', reason: 'MODEL_RATE_LIMITED', waitedMs: 0 },
    { round: 1, attempt: 2, entry: 2, provider: 'ollama', model: 'small', waitedMs: 1200, requestSha256: hash('b') },
  ];
  const events = [
    { type: 'RUN_STARTED', threadId: 't', runId: 'r' },
    ...attempts.map((attempt) => ({ type: 'CUSTOM', name: 'agent.debug', value: { kind: 'modelAttempt', ...attempt } })),
    { type: 'TEXT_MESSAGE_START', messageId: 'm', role: 'assistant' }, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta: 'Hello.' },
    { type: 'TEXT_MESSAGE_END', messageId: 'm' }, { type: 'RUN_FINISHED', threadId: 't', runId: 'r', result: { finishReason: 'stop' } },
  ];
  const body = events.map((event) => `${JSON.stringify(event)}\n`).join('');
  await page.route('**/api/agent/chat', (route) => route.fulfill({ contentType: 'application/x-ndjson', body }));
  await page.route('**/api/threads/t*', (route) => route.fulfill({ status: 404, contentType: 'application/problem+json', body: '{"code":"NOT_FOUND"}' }));
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('textbox', { name: 'Message' }).fill('Go on');
  await page.keyboard.press('Enter');
  const rows = page.getByRole('list', { name: 'Attempts' }).getByRole('listitem');
  await rows.nth(2).waitFor();
  assert.equal(await rows.count(), attempts.length);
  const texts = (await rows.allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
  assert.match(texts[0], /^large round 1 · openai MODEL_UNAVAILABLE \(503\) aaaaaaaa/);
  assert.match(texts[1], /^medium round 1 · anthropic · fallback 1 left out: MODEL_RATE_LIMITED/);
  assert.match(texts[2], /^small round 1 · ollama · fallback 2 answered after a pause of 1\.20 s bbbbbbbb/);
  assert.equal(await rows.nth(1).locator('code').count(), 0, 'nothing was sent');
  assert.equal(await rows.nth(0).locator('code').getAttribute('title'), hash('a'));
  await picture(page, 'events-attempts');
});

inPage('the page keeps the latest runs, and a bounded number of their events', async (page) => {
  const kept = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { RunState, keptRun } = await import(`${folder}lib/run.js`);
    const numbers = [...Array(20).keys()];
    const add = (id, count) => new RunState(id).add(Array.from({ length: count }, () => ({ type: 'CUSTOM', name: 'x', value: {} })));
    const known = (name) => numbers.filter((number) => keptRun(`${name}-${number}`));
    for (const number of numbers) add(`small-${number}`, 10);
    const small = known('small');
    for (const number of numbers.slice(0, 4)) add(`large-${number}`, 10_000);
    return { small, large: known('large'), later: known('small') };
  });
  assert.deepEqual(kept, { small: [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], large: [3], later: [] });
});

inPage('an element without values is made for each drawing, since one that is kept has the tree of its first drawing', async (page) => {
  const isKept = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { html } = await import(`${folder}vendor/ui.js`);
    const draw = () => html`<p>Basil</p>`;
    return draw() === draw();
  });
  assert.ok(!isKept);
});
