// Pages that load the widget more than once, before their body, or very large.

import assert from 'node:assert/strict';

import { after, before, test } from './harness.js';
import { mint, openHost, startHost } from './host.js';
import { base, launch, picture } from './support.js';
import { ask, input, openWidget, script, showPanel, wholePage } from './widget.js';

let browser, host;
before(async () => {
  browser = await launch();
  host = await startHost();
});
after(async () => {
  host.close();
});

const widgets = (page) => page.evaluate(() => document.querySelectorAll('agent-chat').length);

test('a script that is there twice makes one widget, and scripts with other tokens one each', async () => {
  const [first, second] = await Promise.all(['text', 'garden'].map((agent) => mint(agent, { origins: [host.origin] })));
  const twice = script(first.token) + script(first.token) + script(second.token, { 'data-title': 'Other', 'data-position': 'start' });
  const { context, page, faults } = await openHost(browser, host.page(wholePage(twice)));
  await page.locator('.launcher').nth(1).waitFor();
  assert.equal(await widgets(page), 2);
  assert.equal(await page.getByRole('button', { name: 'Open chat' }).count(), 2);
  // A tag manager that adds the script once more, later.
  await page.evaluate(([source, token]) => new Promise((resolve) => {
    const again = Object.assign(document.createElement('script'), { src: source, onload: resolve });
    again.dataset.token = token;
    document.body.append(again);
  }), [`${base}widget.js`, first.token]);
  await page.evaluate(() => new Promise((resolve) => { requestIdleCallback(resolve); }));
  assert.equal(await widgets(page), 2);
  // The widgets are in the order in which their scripts were loaded.
  await page.locator('agent-chat:not([title])').getByRole('button', { name: 'Open chat' }).click();
  assert.equal(await ask(page, 'Hello'), 'Hello from the model.');
  assert.deepEqual(faults, []);
  await context.close();
});

test('a script in the head, before there is a body, makes a widget once the page is there', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  const { context, page, faults } = await openHost(browser, host.page(wholePage('', script(token).replace(' async', ''))));
  await page.locator('.launcher').waitFor();
  assert.equal(await page.evaluate(() => document.querySelector('agent-chat').parentNode === document.body), true);
  await showPanel(page);
  assert.equal(await ask(page, 'Hello'), 'Hello from the model.');
  assert.deepEqual(faults, []);
  await context.close();
});

test('it can be used at a zoom of 400 %', async () => {
  // A window of 1280 by 820 pixels is one of a quarter of them at this zoom.
  const { context, page, faults } = await openWidget(browser, host, 'text', { options: { viewport: { width: 320, height: 205 } } });
  await showPanel(page);
  assert.equal(await ask(page, 'Hello'), 'Hello from the model.');
  for (const target of [input(page), page.getByRole('button', { name: 'Send' }), page.getByRole('button', { name: 'Close chat' })]) {
    await target.scrollIntoViewIfNeeded();
    const box = await target.boundingBox();
    assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= 320 && box.y + box.height <= 205, JSON.stringify(box));
  }
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0);
  await picture(page, 'widget-zoom');
  assert.deepEqual(faults, []);
  await context.close();
});
