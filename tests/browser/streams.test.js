// Many streams at once, cut, foreign and overlong streams, and sessions that end during a stream.

import assert from 'node:assert/strict';

import { before, test } from './harness.js';
import { close, launch, pageTests, signedIn, visit } from './support.js';

const TABS = 8;

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

/** Tells a page that its tab is in the background, or in the foreground again. */
const setHidden = (page, isHidden) => page.evaluate((isHidden) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event('visibilitychange'));
}, isHidden);

async function say(page, text) {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

const answer = (page) => page.locator('.message.answer').last();

/** Cancels the run of the thread that a page shows. */
const cancel = (page, url) => page.evaluate(async (id) => (await fetch(`api/threads/${id}/cancel`, { method: 'POST' })).status, url.split('/').at(-1));

test('eight tabs have a stream each', async () => {
  const opened = await signedIn(browser);
  const { context, page: first, faults } = opened;
  const pages = [first, ...(await Promise.all(Array.from({ length: TABS - 1 }, async () => {
    const page = await context.newPage();
    await page.goto(first.url());
    await page.locator('.layout').waitFor();
    return page;
  })))];
  for (const [place, page] of pages.entries()) {
    if (place > 0) await setHidden(pages[place - 1], true);
    await visit(page, place === 0 ? 'chat/count' : 'chat/slow');
    await say(page, `tab ${place}`);
    await answer(page).filter({ hasText: place === 0 ? /\d \d/ : 'tick tick' }).waitFor();
  }
  // The tabs of the background have left the connections to the one that is shown.
  const last = pages.at(-1);
  await visit(last, 'agents');
  await last.locator('.card').first().waitFor();
  const counting = await answer(first).innerText();
  await setHidden(first, false);
  await answer(first).filter({ hasText: /\b100\b/ }).waitFor();
  await first.getByRole('button', { name: 'Send' }).waitFor();
  const numbers = (await answer(first).locator('.markdown').innerText()).trim().split(/\s+/).map(Number);
  assert.deepEqual(numbers, Array.from({ length: 100 }, (_, place) => place + 1), `after ${counting}`);
  const urls = pages.slice(1, -1).map((page) => page.url());
  await visit(last, 'threads');
  urls.push(await last.locator('.item', { hasText: `tab ${TABS - 1}` }).first().locator('a').getAttribute('href'));
  assert.deepEqual(new Set(await Promise.all(urls.map((url) => cancel(last, url)))), new Set([200]));
  // A run that has ended meanwhile is read to its end.
  await setHidden(pages[1], false);
  await pages[1].getByRole('button', { name: 'Send' }).waitFor();
  await pages[1].locator('[role=status]', { hasText: 'answer cancelled' }).waitFor();
  assert.deepEqual(faults, []);
  await close(opened);
});

test('a session that ends within a stream leads to the sign-in', async () => {
  const { context, page, faults } = await signedIn(browser);
  await visit(page, 'chat/slow');
  await say(page, 'Go on');
  await answer(page).filter({ hasText: 'tick tick' }).waitFor();
  const url = page.url();
  const other = await signedIn(browser);
  // Another request of the page may be answered before the click, which finds the sign-in then.
  const ended = await page.evaluate(async () => {
    const { status } = await fetch('api/console/session', { method: 'DELETE' });
    [...document.querySelectorAll('.composer button')].find(({ textContent }) => textContent === 'Stop')?.click();
    return status;
  });
  assert.equal(ended, 204);
  await page.getByRole('heading', { name: 'Agent console' }).waitFor();
  assert.ok(!(await page.content()).includes('tick'), 'nothing of the chat stays in the page');
  assert.equal(await cancel(other.page, url), 200);
  assert.deepEqual([...faults, ...other.faults], []);
  await Promise.all([context.close(), close(other)]);
});

const lines = (...events) => events.map((event) => `${JSON.stringify(event)}\n`).join('');
const STREAM = { contentType: 'application/x-ndjson' };
const problem = (status, code, headers) => ({ status, headers, contentType: 'application/problem+json', body: JSON.stringify({ code, detail: `it is ${status}` }) });
const started = { type: 'RUN_STARTED', threadId: 't', runId: 'r' };
const spoken = [started, { type: 'TEXT_MESSAGE_START', messageId: 'm', role: 'assistant' }, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta: 'It is here.' }];
const finished = [{ type: 'TEXT_MESSAGE_END', messageId: 'm' }, { type: 'RUN_FINISHED', threadId: 't', runId: 'r', result: { finishReason: 'stop' } }];

inPage('answers that are no stream, or a strange one, are said in words', async (page) => {
  const cases = [
    [{ contentType: 'text/html', body: '<h1>A proxy</h1>' }, /INVALID_RESPONSE/],
    [problem(429, 'RATE_LIMITED', { 'retry-after': '7' }), /RATE_LIMITED[^]*Wait a moment[^]*possible again in 7 s/],
    [problem(429, 'RATE_LIMITED', { 'retry-after': '0' }), /RATE_LIMITED[^]*then try again\.\s*Try again\s*Dismiss/],
    [problem(402, 'BUDGET_EXCEEDED', { 'retry-after': '7260' }), /BUDGET_EXCEEDED[^]*A budget is spent[^]*possible again in 2 h 1 min/],
    [problem(503, 'STORE_UNAVAILABLE'), /STORE_UNAVAILABLE/],
    [{ status: 502, contentType: 'text/html', body: '<h1>502</h1>' }, /INVALID_RESPONSE[^]*502/],
    [{ ...STREAM, body: 'no event\n' }, /INVALID_RESPONSE/],
    [{ ...STREAM, body: `${lines(...spoken)}{"type":"RUN_FINISHED",` }, /NOT_FOUND it is 404/],
    [{ ...STREAM, body: lines(...spoken, { type: 'RUN_ERROR', code: 'BACKEND_FAILED', message: '<b>broken</b>' }) }, /BACKEND_FAILED <b>broken<\/b>/],
  ];
  for (const [response, words] of cases) {
    await page.route('**/api/agent/chat', (route) => route.fulfill(response));
    // The run of a stream that is cut is not a run of the server, which therefore cannot be attached to.
    await page.route('**/api/runs/r/events*', (route) => route.fulfill(problem(404, 'NOT_FOUND')));
    await visit(page, 'threads');
    await visit(page, 'chat/text');
    await say(page, 'Try');
    await page.getByRole('alert').filter({ hasText: words }).waitFor();
    await page.unrouteAll();
  }
});

inPage('unknown events, long ones, and those after the end do no harm', async (page) => {
  const strange = [{ type: 'SOMETHING_NEW', __proto__: null, value: 'x'.repeat(8 * 1024 * 1024) }, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'unknown', delta: '!' }, { type: 'TOOL_CALL_ARGS', toolCallId: 'unknown', delta: '{' }];
  const late = { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta: ' It is late.' };
  const polluting = '{"type":"CUSTOM","name":"x","value":{"__proto__":{"polluted":true}},"__proto__":{"polluted":true}}\n';
  await page.route('**/api/agent/chat', (route) => route.fulfill({ ...STREAM, body: lines(...spoken, ...strange) + polluting + lines(...finished, late) }));
  const read = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const [{ createClient }, { RunState }] = await Promise.all([import(`${folder}client/index.js`), import(`${folder}lib/run.js`)]);
    const state = new RunState('r');
    const run = createClient().chat({ agentId: 'text', message: 'Try' }, { onBatch: (events) => state.add(events) });
    const { text, finishReason } = await run.result;
    await new Promise(requestAnimationFrame);
    return { text, finishReason, types: run.events.map(({ type }) => type), status: state.status, parts: state.parts.map(({ text }) => text), polluted: {}.polluted };
  });
  const types = ['RUN_STARTED', 'TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'SOMETHING_NEW', 'TEXT_MESSAGE_CONTENT', 'TOOL_CALL_ARGS', 'CUSTOM', 'TEXT_MESSAGE_END', 'RUN_FINISHED'];
  assert.deepEqual(read.types, types);
  assert.deepEqual([read.finishReason, read.status, read.parts[0], read.polluted], ['stop', 'finished', 'It is here.', undefined]);
});
