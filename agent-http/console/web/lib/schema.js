/** Fields of a JSON Schema's properties, and the arguments that their texts make. */

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
    return isWhole && !Number.isInteger(value) ? { error: 'must be a whole number' } : { value };
  }
  if (kind !== 'json') return { value: text };
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { error: `is not JSON: ${error.message}` };
  }
}

/**
 * Returns the arguments that the fields' texts make, and what is wrong with them. Fields without a text are left out.
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
