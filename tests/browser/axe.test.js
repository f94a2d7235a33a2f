import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { axeViolations } from './axe.js';
import { ask, base, launch, link, openPage, picture, visit } from './support.js';

const WIDTHS = [1280, 900, 360];

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Fails unless axe finds nothing wrong with what is shown. */
async function check(page, name) {
  const violations = await axeViolations(page);
  await picture(page, name);
  assert.deepEqual(violations, [], name);
}

const tab = (page, name) => page.getByRole('tab', { name }).first().click();
const settled = (selector) => async (page) => page.locator(selector).first().waitFor();

/** Each view: how it is opened, and what shows that it is there. */
const VIEWS = {
  welcome: [(page) => visit(page, 'chat/garden'), settled('.welcome')],
  chat: [async (page) => {
    await visit(page, 'chat/garden');
    await ask(page, 'When are you open?');
    await page.locator('.reasoning summary').last().click();
  }, settled('.message.answer table')],
  prompt: [(page) => tab(page, 'Prompt'), settled('.part')],
  context: [(page) => tab(page, 'Context'), settled('#context-page')],
  tools: [async (page) => {
    await tab(page, 'Tools');
    await page.locator('#debug-panel .fold summary').first().click();
  }, settled('#debug-panel .facts')],
  events: [async (page) => {
    await tab(page, 'Events');
    await page.locator('.event-row').nth(1).click();
  }, settled('.event-row')],
  retrieval: [(page) => tab(page, 'Retrieval'), settled('#debug-panel p')],
  broken: [async (page) => {
    await visit(page, 'chat/broken');
    await page.getByRole('tab', { name: 'Chat' }).click({ timeout: 500 }).catch(() => {});
    await ask(page, 'Try');
  }, settled('.note-error')],
  toolcard: [async (page) => {
    await visit(page, 'chat/tools');
    await ask(page, 'What is open?');
    await page.locator('.tool summary').last().click();
  }, settled('.tool .code')],
  threads: [(page) => visit(page, 'threads'), settled('.item')],
  agents: [(page) => visit(page, 'agents'), settled('.card')],
  agent: [(page) => visit(page, 'agents/garden'), settled('#role-json')],
  backend: [(page) => visit(page, 'agents/garden/backend'), settled('.rules')],
  documents: [async (page) => {
    await visit(page, 'agents/garden/documents');
    await page.locator('.as-link').first().click();
  }, settled('.item .code')],
  'new-agent': [(page) => visit(page, 'agents/new'), settled('#agent-id')],
};

for (const colorScheme of ['light', 'dark']) {
  for (const width of WIDTHS) {
    test(`nothing is wrong for people who use other means: ${colorScheme}, ${width} px`, async () => {
      // Axe is put into the page, which its policy would not allow; everywhere else the policy is on.
      const viewport = { width, height: width === 360 ? 740 : 820 };
      const { context, page, faults } = await openPage(browser, { viewport, colorScheme, bypassCSP: true, reducedMotion: 'reduce' });
      const name = (view) => `${view}-${colorScheme}-${width}`;
      await page.goto(base);
      await page.getByRole('heading', { name: 'Agent console' }).waitFor();
      await check(page, name('sign-in'));
      await page.goto('about:blank');
      await page.goto(await link());
      await page.locator('.layout').waitFor();
      for (const [view, [show, wait]] of Object.entries(VIEWS)) {
        await show(page);
        await wait(page);
        await check(page, name(view));
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${name(view)} is ${overflow} px too wide`);
      }
      assert.deepEqual(faults, []);
      await context.close();
    });
  }
}
