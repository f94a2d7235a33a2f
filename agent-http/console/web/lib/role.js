/** Places in a role by the paths of the server's words, such as `children[0].content.provider`. */

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
