// What the tests of the widget do as its visitor.

import assert from 'node:assert/strict';

import { axeViolations } from './axe.js';
import { mint, openHost } from './host.js';
import { base, picture } from './support.js';

const attributes = (values) => Object.entries(values).map(([name, value]) => ` ${name}="${value}"`).join('');
export const script = (token, more = {}) => `<script src="${base}widget.js"${attributes({ 'data-token': token, ...more })} async></script>`;
export const wholePage = (body, head = '') =>
  `<!doctype html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>Green Corner</title>${head}</head><body><main><h1>Green Corner</h1><p>Herbs and ferns.</p></main>${body}</body></html>`;

/** Opens a page with the widget of an agent. */
export async function openWidget(browser, host, agent, { data, options, token } = {}) {
  const minted = token ?? (await mint(agent, { origins: [host.origin] }));
  const opened = await openHost(browser, host.page(wholePage(script(minted.token, data))), options);
  await opened.page.locator('.launcher').waitFor();
  return { ...opened, minted };
}

export const input = (page) => page.getByRole('textbox', { name: 'Message' });
export const answers = (page) => page.locator('.message.agent:not(.greeting) .text');
export const isIdle = (page) => page.getByRole('button', { name: 'Send' }).waitFor();
export const showPanel = (page) => page.getByRole('button', { name: 'Open chat' }).click();

export async function say(page, text) {
  await input(page).fill(text);
  await page.keyboard.press('Enter');
}

export async function ask(page, text) {
  const count = await answers(page).count();
  await say(page, text);
  await answers(page).nth(count).waitFor();
  await isIdle(page);
  return answers(page).nth(count).innerText();
}

/**
 * Checks what is shown by axe, in the light and the dark, in a wide and a narrow window; and the sizes of what is pressed. The dark theme
 * has other colours only.
 */
export async function checkWidget(page, name) {
  for (const [width, height] of [[1280, 820], [360, 740]]) {
    await page.setViewportSize({ width, height });
    for (const theme of ['light', 'dark']) {
      await page.evaluate((theme) => document.querySelector('agent-chat').setAttribute('theme', theme), theme);
      await picture(page, `widget-${name}-${theme}-${width}`);
      assert.deepEqual(await axeViolations(page, undefined, theme === 'dark'), [], `${name}, ${theme}, ${width} px`);
    }
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0);
    for (const target of await page.locator('.tool, .send, .chip, .launcher, .choices button').all()) {
      const box = await target.boundingBox();
      if (box) assert.ok(box.width >= 44 && box.height >= 44, JSON.stringify(box));
    }
  }
  await page.setViewportSize({ width: 1280, height: 820 });
}
