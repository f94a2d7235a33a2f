// A smoke test of the console and the widget in Firefox, which is driven by its own WebDriver BiDi. It is not part of the suite:
// `FIREFOX=/usr/bin/firefox-esr BROWSER_TESTS=firefox.js cargo nextest run …`, see docs/console.md.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { after, before, test } from './harness.js';
import { mint, startHost } from './host.js';
import { base, link, pictures, required } from './support.js';

/** Longest time for the browser's start and for a condition, in milliseconds. */
const PATIENCE_MS = 60_000;

let firefox, profile, session;
before(async () => {
  profile = mkdtempSync(join(tmpdir(), 'console-firefox-'));
  firefox = spawn(required('FIREFOX'), ['--headless', '--remote-debugging-port=0', '--profile', profile, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const address = await new Promise((resolve, reject) => {
    let text = '';
    firefox.stderr.on('data', (piece) => {
      text += piece;
      const found = /WebDriver BiDi listening on (ws:\S+)/.exec(text);
      if (found) resolve(found[1]);
    });
    firefox.on('exit', () => reject(new Error(`Firefox has ended: ${text}`)));
  });
  session = await connect(`${address}/session`);
});
after(async () => {
  const ended = new Promise((resolve) => firefox.on('exit', resolve));
  firefox.kill();
  await ended;
  rmSync(profile, { recursive: true, force: true });
});

/** Opens a session, and records errors of scripts and violations of the content policy in `faults`. */
async function connect(url) {
  const socket = new WebSocket(url);
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = reject;
  });
  const waiting = new Map();
  const faults = [];
  let count = 0;
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method === 'log.entryAdded' && message.params.level === 'error') faults.push(message.params.text);
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  };
  const send = async (method, params = {}) => {
    const id = (count += 1);
    const answered = new Promise((resolve) => waiting.set(id, resolve));
    socket.send(JSON.stringify({ id, method, params }));
    const answer = await answered;
    if (answer.type === 'error') throw new Error(`${method}: ${answer.error} ${answer.message}`);
    return answer.result;
  };
  await send('session.new', { capabilities: {} });
  const context = (await send('browsingContext.getTree')).contexts[0].context;
  await send('session.subscribe', { events: ['log.entryAdded'] });
  await send('browsingContext.setViewport', { context, viewport: { width: 1280, height: 820 } });
  const watch = '() => addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => console.error(`policy: ${violatedDirective} ${blockedURI}`))';
  await send('script.addPreloadScript', { functionDeclaration: watch });
  const evaluate = async (run, ...values) => {
    const expression = `(async () => JSON.stringify(await (${run})(...${JSON.stringify(values)})))()`;
    const { type, result, exceptionDetails } = await send('script.evaluate', { expression, target: { context }, awaitPromise: true });
    if (type === 'exception') throw new Error(exceptionDetails.text);
    return result.value === undefined ? undefined : JSON.parse(result.value);
  };
  /** Waits until a function of the page returns something true. */
  const until = (run, ...values) => evaluate(`async (values, limit) => {
    const end = Date.now() + limit;
    while (!(${run})(...values)) {
      if (Date.now() > end) throw new Error(${JSON.stringify(`it takes too long: ${run}`)});
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }`, values, PATIENCE_MS);
  const open = (url) => send('browsingContext.navigate', { context, url, wait: 'complete' });
  const type = (text) => send('input.performActions', {
    context,
    actions: [{ type: 'key', id: 'keys', actions: [...text].flatMap((value) => [{ type: 'keyDown', value }, { type: 'keyUp', value }]) }],
  });
  const picture = async (name) => writeFileSync(`${pictures}/${name}.png`, Buffer.from((await send('browsingContext.captureScreenshot', { context })).data, 'base64'));
  return { evaluate, until, open, type, picture, faults };
}

/** The key `Enter` of WebDriver. */
const ENTER = '\uE007';

test('the console signs in, answers, and shows its views', async () => {
  const { evaluate, until, open, type, picture, faults } = session;
  await open(await link());
  await until(() => document.querySelector('.layout'));
  assert.equal(await evaluate(() => location.hash), '', 'the code is gone from the address');
  const visit = async (route, selector) => {
    await evaluate((hash) => (location.hash = hash), `#/${route}`);
    await until((selector) => document.querySelector(selector), selector);
  };
  await visit('chat/garden', '.welcome');
  await until(() => document.querySelector('.agent-pick select').value === 'garden');
  await evaluate(() => document.getElementById('composer').focus());
  await type(`When are you open?${ENTER}`);
  await until(() => document.querySelector('.message.answer .md-table') && document.querySelector('.composer [type=submit]') && !document.querySelector('[aria-busy=true]'));
  await until(() => document.querySelector('.part'));
  await picture('firefox-chat');
  await evaluate(() => document.getElementById('tab-events').click());
  await until(() => document.querySelectorAll('.event-row').length > 5);
  await visit('chat/tools', '.welcome');
  await until(() => document.querySelector('.agent-pick select').value === 'tools');
  await evaluate(() => document.getElementById('composer').focus());
  await type(`What is open?${ENTER}`);
  await until(() => document.querySelector('.message.answer .tool') && document.querySelector('.composer [type=submit]'));
  for (const [route, selector] of [['threads', '.item'], ['agents', '.card'], ['agents/garden', '.role-form'], ['agents/garden/documents', '.item'], ['jobs', '#jobs-panel'], ['jobs/new', '.next-runs'], ['usage', '.limit'], ['audit/text', '#audit-title'], ['account', '#subscription-title, h1']]) {
    await visit(route, selector);
    assert.ok((await evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${route} is too wide`);
  }
  await visit('usage', '.limit');
  await picture('firefox-usage');
  // Colours by `light-dark()` follow the choice.
  const colours = await evaluate(() => ['light', 'dark'].map((theme) => {
    document.documentElement.dataset.theme = theme;
    return getComputedStyle(document.documentElement).backgroundColor;
  }));
  assert.deepEqual(colours, ['rgb(250, 249, 247)', 'rgb(21, 20, 18)']);
  assert.deepEqual(faults, []);
});

test('the widget answers on the page of another origin', async () => {
  const { evaluate, until, open, picture, faults } = session;
  const host = await startHost();
  const { token } = await mint('text', { origins: [host.origin] });
  await open(host.page(`<!doctype html><html lang="en"><title>Shop</title><body><h1>Shop</h1><script src="${base}widget.js" data-token="${token}"></script></body></html>`));
  await until(() => customElements.get('agent-chat') && document.querySelector('agent-chat')?.send);
  const heard = await evaluate(() => new Promise((resolve) => {
    addEventListener('agent-run', ({ detail }) => detail.status === 'finished' && resolve(detail.status));
    const chat = document.querySelector('agent-chat');
    chat.open();
    chat.send('Hello');
  }));
  assert.equal(heard, 'finished');
  assert.equal(await evaluate(() => document.querySelector('agent-chat').shadowRoot), null);
  await picture('firefox-widget');
  assert.deepEqual(faults, []);
  host.close();
});
