// Long tasks while an answer streams. A task counts by the processor's time that it takes: by the clock, which is what the
// browser's PerformanceObserver has, another program on a busy machine makes any task a long one. figures.js has those.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { EVENTS, RATE, TEXTS, openPlayer, play } from './player.js';
import { launch } from './support.js';

/** Processor time beyond which a task is a long one, in microseconds. */
const LONG_US = 50_000;
/** Attempts: a collection of garbage may fall into one of them. */
const ATTEMPTS = 2;

/** Runs a function, and returns the processor times of the long tasks of pages meanwhile, in milliseconds. */
async function longTasks(session, run) {
  const events = [];
  const collect = ({ value }) => events.push(...value);
  session.on('Tracing.dataCollected', collect);
  await session.send('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { includedCategories: ['toplevel'], excludedCategories: ['*'] } });
  await run();
  const complete = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
  await session.send('Tracing.end');
  await complete;
  session.off('Tracing.dataCollected', collect);
  const place = ({ pid, tid }) => `${pid}/${tid}`;
  const main = new Set(events.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain').map(place));
  const tasks = events.filter((event) => event.name === 'ThreadControllerImpl::RunTask' && main.has(place(event)));
  assert.ok(tasks.length > 0 && tasks.every(({ ph, tdur }) => ph !== 'X' || tdur !== undefined), 'the trace has the tasks and their times');
  return tasks.filter(({ tdur }) => tdur > LONG_US).map(({ tdur }) => Math.round(tdur / 1000));
}

test('ten thousand events at two thousand a second are drawn without a long task', async (t) => {
  const browser = await launch();
  const session = await browser.newBrowserCDPSession();
  const opened = await openPlayer(browser);
  const { page, context, faults } = opened;
  const burnt = await longTasks(session, () => page.evaluate(() => {
    let sum = 0;
    for (let step = 0; step < 400_000_000; step += 1) sum = (sum * 31 + step) | 0;
    return sum;
  }));
  assert.equal(burnt.length, 1, 'a long task is seen');
  for (const [name, text] of Object.entries(TEXTS)) {
    let found;
    for (let attempt = 0; attempt < ATTEMPTS && found?.length !== 0; attempt += 1) {
      found = await longTasks(session, async () => {
        const { events } = await play(opened, text, RATE);
        assert.ok(Math.abs(Number(events) - EVENTS) < 200, `${events} events`);
      });
      t.diagnostic(`${name}: ${found.length} long tasks ${found.length > 0 ? `of ${found.join(', ')} ms` : ''}`);
    }
    assert.deepEqual(found, [], `${name}: long tasks, in milliseconds`);
  }
  assert.deepEqual(faults, []);
  await context.close();
  await browser.close();
});
