// The drawing of Markdown that grows, without a browser: what is drawn of a text in pieces is what is drawn of it at once, and the
// work of a piece does not depend on how much there is before it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mock } from 'node:test';

import { corpus } from './corpus.js';
import './fake-dom.js';
import { test } from './harness.js';

const web = '../../agent-http/console/web';
const [{ MarkdownView }, { Lexer }] = await Promise.all([import(`${web}/lib/markdown.js`), import(`${web}/vendor/markdown.js`)]);

/** Random texts, and characters that are parsed and elements that are created as multiples of what a whole drawing takes. */
const TEXTS = 600;
const MAX_TIMES = 8;
/** Cells of a table up to which it is drawn as such. */
const MAX_CELLS = 5000;
/** Length of a piece of a long text: more than comes in a frame. */
const PIECE = 40;

const newRoot = () => document.createElement('root');

function drawn(text, isComplete) {
  const root = newRoot();
  new MarkdownView(root).update(text, isComplete);
  return root.text;
}

/** Returns a generator of numbers from 0 to 1, the same for a seed on every machine (mulberry32). */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Lines that begin, continue and end blocks, or seem to until they are complete. */
const LINES = [
  '- a', '- **b** c', '* x', '+ plus', '1. one', '2. two', '10. ten', '1) p', '  - nested', '    - deep', '   - three', '  more text', '   x', '\ttab',
  'text', 'lazy', '', '', '', '| a | b |', '|--|:-:|', '| - | - |', '| 1 | `2` |', '| x', 'x | y', '- | a', '---', '- ---', '===', '-', '1.', '*', '**',
  '# head', '> quote', '> - ql', '```', '```js', '~~~', '1. ```', 'code', '    indented', '<div>', '</div>', '<!-- c', '-->', '- [ ] task', '- [x] done',
  '- a\r', 'see [ref]', '[ref]: https://shop.example', '[ref]: https://other.example "t"', 'text [l](https://shop.example/) & &amp;',
];
const LISTS = LINES.filter((line) => line === '' || /^ *(?:[-*+]|\d+[.)])/.test(line));
/** Lists in lists, in each indentation, with what ends them and makes them loose. */
const NESTED = ['', '', 'text', '- - a', '  - - b', '1. - c', '-', '  -', '-      code', '---', '    code', '   ```',
  ...['- a', '- **b** c', '* d', '1. one', '2. two', '- [ ] task', 'more', '   wide'].flatMap((line) => [0, 1, 2, 3, 4, 6, 7, 9].map((indent) => ' '.repeat(indent) + line))];
/** Items with tables and blocks of code, and what ends them. */
const BLOCKS = ['', 'text', '- a', '1. one', '- [ ] task', '    four', '\ttab', ' ```', '   ```',
  ...['- b', '| a | b |', '|--|--|', '| 1 | `2` |', '```', '```js', '~~~', 'code', '  more code', '````', '- no item', ''].flatMap((line) => [0, 2, 2, 2, 3, 4].map((indent) => ' '.repeat(indent) + line))];
const TABLES = LINES.filter((line) => line === '' || line.includes('|'));

/** Draws a text in pieces, and compares the result after each piece with that of drawing the same text at once. */
function compare(text, next, longest) {
  const root = newRoot();
  const view = new MarkdownView(root);
  for (let end = 0; end < text.length;) {
    end += 1 + Math.floor(next() * longest);
    const part = text.slice(0, end);
    view.update(part, false);
    // The definition of a reference changes blocks that are final already, at the end.
    if (!part.includes(']:')) assert.equal(root.text, drawn(part, false), JSON.stringify(part));
  }
  view.update(text, true);
  assert.equal(root.text, drawn(text, true), JSON.stringify(text));
}

test('a text in random pieces is drawn as it is at once, after each piece and at the end', () => {
  const next = random(20);
  for (let count = 0; count < TEXTS; count += 1) {
    const pool = [LINES, BLOCKS, LISTS, TABLES, NESTED][count % 5];
    const lines = Array.from({ length: 2 + Math.floor(next() * 16) }, () => pool[Math.floor(next() * pool.length)]);
    if (count % 7 === 0) lines.unshift(corpus[Math.floor(next() * corpus.length)]);
    compare(lines.join('\n'), next, count % 3 === 0 ? 3 : 12);
  }
  const answer = readFileSync(new URL('answer.md', import.meta.url), 'utf8');
  for (const longest of [1, 5, 30]) compare(answer, next, longest);
});

test('lines that end like those of Windows, and references, are drawn as they are at once', () => {
  for (const text of [
    'One\r\n\r\nTwo\r\n\r\n- a\r\n- b\r\n- c\r\n\r\nThree\r\n\r\nFour',
    Array.from({ length: 9 }, (_, place) => `Paragraph ${place}`).join('\r\n\r\n'),
    'See [a].\n\nAnd [b][c].\n\n[a]: https://shop.example/a\n[c]: https://shop.example/c\n',
    '[a]: https://shop.example/a\n[a]: https://shop.example/b\n\nOne\n\nTwo [a]\n\nThree',
  ]) {
    for (const length of [1, 2, 3, 7, text.length]) compare(text, () => 0.999, length);
  }
});

test('the end of a text is shown once it is known what it is, and stays', () => {
  const root = newRoot();
  const view = new MarkdownView(root);
  for (const [text, isComplete, shown] of [
    ['One\n\n4', false, 'One'], ['One\n\n42', false, 'One'], ['One\n\n42', true, 'One\n\n42'], ['One\n\n42', false, 'One\n\n42'], ['Another\n---', false, 'Another'],
  ]) {
    view.update(text, isComplete);
    assert.equal(root.text, drawn(shown, true), text);
  }
});

const repeat = (line, count) => Array.from({ length: count }, (_, place) => line(place)).join('');
const LONG = {
  'a list': repeat((place) => `- **Item ${place}** and \`some\` words\n`, 700),
  'a numbered list of paragraphs': repeat((place) => `${place + 1}. **Item ${place}** and some words\n\n`, 700),
  'a list of lists': repeat((place) => `${place + 1}. Item\n   - one\n   - two\n\n`, 600),
  'an item with a long list': `- Item\n${repeat((place) => `  - **one** ${place}\n`, 700)}`,
  'items with long loose lists': repeat((place) => (place % 150 ? `   - one ${place}\n\n` : `${place + 1}. Item\n\n`), 600),
  'a list of lists of lists': `- All\n${repeat((place) => `  - Item ${place}\n${'    1. one\n'.repeat(4)}`, 150)}`,
  'an item with a long block of code': `1. **Item**:\n   \`\`\`js\n${repeat((place) => (place % 9 ? `   const bed = ${place};\n` : '\n'), 900)}   \`\`\`\n`,
  'an item with a long table': `- All\n  - Item\n\n    | a | b |\n    |---|---|\n${repeat((place) => `    | ${place} | **x** |\n`, 900)}`,
  'a table': `| a | b |\n|---|---|\n${repeat((place) => `| ${place} | **x** |\n`, 1200)}`,
  'a table that is too large': `| a | b |\n|---|---|\n${repeat((place) => `| ${place} | **x** |\n`, 3000)}`,
  'a list before a paragraph': `${repeat((place) => `- Item ${place}\n`, 700)}\n${'Some words. '.repeat(20)}`,
};

for (const [name, text] of Object.entries(LONG)) {
  test(`the work of a piece is that of what is new: ${name}`, ({ after }) => {
    after(() => mock.restoreAll());
    const counts = { parsed: 0, elements: 0 };
    const { lex } = Lexer;
    const { createElement } = document;
    mock.method(Lexer, 'lex', (text, options) => {
      counts.parsed += text.length;
      return lex.call(Lexer, text, options);
    });
    mock.method(document, 'createElement', (name) => {
      counts.elements += 1;
      return createElement(name);
    });
    const whole = drawn(text, true);
    const once = { ...counts };
    Object.assign(counts, { parsed: 0, elements: 0 });
    const root = newRoot();
    const view = new MarkdownView(root);
    for (let end = 0; end < text.length; end += PIECE) view.update(text.slice(0, end), false);
    view.update(text, true);
    assert.equal(root.text, whole);
    for (const name of ['parsed', 'elements']) assert.ok(counts[name] <= MAX_TIMES * (once[name] + MAX_CELLS), `${name}: ${JSON.stringify({ counts, once })}`);
  });
}
