// Writes web/vendor/ from the packages of package-lock.json. With --check, compares instead, and fails if a file differs.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const out = new URL('../web/vendor/', import.meta.url);
const packages = ['preact', '@preact/signals', '@preact/signals-core', 'htm', 'marked'];

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
      return { contents: `${source.slice(0, end)}export{${name} as Lexer};` };
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
