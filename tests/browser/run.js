// Runs the files of tests that its arguments name, or all of them, in some processes. It prints the results as TAP.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import process from 'node:process';

/**
 * Processes, each of which runs one file after the other in its own browser. A file is often idle: it waits for a slow answer, a frame, or for
 * one process of the browser after another, and needs the CPU for half of its time. Four took as long as three alone, and five longer beside
 * other tests. Each file has some sessions of the same user, who has at most 20.
 */
const CONCURRENCY = 3;
/** The longest files, which begin first, so that none of them is left over at the end. */
const LONGEST = ['axe.test.js', 'approvals.test.js', 'tasks.test.js', 'widget.test.js', 'views.test.js', 'console.test.js', 'offline.test.js', 'restart.test.js', 'races.test.js'];

const rank = (name) => (LONGEST.includes(name) ? LONGEST.indexOf(name) : LONGEST.length);
const all = () => readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.js')).sort((one, other) => rank(one) - rank(other));

const named = process.argv.slice(2);
const files = named.length > 0 ? named : all();

const counts = { pass: 0, fail: 0 };
/** Failed tests, which are printed once more below all results, so that they are not lost among hundreds of lines. */
const failures = [];

/** Prints the result of a test of a file. `error` is absent if it passed. */
function report(file, { name, duration, error }) {
  counts[error ? 'fail' : 'pass'] += 1;
  const number = counts.pass + counts.fail;
  console.log(`${error ? 'not ok' : 'ok'} ${number} - ${`${file}: ${name}`.replace(/[\\#]/g, '\\$&')}\n  ---\n  duration_ms: ${duration}\n  ...`);
  if (error) failures.push(`${file}: ${name}\n${error}`);
}

/** Runs files in a process until none is left. */
async function work() {
  while (files.length > 0) {
    const worker = fork(resolve(import.meta.dirname, 'worker.js'));
    let file;
    const next = () => {
      file = files.shift();
      if (file) worker.send(resolve(import.meta.dirname, file));
      else worker.disconnect();
    };
    worker.on('message', (result) => (result.isLast ? next() : report(file, result)));
    next();
    const [code, signal] = await once(worker, 'exit');
    // A further process runs the files that are left.
    if (file) report(file, { name: 'its process runs to the end', duration: 0, error: `ended with ${signal ?? code}` });
  }
}

console.log('TAP version 13');
await Promise.all(Array.from({ length: Math.min(CONCURRENCY, files.length) }, work));
console.log(`1..${counts.pass + counts.fail}`);
for (const [name, count] of Object.entries(counts)) console.log(`# ${name} ${count}`);
for (const failure of failures) console.error(`FAILED ${failure}\n`);
process.exitCode = failures.length > 0 ? 1 : 0;
