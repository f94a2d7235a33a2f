import assert from 'node:assert/strict';
import { gzipSync } from 'node:zlib';

import { corpus } from './corpus.js';
import { after, before, test } from './harness.js';
import { manage, mint, openHost, revoke, startHost, startProxy } from './host.js';
import { base, forbidden, frames, launch, openGate, picture, until } from './support.js';
import { answers, ask, checkWidget, input, isIdle, openWidget, say, script, showPanel, wholePage } from './widget.js';

let browser, host;
before(async () => {
  browser = await launch();
  host = await startHost();
});
after(async () => {
  host.close();
});

/** Opens a page with the widget of an agent. */
const open = (agent, fields) => openWidget(browser, host, agent, fields);

/** The numbers that the agent `count` says. */
const counted = Array.from({ length: 100 }, (_, place) => place + 1).join(' ');
const isCounting = (page) => page.waitForFunction(() => / 9 10 /.test(document.querySelector('agent-chat').shadowRoot.textContent));

test('it is small', async () => {
  const loader = await (await fetch(`${base}widget.js`)).text();
  const sizes = new Map([['widget.js', gzipSync(loader, { level: 9 }).length]]);
  const load = async (url) => {
    if (sizes.has(url)) return;
    sizes.set(url, 0);
    const source = await (await fetch(url)).text();
    sizes.set(url, gzipSync(source, { level: 9 }).length);
    for (const [, name] of source.matchAll(/\bimport [^']* from '([^']*)';/g)) await load(new URL(name, url).href);
  };
  await load(new URL(/'(widget\/\w{12}\/widget\/main\.js)'/.exec(loader)[1], base).href);
  const all = [...sizes.values()].reduce((sum, size) => sum + size);
  assert.ok(sizes.size === 9 && all <= 30 * 1024 && sizes.get('widget.js') <= 1000, JSON.stringify([...sizes]));
});

test('a visitor chats by keyboard alone, and the page hears of it', async () => {
  const { context, page, faults, lines } = await open('garden', { data: { 'data-title': 'Pip', 'data-greeting': 'Hello, **you**.', 'data-suggestions': 'Hours?|Plants?|a|b|c' } });
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Pip' }).waitFor();
  assert.equal(await page.locator('.greeting strong').innerText(), 'you');
  await page.locator('.chip').nth(3).waitFor();
  assert.equal(await page.locator('.chip').count(), 4);
  await page.keyboard.type('When are you open?');
  // Safari ends a composition before the key that ends it, which sends nothing.
  assert.ok(await input(page).evaluate((field) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true }))));
  await page.keyboard.press('Enter');
  // The message is sent when it is known that there is no thread: until then the chat is as idle as after the answer.
  await page.getByRole('status').filter({ hasText: 'Answer complete' }).waitFor();
  assert.equal(await answers(page).locator('table').count(), 1);
  assert.equal(await page.locator('.chip').count(), 0);
  await page.keyboard.press('Escape');
  const launcher = page.getByRole('button', { name: 'Open chat' });
  assert.equal(await launcher.getAttribute('aria-expanded'), 'false');
  assert.ok(await launcher.evaluate((node) => node.getRootNode().activeElement === node), 'the focus is where it was');
  // The page receives codes and numbers, and the browser keeps a key and an id: neither has a word of the conversation.
  const told = await page.evaluate(() => told);
  assert.deepEqual(told.map(([name]) => name), ['ready', 'open', 'message', 'run', 'run', 'message', 'open']);
  assert.deepEqual(told[2][1], { role: 'user', length: 18 });
  assert.deepEqual(told[4][1], { status: 'finished' });
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  assert.ok(!/open\?|Saturday/.test(JSON.stringify(told) + kept), kept);
  assert.match(kept, /agent-chat:.*key.*thread/);
  assert.deepEqual([faults, lines], [[], []]);
  await context.close();
});

test('an answer goes on after the page is loaded again', async () => {
  const { context, page, faults } = await open('count');
  await showPanel(page);
  await say(page, 'Count');
  await isCounting(page);
  await page.reload();
  await page.getByText(/ 100/).waitFor();
  await isIdle(page);
  assert.equal(await page.locator('.message.user .text').innerText(), 'Count');
  assert.equal((await answers(page).innerText()).trim(), counted);
  assert.deepEqual(faults, []);
  // Another conversation forgets this one, on the server too.
  const deleted = page.waitForResponse((response) => response.request().method() === 'DELETE');
  await page.getByRole('button', { name: 'New conversation' }).click();
  assert.equal((await deleted).status(), 204);
  await page.reload();
  await page.getByRole('dialog').waitFor();
  assert.equal(await page.locator('.message').count(), 0);
  await context.close();
});

test('what comes for a conversation that is not shown any more changes nothing', async () => {
  const { context, page, faults } = await open('garden');
  await showPanel(page);
  await ask(page, 'The first conversation');
  const { token } = await mint('garden', { origins: [host.origin] });
  const change = () => page.evaluate((token) => document.querySelector('agent-chat').setAttribute('token', token), token);
  const reset = () => page.getByRole('button', { name: 'New conversation' }).click();
  const refusal = { status: 401, headers: { 'Access-Control-Allow-Origin': '*' }, contentType: 'application/problem+json', body: '{"code":"UNAUTHENTICATED","detail":"no"}' };
  const thread = '**/api/threads/*?limit=500';
  for (const [begin, answer] of [[change, refusal], [change], [reset]]) {
    let release, arrive;
    const released = new Promise((resolve) => (release = resolve));
    const asked = new Promise((resolve) => (arrive = resolve));
    await page.route(thread, async (route) => {
      const late = answer ?? { response: await route.fetch() };
      arrive();
      await released;
      await route.fulfill(late);
    }, { times: 1 });
    await page.reload();
    await asked;
    await begin();
    const answered = page.waitForResponse(thread);
    release();
    await answered;
    await frames(page);
    assert.ok(await page.getByRole('dialog').isVisible());
    assert.equal(await page.locator('.message.user').count(), 0);
  }
  assert.deepEqual(faults, []);
  await context.close();
});

test('a wait that the server asks for twice runs down once', async () => {
  const { context, page, faults } = await open('garden');
  const headers = { 'Retry-After': '3', 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After' };
  const json = { code: 'RATE_LIMITED', detail: 'slower', status: 429 };
  await page.route('**/api/threads?*', (route) => route.fulfill({ status: 429, headers, contentType: 'application/problem+json', body: JSON.stringify(json) }));
  await page.evaluate(() => {
    const { setInterval, clearInterval } = globalThis;
    globalThis.timers = { begun: 0, live: new Set() };
    globalThis.setInterval = (...values) => {
      const id = setInterval(...values);
      timers.begun += 1;
      timers.live.add(id);
      return id;
    };
    globalThis.clearInterval = (id) => {
      timers.live.delete(id);
      clearInterval(id);
    };
  });
  await showPanel(page);
  await page.locator('.notice', { hasText: 'You can write again' }).waitFor();
  // The thread is requested again, since it does not exist yet.
  await page.evaluate(() => document.querySelector('agent-chat').close());
  await page.evaluate(() => document.querySelector('agent-chat').open());
  await page.waitForFunction(() => timers.begun >= 2 && timers.live.size === 0);
  await page.locator('.notice').waitFor({ state: 'hidden' });
  assert.deepEqual(faults, []);
  await context.close();
});

test('an answer goes on after its connection is lost, at any time', async () => {
  const proxy = await startProxy();
  const { context, page, faults } = await open('count', { data: { 'data-api': proxy.address } });
  await showPanel(page);
  await say(page, 'Count behind losses');
  for (let time = 0; time < 2; time += 1) {
    await isCounting(page);
    proxy.cut();
    await page.getByText('Connection lost').first().waitFor();
    proxy.restore();
    // Without this it would be tried again within seconds.
    await page.evaluate(() => dispatchEvent(new Event('online')));
    await page.locator('.notice').waitFor({ state: 'hidden' });
  }
  await openGate('losses');
  await isIdle(page);
  assert.equal((await answers(page).innerText()).trim(), counted);
  // A message whose request is lost is sent again, and is there once.
  proxy.cut();
  await say(page, 'Count behind a stop');
  await page.getByText('Connection lost').first().waitFor();
  proxy.restore();
  await page.evaluate(() => dispatchEvent(new Event('online')));
  await page.locator('.notice').waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Stop' }).click();
  await isIdle(page);
  await page.reload();
  await answers(page).nth(1).waitFor();
  assert.equal(await page.locator('.message.user').count(), 2);
  assert.deepEqual(faults, []);
  await context.close();
  proxy.close();
});

test('two pages of a visitor show one conversation', async () => {
  const { context, page, faults } = await open('slow');
  await showPanel(page);
  await say(page, 'Go on for ever');
  await page.getByText(/tick tick/).waitFor();
  const other = await context.newPage();
  await other.goto(page.url());
  await other.getByRole('button', { name: 'Open chat' }).click();
  await other.getByText(/tick tick/).waitFor();
  await other.getByRole('button', { name: 'Stop' }).click();
  await isIdle(page);
  assert.equal(await page.locator('.end').innerText(), 'Stopped');
  // A message beside an answer of the other page waits in its field, and the answer is shown.
  await say(page, 'Again');
  await page.getByText(/tick tick/).nth(1).waitFor();
  await say(other, 'Me too');
  await other.getByText(/tick tick/).nth(1).waitFor();
  assert.equal(await input(other).inputValue(), 'Me too');
  await page.getByRole('button', { name: 'Stop' }).click();
  await isIdle(other);
  assert.deepEqual(faults, []);
  await context.close();
});

test('an answer is stopped, and is kept as far as it was said', async () => {
  const { context, page, faults } = await open('slow');
  await showPanel(page);
  await say(page, 'Go on for ever');
  await page.waitForFunction(() => /tick tick/.test(document.querySelector('agent-chat').shadowRoot.textContent));
  await page.getByRole('button', { name: 'Stop' }).click();
  await isIdle(page);
  assert.equal(await page.locator('.end').innerText(), 'Stopped');
  const said = (await answers(page).innerText()).trim();
  await page.reload();
  await page.locator('.end').waitFor();
  assert.equal((await answers(page).innerText()).trim(), said);
  assert.deepEqual(faults, []);
  await context.close();
});

for (const store of ['local', 'off']) {
  test(`a failed answer is made anew in its place: ${store}`, async () => {
    const { context, page } = await open('broken', { data: { 'data-store': store } });
    await showPanel(page);
    await say(page, 'Try');
    await page.getByText('The answer could not be finished.').first().waitFor();
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.waitForFunction(() => told.filter(([name]) => name === 'run').length === 4);
    await page.getByText('The answer could not be finished.').first().waitFor();
    assert.equal(await page.locator('.message.user').count(), 1);
    assert.equal(await answers(page).count(), 1);
    assert.deepEqual((await page.evaluate(() => told)).filter(([name]) => name === 'error').map(([, { code }]) => code), ['STREAM_TRUNCATED', 'STREAM_TRUNCATED']);
    await context.close();
  });
}

test('the browser keeps what the page allows', async () => {
  for (const [store, places] of [['local', [1, 1]], ['session', [0, 2]], ['off', [0, 0]]]) {
    const { context, page } = await open('text', { data: { 'data-store': store } });
    const bodies = [];
    page.on('request', (request) => { if (request.method() === 'POST') bodies.push([request.postDataJSON(), request.headers()]); });
    await showPanel(page);
    await ask(page, 'One');
    await ask(page, 'Two');
    assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length]), places, store);
    assert.equal('x-visitor-key' in bodies[1][1], store !== 'off');
    // Without a thread the conversation goes with the message.
    if (store === 'off') assert.deepEqual(bodies[1][0].messages.map(({ role }) => role), ['user', 'assistant', 'user']);
    else assert.equal(bodies[1][0].message, 'Two');
    const url = new URL(page.url());
    assert.deepEqual(bodies[0][0].pageContext, { url: url.origin + url.pathname, title: 'Green Corner' });
    await context.close();
  }
});

test('a conversation of which the agent keeps nothing goes with each message, also when it is begun anew', async () => {
  const id = `unkept-widget-${Date.now()}`;
  const { content, children } = await manage('GET', 'api/agents/text');
  // The key is not needed, and not known for another agent.
  delete children[0].content.apiKey;
  await manage('PUT', `api/agents/${id}`, { name: 'Unkept', content: { ...content, conversations: { store: false } }, children });
  const { context, page, faults } = await open(id);
  const bodies = [];
  page.on('request', (request) => { if (request.method() === 'POST') bodies.push(request.postDataJSON()); });
  await showPanel(page);
  for (const text of ['One', 'Two']) await ask(page, text);
  // An element that is put back has its words, and what it has said goes on with them.
  await page.evaluate(() => {
    const chat = document.querySelector('agent-chat');
    chat.remove();
    document.body.append(chat);
  });
  await ask(page, 'Three');
  assert.deepEqual(bodies.map(({ messages }) => messages.map(({ role }) => role[0]).join('')), ['u', 'uau', 'uauau']);
  assert.deepEqual(bodies.map(({ threadId }) => threadId === undefined), [false, true, true]);
  await page.getByRole('button', { name: 'New conversation' }).click();
  await ask(page, 'Four');
  assert.deepEqual(bodies[3].messages.map(({ content }) => content), ['Four']);
  assert.deepEqual(faults, []);
  await context.close();
  await manage('DELETE', `api/agents/${id}`);
});

test('it works under a strict policy of the page, and asks nothing of it', async () => {
  const { origin } = new URL(base);
  const policy = `default-src 'none'; style-src 'none'; script-src ${origin}; connect-src ${origin}; require-trusted-types-for 'script'; trusted-types 'none'`;
  const { token } = await mint('garden', { origins: [host.origin] });
  const url = host.page(wholePage(script(token)), { 'Content-Security-Policy': policy });
  const { context, page, faults, lines } = await openHost(browser, url);
  const launcher = page.locator('.launcher');
  await launcher.waitFor();
  assert.equal(await launcher.evaluate((node) => getComputedStyle(node).backgroundColor), 'rgb(11, 110, 95)');
  await launcher.click();
  await ask(page, 'When are you open?');
  assert.deepEqual([faults, lines], [[], []]);
  // Nothing of it comes before the page is complete, or moves the page.
  const timing = await page.evaluate(() => ({
    loaded: performance.getEntriesByType('navigation')[0].loadEventStart,
    module: performance.getEntriesByType('resource').find(({ name }) => name.endsWith('/main.js')).startTime,
    heights: document.body.scrollHeight - document.querySelector('main').getBoundingClientRect().bottom,
  }));
  assert.ok(timing.module >= timing.loaded, JSON.stringify(timing));
  await context.close();
});

test('a page cannot look into it, and can hide it only by its attribute', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  // Twice, before the body, on a page that hides all of its body and has extended what every script uses.
  const head = `<style>body * { display: none !important; color: red !important; font-size: 40px !important }</style>
    <script>Object.defineProperty(Array.prototype, 'extra', { value: 1, enumerable: true, configurable: true, writable: true });</script>
    ${script(token)}${script(token)}`;
  const { context, page, faults } = await openHost(browser, host.page(wholePage('', head)), { isClosed: true });
  await page.locator('agent-chat').waitFor({ state: 'attached' });
  await page.waitForFunction(() => customElements.get('agent-chat'));
  assert.equal(await page.locator('agent-chat').count(), 1);
  assert.equal(await page.evaluate(() => document.querySelector('agent-chat').shadowRoot), null);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('agent-chat')).display), 'contents');
  await page.mouse.click(1280 - 48, 820 - 48);
  await page.waitForFunction(() => told.some(([name, detail]) => name === 'open' && detail.open));
  await page.keyboard.type('Hello');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => told.some(([name, detail]) => name === 'run' && detail.status === 'finished'));
  await picture(page, 'widget-hostile-page');
  await page.evaluate(() => (document.querySelector('agent-chat').hidden = true));
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('agent-chat')).display), 'none');
  assert.deepEqual(faults, []);
  await context.close();
});

/** A page that has replaced what every script uses: the calls are counted, and do what they did. */
const REPLACED = `<script>
  globalThis.calls = {};
  const replace = (owner, name) => {
    const original = owner[name];
    owner[name] = function (...values) { calls[name] = (calls[name] ?? 0) + 1; return original.apply(this, values); };
  };
  replace(globalThis, 'fetch'); replace(JSON, 'parse'); replace(JSON, 'stringify'); replace(Element.prototype, 'attachShadow');
  for (const name of ['map', 'filter', 'push', 'forEach', 'at', 'findLast']) replace(Array.prototype, name);
  for (const owner of [Object.prototype, Array.prototype, String.prototype]) owner.extra = { enumerable: 'everywhere' };
</script>`;

test('it works on a page that has replaced what every script uses', async () => {
  const { token } = await mint('garden', { origins: [host.origin] });
  const { context, page, faults, lines } = await openHost(browser, host.page(wholePage(script(token, { 'data-suggestions': 'Hours?|Plants?' }), REPLACED)));
  await showPanel(page);
  assert.equal(await page.locator('.chip').count(), 2);
  await ask(page, 'When are you open?');
  assert.equal(await answers(page).locator('table').count(), 1);
  await page.reload();
  await answers(page).waitFor();
  assert.equal(await answers(page).locator('table').count(), 1);
  const calls = await page.evaluate(() => calls);
  assert.ok(calls.fetch > 0 && calls.parse > 0 && calls.attachShadow > 0, JSON.stringify(calls));
  assert.deepEqual([faults, lines], [[], []]);
  await context.close();
});

/** A page of a library that is older than the standard's functions, as Prototype 1.6 is: it has its own in their place. */
const OLD_LIBRARY = `<script>
  const toArray = (list) => { const found = []; for (let place = 0; place < (list?.length ?? 0); place += 1) found[place] = list[place]; return found; };
  Array.from = toArray;
  Object.toJSON = (value) => (typeof value === 'string' ? '"' + value + '"' : String(value));
  Object.assign(Array.prototype, {
    toJSON() { return '[' + toArray(this).map(Object.toJSON).join(', ') + ']'; },
    entries() { return toArray(this); },
    map(each, owner) { const found = []; for (let place = 0; place < this.length; place += 1) found.push(each.call(owner, this[place], place)); return found; },
    find(wanted) { for (const value of this) if (wanted(value)) return value; },
    flatten() { return this.flat(Infinity); },
    inspect() { return this.toJSON(); },
  });
  String.prototype.toJSON = function () { return this.inspect(); };
  String.prototype.inspect = function () { return '"' + this + '"'; };
  Element.prototype.remove = function () { return this.parentNode?.removeChild(this); };
  var element = 1, button = 2, icon = 3, find = () => false, Service = null;
</script>`;

test('it works on a page of an old library, and sends lists as lists', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  const { context, page, faults, lines } = await openHost(browser, host.page(wholePage(script(token, { 'data-store': 'off', 'data-suggestions': 'Hours?|Plants?' }), OLD_LIBRARY)));
  const bodies = [];
  page.on('request', (request) => { if (request.method() === 'POST') bodies.push(request.postDataJSON()); });
  await showPanel(page);
  assert.equal(await page.locator('.chip').count(), 2);
  // The conversation is the page's, and goes with each message.
  for (const text of ['One', 'Two']) assert.equal((await ask(page, text)).trim(), 'Hello from the model.');
  assert.deepEqual(bodies.map(({ messages }) => messages.map(({ content }) => content)), [['One'], ['One', 'Hello from the model.', 'Two']]);
  assert.deepEqual([faults, lines], [[], []]);
  await context.close();
});

/** A page that has frozen the language's built-in objects, to protect itself from its own libraries. */
const FROZEN = `<script>
  for (const Type of [Object, Function, Array, String, Number, Boolean, Symbol, Error, TypeError, RangeError, Promise, Map, Set, WeakMap, RegExp, Date, Uint8Array, ArrayBuffer]) {
    Object.freeze(Type.prototype);
    Object.freeze(Type);
  }
  Object.freeze(JSON);
</script>`;

test('it works on a page that has frozen the language, also while the browser is offline', async () => {
  const { token } = await mint('garden', { origins: [host.origin] });
  const { context, page, faults } = await openHost(browser, host.page(wholePage(script(token), FROZEN)));
  await showPanel(page);
  await ask(page, 'When are you open?');
  assert.equal(await answers(page).locator('table').count(), 1);
  await context.setOffline(true);
  await say(page, 'And now?');
  await page.locator('.notice').getByText('Connection lost').waitFor();
  await context.setOffline(false);
  await answers(page).nth(1).locator('table').waitFor();
  await isIdle(page);
  assert.ok(await page.locator('.notice').isHidden());
  assert.equal(await page.locator('.message.user').count(), 2);
  assert.deepEqual(faults, []);
  await context.close();
});

/** A page whose `fetch` is a polyfill over XMLHttpRequest: a response is there as a whole, and has no stream. */
const WITHOUT_STREAMS = `<script>
  const { fetch: streaming } = globalThis;
  globalThis.fetch = async (...values) => {
    const response = await streaming(...values);
    const text = await response.text();
    return { ok: response.ok, status: response.status, headers: response.headers, text: async () => text, json: async () => JSON.parse(text) };
  };
</script>`;

test('it works on a page whose fetch has no streams', async () => {
  const { token } = await mint('garden', { origins: [host.origin] });
  const { context, page, faults, lines } = await openHost(browser, host.page(wholePage(script(token), WITHOUT_STREAMS)));
  await showPanel(page);
  await ask(page, 'When are you open?');
  assert.equal(await answers(page).locator('table').count(), 1);
  await page.reload();
  await answers(page).waitFor();
  assert.equal(await answers(page).locator('table').count(), 1);
  assert.deepEqual([faults, lines], [[], []]);
  await context.close();
});

test('a policy of the page without the application is told to the visitor, and the page is as it was', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  const open = (policy) => openHost(browser, host.page(wholePage(script(token)), { 'Content-Security-Policy': policy }));
  const mute = await open(`script-src ${new URL(base).origin}; connect-src 'self'`);
  await mute.page.locator('.launcher').waitFor();
  await showPanel(mute.page);
  await mute.page.locator('.notice').getByText('No connection.').waitFor();
  await until(() => mute.faults.length > 0, 'the policy is reported');
  assert.ok(mute.faults.every((fault) => fault.startsWith('policy: connect-src')), mute.faults.join());
  assert.ok(await mute.page.getByRole('heading', { name: 'Green Corner' }).isVisible());
  await mute.context.close();
  const bare = await open("script-src 'self'");
  await until(() => bare.faults.length > 0, 'the policy is reported');
  assert.ok(bare.faults.every((fault) => fault.startsWith('policy: script-src')), bare.faults.join());
  assert.equal(await bare.page.locator('agent-chat').count(), 0);
  await bare.context.close();
});

/** What a page may have broken after the widget has come, and what the visitor is told then. */
const BROKEN = {
  'fetch throws': ['globalThis.fetch = () => { throw new TypeError("no"); };', /Connection lost|No connection/],
  'fetch gives nothing': ['globalThis.fetch = async () => undefined;', /Connection lost|No connection/],
  'JSON.stringify throws': ['JSON.stringify = () => { throw new TypeError("no"); };', /Connection lost|No connection/],
  'Array.prototype.map gives nothing': ['Array.prototype.map = () => undefined;', /Connection lost|No connection/],
  'JSON.parse throws': ['JSON.parse = () => { throw new SyntaxError("no"); };', /could not be finished/],
  'JSON.parse gives nothing': ['JSON.parse = () => null;', /could not be finished/],
};

for (const [name, [source, words]] of Object.entries(BROKEN)) {
  test(`a page where ${name} gets no error of the widget, whose visitor is told`, async () => {
    const { context, page, faults } = await open('text');
    await showPanel(page);
    await ask(page, 'Hello');
    await page.evaluate(source);
    await say(page, 'And now?');
    await page.locator('.notice').getByText(words).waitFor();
    // The page's own work goes on, and so does the widget's once the page is well again.
    await page.reload();
    await answers(page).first().waitFor();
    assert.equal((await ask(page, 'Better?')).trim(), 'Hello from the model.');
    assert.deepEqual(faults, []);
    await context.close();
  });
}

test('it works where storage is blocked, in 320 pixels, and while the page goes on by scripts', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  // As Safari and Chromium do where cookies of third parties, or all of them, are blocked.
  const head = `<script>for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(globalThis, name, { get() { throw new DOMException('denied', 'SecurityError'); } });</script>`;
  const { context, page, faults } = await openHost(browser, host.page(wholePage(script(token, { 'data-greeting': 'A greeting with many words, for a narrow window.' }), head)), { viewport: { width: 320, height: 256 } });
  await page.locator('.launcher').waitFor();
  await showPanel(page);
  const box = await input(page).boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 320 && box.y + box.height <= 256, JSON.stringify(box));
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
  await page.evaluate(() => history.pushState({}, '', '/elsewhere'));
  assert.equal((await ask(page, 'Hello')).trim(), 'Hello from the model.');
  await page.evaluate(() => document.querySelector('agent-chat').reset());
  assert.deepEqual(faults, []);
  await context.close();
});

test('the element has methods, and is as it was when it is put back', async () => {
  const { token } = await mint('text', { origins: [host.origin] });
  const markup = `<div dir="rtl"><agent-chat token="${token}" title="Chat" theme="dark" position="start" page-context="json"></agent-chat></div><script src="${base}widget.js"></script>`;
  const { context, page, faults } = await openHost(browser, host.page(wholePage(markup)));
  await page.locator('.launcher').waitFor();
  assert.ok((await page.locator('.launcher').boundingBox()).x > 1000, 'the start of a page in Arabic is on the right');
  const request = page.waitForRequest((request) => request.method() === 'POST');
  await page.evaluate(() => {
    const chat = document.querySelector('agent-chat');
    chat.pageContext = { product: 'basil' };
    return chat.send('Hello');
  });
  assert.deepEqual((await request).postDataJSON().pageContext, { product: 'basil' });
  assert.equal((await answers(page).innerText()).trim(), 'Hello from the model.');
  await page.evaluate(() => {
    const chat = document.querySelector('agent-chat');
    chat.remove();
    document.body.append(chat);
  });
  await page.waitForFunction(() => document.querySelector('agent-chat').shadowRoot.querySelectorAll('.message').length === 2);
  await page.evaluate(() => document.querySelector('agent-chat').toggle());
  assert.ok(await page.getByRole('dialog').isHidden());
  await page.evaluate(() => document.querySelector('agent-chat').destroy());
  assert.equal(await page.locator('agent-chat').count(), 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test('without a valid token there is no button, and one line for the owner of the page', async () => {
  const revoked = await mint('text', { origins: [host.origin] });
  const first = await open('text', { token: revoked });
  await revoke('text', revoked.id);
  const foreign = await open('text', { token: await mint('text', { origins: ['https://shop.example'] }) });
  for (const [{ context, page, lines }, status, words] of [[first, 401, /credential/], [foreign, 403, /not valid for pages of http:\/\/127\.0\.0\.1/]]) {
    await page.getByRole('button', { name: 'Open chat' }).click();
    await page.locator('.launcher').waitFor({ state: 'hidden' });
    assert.ok(await page.getByRole('dialog').isHidden());
    const own = () => lines.filter((line) => line.startsWith('agent-chat'));
    await until(() => own().length > 0, 'the line is written');
    assert.equal(own().length, 1, lines.join());
    assert.match(own()[0], words);
    const told = await page.evaluate(() => told);
    assert.deepEqual(told.find(([name]) => name === 'error')[1].status, status);
    await context.close();
  }
});

test('a visitor who asks too often is told when to go on, and keeps the message', async () => {
  const token = await mint('text', { origins: [host.origin], caps: { runsPerMinute: 1 } });
  const { context, page, faults } = await open('text', { token });
  await showPanel(page);
  await ask(page, 'One');
  await say(page, 'Two');
  await page.locator('.notice').getByText(/You can write again in \d+ s\./).waitFor();
  assert.equal(await input(page).inputValue(), 'Two');
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled());
  assert.equal(await page.locator('.message.user').count(), 1);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a first message that is refused leaves the greeting and the suggestions', async () => {
  const { context, page, faults } = await open('text', { data: { 'data-greeting': 'Hello.', 'data-suggestions': 'Hours?|Plants?' } });
  await showPanel(page);
  const headers = { 'Retry-After': '60', 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After' };
  await page.route('**/api/agent/chat', (route) => (route.request().method() === 'POST'
    ? route.fulfill({ status: 429, headers, contentType: 'application/problem+json', body: '{"code":"RATE_LIMITED","detail":"slower"}' }) : route.fallback()));
  await page.getByRole('button', { name: 'Plants?' }).click();
  await page.locator('.notice').getByText('You can write again in').waitFor();
  assert.equal(await input(page).inputValue(), 'Plants?');
  assert.deepEqual(await page.locator('.greeting .text, .chip').allInnerTexts(), ['Hello.', 'Hours?', 'Plants?']);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a visitor is told when to go on if the server is unavailable, and in hours if a budget is spent', async () => {
  const { context, page, faults } = await open('text');
  await showPanel(page);
  await ask(page, 'One');
  let [status, seconds] = [503, '20'];
  const headers = () => ({ 'Retry-After': seconds, 'Access-Control-Allow-Origin': '*', 'Access-Control-Expose-Headers': 'Retry-After' });
  await page.route('**/api/agent/chat', (route) => (route.request().method() === 'POST'
    ? route.fulfill({ status, headers: headers(), contentType: 'application/problem+json', body: '{"code":"BUDGET_EXCEEDED","detail":"spent"}' }) : route.fallback()));
  await say(page, 'Two');
  await page.locator('.notice').getByText(/The server is busy\. Next attempt in (20|1\d) s\./).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.notice').waitFor({ state: 'hidden' });
  [status, seconds] = [402, '7201'];
  await say(page, 'Two');
  await page.locator('.notice').getByText('You can write again in 3 h.').waitFor();
  assert.equal(await input(page).inputValue(), 'Two');
  assert.deepEqual(faults, []);
  await context.close();
});

test('no text becomes anything but text', async () => {
  const { context, page, faults } = await open('echo', { data: { 'data-greeting': '<img src=x onerror=alert(1)>', 'data-title': '<b>x</b>', 'data-suggestions': '<i>y</i>' } });
  await showPanel(page);
  const all = corpus.filter((text) => !text.includes('\u0000')).join('\n\n').slice(0, 15_000);
  await ask(page, all);
  const found = await page.evaluate((source) => (0, eval)(`(${source})`)(document.querySelector('agent-chat').shadowRoot), forbidden.toString());
  assert.deepEqual(found, []);
  await page.reload();
  await answers(page).waitFor();
  assert.deepEqual(await page.evaluate((source) => (0, eval)(`(${source})`)(document.querySelector('agent-chat').shadowRoot), forbidden.toString()), []);
  assert.deepEqual(faults, []);
  await context.close();
});

test('nothing of the widget is wrong for people who use other means: light and dark, 1280 and 360 px', async () => {
  const data = { 'data-title': 'Green Corner', 'data-greeting': 'Hello! Ask me about **plants** and opening hours.', 'data-suggestions': 'When are you open?|Which herbs like shade?' };
  const { context, page, faults } = await open('garden', { data, options: { reducedMotion: 'reduce' } });
  const check = (name) => checkWidget(page, name);
  await check('closed');
  await showPanel(page);
  await check('welcome');
  await ask(page, 'When are you open?');
  await check('chat');
  await page.evaluate(() => {
    const notice = document.querySelector('agent-chat').shadowRoot.querySelector('.notice');
    notice.hidden = false;
    notice.firstChild.textContent = 'The answer could not be finished.';
    notice.lastChild.hidden = false;
  });
  await check('notice');
  assert.deepEqual(faults, []);
  await context.close();
});
