// Axe: the rules for people who use other means than a mouse and good eyes.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa', 'best-practice'];

/** Returns what axe finds wrong with what is shown, or with the part of it that a selector names. */
export async function axeViolations(page, selector) {
  await page.evaluate(axe);
  return page.evaluate(async ([values, selector]) => {
    const found = await globalThis.axe.run(selector ?? document, { runOnly: { type: 'tag', values }, resultTypes: ['violations'] });
    return found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  }, [TAGS, selector]);
}
