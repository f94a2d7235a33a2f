// The figures of docs/benchmarks.md: sizes, start, first token, long streams. It is not part of the suite, since times are of a
// machine and its load: `BROWSER_TESTS=figures.js cargo nextest run --no-capture …`, see docs/console.md.


import { before, test } from './harness.js';
import { mint, openHost, startHost } from './host.js';
import { RATE, TEXTS, openPlayer, play } from './player.js';
import { base, launch, link, openPage, signedIn, visit } from './support.js';
import { script, wholePage } from './widget.js';
import { addressOf, assetsFolder, fetchRaw, isWidget, loadedFiles, names } from './wire.js';

const STARTS = 15;
const MESSAGES = 40;
const RUNS = 10;

let browser;
before(async () => (browser = await launch()));

const sorted = (values) => [...values].sort((one, other) => one - other);
const at = (values, part) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * part))];
const ms = (value) => `${value.toFixed(1)} ms`;
const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;

/** Adds a module and its dependencies to a set of addresses. */
async function followImports(address, found) {
  if (found.has(address)) return;
  found.add(address);
  const { bytes } = await fetchRaw(address);
  for (const [, name] of String(bytes).matchAll(/\b(?:import|export) [^';]* from '([^']*)';/g)) await followImports(new URL(name, address).href, found);
}

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
  await followImports(addressOf('widget/main.js', assets, base), widget);
  const loader = addressOf('widget.js', assets, base);
  const core = new Set();
  await followImports(addressOf('client/index.js', assets, base), core);
  t.diagnostic(`client of clients/js, gzip: ${kib(await sum([...core], 'gzip'))} in ${core.size} files`);
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

const taskWords = (tasks) => `${tasks.length} long tasks${tasks.length > 0 ? ` of ${ms(Math.min(...tasks))} to ${ms(Math.max(...tasks))}` : ''}`;

test('long streams', async (t) => {
  const opened = await openPlayer(browser);
  const { page, context, heap } = opened;
  for (const [name, text] of Object.entries(TEXTS)) {
    const before = await heap();
    const { tasks, frames, nodes, events } = await play(opened, text, RATE);
    const grown = (await heap()) - before;
    t.diagnostic(`${events} events at ${RATE}/s, ${kib(text.length)} of ${name}: ${taskWords(tasks)}, frames p99 ${ms(at(frames, 0.99))}, ${nodes} elements, heap + ${kib(grown)}`);
  }
  const { tasks } = await play(opened, TEXTS.Markdown, undefined);
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

test('a page with the widget', async (t) => {
  const host = await startHost();
  const observe = `<script>globalThis.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });</script>`;
  const { token } = await mint('garden', { origins: [host.origin] });
  const tasks = [];
  for (let round = 0; round < STARTS; round += 1) {
    const { context, page } = await openHost(browser, host.page(wholePage(script(token), observe)));
    await page.locator('.launcher').waitFor();
    tasks.push(...await page.evaluate(() => new Promise((resolve) => requestIdleCallback(() => resolve(globalThis.tasks)))));
    await context.close();
  }
  host.close();
  t.diagnostic(`a page until the widget's button is there: ${taskWords(tasks)} (${STARTS} pages)`);
});

test('ten runs in a tab', async (t) => {
  const opened = await openPlayer(browser);
  const { context, heap } = opened;
  const heaps = [];
  for (let round = 0; round < RUNS; round += 1) {
    await play(opened, TEXTS.Markdown, undefined);
    heaps.push(await heap());
  }
  t.diagnostic(`heap after each of ${RUNS} runs: ${heaps.map(kib).join(', ')}; the last is ${(heaps.at(-1) / heaps[0]).toFixed(2)} times the first`);
  await context.close();
});
