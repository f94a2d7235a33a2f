// Errors of every view whose words are another program's, and records of prompts with such texts.

import assert from 'node:assert/strict';

import { corpus } from './corpus.js';
import { before, test } from './harness.js';
import { ask, forbidden, launch, pageTests, until, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);
const texts = corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text));

/** Views, and the request without which each has nothing to show. */
const VIEWS = {
  threads: '**/api/threads?*', approvals: '**/api/approvals?*', jobs: '**/api/pulse/jobs?*', 'jobs/calendar': '**/api/pulse/jobs?*', 'jobs/j': '**/api/pulse/jobs/j',
  usage: '**/api/usage?*', 'audit/text': '**/api/agent/tools/audit?*', account: '**/api/coding', 'chat/text': '**/api/svcchat/previewPrompt', 'chat/text/t': '**/api/threads/t?*',
  'agents/text': '**/api/agents/text', 'agents/text/backend': '**/api/svcchat/previewPrompt', 'agents/text/documents': '**/api/documents?*',
  'agents/text/tokens': '**/api/agents/text/tokens?*', 'agents/text/assignments': '**/api/agents/text/assignments?*', 'agents/text/visitors': '**/api/agents/text/threads?*',
  'agents/text/visitors/v': '**/api/threads/v?*', 'agents/text/visitors/feedback': '**/api/agents/text/feedback?*',
};

inPage('the words of an error are text, in every view', async (page, { faults }) => {
  const body = JSON.stringify({ code: texts[0], title: texts[1], detail: texts.join('\n'), requestId: texts[2], status: 500 });
  const features = await page.evaluate(async () => (await (await fetch('api/console/session')).json()).features);
  const views = Object.entries(VIEWS).filter(([view]) => view !== 'account' || features.includes('subscription'));
  for (const [view, request] of views) {
    await page.route(request, (route) => route.fulfill({ status: 500, contentType: 'application/problem+json', body }));
    await visit(page, view);
    const alert = page.getByRole('alert').filter({ hasText: texts[3] }).first();
    await alert.waitFor();
    assert.ok((await alert.innerText()).includes(texts[0]), view);
    assert.deepEqual(await page.evaluate(forbidden), [], view);
    assert.deepEqual(faults, [], view);
    await page.unrouteAll({ behavior: 'wait' });
    // Another view, so that the next view begins from scratch.
    await visit(page, 'agents');
    await page.locator('.card').first().waitFor();
  }
});

/** Returns true if the focus is on the content, or on a panel of it or the conversation. */
const isRegionFocused = (page) => page.evaluate(() => document.activeElement.matches('main, [role=log], [role=tabpanel]'));
const statusLine = (page) => page.locator('.layout > [role=status]').innerText();

inPage('what could not be loaded is asked for again, in every view, and is announced where the focus stays', async (page, { faults }) => {
  const features = await page.evaluate(async () => (await (await fetch('api/console/session')).json()).features);
  const views = Object.entries(VIEWS).filter(([view]) => view !== 'account' || features.includes('subscription'));
  for (const [view, request] of views) {
    let count = 0;
    await page.route(request, (route) => {
      count += 1;
      return route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"the store is away"}' });
    });
    await visit(page, view);
    const alert = page.getByRole('alert').filter({ hasText: 'the store is away' });
    const again = alert.first().getByRole('button', { name: 'Try again', exact: true });
    await again.waitFor();
    const before = count;
    await again.click();
    await until(() => count > before, `${view} is asked for again`);
    await again.waitFor();
    assert.ok(await again.evaluate((button) => button === document.activeElement), `${view}: the button keeps the focus`);
    assert.equal(await statusLine(page), '', view);
    await page.unrouteAll({ behavior: 'wait' });
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => ![...document.querySelectorAll('[role=alert]')].some(({ textContent }) => textContent.includes('the store is away')));
    // A request for something that does not exist is not repeated.
    assert.equal(await page.getByRole('button', { name: 'Try again', exact: true }).count(), 0, view);
    await page.waitForFunction(() => document.activeElement !== document.body);
    assert.ok(await isRegionFocused(page), `${view}: the focus is where the error was`);
    // An error is announced by its note.
    assert.equal(await statusLine(page), await page.getByRole('alert').count() > 0 ? '' : 'loaded', view);
    await visit(page, 'agents');
    await page.locator('.card').first().waitFor();
    assert.equal(await statusLine(page), '', `${view}: what was announced is over`);
  }
  assert.deepEqual(faults, []);
});

inPage('the record of a prompt is text, and so are its differences', async (page, { faults }) => {
  await visit(page, 'chat/text');
  await ask(page, 'Hello');
  const part = (text, content, place) => ({ id: text, source: text, stability: text, placement: 'system', tokens: place, bytes: 1, sha256: content, content });
  const prompt = (suffix, more) => ({
    requestSha256: texts[0], backend: texts[1], messages: 1, tokens: { system: 1, tools: 1, messages: 1 }, tokenCounter: 'x', cache: { stablePrefixBytes: 0, ...more },
    parts: texts.map((text, place) => part(text, `${text}${suffix}`, place)), tools: texts.map((name) => ({ name, sha256: `${name}${suffix}`, tokens: 1 })),
  });
  await page.route('**/api/runs/*/prompt', (route) => route.fulfill({ json: route.request().url().includes('before') ? prompt(' before') : prompt(' after', { previousRunId: 'before' }) }));
  await page.locator('.fold > summary', { hasText: 'Prompt of the inspected run' }).click();
  const record = page.getByRole('region', { name: 'Prompt of the run' });
  await record.locator('ins').nth(texts.length - 1).waitFor();
  assert.deepEqual(await record.locator('ins').allInnerTexts().then((all) => [...new Set(all)]), ['after']);
  assert.deepEqual(await page.evaluate(forbidden), []);
  assert.deepEqual(faults, []);
});
