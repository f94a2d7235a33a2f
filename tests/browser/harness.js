// Adds and runs tests. Files of tests run one after the other in a process that they share, with its browser: `node:test` runs each
// file in a process of its own, or all of them as one.

import process from 'node:process';
import { setTimeout } from 'node:timers/promises';

/** Time limit of a test, far above its duration, so that a test that hangs is reported by its name. */
const TEST_TIMEOUT_MS = 300_000;

/** Hooks and tests of the file that is imported. */
let added;

/** Adds a function that is called before the tests of the file. */
export const before = (run) => added.before.push(run);
/** Adds a function that is called after them. */
export const after = (run) => added.after.push(run);
/** Adds a test. It gets `{after, diagnostic}`: a function that adds a clean-up to call after the test, and a function that prints a line. */
export const test = (name, run) => added.tests.push({ name, run });

/** Runs a step within the time limit, and returns what it throws. */
async function errorOf(run) {
  const limit = new AbortController();
  const timeout = setTimeout(TEST_TIMEOUT_MS, undefined, { signal: limit.signal }).then(() => { throw new Error(`no end within ${TEST_TIMEOUT_MS} ms`); });
  timeout.catch(() => {});
  try {
    await Promise.race([run(), timeout]);
    return undefined;
  } catch (error) {
    return error ?? new Error('it threw nothing');
  } finally {
    limit.abort();
  }
}

/**
 * Runs the tests of a file. `report` gets `{name, duration, error}` of each, with the error if there is one, and of a step of the file
 * itself that fails.
 */
export async function runFile(address, report) {
  added = { before: [], after: [], tests: [] };
  const step = async (name, run) => {
    const error = await errorOf(run);
    if (error) report({ name, duration: 0, error });
    return !error;
  };
  const isReady = await step('the file is imported', () => import(address)) && await step('before the tests', () => callAll(added.before));
  for (const { name, run } of isReady ? added.tests : []) {
    const hooks = [];
    const startedAt = performance.now();
    const error = await errorOf(() => run({ after: (hook) => hooks.push(hook), diagnostic: (line) => process.stdout.write(`# ${line}\n`) }));
    const later = await errorOf(() => callAll(hooks));
    report({ name, duration: performance.now() - startedAt, error: error ?? later });
  }
  if (isReady) await step('after the tests', () => callAll(added.after));
}

async function callAll(hooks) {
  for (const hook of hooks) await hook();
}
