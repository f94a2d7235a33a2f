// Conditions that a page meets in the field: streams in odd pieces, long lists, clocks that are wrong, roles of colleagues.

import assert from 'node:assert/strict';

import { before, test } from './harness.js';
import { alterResponses, ask, base, close, launch, link, openPage, pageTests, picture, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

const TEXT = 'Grüße aus dem Gärtchen 🌱 — ***alles*** blüht.';
const EVENTS = [
  { type: 'RUN_STARTED', threadId: 't', runId: 'r' }, { type: 'TEXT_MESSAGE_START', messageId: 'm', role: 'assistant' },
  ...TEXT.match(/[^]{1,7}/gu).map((delta) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta })),
  { type: 'TEXT_MESSAGE_END', messageId: 'm' }, { type: 'RUN_FINISHED', threadId: 't', runId: 'r', result: { finishReason: 'stop' } },
];

/** Opens a page whose chats are answered by the stream that its function `stream` sets. */
async function openStreams() {
  const opened = await openPage(browser);
  await opened.context.addInitScript(() => {
    const { fetch } = globalThis;
    const encoder = new TextEncoder();
    globalThis.pulls = 0;
    let next;
    globalThis.stream = (options) => (next = options);
    const isFinished = new Promise((resolve) => (globalThis.finish = resolve));
    globalThis.fetch = (url, options) => {
      if (!String(url).includes('/api/agent/chat')) return fetch(url, options);
      const { text, last, tick, bytes, isEndless } = next;
      const all = encoder.encode(text);
      let at = 0;
      const body = new ReadableStream({
        async pull(controller) {
          options.signal?.throwIfAborted();
          pulls += 1;
          if (at < all.length) {
            controller.enqueue(all.slice(at, at + bytes));
            at += bytes;
          } else if (isEndless) {
            await new Promise((resolve) => setTimeout(resolve));
            controller.enqueue(encoder.encode(tick));
          } else {
            await isFinished;
            controller.enqueue(encoder.encode(last));
            controller.close();
          }
        },
      }, { highWaterMark: 0 });
      return Promise.resolve(new Response(body, { headers: { 'Content-Type': 'application/x-ndjson' } }));
    };
  });
  await opened.page.route('**/api/threads/t*', (route) => route.fulfill({ status: 404, contentType: 'application/problem+json', body: '{"code":"NOT_FOUND"}' }));
  return opened;
}

/** The page of all streams. */
let streams;

/**
 * Sends a message that is answered by a stream in pieces of a number of bytes. Its `last` events come when `finish` is called;
 * `isEndless` repeats its text forever instead.
 */
async function withStream({ end = '\n', bytes, isEndless = false, events = EVENTS, last = 1 }) {
  const isFirst = streams === undefined;
  streams ??= await openStreams();
  const { page } = streams;
  const text = (events) => events.map((event) => JSON.stringify(event) + end).join('');
  const tick = `${JSON.stringify({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta: 'again ' })}\n`;
  await page.goto(isFirst ? await link() : base);
  await page.locator('.layout').waitFor();
  await visit(page, 'chat/text');
  await page.evaluate((options) => stream(options), { text: text(events.slice(0, isEndless ? -2 : -last)), last: text(events.slice(-last)), tick, bytes, isEndless });
  await page.getByRole('textbox', { name: 'Message' }).fill('Go');
  await page.keyboard.press('Enter');
  return streams;
}

for (const [name, options] of Object.entries({
  'a stream in pieces of one byte': { bytes: 1 },
  'a stream in pieces of three bytes, with lines that end like those of Windows': { bytes: 3, end: '\r\n' },
  'a stream with empty lines': { bytes: 100, end: '\n\n \n' },
})) {
  test(name, async () => {
    const { page, faults } = await withStream(options);
    await page.waitForFunction((text) => document.querySelector('.message.answer .markdown')?.innerText.trim() === text, 'Grüße aus dem Gärtchen 🌱 — alles blüht.');
    const answer = page.locator('.message.answer .markdown');
    assert.deepEqual(await answer.locator('strong, em').allInnerTexts(), ['alles', 'alles']);
    await page.evaluate(() => globalThis.finish());
    await page.getByRole('button', { name: 'Send' }).waitFor();
    assert.deepEqual(faults, []);
  });
}

test('the card of a tool call shows each change while the answer streams', async () => {
  const call = (type, fields) => ({ type: `TOOL_CALL_${type}`, toolCallId: 'c', ...fields });
  const events = [EVENTS[0], call('START', { toolCallName: 'search' }), call('ARGS', { delta: '{"words": ' }),
    call('ARGS', { delta: '"fern"}' }), call('END'), call('RESULT', { messageId: 'n', content: 'Two hits.' })];
  const { page, faults } = await withStream({ events, last: 3, bytes: 1000 });
  const card = page.locator('.message.answer .tool');
  await card.filter({ hasText: 'running' }).locator('summary').click();
  await card.locator('.code', { hasText: '{"words":' }).waitFor();
  await page.evaluate(() => globalThis.finish());
  await card.filter({ hasText: 'done' }).locator('.code', { hasText: 'Two hits.' }).waitFor();
  assert.equal(await card.locator('.code').first().innerText(), JSON.stringify({ words: 'fern' }, null, 2));
  // A stream without an end is one that is cut.
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.deepEqual(faults, []);
});

test('a stream that never ends is drawn, and is read no further when it is stopped', async () => {
  const { page, faults } = await withStream({ bytes: 100, isEndless: true });
  await page.route('**/api/runs/r/**', (route) => route.fulfill({ status: 404, contentType: 'application/problem+json', body: '{"code":"NOT_FOUND"}' }));
  await page.locator('.message.answer', { hasText: 'again again' }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  // The connection is closed: nothing pulls at it any more.
  let before = -1;
  for (let pulls = await page.evaluate(() => globalThis.pulls); pulls !== before; pulls = await page.evaluate(() => new Promise((resolve) => setTimeout(() => resolve(globalThis.pulls), 50)))) before = pulls;
  assert.deepEqual(faults, []);
  await close(streams);
});

inPage('a list of very many threads is read in part, and shown in part', async (page) => {
  const thread = (place) => ({ id: `t-${place}`, agentId: 'text', title: `Thread ${place}`, status: 'idle', messageCount: 2, createdAt: new Date().toISOString(), lastActivityAt: new Date().toISOString() });
  let requests = 0;
  // A hundred thousand of them.
  await page.route('**/api/threads?*', (route) => {
    const query = new URL(route.request().url()).searchParams;
    const [from, limit] = [Number(query.get('cursor') ?? 0), Number(query.get('limit'))];
    requests += 1;
    return route.fulfill({ json: { threads: Array.from({ length: limit }, (_, place) => thread(from + place)), nextCursor: from + limit < 100_000 ? String(from + limit) : undefined } });
  });
  await visit(page, 'threads');
  await page.getByText('The latest 1000 threads are here and searched.').waitFor();
  assert.ok(requests <= 6, `${requests} requests`);
  assert.equal(await page.locator('.item').count(), 100);
  await page.getByRole('searchbox').fill('thread 77');
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 11);
  await page.getByRole('searchbox').fill('');
  await page.getByRole('button', { name: 'Show all 1,000' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 1000);
});

inPage('two hundred agents are listed, chosen and found', async (page) => {
  const { content, children } = await page.evaluate(async () => (await fetch('api/agents/text')).json());
  const agents = Array.from({ length: 200 }, (_, place) => ({ id: `agent-${place}`, name: `Agent ${place}`, ownerId: 'u1', companyId: 'c1', content, children }));
  agents.push({ id: 'text', name: 'Text', ownerId: 'u1', companyId: 'c1', content, children });
  await page.route(/\/api\/agents(\?.*)?$/, (route) => route.fulfill({ json: { agents } }));
  await page.reload();
  await page.locator('.layout').waitFor();
  await visit(page, 'agents');
  await page.locator('.card').nth(200).waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0);
  await visit(page, 'chat/text');
  assert.equal(await page.locator('.agent-pick option').count(), 201);
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Go to' }).fill('agent 199');
  await page.getByRole('option', { name: 'Agent 199 role' }).click();
  await page.waitForFunction(() => location.hash === '#/agents/agent-199');
  await picture(page, 'many-agents');
});

inPage('long names and lines without spaces stay in their places at 360 pixels', async (page) => {
  await page.setViewportSize({ width: 360, height: 740 });
  const long = 'Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverordnung-without-a-break';
  const job = {
    jobId: 'j', state: 'retryable', executeAt: '2100-01-01T00:00:00Z', createdAt: '2026-11-20T10:00:00Z', occurrence: 1, lastError: `503: ${long}`,
    schedule: { cron: '30 18 * * 5', timezone: 'America/Argentina/Buenos_Aires' }, payload: { kind: 'agent', message: long, agentId: 'garden' },
  };
  const thread = { id: 't', agentId: 'text', title: long, status: 'idle', messageCount: 1, lastActivityAt: '2026-11-20T10:00:00Z' };
  await page.route('**/api/threads?*', (route) => route.fulfill({ json: { threads: [thread] } }));
  await page.route('**/api/pulse/jobs?*', (route) => route.fulfill({ json: { jobs: [job, { ...job, jobId: 'k', schedule: { cron: '*/15 8-18 1,15 * 1-5' } }] } }));
  await page.route('**/api/pulse/jobs/*', (route) => route.fulfill({ json: route.request().url().endsWith('/k') ? { ...job, jobId: 'k', schedule: { cron: '*/15 8-18 1,15 * 1-5' } } : job }));
  await alterResponses(page, '**/api/agents?*', ({ agents, ...more }) => ({ ...more, agents: agents.map((agent) => (agent.id === 'text' ? { ...agent, name: long } : agent)) }));
  await page.reload();
  await page.locator('.layout').waitFor();
  const wide = () => page.evaluate(() => [...document.querySelectorAll('.main *')].filter((node) => node.closest('.page, .welcome') && !node.closest('.table-scroll, .tabs, pre')
    && node.getBoundingClientRect().right > innerWidth).map((node) => node.outerHTML.slice(0, 120)));
  /** Returns the number of lines of an element's text. */
  const lines = (locator) => locator.evaluate((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
  });
  for (const [route, selector] of [['threads', '.item'], ['agents', '.card'], ['jobs', '.item'], ['chat/text', '.welcome'], ['jobs/j', '.facts']]) {
    await visit(page, route);
    await page.locator(selector).first().waitFor();
    assert.deepEqual(await wide(), [], route);
  }
  // The fault of a file is shown below its name.
  await visit(page, 'chat/text');
  await page.getByLabel('Files to attach').setInputFiles([{ name: `${long}.svg`, mimeType: 'image/svg+xml', buffer: Buffer.from('x') }]);
  const file = page.locator('.attachment.failed');
  await file.waitFor();
  const [name, remove, error] = await Promise.all(['.attachment-name', 'button', '[role=alert]'].map((part) => file.locator(part).boundingBox()));
  assert.ok(Math.abs((remove.y + remove.height / 2) - (name.y + name.height / 2)) < name.height && error.y >= name.y + name.height, JSON.stringify([name, remove, error]));
  await visit(page, 'jobs/j');
  const expression = page.locator('.facts code.nowrap');
  assert.deepEqual([await expression.innerText(), await lines(expression)], ['30 18 * * 5', 1]);
  // An expression that has no words is there once.
  await visit(page, 'jobs/k');
  await page.locator('.facts', { hasText: '*/15' }).waitFor();
  assert.equal((await page.locator('.facts').innerText()).replace(/\s/g, ' ').split('*/15 8-18 1,15 * 1-5').length, 2);
  await visit(page, 'threads');
  await page.getByRole('button', { name: 'Rename' }).click();
  const [field, row] = await Promise.all([page.getByRole('textbox', { name: 'Title' }), page.locator('.item-main').first()].map((locator) => locator.boundingBox()));
  assert.ok(field.width > row.width / 2, `the field of the title has ${field.width} of ${row.width} pixels`);
  await visit(page, 'agents/nobody');
  await page.getByRole('heading', { name: 'No such agent' }).waitFor();
  await page.setViewportSize({ width: 1280, height: 820 });
});

test('the page works without HTTPS, where browsers have no clipboard and make no identifiers', async () => {
  const opened = await openPage(browser);
  const { page, context, faults } = opened;
  await context.addInitScript(() => {
    delete Crypto.prototype.randomUUID;
    delete Crypto.prototype.subtle;
    Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined });
    globalThis.copied = [];
    addEventListener('copy', ({ clipboardData }) => copied.push(clipboardData.getData('text/plain')));
  });
  await page.goto(await link());
  await page.locator('.layout').waitFor();
  await visit(page, 'chat/garden');
  await page.getByLabel('Files to attach').setInputFiles([{ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('x') }]);
  await page.waitForFunction(() => document.querySelector('.attachment') && !document.querySelector('.attachment .meta'));
  await page.getByRole('button', { name: /^Remove/ }).click();
  await ask(page, 'When are you open?');
  assert.match(new URL(page.url()).hash, /^#\/chat\/garden\/[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
  await page.locator('.message.answer .md-copy').click();
  await page.locator('.message.answer').getByRole('button', { name: 'Copy', exact: true }).last().click();
  await page.waitForFunction(() => document.activeElement.textContent === 'Copied');
  const [code, answer, ...more] = await page.evaluate(() => copied);
  assert.ok(code.startsWith('def water') && answer.includes(code) && more.length === 0, `${code}, ${answer}, ${more}`);
  await visit(page, 'jobs/new');
  await page.locator('.next-runs').waitFor();
  assert.deepEqual(faults, []);
  await close(opened);
});

for (const [name, minutes] of [['five minutes fast', 5], ['five minutes slow', -5]]) {
  test(`the page works with a clock that is ${name}`, async () => {
    const opened = await openPage(browser);
    const { page, context, faults } = opened;
    await context.addInitScript((shift) => {
      const { now } = Date;
      const Real = Date;
      globalThis.Date = class extends Real {
        constructor(...parts) {
          if (parts.length > 0) super(...parts);
          else super(now() + shift);
        }

        static now() { return now() + shift; }
      };
    }, minutes * 60_000);
    await page.goto(await link());
    await page.locator('.layout').waitFor();
    await visit(page, 'chat/text');
    await ask(page, `What time is it? ${minutes}`);
    await page.locator('.message.answer', { hasText: 'Hello from the model.' }).waitFor();
    assert.ok(!/-\d+ ms|NaN|Invalid/.test(await page.locator('.chat').innerText()));
    // A call waits for its time by the server, and the page does not take it for expired.
    await visit(page, 'chat/approvals');
    await page.getByRole('textbox', { name: 'Message' }).fill(`Write clock ${minutes}`);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Approve', exact: true }).last().click();
    await page.locator('.message.answer', { hasText: 'Result:' }).waitFor();
    await visit(page, 'threads');
    await page.locator('.item', { hasText: `What time is it? ${minutes}` }).first().waitFor();
    await visit(page, 'usage');
    await page.locator('.limit').first().waitFor();
    assert.deepEqual(faults, []);
    await close(opened);
  });
}

test('a colleague reads a role and its documents, and changes nothing by the page or by the routes', async () => {
  const { page, context, faults } = await openPage(browser);
  await page.goto(await link('u5'));
  await page.locator('.layout').waitFor();
  await visit(page, 'agents/text');
  await page.getByText('This is the agent of u1.').waitFor();
  assert.ok(await page.getByLabel('System prompt').isDisabled());
  for (const name of ['Add a rule', 'Remove rule 1', 'Save', 'Revert', 'Delete agent', 'Preview']) assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0, name);
  await picture(page, 'role-of-a-colleague');
  await page.getByRole('button', { name: 'JSON', exact: true }).click();
  assert.ok(await page.getByLabel('Role block').evaluate((area) => area.readOnly));
  assert.ok(!(await page.getByLabel('Role block').inputValue()).includes('role-key-canary'));
  await page.getByRole('tab', { name: 'Documents' }).click();
  await page.locator('.doc-use input').first().waitFor();
  assert.equal(await page.locator('.doc-use input:enabled').count(), 0);
  const statuses = await page.evaluate(async () => {
    const role = await (await fetch('api/agents/text')).json();
    const send = async (method, path, body) => (await fetch(path, { method, headers: { 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) })).status;
    const { content, children, name } = role;
    return [await send('PUT', 'api/agents/text', { name, content, children: [] }), await send('DELETE', 'api/agents/text'), await send('POST', 'api/agents/text/preview', { role: { name, content, children } }), await send('GET', 'api/usage?agentId=text&userId=u1')];
  });
  for (const status of statuses) assert.ok([403, 404].includes(status), statuses.join());
  assert.deepEqual(faults, []);
  await context.close();
});

inPage('texts from right to left, very long words and emoji stay in their place', async (page) => {
  await visit(page, 'chat/echo');
  await ask(page, `مرحبا 👩‍👩‍👧‍👦🌱\n\n- قائمة\n\n> اقتباس\n\n\`\`\`js\nlet x;\n\`\`\`\n\n${'ط'.repeat(500)} ${'W'.repeat(500)}`);
  const answer = page.locator('.message.answer .markdown');
  assert.match(await answer.innerText(), /👩‍👩‍👧‍👦🌱/u);
  const shown = await answer.evaluate((node) => ({
    directions: ['p', 'ul', 'blockquote', 'pre'].map((name) => getComputedStyle(node.querySelector(name)).direction),
    isWide: [...document.querySelectorAll('.conversation, .bubble, html')].some(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth),
  }));
  assert.deepEqual(shown, { directions: ['rtl', 'rtl', 'rtl', 'ltr'], isWide: false });
});

inPage('what is chosen differs from what is not in forced colours', async (page) => {
  await visit(page, 'chat/text');
  await page.locator('.tab').first().waitFor();
  await page.emulateMedia({ forcedColors: 'active' });
  const colours = await page.evaluate(() => ['.tab[aria-selected=true]', '.tab[aria-selected=false]', '.nav-link[aria-current]', '.nav-link:not([aria-current])']
    .map((name) => getComputedStyle(document.querySelector(name)).backgroundColor));
  assert.notEqual(colours[0], colours[1]);
  assert.notEqual(colours[2], colours[3]);
  await page.emulateMedia({ forcedColors: null });
});

inPage('links say where they lead', async (page) => {
  const drawn = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { MarkdownView } = await import(`${folder}lib/markdown.js`);
    const draw = (text) => {
      const root = document.body.appendChild(document.createElement('div'));
      new MarkdownView(root).update(text, true);
      const found = { hosts: [...root.querySelectorAll('.md-host')].map(({ textContent }) => textContent.trim()), links: [...root.querySelectorAll('a')].map(({ href }) => href) };
      root.remove();
      return found;
    };
    return {
      idn: draw('[shop](https://xn--pple-43d.example/)'), unicode: draw('[shop](https://\u0430pple.example/)'), user: draw('[x](https://shop.example@evil.example/)'),
      name: draw('[https://shop.example](https://evil.example)'), path: draw('[https://shop.example/evil.example](https://evil.example)'), own: draw('<https://shop.example/a> www.shop.example/b'), rtl: draw('[\u202egnp.exe](https://evil.example/exe.png)'), image: draw('![x](https://evil.example/pixel.png)'),
    };
  });
  // Names in other alphabets are as the browser sends them.
  assert.deepEqual(drawn.idn.hosts, ['xn--pple-43d.example']);
  assert.deepEqual(drawn.unicode.hosts, drawn.idn.hosts);
  for (const name of ['name', 'path', 'rtl', 'image']) assert.deepEqual(drawn[name].hosts, ['evil.example'], name);
  assert.deepEqual([drawn.own.hosts, drawn.own.links], [[], ['https://shop.example/a', 'http://www.shop.example/b']]);
  assert.deepEqual(drawn.user.links, []);
  for (const { links } of Object.values(drawn)) for (const href of links) assert.ok(!new URL(href).username, href);
});
