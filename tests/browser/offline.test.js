// The console while the server cannot be reached or has refused something, and after it is reachable again.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { ask, launch, openGate, pageTests, until, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

const again = (target) => target.getByRole('button', { name: 'Try again', exact: true });

async function say(page, text) {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until the page would ask before changes that are not saved are left, or, if `is` is false, would not. */
const isGuarded = (page, is = true) => page.waitForFunction((is) => dispatchEvent(new Event('beforeunload', { cancelable: true })) !== is, is);

const isFocused = (page, id) => page.waitForFunction((id) => document.activeElement.id === id, id);

const isIdle = (page) => page.waitForFunction(() => !document.querySelector('[aria-busy=true]') && document.querySelector('.composer [type=submit]'));

inOwnPage('a session that cannot be read is asked for again', async (page) => {
  await page.route('**/api/console/session', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"the store is away"}' }));
  await page.reload();
  await page.getByRole('alert').filter({ hasText: 'the store is away' }).waitFor();
  await page.unroute('**/api/console/session');
  await again(page).click();
  await page.locator('.layout').waitFor();
});

inPage('what is shown stays while its server is away', async (page) => {
  await visit(page, 'usage');
  await page.locator('.figures').waitFor();
  await page.route('**/api/usage?*', (route) => route.abort());
  await page.getByRole('button', { name: 'Reload', exact: true }).click();
  const alert = page.getByRole('alert').filter({ hasText: 'NETWORK' });
  await alert.waitFor();
  assert.ok(await page.locator('.figures').isVisible());
  await page.unroute('**/api/usage?*');
  await again(alert).click();
  await alert.waitFor({ state: 'detached' });
  assert.ok(await page.locator('.figures').isVisible());
});

inPage('a message that does not reach the server is sent again, or is there to be changed', async (page) => {
  let count = 0;
  await page.route('**/api/agent/chat', (route) => {
    count += 1;
    return route.abort();
  });
  await visit(page, 'chat/text');
  await say(page, 'Are you there?');
  const alert = page.locator('.conversation').getByRole('alert').filter({ hasText: 'NETWORK' });
  await again(alert).click();
  await until(() => count === 2, 'the message is sent again');
  await isFocused(page, 'composer');
  await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
  await page.unroute('**/api/agent/chat');
  await again(alert).click();
  await page.locator('.message.answer', { hasText: 'Hello from the model.' }).waitFor();
  await isIdle(page);
  assert.deepEqual(await page.locator('.message.user .bubble').allInnerTexts(), ['Are you there?']);
  assert.equal(await alert.count(), 0);

  await page.route('**/api/agent/chat', (route) => route.abort());
  await say(page, 'And now?');
  await alert.getByRole('button', { name: 'Dismiss' }).click();
  await isFocused(page, 'composer');
  assert.equal(await page.getByRole('textbox', { name: 'Message' }).inputValue(), 'And now?');
  assert.deepEqual(await page.locator('.message.user .bubble').allInnerTexts(), ['Are you there?']);
});

inPage('a message whose answer was lost is not sent twice', async (page) => {
  let count = 0;
  await page.route('**/api/agent/chat', async (route) => {
    count += 1;
    await route.fetch();
    await route.abort();
  });
  await visit(page, 'chat/text');
  await say(page, 'Do you hear me?');
  await again(page.locator('.conversation').getByRole('alert')).click();
  await page.locator('.message.answer', { hasText: 'Hello from the model.' }).waitFor();
  await isIdle(page);
  assert.deepEqual(await page.locator('.message.user .bubble').allInnerTexts(), ['Do you hear me?']);
  assert.equal(count, 1);
});

inPage('what could not be read while the browser was offline is there once it is online', async (page, { context }) => {
  await visit(page, 'chat/count');
  await say(page, 'Count behind offline');
  const answer = page.locator('.message.answer');
  await answer.filter({ hasText: /\d \d/ }).waitFor();
  await context.setOffline(true);
  await openGate('offline');
  // The answer is whole, and neither its thread nor the preview can be read.
  await answer.filter({ hasText: /\b100\b/ }).waitFor();
  const alerts = page.getByRole('alert').filter({ hasText: 'NETWORK' });
  await alerts.nth(1).waitFor();
  await context.setOffline(false);
  await page.waitForFunction(() => !document.querySelector('[role=alert]'));
  await answer.getByRole('button', { name: 'Regenerate' }).waitFor();
  assert.deepEqual((await answer.locator('.markdown').innerText()).trim().split(/\s+/).map(Number), Array.from({ length: 100 }, (_, place) => place + 1));
  assert.deepEqual(await page.locator('.message.user .bubble').allInnerTexts(), ['Count behind offline']);
});

inPage('two tabs have the same thread, and a message that comes while the other tab is answered can be sent after it', async (page, { context }) => {
  await visit(page, 'chat/count');
  await ask(page, 'From the first');
  const other = await context.newPage();
  await other.goto(page.url());
  await other.locator('.message.answer').waitFor();
  await say(other, 'Count behind two tabs');
  await other.locator('.message.answer').nth(1).filter({ hasText: /\d \d/ }).waitFor();
  await say(page, 'From the first again');
  const alert = page.locator('.conversation').getByRole('alert').filter({ hasText: 'THREAD_BUSY' });
  await alert.waitFor();
  await openGate('two tabs');
  await isIdle(other);
  await again(alert).click();
  await page.locator('.message.answer').nth(2).waitFor();
  await isIdle(page);
  assert.deepEqual(await page.locator('.message.user .bubble').allInnerTexts(), ['From the first', 'Count behind two tabs', 'From the first again']);
});

inPage('the buttons of the browser go back and forward among threads and views', async (page) => {
  const shown = (text) => page.waitForFunction((text) => [...document.querySelectorAll('.message.user .bubble')].map(({ textContent }) => textContent).join() === text, text);
  await visit(page, 'chat/text');
  await ask(page, 'The first thread');
  await page.getByRole('link', { name: 'New chat' }).click();
  await page.waitForFunction(() => !document.querySelector('.message'));
  await ask(page, 'The second thread');
  await visit(page, 'agents/text');
  await page.locator('.section').first().waitFor();
  await page.goBack();
  await shown('The second thread');
  await page.goBack();
  await shown('The first thread');
  await page.goForward();
  await shown('The second thread');
  await page.goForward();
  // Changes that are not saved are not lost by a button of the browser.
  await page.getByLabel('Personality').fill('Calm.');
  await isGuarded(page);
  await page.goBack();
  const dialog = page.getByRole('dialog', { name: 'Leave without saving?' });
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await page.getByLabel('Personality').inputValue(), 'Calm.');
  assert.match(page.url(), /#\/agents\/text$/);
  await page.getByRole('button', { name: 'Revert' }).click();
  await isGuarded(page, false);
  await page.goBack();
  await shown('The second thread');
  await page.goForward();
  await page.getByLabel('Personality').fill('Calm.');
  await isGuarded(page);
  await page.goBack();
  await dialog.getByRole('button', { name: 'Discard' }).click();
  await shown('The second thread');
});

inPage('an answer is announced when it begins and when it ends, and not piece by piece', async (page) => {
  await visit(page, 'chat/garden');
  await page.evaluate(() => {
    globalThis.said = [];
    const status = document.querySelector('.layout > [role=status]');
    new MutationObserver(() => said.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true });
  });
  await ask(page, 'When are you open?');
  await page.waitForFunction(() => said.includes('answer complete'));
  assert.deepEqual(await page.evaluate(() => said.filter(Boolean)), ['answering', 'answer complete']);
  // No region around the answer announces each of its pieces.
  const live = await page.locator('.message.answer .markdown').evaluate((node) => node.closest('[aria-live], [role=status], [role=alert], [role=log]').getAttribute('aria-live'));
  assert.equal(live, 'off');
});

inPage('nothing moves for those who want no motion', async (page) => {
  const animation = () => page.evaluate(() => {
    const dot = document.body.appendChild(document.createElement('span'));
    dot.className = 'dot running';
    const { animationName } = getComputedStyle(dot);
    dot.remove();
    return animationName;
  });
  assert.equal(await animation(), 'pulse');
  await page.emulateMedia({ reducedMotion: 'reduce' });
  assert.equal(await animation(), 'none');
  await page.emulateMedia({ reducedMotion: null });
});

/** Views, and what each has when it is there. */
const VIEWS = {
  threads: '.item', agents: '.card', approvals: 'h1', jobs: 'h1', 'jobs/new': '.next-runs', 'jobs/calendar': '.day', usage: '.limits', 'audit/text': '.table-foot', account: '.choice',
  'agents/text': '.section', 'agents/text/backend': '.rules', 'agents/text/documents': '.item', 'agents/text/tokens': '.label', 'agents/text/visitors': '.view-bar', 'agents/new': '#agent-id',
};

inOwnPage('every view has its place in 320 pixels, as at a zoom of 400 %', async (page) => {
  const overflow = () => page.evaluate(() => [document.documentElement, ...document.querySelectorAll('.main, .page, .conversation, .panel, .composer')]
    .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth).map(({ className, scrollWidth, clientWidth }) => `${className} ${scrollWidth} > ${clientWidth}`));
  // The number of calls that wait is beside a name in the navigation.
  const approval = { id: 'a', runId: 'r', agentId: 'text', threadId: 't', tool: 'search', by: 'user', state: 'open', arguments: {}, createdAt: new Date().toISOString(), expiresAt: new Date(Date.now() + 3_600_000).toISOString() };
  await page.route('**/api/approvals?*', (route) => route.fulfill({ json: { approvals: [approval] } }));
  await page.reload();
  await page.locator('.badge').waitFor({ state: 'attached' });
  await visit(page, 'chat/garden');
  await ask(page, 'When are you open?');
  const found = [['chat', await overflow()]];
  for (const name of ['Prompt', 'Context', 'Tools', 'Events', 'Retrieval']) {
    await page.getByRole('tab', { name }).click();
    await page.locator('#debug-panel > *').first().waitFor();
    found.push([name, await overflow()]);
  }
  for (const [view, part] of Object.entries(VIEWS)) {
    await visit(page, view);
    await page.locator(part).first().waitFor();
    found.push([view, await overflow()]);
  }
  assert.deepEqual(found.filter(([, of]) => of.length > 0), []);
}, { viewport: { width: 320, height: 256 } });
