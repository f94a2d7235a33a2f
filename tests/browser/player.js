// Long answers that are made in the page, in place of a response's body: a text in ten thousand events.

import { base, link, openPage, visit } from './support.js';

/** Events of an answer. */
export const EVENTS = 10_000;
/** Events a second. */
export const RATE = 2000;

const PARAGRAPH = 'The basil stands in the sun, and the fern in the shade of the wall. ';
/** Markdown of 54 KB with all that the page draws. */
function markdown() {
  const section = (place) => `## Bed ${place}\n\n${PARAGRAPH.repeat(4)}\n\n- **basil** and \`sun\`\n- [fern](https://shop.example/${place})\n\n| plant | light |\n|--|--|\n| basil | sun |\n| fern | shade |\n\n\`\`\`js\nconst bed = ${place};\nwater(bed);\n\`\`\`\n\n`;
  return Array.from({ length: 110 }, (_, place) => section(place)).join('');
}

export const TEXTS = {
  Markdown: markdown(),
  list: Array.from({ length: 1100 }, (_, place) => `${place + 1}. **Bed ${place}** stands in the sun, \`daily\`.\n\n`).join(''),
  table: `| bed | light |\n|--|--|\n${Array.from({ length: 1400 }, (_, place) => `| bed ${place} | **sun** and some shade |\n`).join('')}`,
  paragraph: PARAGRAPH.repeat(780), code: `\`\`\`js\n${'const light = plant === "fern" ? shade : sun;\n'.repeat(1160)}\`\`\`\n`,
};

/**
 * Opens a page in which its function `play(text, rate)` answers the next chat with the text in many events; all at once without
 * a rate. A function `pace(sent, count)` of the page, where it has one, resolves to the number of events that are due next.
 */
export async function openPlayer(browser) {
  const opened = await openPage(browser);
  await opened.context.addInitScript(({ count }) => {
    const { fetch } = globalThis;
    let next;
    /** The runs that were played, by thread. */
    const played = new Map();
    globalThis.play = (text, rate) => {
      next = { text, rate };
      globalThis.isPlayed = false;
    };
    globalThis.tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ['longtask'] });
    // A thread as the server would have it.
    const threadOf = (id, { runId, text }) => {
      const node = (id, more, message) => ({ id, turnId: 'turn', status: 'complete', message, ...more });
      const nodes = [node('n1', {}, { role: 'user', content: 'Go' }), node(`m-${runId}`, { parentId: 'n1', runId }, { role: 'assistant', content: text })];
      return { id, agentId: 'text', title: 'Go', status: 'idle', head: nodes[1].id, nodes };
    };
    globalThis.fetch = (url, options) => {
      const id = /\/api\/threads\/([\w-]+)\?/.exec(url)?.[1];
      if (played.has(id)) return Promise.resolve(Response.json(threadOf(id, played.get(id))));
      if (!next || !String(url).includes('/api/agent/chat')) return fetch(url, options);
      const { text, rate } = next;
      const { runId, threadId } = JSON.parse(options.body);
      played.clear();
      played.set(threadId, { runId, text });
      const messageId = `m-${runId}`;
      const length = Math.min(count - 4, text.length);
      const start = (place) => Math.floor((place * text.length) / length);
      const deltas = Array.from({ length }, (_, place) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId, delta: text.slice(start(place), start(place + 1)) }));
      const events = [{ type: 'RUN_STARTED', threadId, runId }, { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' }, ...deltas,
        { type: 'TEXT_MESSAGE_END', messageId }, { type: 'RUN_FINISHED', threadId, runId, result: { finishReason: 'stop' } }];
      const encode = (events) => new TextEncoder().encode(events.map((event) => `${JSON.stringify(event)}\n`).join(''));
      const startedAt = performance.now();
      let sent = 0;
      const body = new ReadableStream({
        async pull(controller) {
          if (sent >= events.length) {
            globalThis.isPlayed = true;
            return controller.close();
          }
          if (rate) await new Promise((resolve) => setTimeout(resolve, 4));
          const due = globalThis.pace ? await pace(sent, events.length) : rate ? Math.min(events.length, Math.max(sent + 1, Math.floor(((performance.now() - startedAt) / 1000) * rate))) : events.length;
          controller.enqueue(encode(events.slice(sent, due)));
          sent = due;
          return undefined;
        },
      });
      return Promise.resolve(new Response(body, { headers: { 'Content-Type': 'application/x-ndjson' } }));
    };
  }, { count: EVENTS });
  const { page } = opened;
  await page.goto(await link());
  await page.locator('.layout').waitFor();
  const session = await opened.context.newCDPSession(page);
  await session.send('Performance.enable');
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'JSHeapUsedSize').value;
  };
  return { ...opened, heap };
}

/** Reloads the page, which has played nothing then. */
export async function reload({ page }) {
  await page.goto(base);
  await page.locator('.layout').waitFor();
}

/** Sends the message of a new chat, and returns the long tasks and the frames until its answer has ended. */
export async function play({ page }, text, rate) {
  await visit(page, 'threads');
  await visit(page, 'chat/text');
  // A chat that is shown again begins with the first tab.
  await page.getByRole('tab', { name: 'Events' }).click();
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
  // A function that returned an element would keep it, and with it the run, for as long as the page is open.
  await page.waitForFunction(() => isPlayed && !document.querySelector('[aria-busy=true]') && ['.message.answer .markdown', '.message.answer .message-tools',
    '.composer [type=submit]'].every((selector) => document.querySelector(selector)), undefined, { timeout: 120_000 });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 200))));
  return page.evaluate(() => {
    figures.isOver = true;
    return { tasks: [...tasks], frames: figures.frames, nodes: document.querySelectorAll('*').length, events: document.querySelector('.event-row')?.getAttribute('aria-setsize') };
  });
}
