// What the console weighs on the wire.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { get } from 'node:http';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { base, launch, signedIn, visit } from './support.js';

/** Most that the first load of a chat may weigh, compressed by brotli. */
const MAX_CHAT_BYTES = 60 * 1024;
/** Most that all files of the page may weigh, compressed by gzip. */
const MAX_CONSOLE_BYTES = 140 * 1024;
/** Most requests for files before a chat can be used. */
const MAX_REQUESTS = 32;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** Returns the bytes of a response as they are on the wire. */
const fetchRaw = (url, encoding) => new Promise((resolve, reject) => {
  const headers = encoding ? { 'accept-encoding': encoding } : {};
  get(url, { headers }, async (response) => {
    const pieces = [];
    for await (const piece of response) pieces.push(piece);
    const bytes = Buffer.concat(pieces);
    if (response.statusCode === 200) resolve({ bytes, encoding: response.headers['content-encoding'] });
    else reject(new Error(`${url} is ${response.statusCode}`));
  }).on('error', reject);
});

/** Returns the files below a folder. */
function files(folder, prefix = '') {
  return readdirSync(new URL(folder, import.meta.url), { withFileTypes: true }).flatMap((entry) => (entry.isDirectory()
    ? files(`${folder}/${entry.name}`, `${prefix}${entry.name}/`) : /\.(js|css|svg)$/.test(entry.name) ? [prefix + entry.name] : []));
}

test('the first load of a chat, and all of the console, are small', async () => {
  const { context, page, faults } = await signedIn(browser);
  await visit(page, 'chat/text');
  await page.locator('.part').first().waitFor();
  const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/assets/')));
  const folder = loaded.find((name) => name.endsWith('/app.js')).replace(/app\.js$/, '');
  assert.ok(loaded.length >= 10 && loaded.length <= MAX_REQUESTS, `${loaded.length} requests`);

  let chatBytes = 0;
  for (const url of new Set([base, ...loaded])) {
    const { bytes, encoding } = await fetchRaw(url, 'br');
    assert.equal(encoding, 'br', url);
    chatBytes += bytes.length;
  }
  assert.ok(chatBytes <= MAX_CHAT_BYTES, `the chat: ${chatBytes} bytes`);

  const all = [
    ...files('../../agent-http/console/web').filter((name) => !name.startsWith('widget')),
    ...files('../../clients/js/src').map((name) => `client/${name}`),
  ];
  let consoleBytes = gzipSync((await fetchRaw(base)).bytes).length;
  for (const name of all) consoleBytes += gzipSync((await fetchRaw(folder + name)).bytes).length;
  assert.ok(all.length > 30 && consoleBytes <= MAX_CONSOLE_BYTES, `all ${all.length} files: ${consoleBytes} bytes`);
  console.log(`chat ${chatBytes} bytes by brotli in ${loaded.length} requests; ${all.length} files of ${consoleBytes} bytes by gzip`);
  assert.deepEqual(faults, []);
  await context.close();
});
