// The work of the page while a long answer streams, counted and not timed: the cost of an event does not grow with the
// number of earlier events, so that none of ten thousand is a long task. Each step of the stream waits for the drawing of the one before, so that
// the counts do not depend on the machine.

import assert from 'node:assert/strict';

import { after, before, test } from './harness.js';
import { EVENTS, TEXTS, openPlayer, play, reload } from './player.js';
import { close, launch } from './support.js';

/** Events of a step of the stream: six times as many as come in a frame at 2,000 events a second. */
const STEP = 200;
/** Frames after which a step goes on that nothing was drawn of. */
const MAX_FRAMES = 600;
/** Most characters that a step may parse, and most elements that it may create. */
const MAX_PARSED = 8000;
const MAX_ELEMENTS = 800;
/** Most that the last tenth of the steps may do, as a multiple of the first tenth, beside what the page does at any time. */
const MAX_GROWTH = 3;
const SLACK = 200;
/** Most that is parsed in all, as a multiple of the text: the stream, the ends of its blocks, and the stored answer. */
const MAX_PARSED_TIMES = 4;
/** Most rows of events in the document, and most elements of their panel. */
const MAX_ROWS = 60;
const MAX_PANEL_ELEMENTS = 800;

let browser, opened;
before(async () => {
  browser = await launch();
  opened = await openPlayer(browser);
});
after(async () => {
  await close(opened);
});

/**
 * Counts the page's work in each step of the next stream: characters that are parsed as Markdown, elements that are created,
 * characters that are put into the document, and objects that are serialized. `filter` is written into the field of the Events tab.
 */
const countWork = (page, filter) => page.evaluate(async ({ filter, STEP, MAX_FRAMES }) => {
  const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
  const { Lexer } = await import(`${folder}vendor/markdown.js`);
  const nothing = () => ({ parsed: 0, elements: 0, drawn: 0, serialized: 0 });
  const work = (globalThis.work = { now: nothing(), steps: [], drawings: 0, parsed: 0, live: undefined });
  const { lex } = Lexer;
  Lexer.lex = (text, options) => {
    work.now.parsed += text.length;
    work.parsed += text.length;
    work.drawings += 1;
    return lex.call(Lexer, text, options);
  };
  const { appendData } = CharacterData.prototype;
  CharacterData.prototype.appendData = function append(text) {
    work.now.drawn += text.length;
    work.drawings += 1;
    appendData.call(this, text);
  };
  const { stringify } = JSON;
  JSON.stringify = (...values) => {
    work.now.serialized += 1;
    return stringify(...values);
  };
  new MutationObserver((records) => {
    for (const node of records.flatMap(({ addedNodes }) => [...addedNodes])) {
      work.now.elements += node instanceof Element ? 1 + node.querySelectorAll('*').length : 0;
      work.now.drawn += node.textContent.length;
    }
  }).observe(document.body, { childList: true, subtree: true });
  const frame = () => new Promise(requestAnimationFrame);
  let seen = 0;
  globalThis.pace = async (sent, count) => {
    for (let frames = 0; sent > 0 && work.drawings === seen && frames < MAX_FRAMES; frames += 1) await frame();
    await frame();
    if (sent > 0) work.steps.push(work.now);
    else work.parsed = 0;
    const field = document.querySelector('#debug-panel input[type=search]');
    if (filter && field && field.value === '') {
      field.value = filter;
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }
    // All of the text is there before the answer ends, and before it is replaced by the stored one.
    const textEnd = count - 2;
    if (sent === textEnd) {
      const answer = document.querySelector('.message.answer[aria-busy=true] .markdown');
      const number = (selector) => answer.querySelectorAll(selector).length;
      const kinds = ['.md-h', '.md-list', '.md-table', '.md-block'].map(number);
      const code = answer.querySelector('.md-pre code')?.textContent;
      work.live = { text: answer.textContent, code, kinds, items: number('ol:only-of-type > li'), rows: number('tbody tr') };
    }
    work.now = nothing();
    seen = work.drawings;
    return sent < textEnd ? Math.min(textEnd, sent + STEP) : count;
  };
}, { filter, STEP, MAX_FRAMES });

/** Plays a text, and returns the work of its steps, what was shown at the end of the stream, and the figures of the player. */
async function playCounted(text, filter) {
  const { page } = opened;
  await reload(opened);
  await countWork(page, filter);
  const figures = await play(opened, text);
  const { steps, parsed, live } = await page.evaluate(() => work);
  assert.ok(steps.length >= EVENTS / STEP, `${steps.length} steps`);
  return { ...opened, figures, steps, parsed, live };
}

const sum = (steps, name) => steps.reduce((total, step) => total + step[name], 0);

/** Checks that the steps of a stream have done no more at its end than at its beginning. */
function assertSteady(steps, names) {
  // A block is parsed as a whole when it ends, once: with the last of the text, and with the end of the answer.
  const growing = steps.slice(0, EVENTS / STEP - 1);
  const tenth = Math.floor(growing.length / 10);
  for (const name of names) {
    const [first, last] = [growing.slice(0, tenth), growing.slice(-tenth)].map((of) => sum(of, name));
    assert.ok(last <= MAX_GROWTH * first + SLACK, `${name}: ${first} in the first tenth, ${last} in the last: ${JSON.stringify(growing)}`);
  }
  for (const { parsed, elements } of growing) {
    assert.ok(parsed <= MAX_PARSED && elements <= MAX_ELEMENTS, `a step has parsed ${parsed} characters and created ${elements} elements`);
  }
}

const DRAWING = ['parsed', 'elements', 'drawn'];

/** Adds a test that streams a text, and checks what is shown of it before the answer ends. */
const streams = (name, text, check) => test(`${name} costs the same at its end as at its beginning`, async () => {
  assert.ok(text.length >= 48_000, `${text.length} characters`);
  const { faults, steps, parsed, live } = await playCounted(text);
  check(live);
  assertSteady(steps, DRAWING);
  assert.ok(sum(steps, 'drawn') >= text.length / 2, 'the drawing is counted');
  assert.ok(parsed >= text.length && parsed <= MAX_PARSED_TIMES * text.length, `${parsed} characters are parsed of ${text.length}`);
  assert.deepEqual(faults, []);
});

streams('Markdown in ten thousand events', TEXTS.Markdown, ({ kinds, text }) => {
  const sections = TEXTS.Markdown.match(/^## /gm).length;
  assert.deepEqual(kinds, [sections, sections, sections, sections]);
  assert.ok(text.includes(`const bed = ${sections - 1};`), 'the last block is there');
});

streams('one list', TEXTS.list, ({ items }) => assert.equal(items, TEXTS.list.match(/^\d+\./gm).length));

streams('one table', TEXTS.table, ({ rows }) => assert.equal(rows, TEXTS.table.match(/^\| bed \d/gm).length));

streams('one paragraph', TEXTS.paragraph, ({ text }) => assert.equal(text.trim(), TEXTS.paragraph.trim()));

streams('one block of code', TEXTS.code, ({ code }) => assert.equal(code.trim(), TEXTS.code.split('\n').slice(1, -2).join('\n')));

test('ten thousand events that are filtered while they come are few nodes, and each is searched once', async () => {
  const { page, faults, figures, steps } = await playCounted(TEXTS.Markdown, 'text_message_content');
  assert.equal(figures.events, String(EVENTS - 4));
  assert.match(await page.locator('.figures').innerText(), /Events\s+10,000/);
  const counts = () => page.evaluate(() => ({
    rows: document.querySelectorAll('.event-row').length, elements: document.querySelectorAll('#debug-panel *').length,
  }));
  const filtered = await counts();
  await page.getByRole('searchbox').fill('');
  await page.locator(`.event-row[aria-setsize="${EVENTS}"]`).first().waitFor();
  for (const { rows, elements } of [filtered, await counts()]) {
    assert.ok(rows > 0 && rows <= MAX_ROWS, `${rows} rows`);
    assert.ok(elements <= MAX_PANEL_ELEMENTS, `${elements} elements`);
  }
  assertSteady(steps, [...DRAWING, 'serialized']);
  assert.deepEqual(faults, []);
});
