// The scripts as they are served: the build script removes indentation, comments and some ends of lines, which must mean nothing.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { test } from './harness.js';
import { names } from './wire.js';

/** Returns the source of a file. */
function sourceOf(name) {
  const path = name.startsWith('client/') ? `../../clients/js/src/${name.slice('client/'.length)}` : `../../agent-http/console/web/${name}`;
  return readFileSync(new URL(path, import.meta.url), 'utf8');
}

/** What a slash begins is a regular expression after these, and a division elsewhere. */
const BEFORE_REGEX = /(?:^|[(,=:[!&|?{};+*%<>~^-]|\breturn|\btypeof|\bcase)\s*$/;

/** Returns the template literals of a script: what is before each of them, and its text with `$` for each expression. */
function templatesOf(source) {
  const found = [];
  /** Places of the code: the template literal that it is an expression of, and the number of its open braces. */
  const places = [{ braces: 0 }];
  let at = 0;
  const skip = (pattern) => {
    pattern.lastIndex = at;
    assert.ok(pattern.test(source), source.slice(at, at + 80));
    at = pattern.lastIndex;
  };
  const readTemplate = (template) => {
    for (; source[at] !== '`'; at += 1) {
      assert.ok(at < source.length, 'a template literal has an end');
      if (source.startsWith('${', at)) {
        template.text += '$';
        at += 2;
        places.push({ template, braces: 0 });
        return;
      }
      if (source[at] === '\\') at += 1;
      template.text += source[at];
    }
    at += 1;
    found.push(template);
  };
  while (at < source.length) {
    const place = places.at(-1);
    const rest = source.slice(at, at + 2);
    if (rest === '//') {
      assert.ok(/(?:^|\n)[ \t]*$/.test(source.slice(0, at)), `a comment has a line of its own: ${source.slice(at, at + 80)}`);
      skip(/[^\n]*/y);
    }
    else if (rest === '/*') skip(/\/\*[^]*?\*\//y);
    else if (rest[0] === "'" || rest[0] === '"') skip(/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/y);
    else if (rest[0] === '/' && BEFORE_REGEX.test(source.slice(Math.max(0, at - 40), at))) skip(/\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+\//y);
    else {
      at += 1;
      if (rest[0] === '`') readTemplate({ before: source.slice(Math.max(0, at - 40), at - 1), text: '' });
      else if (rest[0] === '{') place.braces += 1;
      else if (rest[0] === '}' && place.braces > 0) place.braces -= 1;
      else if (rest[0] === '}') readTemplate(places.pop().template);
    }
  }
  assert.equal(places.length, 1, 'every template literal is read to its end');
  return found;
}

test('templates are found', () => {
  const source = "// `\nconst a = /[`/]\\//.test('`') / 2;\nconst b = html`<p>${c.map(({ d }) => `x${d}`)} \\` ${'}'}</p>`;";
  assert.deepEqual(templatesOf(source).map(({ text }) => text), ['x$', '<p>$ ` $</p>']);
});

test('indentation and ends of lines mean nothing in the scripts', () => {
  let count = 0;
  for (const name of names.filter((name) => name.endsWith('.js') && !name.startsWith('vendor/'))) {
    const source = sourceOf(name);
    assert.ok(!/\\\n/.test(source), `${name}: no text goes on in the next line`);
    for (const { before, text } of templatesOf(source).filter(({ text }) => text.includes('\n'))) {
      count += 1;
      // htm drops the white space between elements that has a line's end, and keeps that of attributes.
      if (before.endsWith('html')) assert.ok(!/="[^"]*\n[^"]*"|[;{]\n/.test(text), `${name}: ${text}`);
      else assert.ok(name === 'widget/styles.js' && !/['"][^'"\n]*\n[^'"\n]*['"]/.test(text), `${name}: ${text}`);
    }
  }
  assert.ok(count > 100, `${count} templates`);
});
