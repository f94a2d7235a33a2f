// Writes web/vendor/ from the packages of package-lock.json. With --check, compares instead, and fails if a file differs.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const out = new URL('../web/vendor/', import.meta.url);
const packages = ['preact', '@preact/signals', '@preact/signals-core', 'htm', 'marked'];

/** Options of marked's lexer, which the page calls with GitHub's Markdown alone, so that the bundler drops the other branches. */
const options = { pedantic: false, gfm: true, breaks: false, silent: false, extensions: null, hooks: null };

/** Replaces an object literal, which begins at a place of a text and whose strings have no unpaired braces, by an empty one. */
function emptyObject(source, start) {
  let end = start;
  for (let depth = 0; end === start || depth > 0; end += 1) depth += { '{': 1, '}': -1 }[source[end]] ?? 0;
  return `${source.slice(0, start)}{}${source.slice(end)}`;
}

/** Returns the lexer's source with its options as constants, and without the rules of dialects that they do not choose. */
function forOneDialect(source) {
  let text = source.replace(/this\.options\.(\w+)/g, (found, name) => (name in options ? String(options[name]) : found));
  const dialects = [...source.matchAll(/\{normal:\w+,gfm:\w+,(?:breaks:(\w+),)?pedantic:(\w+)\}/g)];
  for (const name of dialects.flatMap((found) => found.slice(1)).filter(Boolean)) {
    const start = text.search(new RegExp(`(?<=[ ,]${name}=)\\{\\.\\.\\.`));
    if (start < 0) throw new Error(`marked has another form: ${name}`);
    text = emptyObject(text, start);
  }
  if (dialects.length !== 2) throw new Error('marked has other dialects; see forOneDialect in build.js');
  return text;
}

/**
 * Marked's module up to the end of its lexer. What follows makes HTML, which the page never does, and has side effects
 * for which a bundler would keep it.
 */
const lexerAlone = {
  name: 'lexer-alone',
  setup({ onLoad }) {
    onLoad({ filter: /marked\.esm\.js$/ }, ({ path }) => {
      const source = readFileSync(path, 'utf8');
      const end = source.search(/(?<=;)var \w+=class\{options;parser;/);
      const name = /(\w+) as Lexer\b/.exec(source)?.[1];
      if (end < 0 || !name) throw new Error('marked has another form; see lexerAlone in build.js');
      return { contents: `${forOneDialect(source.slice(0, end))}export{${name} as Lexer};` };
    });
  },
};

const { outputFiles } = await build({
  absWorkingDir: new URL('.', import.meta.url).pathname,
  entryPoints: ['ui.js', 'markdown.js'],
  plugins: [lexerAlone],
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  outdir: 'out',
  write: false,
});

const files = new Map(outputFiles.map(({ path, contents }) => [path.split('/').pop(), Buffer.from(contents)]));
const manifest = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));

function licence(name) {
  const folder = new URL(`node_modules/${name}/`, import.meta.url);
  const file = readdirSync(folder).find((file) => /^licen[cs]e/i.test(file));
  return `${name}\n${'='.repeat(name.length)}\n\n${readFileSync(new URL(file, folder), 'utf8').trim()}\n`;
}

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const rows = packages.map((name) => `| ${name} | ${manifest(name).version} | ${manifest(name).license} |`);
const sums = [...files].map(([name, bytes]) => `| \`${name}\` | ${bytes.length} | \`${sha256(bytes)}\` |`);
files.set('LICENSES.txt', Buffer.from(packages.map(licence).join('\n\n')));
files.set('README.md', Buffer.from(`# Vendored libraries

Made from \`agent-http/console/vendor/package-lock.json\` by

\`\`\`console
$ (cd agent-http/console/vendor && npm ci --ignore-scripts && node build.js)
\`\`\`

\`node build.js --check\` compares them with what the packages make; \`ci/test\` runs it. The licences are in \`LICENSES.txt\`.

| package | version | licence |
|---|---|---|
${rows.join('\n')}

| file | bytes | SHA-256 |
|---|---|---|
${sums.join('\n')}
`));

mkdirSync(out, { recursive: true });
for (const [name, bytes] of files) {
  const path = new URL(name, out);
  if (!process.argv.includes('--check')) {
    writeFileSync(path, bytes);
  } else if (!readFileSync(path).equals(bytes)) {
    console.error(`${path.pathname} differs from what the packages of package-lock.json make`);
    process.exitCode = 1;
  }
}
