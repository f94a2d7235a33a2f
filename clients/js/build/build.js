// Writes ../types/ from the JSDoc of the client and from docs/openapi.json. With --check, compares instead, and fails if a
// file differs. The client, and the examples of its types in usage.ts, are checked in both cases.

import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import openapiTS, { astToString } from 'openapi-typescript';
import ts from 'typescript';

const folder = (name) => fileURLToPath(new URL(name, import.meta.url));
const out = folder('../types/');
const isCheck = process.argv.includes('--check');

/** Writes a file, or compares it with its expected text if `--check` is given. */
function put(name, text) {
  if (!isCheck) return writeFileSync(out + name, text);
  let stored;
  try {
    stored = readFileSync(out + name, 'utf8');
  } catch {
    // A missing file differs.
  }
  if (stored === text) return undefined;
  console.error(`${out}${name} differs: run node clients/js/build/build.js`);
  process.exitCode = 1;
}

/** Reports the errors of a program. */
function check(program, diagnostics = []) {
  const errors = [...ts.getPreEmitDiagnostics(program), ...diagnostics];
  if (errors.length === 0) return;
  const host = { getCanonicalFileName: (name) => name, getCurrentDirectory: () => folder('.'), getNewLine: () => '\n' };
  console.error(ts.formatDiagnostics(errors, host));
  process.exitCode = 1;
}

const options = {
  strict: true,
  // Parameters of private methods have no declared types.
  noImplicitAny: false,
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
  types: [],
};

mkdirSync(out, { recursive: true });
put('api.d.ts', astToString(await openapiTS(new URL('../../../docs/openapi.json', import.meta.url), { emptyObjectsUnknown: true })));

const sources = ['../src', '../adapters'].flatMap((source) => readdirSync(folder(source)).map((name) => folder(`${source}/${name}`)));
const client = ts.createProgram(sources, {
  ...options, allowJs: true, checkJs: true, declaration: true, emitDeclarationOnly: true, stripInternal: true, outDir: out,
});
const { diagnostics } = client.emit(undefined, (path, text) => put(basename(path), text));
check(client, diagnostics);
check(ts.createProgram([folder('usage.ts')], { ...options, noEmit: true }));
