// The style sheet as it is served: the build script removes the spaces beside its punctuation, and zeros before points, which must mean
// nothing.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { test } from './harness.js';

const source = readFileSync(new URL('../../agent-http/console/web/app.css', import.meta.url), 'utf8');

test('no string of the style sheet has a space beside punctuation, or a zero before a point', () => {
  const strings = source.replace(/\/\*[^]*?\*\//g, '').match(/"[^"\n]*"|'[^'\n]*'/g);
  assert.ok(strings.length > 10);
  assert.deepEqual(strings.filter((string) => /[{:;,]\s|\s[{>]|; }|:0\./.test(string)), []);
});

test('no selector of the style sheet has a space after a colon, which would name a descendant', () => {
  const selectors = [...source.replace(/\/\*[^]*?\*\//g, '').matchAll(/(?<=^|[{};])([^{};@]+)(?=\{)/g)].map(([, selector]) => selector.trim());
  assert.ok(selectors.length > 400, `${selectors.length} selectors`);
  assert.deepEqual(selectors.filter((selector) => /:\s/.test(selector)), []);
});
