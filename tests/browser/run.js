// Runs the files of tests that its arguments name, or all of them, several at once. It prints the results as TAP.

import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import process from 'node:process';
import { run } from 'node:test';
import { tap } from 'node:test/reporters';
import { inspect } from 'node:util';

/**
 * Files that run at once. A file is often idle: it waits for a slow answer, or for one process of the browser after another. Each file
 * has some sessions of the same user, who has at most 20.
 */
const CONCURRENCY = 3;
/** The longest files, which begin first, so that none of them is left over at the end. */
const LONGEST = ['axe.test.js', 'widget.test.js', 'console.test.js', 'views.test.js', 'tasks.test.js', 'xss.test.js'];

const rank = (name) => (LONGEST.includes(name) ? LONGEST.indexOf(name) : LONGEST.length);
const all = () => readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.js')).sort((one, other) => rank(one) - rank(other));

const named = process.argv.slice(2);
const files = (named.length > 0 ? named : all()).map((name) => resolve(import.meta.dirname, name));

/** Failed tests, which are printed once more below all results: nobody finds them among hundreds of lines. */
const failures = [];
run({ files, concurrency: CONCURRENCY })
  .on('test:fail', ({ name, details }) => {
    process.exitCode = 1;
    failures.push(`${name}\n${inspect(details.error.cause ?? details.error)}`);
  })
  .compose(tap)
  .on('end', () => { for (const failure of failures) console.error(`FAILED ${failure}\n`); })
  .pipe(process.stdout);
