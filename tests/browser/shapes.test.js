// Texts whose shape could exhaust a page: deep, wide, long, or never closed.

import assert from 'node:assert/strict';

import { after, before, test } from './harness.js';
import { close, forbidden, launch, signedIn } from './support.js';

/** Most elements that one of the texts may become. */
const MAX_NODES = 60_000;

const SHAPES = {
  'a table of 10,000 cells': `|${' a |'.repeat(100)}\n|${'--|'.repeat(100)}\n${`|${' x |'.repeat(100)}\n`.repeat(100)}`,
  '10,000 nested quotes': `${'>'.repeat(10_000)} deep`,
  '200 nested lists': Array.from({ length: 200 }, (_, depth) => `${' '.repeat(2 * depth)}- x`).join('\n'),
  '10,000 open brackets': '['.repeat(10_000),
  '10,000 open emphases': '*a **b '.repeat(5000),
  '10,000 backticks of growing length': Array.from({ length: 140 }, (_, count) => '`'.repeat(count + 1)).join(' '),
  'a fence that is never closed': `\`\`\`js\n${'let x = 1;\n'.repeat(20_000)}`,
  'a megabyte on one line': 'word '.repeat(210_000),
  'a megabyte without a blank': 'x'.repeat(1024 * 1024),
  '10,000 links': '[x](https://shop.example/) '.repeat(10_000),
};

let browser, opened;
before(async () => {
  browser = await launch();
  opened = await signedIn(browser);
});
after(async () => {
  await close(opened);
});

for (const [name, text] of Object.entries(SHAPES)) {
  test(`drawn, or shown as it is: ${name}`, async () => {
    const { page, faults } = opened;
    const drawn = await page.evaluate(async (text) => {
      const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
      const { MarkdownView } = await import(`${folder}lib/markdown.js`);
      const root = document.body.appendChild(document.createElement('div'));
      root.id = 'shape';
      const view = new MarkdownView(root);
      // As it streams, in eight pieces; then whole.
      for (let part = 1; part < 8; part += 1) view.update(text.slice(0, Math.floor((text.length * part) / 8)), false);
      view.update(text, true);
      return { nodes: root.querySelectorAll('*').length, length: root.textContent.length };
    }, text);
    assert.ok(drawn.nodes > 0 && drawn.nodes <= MAX_NODES && drawn.length > 0, JSON.stringify(drawn));
    assert.deepEqual(await page.evaluate(forbidden), []);
    await page.evaluate(() => document.getElementById('shape').remove());
    assert.deepEqual(faults, []);
  });
}
