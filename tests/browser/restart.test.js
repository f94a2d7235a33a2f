// Servers that restart during a stream, and connections that die without an end: an answer is shown as a whole, and once.

import assert from 'node:assert/strict';

import { startApplication, startProxy } from './application.js';
import { before, test } from './harness.js';
import { base, launch, openGate, required, signedIn, until, visit } from './support.js';

/** Numbers that the agent `count` says. */
const NUMBERS = Array.from({ length: 100 }, (_, place) => place + 1);
/** Time after which the page takes a silent connection for dead, and more. */
const SLEEP_MS = 60_000;
/** More events than a run has before its first text. */
const MIN_EVENTS = 10;

let browser;
before(async () => (browser = await launch()));

const answer = (page) => page.locator('.message.answer').last();
const numbers = async (page) => (await answer(page).locator('.markdown').innerText()).trim().split(/\s+/).map(Number);

async function say(page, text) {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until a thread's run, as the server has stored it, satisfies a condition, and returns it. */
const stored = (at, threadId, condition) => until(async () => {
  const response = await fetch(new URL(`api/runs?threadId=${threadId}`, at), { headers: { Authorization: `Bearer ${required('SESSION_TOKEN')}` } });
  assert.equal(response.status, 200);
  const [run] = (await response.json()).runs;
  return run && condition(run) ? run : undefined;
}, 'the run is stored');

/** Waits until the server has a thread's run to its end, and returns it. */
const ended = (at, threadId) => stored(at, threadId, (run) => run.endedAt);

const threadOf = (page) => page.url().split('/').at(-1);

/** Tells a page that its tab is in the background, or in the foreground again. */
const setHidden = (page, isHidden) => page.evaluate((isHidden) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event('visibilitychange'));
}, isHidden);

test('a connection that has died in a sleep is left, and the answer is whole', async (t) => {
  const proxy = await startProxy(base);
  t.after(() => proxy.close());
  const { context, page, faults } = await signedIn(browser, undefined, proxy.address);
  await page.clock.install();
  await visit(page, 'chat/count');
  await say(page, 'Count behind sleep');
  await answer(page).filter({ hasText: /\d \d/ }).waitFor();
  assert.ok(proxy.stall() > 0);
  await openGate('sleep');
  const run = await ended(base, threadOf(page));
  assert.equal(run.state, 'completed');
  assert.ok((await numbers(page)).at(-1) < 100, 'the page hears nothing of it');
  assert.ok(await page.locator('.message.answer[aria-busy=true]').count() > 0);
  // The computer wakes up.
  await page.clock.fastForward(SLEEP_MS);
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.deepEqual(await numbers(page), NUMBERS);
  assert.equal(await page.locator('.message.answer').count(), 1);
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test('an answer that ends before its server restarts is read from the next server', async (t) => {
  const first = await startApplication();
  t.after(() => first.kill());
  const { address } = first;
  const { context, page, faults } = await signedIn(browser, undefined, address);
  await visit(page, 'chat/count');
  await say(page, 'Count behind restart');
  await answer(page).filter({ hasText: /\d \d/ }).waitFor();
  // The tab has left its run when the server goes, and comes back while there is none.
  await setHidden(page, true);
  await openGate('restart');
  assert.equal((await ended(address, threadOf(page))).state, 'completed');
  await first.terminate();
  const failed = page.waitForEvent('requestfailed', (request) => request.url().includes('/events'));
  await setHidden(page, false);
  await failed;
  const second = await startApplication(new URL(address).port);
  t.after(() => second.kill());
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.deepEqual(await numbers(page), NUMBERS);
  assert.equal(await page.locator('.message.answer').count(), 1);
  await page.reload();
  await answer(page).waitFor();
  assert.deepEqual(await numbers(page), NUMBERS);
  assert.deepEqual(faults, []);
  await context.close();
});

test('an answer whose server is killed is shown as far as it is stored, and the chat goes on', async (t) => {
  const first = await startApplication();
  t.after(() => first.kill());
  const { address } = first;
  const { context, page, faults } = await signedIn(browser, undefined, address);
  await visit(page, 'chat/slow');
  await say(page, 'Go on');
  await answer(page).filter({ hasText: 'tick tick tick' }).waitFor();
  // Events are stored some time after they are shown.
  const count = (await stored(address, threadOf(page), (run) => run.events)).events.count;
  await stored(address, threadOf(page), (run) => run.events.count > Math.max(count, MIN_EVENTS));
  await first.kill();
  const second = await startApplication(new URL(address).port);
  t.after(() => second.kill());
  const { error, state } = await ended(address, threadOf(page));
  assert.equal(state, 'interrupted');
  await page.getByRole('alert').filter({ hasText: error.code }).waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  const shown = await answer(page).locator('.markdown').innerText();
  assert.match(shown, /^(tick ?)+$/);
  assert.equal(await page.locator('.message.answer').count(), 1);
  await page.reload();
  await answer(page).waitFor();
  assert.equal(await answer(page).locator('.markdown').innerText(), shown, 'what is stored is what was shown');
  await visit(page, 'chat/text');
  await say(page, 'And now?');
  await answer(page).filter({ hasText: 'Hello from the model.' }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});
