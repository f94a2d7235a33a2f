/** Controls of a form that edits an object by the paths of the server's words, such as `children[0].content.provider`, with these words about each field. */

import { html, useState } from '../vendor/ui.js';

/** Returns the attributes of a control, which tell of the hint and the error below it. */
export const controlOf = (id, hint, error) => (
  { id, 'aria-invalid': error ? 'true' : undefined, 'aria-describedby': [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined });

const Below = ({ id, hint, error }) => html`${hint && html`<p class="meta" id=${`${id}-hint`}>${hint}</p>`}${error && html`<p class="field-error" id=${`${id}-error`}>${error}</p>`}`;

/** A control with its label, and below it its hint and its error. */
export const Field = ({ id, label, children, ...below }) => html`<div class="field"><label for=${id}>${label}</label>${children}<${Below} id=${id} ...${below} /></div>`;

/** Returns the keys of a path. @param {string} path @returns {(string | number)[]} */
const keysOf = (path) => path.match(/[^.[\]]+/g).map((key) => (/^\d+$/.test(key) ? Number(key) : key));

const own = (value, key) => (value !== null && typeof value === 'object' && Object.hasOwn(value, key) ? value[key] : undefined);

/** Returns the value at a path; `undefined` where there is none. */
export const getAt = (role, path) => keysOf(path).reduce(own, role);

/** Returns the list at a path; an empty one where there is something else. */
export function listAt(role, path) {
  const found = getAt(role, path);
  return Array.isArray(found) ? found : [];
}

/** Returns a list with an element or without it; `undefined` for an empty one. */
export function toggled(list, element, isIn) {
  const rest = list.filter((one) => one !== element);
  const chosen = isIn ? [...rest, element] : rest;
  return chosen.length > 0 ? chosen : undefined;
}

/** Returns a copy of a role with another value at a path; `undefined` removes what is there. All else stays as it is. */
export function setAt(role, path, value) {
  const change = (of, [key, ...rest]) => {
    const isObject = of !== null && typeof of === 'object';
    const isList = Array.isArray(of) || (!isObject && typeof key === 'number');
    const copy = isList ? [...(isObject ? of : [])] : { ...(isObject ? of : {}) };
    const next = rest.length > 0 ? change(own(of, key), rest) : value;
    if (next === undefined && isList) copy.splice(key, 1);
    else if (next === undefined) delete copy[key];
    else copy[key] = next;
    return copy;
  };
  return change(role, keysOf(path));
}

/** Members of a role. */
const MEMBERS = ['content', 'children', 'name', 'id', 'ownerId', 'companyId'];

/**
 * Returns what the server says about fields, by path: a problem's detail has a sentence for each, with semicolons between.
 *
 * @param {string} detail
 * @param {string[]} [members] Names with which a path begins.
 */
export function fieldErrors(detail, members = MEMBERS) {
  const found = [...detail.matchAll(new RegExp(`(?:^|; )((?:${members.join('|')})(?:[.[][\\w.[\\]]*)?) `, 'g'))];
  return new Map(found.map((match, place) => {
    const end = found[place + 1]?.index ?? detail.length;
    return [match[1], detail.slice(match.index + match[0].length, end)];
  }));
}

/** Returns true if a path is another one, or lies within it. */
export const isWithin = (path, outer) => path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`);

/** Fields of a role's content that the form shows; the others are in the JSON view alone. */
const SHOWN = new Set(['systemPrompt', 'personality', 'promptBlocks', 'rules', 'documentIds', 'memoryFolder', 'memoryScope', 'council',
  'mcpPreset', 'tools', 'widgetTools', 'approvals', 'enableAutoRag', 'ragDocumentIds', 'ragPlacement', 'showSources', 'contextWindow',
  'maxOutputTokens', 'messengerToken', 'agentServerUrl', 'agentServerProvider', 'agentServerModel', 'agentServerEnableThinking',
  'agentServerTools', 'agentServerLocalUrl', 'agentServerApiKey', 'parameters', 'conversations']);

/** Returns the names of fields that the form does not show. */
export function hiddenFields({ id, name, content, children, ...rest }) {
  const hidden = Object.keys(content ?? {}).filter((field) => !SHOWN.has(field) || (field === 'council' && typeof content[field] !== 'string'));
  return [...hidden, ...Object.keys(rest)];
}

/**
 * @typedef {{value: any, saved: any, errors: Map<string, string>, set: (path: string, value: any) => void}} Form
 *   `saved` is the object as the server has it.
 */

export const idOf = (path) => `role-${path.replace(/[^\w]+/g, '-')}`;

/** Returns the server's messages about a field, or about fields below it. */
function errorOf({ errors }, path) {
  const found = [...errors].filter(([of]) => isWithin(of, path));
  return found.map(([of, words]) => `${of === path ? 'It' : of} ${words}`).join('; ') || undefined;
}

/** Returns the attributes of a control of the form. */
export const described = (form, path, hint) => controlOf(idOf(path), hint, errorOf(form, path));

/** Hint and error below a control of the form. */
export const Notes = ({ form, path, hint }) => html`<${Below} id=${idOf(path)} hint=${hint} error=${errorOf(form, path)} />`;

const FormField = ({ form, path, ...more }) => html`<${Field} id=${idOf(path)} error=${errorOf(form, path)} ...${more} />`;

/** Text of a value that a JSON view may have made something else. */
const textOf = (value) => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value));

/** A text; an empty one is absent unless it `isKept`. `rows` makes it one of several lines. */
export function Text({ form, path, label, hint, rows, isKept = false, ...more }) {
  const common = {
    ...described(form, path, hint), ...more, autocomplete: 'off', value: textOf(getAt(form.value, path)),
    onInput: (event) => form.set(path, event.target.value || (isKept ? '' : undefined)),
  };
  return html`<${FormField} form=${form} path=${path} label=${label} hint=${hint}>
    ${rows ? html`<textarea ...${common} rows=${Math.min(16, Math.max(rows, common.value.split('\n').length + (rows > 1 ? 1 : 0)))}></textarea>` : html`<input ...${common} spellcheck="false" />`}<//>`;
}

/** A whole number; an empty one is absent. Other input stays a text, which the server rejects. */
export function Count({ form, path, label, hint, unit = 1 }) {
  const value = getAt(form.value, path);
  const change = ({ target: { value } }) => {
    const number = Number(value) * unit;
    form.set(path, value.trim() === '' ? undefined : Number.isFinite(number) ? number : value);
  };
  return html`<${FormField} form=${form} path=${path} label=${label} hint=${hint}>
    <input ...${described(form, path, hint)} inputmode="numeric" autocomplete="off" value=${typeof value === 'number' ? value / unit : textOf(value)} onInput=${change} /><//>`;
}

/** A choice of `[value, words]`. A value that is none of them is shown as it is. */
export function Choice({ form, path, label, hint, options }) {
  const value = getAt(form.value, path);
  const place = options.findIndex(([of]) => of === value);
  const change = ({ target }) => Number(target.value) >= 0 && form.set(path, options[Number(target.value)][0]);
  return html`<${FormField} form=${form} path=${path} label=${label} hint=${hint}>
    <select ...${described(form, path, hint)} value=${String(place)} onChange=${change}>
      ${place < 0 && html`<option value="-1">${JSON.stringify(value)}</option>`}
      ${options.map(([, words], place) => html`<option key=${place} value=${String(place)}>${words}</option>`)}</select><//>`;
}

/** A switch. `otherwise` is its value if it is absent. */
export function Switch({ form, path, label, hint, otherwise = false }) {
  const value = getAt(form.value, path) ?? otherwise;
  return html`<div class="field switch">
    <label class="check"><input type="checkbox" ...${described(form, path, hint)} checked=${value === true}
      onChange=${({ target }) => form.set(path, target.checked === otherwise ? undefined : target.checked)} /><span>${label}</span></label>
    <${Notes} form=${form} path=${path} hint=${hint} /></div>`;
}

/** Words with commas between them. The text is kept as it is typed. */
export function Words({ form, path, label, hint }) {
  const value = listAt(form.value, path);
  const [text, setText] = useState(value.join(', '));
  const parse = (text) => text.split(',').map((word) => word.trim()).filter(Boolean);
  const isSame = JSON.stringify(parse(text)) === JSON.stringify(value);
  const change = ({ target }) => {
    setText(target.value);
    const words = parse(target.value);
    form.set(path, words.length > 0 ? words : undefined);
  };
  return html`<${FormField} form=${form} path=${path} label=${label} hint=${hint}>
    <input ...${described(form, path, hint)} spellcheck="false" autocomplete="off" value=${isSame ? text : value.join(', ')} onInput=${change} /><//>`;
}

/** A secret: the saved one, which may have another place there, is never shown. It is kept, replaced or deleted. */
export function Secret({ form, path, savedPath = path, label, hint }) {
  const value = getAt(form.value, path);
  const saved = getAt(form.saved, savedPath);
  const [isReplaced, setReplaced] = useState(false);
  const keep = () => {
    setReplaced(false);
    form.set(path, saved);
  };
  const isInput = isReplaced || (saved === undefined && value !== '') || (value && value !== '***');
  const state = value === '' ? 'is deleted when the role is saved' : 'is saved';
  return html`<div class="field" role="group" aria-label=${label}>
    ${isInput ? html`<label for=${idOf(path)}>${label}</label>` : html`<p class="field-label">${label}</p>`}
    <div class="row">
      ${isInput
        ? html`<input type="password" class="grow" ...${described(form, path, hint)} autocomplete="new-password" value=${value === '***' ? '' : textOf(value)} onInput=${({ target }) => form.set(path, target.value || saved)} />`
        : html`<span class="muted small"><code>***</code> ${state}</span>`}
      ${saved !== undefined && (isInput || value === '' ? html`<button type="button" class="button small" onClick=${keep}>Keep the saved one</button>` : '')}
      ${saved !== undefined && !isInput && value !== '' && html`<button type="button" class="button small" onClick=${() => setReplaced(true)}>Replace</button>
        <button type="button" class="button quiet small" onClick=${() => form.set(path, '')}>Clear</button>`}
    </div>
    <${Notes} form=${form} path=${path} hint=${hint} /></div>`;
}

/** A list with a row for each element: `row(path, place)` draws it, and `fresh` is a new one. */
export function List({ form, path, label, name, fresh, row }) {
  const items = listAt(form.value, path);
  const [focus, setFocus] = useState(undefined);
  const add = () => {
    form.set(`${path}[${items.length}]`, fresh);
    setFocus(items.length);
  };
  const remove = (place) => {
    const rest = items.filter((_, other) => other !== place);
    form.set(path, rest.length > 0 ? rest : undefined);
  };
  return html`<div class="field" role="group" aria-label=${label}>
    <p class="field-label">${label}</p>
    ${items.map((_, place) => html`<div key=${place} class="list-row">
      <div class="grow" ref=${(node) => node && focus === place && (setFocus(undefined), node.querySelector('input, textarea, select')?.focus())}>${row(`${path}[${place}]`, place)}</div>
      <button type="button" class="icon" aria-label=${`Remove ${name} ${place + 1}`} onClick=${() => remove(place)}>×</button></div>`)}
    <button type="button" class="button small" onClick=${add}>Add ${/^[aeiou]/.test(name) ? 'an' : 'a'} ${name}</button>
  </div>`;
}
