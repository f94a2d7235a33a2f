// A process of `run.js`: runs the received files one after another, and sends the results of their tests.

import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';

import { runFile } from './harness.js';
import { closeBrowser, closePages } from './support.js';

process.on('message', async (file) => {
  await runFile(pathToFileURL(file), ({ error, ...result }) => process.send({ ...result, error: error && inspect(error) }));
  await closePages();
  process.send({ isLast: true });
});
process.on('disconnect', async () => {
  await closeBrowser();
  // Files may have left connections and servers.
  process.exit();
});
