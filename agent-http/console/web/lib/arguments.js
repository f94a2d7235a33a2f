/** The arguments of a call as a form of the tool's schema where it is simple, and as JSON. */

import { html, useState } from '../vendor/ui.js';
import { Field, controlOf } from './fields.js';
import { exact, parseJson } from './format.js';

const SCALARS = new Set(['string', 'number', 'integer', 'boolean']);

/** Returns the scalar type of a schema, also where `null` is allowed beside it; else `undefined`. */
function scalarType({ type, anyOf, oneOf } = {}) {
  const types = [type ?? []].flat().filter((name) => name !== 'null');
  if (types.length === 1 && SCALARS.has(types[0])) return types[0];
  const branches = (anyOf ?? oneOf ?? []).filter((branch) => branch?.type !== 'null');
  return branches.length === 1 ? scalarType(branches[0]) : undefined;
}

/** Returns the values of an enumeration of scalars; else `undefined`. */
function choices({ enum: values, anyOf, oneOf } = {}) {
  if (Array.isArray(values) && values.every((value) => value === null || typeof value !== 'object')) return values;
  const branches = anyOf ?? oneOf;
  if (!Array.isArray(branches) || branches.length === 0) return undefined;
  const found = branches.filter((branch) => branch?.type !== 'null').map(choices);
  if (found.length === 1) return found[0];
  const constants = branches.map((branch) => branch?.const);
  return constants.every((value) => typeof value === 'string') ? constants : undefined;
}

/**
 * Returns the fields of an object's schema. `kind` is `choice`, `boolean`, `number`, `text`, `lines` or `json`.
 *
 * @param {any} schema
 * @returns {{name: string, kind: string, isRequired: boolean, schema: any, choices?: any[]}[]}
 */
export function fieldsOf(schema) {
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  return Object.entries(schema?.properties ?? {}).map(([name, of]) => {
    const property = of && typeof of === 'object' ? of : {};
    const values = choices(property);
    const field = { name, isRequired: required.has(name), schema: property };
    if (values) return { ...field, kind: 'choice', choices: values };
    const type = scalarType(property);
    if (type === 'string') return { ...field, kind: (property.maxLength ?? 0) > 1000 ? 'lines' : 'text' };
    if (type === 'boolean') return { ...field, kind: type };
    return { ...field, kind: type ? 'number' : 'json', isWhole: type === 'integer' };
  });
}

function parse({ kind, isWhole, choices }, text) {
  if (kind === 'choice') return { value: choices[Number(text)] };
  if (kind === 'boolean') return { value: text === 'true' };
  if (kind === 'number') {
    const value = Number(text);
    if (!Number.isFinite(value)) return { error: 'must be a number' };
    return isWhole && !Number.isInteger(value) ? { error: 'must be a whole number' } : { value: exact('', value, { source: text }) };
  }
  if (kind !== 'json') return { value: text };
  try {
    return { value: parseJson(text) };
  } catch (error) {
    return { error: `is not JSON: ${error.message}` };
  }
}

/**
 * Returns the arguments in the fields, and the errors in them. Fields without a text are left out.
 *
 * @param {ReturnType<typeof fieldsOf>} fields
 * @param {Map<string, string>} texts
 */
export function argumentsOf(fields, texts) {
  const errors = new Map();
  const entries = [];
  for (const field of fields) {
    const text = texts.get(field.name) ?? '';
    if (text === '') {
      // An empty text is a text; whether it may be empty is the tool's to say.
      const isText = field.kind === 'text' || field.kind === 'lines';
      if (field.isRequired && isText && !field.schema.minLength) entries.push([field.name, '']);
      else if (field.isRequired) errors.set(field.name, 'is required');
    } else {
      const { value, error } = parse(field, text);
      if (error) errors.set(field.name, error);
      else entries.push([field.name, value]);
    }
  }
  // A property may be called `__proto__`, which an assignment would lose.
  return { value: Object.fromEntries(entries), errors };
}

/** Returns the text of a field's value, as its control has it. */
function textOf({ kind, choices }, value) {
  if (value === undefined) return '';
  if (kind === 'choice') return String(choices.indexOf(value));
  if (kind === 'json') return JSON.stringify(value, null, 2);
  return String(value);
}

const isText = ({ kind }) => kind === 'text' || kind === 'lines';

/** Returns true if a value is one that its field can show and give back. */
function fits(field, value) {
  if (value === undefined) return true;
  if (field.kind === 'choice') return field.choices.includes(value);
  if (isText(field)) return typeof value === 'string';
  return field.kind === 'json' || typeof value === field.kind || (field.kind === 'number' && typeof value === 'bigint');
}

/** Returns the fields of a schema; `undefined` if a form of them could not show these arguments. */
function formFields(schema, args) {
  if (!schema || args === null || typeof args !== 'object') return undefined;
  const fields = fieldsOf(schema);
  const byName = new Map(fields.map((field) => [field.name, field]));
  const isWhole = Object.keys(args).every((name) => byName.has(name) && fits(byName.get(name), args[name]));
  return isWhole ? fields : undefined;
}

/**
 * The state of an editor of arguments: `read()` returns `{value}` or, after it has marked what is wrong, `undefined`.
 *
 * @param {object} args Arguments that the model has sent.
 * @param {object} [schema] Schema of the tool.
 */
export function useArguments(args, schema) {
  const fields = formFields(schema, args);
  const textsOf = (from, fields) => new Map(fields.map((field) => [field.name, textOf(field, from[field.name])]));
  const [texts, setTexts] = useState(() => (fields ? textsOf(args, fields) : new Map()));
  const [json, setJson] = useState(fields ? undefined : JSON.stringify(args, null, 2));
  const [errors, setErrors] = useState(new Map());
  const readForm = () => {
    // A text that was empty and is not required stays as it was: a field without a text is left out.
    const { value, errors } = argumentsOf(fields, texts);
    setErrors(errors);
    for (const { name, kind } of fields) if (args[name] === '' && (texts.get(name) ?? '') === '' && kind !== 'json') value[name] = '';
    return errors.size > 0 ? undefined : { value };
  };
  const readJson = () => {
    const { value, error = Object(value) === value && !Array.isArray(value) ? undefined : 'must be an object' } = parse({ kind: 'json' }, json);
    setErrors(new Map(error ? [['', error]] : []));
    return error ? undefined : { value };
  };
  const read = () => (json === undefined ? readForm() : readJson());
  const toggle = () => {
    const found = read();
    if (!found) return;
    if (json === undefined) setJson(JSON.stringify(found.value, null, 2));
    else {
      const fields = formFields(schema, found.value);
      if (!fields) {
        setErrors(new Map([['', 'has fields that the form does not show']]));
        return;
      }
      setTexts(textsOf(found.value, fields));
      setJson(undefined);
    }
  };
  const change = (name, text) => {
    if (name === '') setJson(text);
    else setTexts(new Map(texts).set(name, text));
    setErrors(new Map([...errors].filter(([of]) => of !== name)));
  };
  const hasForm = Boolean(schema && fieldsOf(schema).length > 0);
  return { fields: fields ?? (schema ? fieldsOf(schema) : []), texts, json, errors, read, toggle, change, hasForm };
}

/** The editor. `id` makes the ids of its controls unique. */
export function ArgumentsEditor({ id, state }) {
  const { fields, texts, json, errors, toggle, change, hasForm } = state;
  return html`<div class="arguments">
    ${json === undefined
      ? fields.map((field) => html`<${Argument} key=${field.name} id=${`${id}-${field.name}`.replace(/\s/g, '_')} field=${field}
          text=${texts.get(field.name) ?? ''} error=${errors.get(field.name)} onChange=${(text) => change(field.name, text)} />`)
      : html`<${Json} id=${`${id}-json`} text=${json} error=${errors.get('')} onChange=${(text) => change('', text)} />`}
    ${hasForm && html`<button type="button" class="button quiet small" onClick=${toggle}>${json === undefined ? 'As JSON' : 'As a form'}</button>`}
  </div>`;
}

/** Returns the error of an argument as a sentence. */
const sentence = (error) => error && `It ${error}.`;

function Json({ id, text, error, onChange }) {
  return html`<${Field} id=${id} label=${html`Arguments <span class="meta">JSON</span>`} error=${sentence(error)}>
    <textarea ...${controlOf(id, '', error)} class="code-input" rows=${Math.min(14, text.split('\n').length + 1)} spellcheck="false" value=${text} onInput=${(event) => onChange(event.target.value)}></textarea><//>`;
}

function Argument({ id, field, text, error, onChange }) {
  const { name, kind, isRequired, schema } = field;
  const hint = [kind === 'json' ? 'JSON' : '', schema.description].filter(Boolean).join(' · ');
  const common = { ...controlOf(id, hint, error), value: text, required: isRequired, onInput: (event) => onChange(event.target.value) };
  return html`<${Field} id=${id} label=${html`<code>${name}</code>${isRequired && html` <span class="meta">required</span>`}`} hint=${hint} error=${sentence(error)}>${control(field, common)}<//>`;
}

function control({ kind, choices, isWhole, isRequired, schema }, common) {
  const absent = html`<option value="">${isRequired ? 'choose' : 'not set'}</option>`;
  switch (kind) {
    case 'choice':
      return html`<select ...${common}>${absent}${choices.map((value, place) => html`<option key=${place} value=${String(place)}>${String(value)}</option>`)}</select>`;
    case 'boolean':
      return html`<select ...${common}>${absent}<option value="true">true</option><option value="false">false</option></select>`;
    case 'number':
      return html`<input ...${common} type="number" step=${isWhole ? '1' : 'any'} min=${schema.minimum} max=${schema.maximum} />`;
    case 'text':
      return html`<input ...${common} autocomplete="off" maxlength=${schema.maxLength} placeholder=${example(schema)} />`;
    default:
      return html`<textarea ...${common} class=${kind === 'json' ? 'code-input' : ''} rows=${Math.min(8, common.value.split('\n').length + 1)} spellcheck=${kind !== 'json'}
        placeholder=${example(schema, kind === 'json')}></textarea>`;
  }
}

/** The first example or the default of a schema, as a placeholder. */
function example({ examples, default: value, type }, isJson = false) {
  const found = Array.isArray(examples) && examples.length > 0 ? examples[0] : value;
  if (found !== undefined && found !== null) return isJson ? JSON.stringify(found) : String(found);
  return isJson ? (type === 'array' ? '[]' : '{}') : undefined;
}
