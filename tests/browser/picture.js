// The picture of docs/console.md. It is not part of the suite, which would change it with every run:
// `BROWSER_TESTS=picture.js cargo nextest run -p integration -E 'test(console_works)'`, see docs/console.md.

import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { test } from './harness.js';
import { ask, launch, signedIn, visit } from './support.js';

const PATH = fileURLToPath(new URL('../../docs/console.png', import.meta.url));
/** Most that the picture may weigh. */
const MAX_BYTES = 200_000;

test('the picture of the documentation', async (t) => {
  const browser = await launch();
  const { context, page, faults } = await signedIn(browser, { colorScheme: 'light', reducedMotion: 'reduce', locale: 'en-GB', timezoneId: 'Europe/Berlin' });
  await visit(page, 'chat/garden');
  await ask(page, 'When are you open, and which plants like shade?');
  await page.getByRole('tab', { name: 'Prompt' }).click();
  await page.locator('.part').first().waitFor();
  await page.locator('.chat [role=log]').evaluate((log) => (log.scrollTop = 0));
  await page.evaluate(() => document.activeElement?.blur());
  await page.screenshot({ path: PATH, animations: 'disabled', caret: 'hide' });
  const { size } = statSync(PATH);
  t.diagnostic(`${PATH}: ${size} bytes`);
  assert.ok(size > 0 && size <= MAX_BYTES, `${size} bytes`);
  assert.deepEqual(faults, []);
  await context.close();
});
