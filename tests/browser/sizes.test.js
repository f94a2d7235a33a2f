// What the console weighs on the wire, and in the program.

import assert from 'node:assert/strict';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';

import { before, test } from './harness.js';
import { base, close, launch, signedIn, visit } from './support.js';
import { addressOf, assetsFolder, fetchRaw, isWidget, loadedFiles, names } from './wire.js';

/** Most that the first load of a chat may weigh, compressed by brotli. */
const MAX_CHAT_BYTES = 60 * 1024;
/** Most that all files of the page may weigh, compressed by gzip. */
const MAX_CONSOLE_BYTES = 140 * 1024;
/** Most that all files may weigh in the program, which has them in both forms. */
const MAX_EMBEDDED_BYTES = 400 * 1024;
/** Most requests for files before a chat can be used. */
const MAX_REQUESTS = 32;

let browser;
before(async () => (browser = await launch()));

/** Returns the lengths of a file's two forms, which must have the very content that a client without either gets. */
async function lengths(url) {
  const [plain, brotli, gzip] = await Promise.all([undefined, 'br', 'gzip'].map((encoding) => fetchRaw(url, encoding)));
  assert.deepEqual([plain.encoding, brotli.encoding, gzip.encoding], [undefined, 'br', 'gzip'], url);
  assert.ok(plain.bytes.equals(brotliDecompressSync(brotli.bytes)) && plain.bytes.equals(gunzipSync(gzip.bytes)), url);
  return { brotli: brotli.bytes.length, gzip: gzip.bytes.length };
}

test('the first load of a chat, all of the console, and all that is embedded are small', async () => {
  const opened = await signedIn(browser);
  const { page, faults } = opened;
  await visit(page, 'chat/text');
  await page.locator('.part').first().waitFor();
  const loaded = await loadedFiles(page);
  assert.ok(loaded.length >= 10 && loaded.length <= MAX_REQUESTS, `${loaded.length} requests`);
  // The page names each script, so that all of them are loaded at once, and none that the first view does not need.
  const named = await page.evaluate(() => [...document.querySelectorAll('link[rel=modulepreload], script')].map(({ href, src }) => href ?? src));
  assert.deepEqual(named.toSorted(), loaded.filter((url) => url.endsWith('.js')).toSorted());

  const urls = [base, ...names.map((name) => addressOf(name, assetsFolder(loaded), base))];
  const sizes = new Map();
  for (const url of urls) sizes.set(url, await lengths(url));
  const sum = (of, form) => [...new Set(of)].reduce((total, url) => total + sizes.get(url)[form], 0);
  const chat = sum([base, ...loaded], 'brotli');
  assert.ok(chat <= MAX_CHAT_BYTES, `the chat: ${chat} bytes`);
  const ofConsole = [base, ...names.filter((name) => !isWidget(name)).map((name) => addressOf(name, assetsFolder(loaded), base))];
  const all = sum(ofConsole, 'gzip');
  assert.ok(ofConsole.length > 30 && all <= MAX_CONSOLE_BYTES, `all ${ofConsole.length} files: ${all} bytes`);
  const embedded = sum(urls, 'brotli') + sum(urls, 'gzip');
  assert.ok(embedded <= MAX_EMBEDDED_BYTES, `embedded: ${embedded} bytes`);
  console.log(`chat ${chat} bytes by brotli in ${loaded.length} requests; ${ofConsole.length} files of ${all} bytes by gzip; ${embedded} bytes embedded`);
  assert.deepEqual(faults, []);
  await close(opened);
});
