// The figures of docs/benchmarks.md: sizes, start, first token, long streams. It is no part of the suite, since times are of a
// machine and its load: `BROWSER_TESTS=figures.js cargo nextest run --no-capture …`, see docs/console.md.

import { after, before, test } from 'node:test';

import { base, launch, link, openPage, signedIn, visit } from './support.js';
import { addressOf, assetsFolder, fetchRaw, isWidget, loadedFiles, names } from './wire.js';

const STARTS = 15;
const MESSAGES = 40;
const EVENTS = 10_000;
/** Events a second. */
const RATE = 2000;
const RUNS = 10;

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const sorted = (values) => [...values].sort((one, other) => one - other);
const at = (values, part) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * part))];
const ms = (value) => `${value.toFixed(1)} ms`;
const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;

test('sizes', async (t) => {
  const { context, page } = await signedIn(browser);
  await visit(page, 'chat/text');
  await page.locator('.part').first().waitFor();
  const loaded = await loadedFiles(page);
  await context.close();
  const assets = assetsFolder(loaded);
  const sum = async (urls, encoding) => (await Promise.all([...new Set(urls)].map((url) => fetchRaw(url, encoding)))).reduce((sum, { bytes }) => sum + bytes.length, 0);
  t.diagnostic(`chat, first load, brotli: ${kib(await sum([base, ...loaded], 'br'))} in ${loaded.length + 1} requests`);
  const urls = [base, ...names.map((name) => addressOf(name, assets, base))];
  const ofConsole = [base, ...names.filter((name) => !isWidget(name)).map((name) => addressOf(name, assets, base))];
  t.diagnostic(`console, all ${ofConsole.length} files, gzip: ${kib(await sum(ofConsole, 'gzip'))}`);
  t.diagnostic(`embedded in the program, brotli and gzip: ${kib(await sum(urls, 'br') + await sum(urls, 'gzip'))} of ${urls.length} files`);
  const widget = new Set();
  const follow = async (address) => {
    if (widget.has(address)) return;
    widget.add(address);
    const { bytes } = await fetchRaw(address);
    for (const [, name] of String(bytes).matchAll(/^import .* from '(.*)';$/gm)) await follow(new URL(name, address).href);
  };
  await follow(addressOf('widget/main.js', assets, base));
  const loader = addressOf('widget.js', assets, base);
  t.diagnostic(`widget, gzip: ${kib(await sum([loader, ...widget], 'gzip'))} in ${widget.size + 1} files; its loader ${await sum([loader], 'gzip')} bytes`);
});

test('start', async (t) => {
  const usable = [];
  const painted = [];
  for (let round = 0; round < STARTS; round += 1) {
    const { context, page } = await openPage(browser);
    await context.addInitScript(() => {
      globalThis.figures = {};
      new MutationObserver(() => {
        if (document.getElementById('composer')) figures.usable ??= performance.now();
      }).observe(document, { childList: true, subtree: true });
    });
    await page.goto(await link());
    await page.waitForFunction(() => figures.usable && performance.getEntriesByName('first-contentful-paint').length > 0);
    const { first, last } = await page.evaluate(() => ({ last: figures.usable, first: performance.getEntriesByName('first-contentful-paint')[0].startTime }));
    usable.push(last);
    painted.push(first);
    await context.close();
  }
  t.diagnostic(`cold browser to usable: p50 ${ms(at(usable, 0.5))}, p95 ${ms(at(usable, 0.95))}; first contentful paint: p50 ${ms(at(painted, 0.5))} (${STARTS} starts)`);
});

test('first token', async (t) => {
  const { context, page } = await signedIn(browser);
  await visit(page, 'chat/text');
  const times = [];
  for (let round = 0; round < MESSAGES; round += 1) {
    await page.getByRole('textbox', { name: 'Message' }).fill(`Hello ${round}`);
    await page.evaluate(() => {
      const known = document.querySelectorAll('.message.answer .markdown').length;
      const state = (globalThis.figures = {});
      addEventListener('keydown', () => (state.sent = performance.now()), { once: true, capture: true });
      const observer = new MutationObserver(() => {
        const answers = document.querySelectorAll('.message.answer .markdown');
        if (answers.length <= known || !answers[known].textContent) return;
        observer.disconnect();
        // A message that is posted in a frame arrives after the frame is painted.
        requestAnimationFrame(() => {
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => (state.painted = performance.now());
          port2.postMessage(0);
        });
      });
      observer.observe(document.body, { childList: true, subtree: true, characterData: true });
    });
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => globalThis.figures.painted);
    times.push(await page.evaluate(() => globalThis.figures.painted - globalThis.figures.sent));
    await page.getByRole('button', { name: 'Send' }).waitFor();
    await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
  }
  t.diagnostic(`send to first token painted: p50 ${ms(at(times, 0.5))}, p95 ${ms(at(times, 0.95))} (${MESSAGES} messages)`);
  await context.close();
});

const PARAGRAPH = 'The basil stands in the sun, and the fern in the shade of the wall. ';
/** Markdown of 54 KB with all that the page draws. */
function markdown() {
  const section = (place) => `## Bed ${place}\n\n${PARAGRAPH.repeat(4)}\n\n- **basil** and \`sun\`\n- [fern](https://shop.example/${place})\n\n| plant | light |\n|--|--|\n| basil | sun |\n| fern | shade |\n\n\`\`\`js\nconst bed = ${place};\nwater(bed);\n\`\`\`\n\n`;
  return Array.from({ length: 110 }, (_, place) => section(place)).join('');
}

const TEXTS = {
  Markdown: markdown(), paragraph: PARAGRAPH.repeat(780), code: `\`\`\`js\n${'const light = plant === "fern" ? shade : sun;\n'.repeat(1160)}\`\`\`\n`,
};

/** Opens a page in which `play(text, rate)` answers the next chat with the text in many events; all at once without a rate. */
async function player() {
  const opened = await openPage(browser);
  await opened.context.addInitScript(({ count }) => {
    const { fetch } = globalThis;
    let next;
    let runs = 0;
    globalThis.play = (text, rate) => {
      next = { text, rate };
      globalThis.isPlayed = false;
    };
    globalThis.tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });
    globalThis.fetch = (url, options) => {
      if (!next || !String(url).includes('/api/agent/chat')) return fetch(url, options);
      const { text, rate } = next;
      const runId = `figure-${(runs += 1)}`;
      const size = Math.ceil(text.length / (count - 4));
      const deltas = Array.from({ length: Math.ceil(text.length / size) }, (_, place) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: runId, delta: text.slice(place * size, (place + 1) * size) }));
      const events = [{ type: 'RUN_STARTED', threadId: `t-${runId}`, runId }, { type: 'TEXT_MESSAGE_START', messageId: runId, role: 'assistant' }, ...deltas,
        { type: 'TEXT_MESSAGE_END', messageId: runId }, { type: 'RUN_FINISHED', threadId: `t-${runId}`, runId, result: { finishReason: 'stop' } }];
      const encode = (events) => new TextEncoder().encode(events.map((event) => `${JSON.stringify(event)}\n`).join(''));
      const start = performance.now();
      let sent = 0;
      const body = new ReadableStream({
        async pull(controller) {
          if (sent >= events.length) {
            globalThis.isPlayed = true;
            return controller.close();
          }
          if (rate) await new Promise((resolve) => setTimeout(resolve, 4));
          const due = rate ? Math.min(events.length, Math.max(sent + 1, Math.floor(((performance.now() - start) / 1000) * rate))) : events.length;
          controller.enqueue(encode(events.slice(sent, due)));
          sent = due;
          return undefined;
        },
      });
      return Promise.resolve(new Response(body, { headers: { 'Content-Type': 'application/x-ndjson' } }));
    };
  }, { count: EVENTS });
  const { page } = opened;
  /** The texts of the answers, by run. */
  const texts = [];
  // The threads of these runs, as the server would have them.
  await page.route(/\/api\/threads\/[\w-]+\?/, (route) => {
    const id = /threads\/([\w-]+)/.exec(route.request().url())[1];
    const node = (id, more, message) => ({ id, turnId: 'turn', status: 'complete', message, ...more });
    const answer = node('n2', { parentId: 'n1', runId: `figure-${texts.length}` }, { role: 'assistant', content: texts.at(-1) });
    const nodes = [node('n1', {}, { role: 'user', content: 'Go' }), answer];
    return route.fulfill({ json: { id, agentId: 'text', title: 'Go', status: 'idle', head: 'n2', nodes } });
  });
  await page.goto(await link());
  await page.locator('.layout').waitFor();
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Events' }).click();
  const session = await opened.context.newCDPSession(page);
  await session.send('Performance.enable');
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'JSHeapUsedSize').value;
  };
  return { ...opened, heap, texts };
}

/** Sends the message of a new chat, and returns the long tasks and the frames until its answer has ended. */
async function run({ page, texts }, text, rate) {
  await visit(page, 'threads');
  await visit(page, 'chat/text');
  texts.push(text);
  await page.evaluate(([text, rate]) => {
    tasks.length = 0;
    play(text, rate);
    const state = (globalThis.figures = { frames: [] });
    let last = performance.now();
    const frame = (now) => {
      state.frames.push(now - last);
      last = now;
      if (!state.isOver) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }, [text, rate]);
  await page.getByRole('textbox', { name: 'Message' }).fill('Go');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => isPlayed && document.querySelector('.message.answer .markdown') && !document.querySelector('[aria-busy=true]')
    && document.querySelector('.message.answer .message-tools') && document.querySelector('.composer [type=submit]'), undefined, { timeout: 120_000 });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 200))));
  return page.evaluate(() => {
    figures.isOver = true;
    return { tasks: [...tasks], frames: figures.frames, nodes: document.querySelectorAll('*').length, events: document.querySelector('.event-row')?.getAttribute('aria-setsize') };
  });
}

const taskWords = (tasks) => `${tasks.length} long tasks${tasks.length > 0 ? ` of ${ms(Math.min(...tasks))} to ${ms(Math.max(...tasks))}` : ''}`;

test('long streams', async (t) => {
  const opened = await player();
  const { page, context, heap } = opened;
  for (const [name, text] of Object.entries(TEXTS)) {
    const before = await heap();
    const { tasks, frames, nodes, events } = await run(opened, text, RATE);
    const grown = (await heap()) - before;
    t.diagnostic(`${events} events at ${RATE}/s, ${kib(text.length)} of ${name}: ${taskWords(tasks)}, frames p99 ${ms(at(frames, 0.99))}, ${nodes} elements, heap + ${kib(grown)}`);
  }
  const { tasks } = await run(opened, TEXTS.Markdown, undefined);
  t.diagnostic(`the same Markdown in one burst: ${taskWords(tasks)}`);
  const frames = await page.evaluate(async () => {
    const list = document.querySelector('.events');
    const frames = [];
    let last = performance.now();
    tasks.length = 0;
    for (let step = 0; step < 240; step += 1) {
      list.scrollTop += 1170;
      const now = await new Promise(requestAnimationFrame);
      frames.push(now - last);
      last = now;
    }
    return frames.slice(1);
  });
  t.diagnostic(`scrolling through the rows of its events: frames p99 ${ms(at(frames, 0.99))}, ${taskWords(await page.evaluate(() => tasks))}`);
  await context.close();
});

test('ten runs in a tab', async (t) => {
  const opened = await player();
  const { context, heap } = opened;
  const heaps = [];
  for (let round = 0; round < RUNS; round += 1) {
    await run(opened, TEXTS.Markdown, undefined);
    heaps.push(await heap());
  }
  t.diagnostic(`heap after each of ${RUNS} runs: ${heaps.map(kib).join(', ')}; the last is ${(heaps.at(-1) / heaps[0]).toFixed(2)} times the first`);
  await context.close();
});
