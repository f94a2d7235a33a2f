// Writes web/vendor/ from the packages of package-lock.json. With --check, compares instead, and fails if a file differs.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build, transform } from 'esbuild';

const out = new URL('../web/vendor/', import.meta.url);
const target = 'es2022';
const packages = ['preact', '@preact/signals', '@preact/signals-core', 'htm', 'marked'];

/** Options of marked's lexer, which the page calls with GitHub's Markdown alone, so that the bundler drops the other branches. */
const options = { pedantic: false, gfm: true, breaks: false, silent: false, extensions: null, hooks: null };

/** Returns the end of an object literal, which begins at a place of a text and whose strings have no unpaired braces. */
function objectEnd(source, start) {
  let end = start;
  for (let depth = 0; end === start || depth > 0; end += 1) depth += { '{': 1, '}': -1 }[source[end]] ?? 0;
  return end;
}

/** Replaces the object literal that follows the first match of a pattern by what `change` makes of its text. */
function changeObject(source, pattern, change) {
  const start = source.search(pattern);
  if (start < 0) throw new Error(`marked has another form: ${pattern}`);
  const end = objectEnd(source, start);
  return source.slice(0, start) + change(source.slice(start, end)) + source.slice(end);
}

/** Returns the lexer's source with its options as constants, and without the rules of dialects that they do not choose. */
function forOneDialect(source) {
  let text = source.replace(/this\.options\.(\w+)/g, (found, name) => (name in options ? String(options[name]) : found));
  const dialects = [...source.matchAll(/\{normal:(\w+),gfm:(\w+),(?:breaks:(\w+),)?pedantic:(\w+)\}/g)];
  if (dialects.length !== 2) throw new Error('marked has other dialects; see forOneDialect in build.js');
  for (const [, normal, gfm, ...others] of dialects) {
    for (const name of others.filter(Boolean)) text = changeObject(text, new RegExp(`(?<=[ ,]${name}=)\\{\\.\\.\\.`), () => '{}');
    // GitHub's rules are the normal ones with others in their places, which nothing else reads.
    const chosen = text.search(new RegExp(`(?<=[ ,]${gfm}=)\\{\\.\\.\\.${normal},`));
    const replaced = text.slice(chosen, objectEnd(text, chosen));
    text = changeObject(text, new RegExp(`(?<=[ ,]${normal}=)\\{\\w+:`), (rules) => (
      rules.replace(/(\w+):\w+,?/g, (rule, name) => (new RegExp(`,${name}:[\\w/]`).test(replaced) ? '' : rule))));
  }
  return text;
}

/** Returns the source with the calls that make rules marked, so that the bundler drops those of unused rules. */
function withPureRules(source) {
  const [, maker] = /function (\w+)\(\w+,\w+=""\)\{let \w+=typeof \w+=="string"/.exec(source);
  const [, paragraph] = new RegExp(`[ ,](\\w+)=\\w+=>${maker}\\(`).exec(source);
  return source.replace(new RegExp(`(?<=[ ,]\\w+=)(?=(?:${maker}|${paragraph})\\()`, 'g'), '/* @__PURE__ */');
}

/** Returns the bundled lexer without those of its further expressions that nothing reads any more. */
function withoutUnused(source) {
  return changeObject(source, /\{codeRemoveIndent:/, (rules) => {
    const members = rules.slice(1, -1).split(/,(?=\w{4,}:(?:\/|\w+=>|\w+\())/);
    return `{${members.filter((member) => new RegExp(`\\.${member.slice(0, member.indexOf(':'))}\\b`).test(source)).join(',')}}`;
  });
}

/**
 * Marked's module up to the end of its lexer. What follows makes HTML, which the page never does, and has side effects
 * for which a bundler would keep it.
 */
const lexerAlone = {
  name: 'lexer-alone',
  setup({ onLoad }) {
    onLoad({ filter: /marked\.esm\.js$/ }, async ({ path }) => {
      const source = readFileSync(path, 'utf8');
      const end = source.search(/(?<=;)var \w+=class\{options;parser;/);
      const name = /(\w+) as Lexer\b/.exec(source)?.[1];
      if (end < 0 || !name) throw new Error('marked has another form; see lexerAlone in build.js');
      const lexer = `${withPureRules(forOneDialect(source.slice(0, end)))}export{${name} as Lexer};`;
      const { code } = await transform(lexer, { format: 'esm', target, minify: true, treeShaking: true });
      return { contents: withoutUnused(code) };
    });
  },
};

const { outputFiles } = await build({
  absWorkingDir: new URL('.', import.meta.url).pathname,
  entryPoints: ['ui.js', 'markdown.js'],
  plugins: [lexerAlone],
  bundle: true,
  format: 'esm',
  target,
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
