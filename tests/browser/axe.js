// Axe: the rules for people who use other means than a mouse and good eyes.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa', 'best-practice'];

/** The rules of axe that depend on colours. */
export const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

/** Returns what axe finds wrong with what is shown, or with the part of it that a selector names, by all rules or by some. */
export async function axeViolations(page, selector, rules) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe);
  const runOnly = rules ? { type: 'rule', values: rules } : { type: 'tag', values: TAGS };
  return page.evaluate(async ([runOnly, selector]) => {
    const found = await globalThis.axe.run(selector ?? document, { runOnly, resultTypes: ['violations'], selectors: false, iframes: false });
    return found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  }, [runOnly, selector]);
}
