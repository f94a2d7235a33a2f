/** The page's state that all views share: the session, the agents, the route and the theme. */

import { createClient } from '../client/index.js';
import { computed, effect, signal } from '../vendor/ui.js';
import { parseJson } from './format.js';

/** The signed-in user; `undefined` while it is loaded, `null` without one. */
export const session = signal(undefined);
/** Why the last sign-in failed. */
export const signInError = signal(undefined);
/** Agents of the company. */
export const agents = signal([]);
/** Message of the status line, which screen readers announce. */
export const status = signal('');

/** Options of all clients. Numbers are others' to choose, such as those of roles, of calls' arguments and of events. */
export const clientOptions = { baseUrl: document.baseURI, parse: parseJson };

export const client = createClient(clientOptions);
/** Client of the runs, which are cancelled and attached to by the server's routes where it has them. */
export const chatClient = computed(() =>
  createClient({ ...clientOptions, cancelRoute: has('runCancel'), reattach: has('runEvents') }));

/** Returns true if the application has a feature. @param {string} feature */
export function has(feature) {
  return session.value?.features.includes(feature) ?? false;
}

/** Leads to the sign-in after a request without a valid session. After a sign-out, requests on their way are refused too. */
export function endSession() {
  if (session.value) signInError.value = { code: 'UNAUTHENTICATED', status: 401, message: 'The session has ended. Sign in again.' };
  session.value = null;
}

/** Calls a route. A session that has ended leads to the sign-in. */
export async function call(route, options) {
  try {
    return await client.request(route, options);
  } catch (error) {
    if (error.status === 401) endSession();
    throw error;
  }
}

/** Reads all pages of a list, up to a number of pages. */
export async function listAll(route, name, { query = {}, pages = 10, ...options } = {}) {
  const items = [];
  let cursor;
  for (let page = 0; page < pages; page += 1) {
    const { data } = await call(route, { ...options, query: { limit: 200, ...query, cursor } });
    items.push(...data[name]);
    cursor = data.nextCursor;
    if (!cursor) break;
  }
  return items;
}

/** Removes the code from the address before anything else, and exchanges it for a session. */
export async function enter() {
  const code = /^#enter=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, '', `${location.pathname}${location.search}`);
    shownHash = '';
    route.value = parseRoute();
    await signIn(code);
  } else {
    await loadSession();
  }
}

/** Exchanges a code, or the link that has it, for a session. @param {string} text */
export async function signIn(text) {
  const code = text.trim().replace(/^.*#enter=/, '');
  signInError.value = undefined;
  try {
    await client.api('POST /api/console/session', { body: { code } });
  } catch (error) {
    signInError.value = error;
  }
  await loadSession();
}

/** User whose data the page has. */
let shownUser;
/** Channel to the browser's other tabs, which have the same cookie: each tells the others its user. */
const tabs = new BroadcastChannel('agent-console');
tabs.addEventListener('message', ({ data }) => leaveUser(data));

/** Reloads the page for another user than the one whose data it has, and returns true then. */
function leaveUser(user) {
  if (shownUser === undefined || shownUser === user) return false;
  // There is no question about changes that are not saved: they are of the other user.
  hasUnsaved.value = false;
  session.value = undefined;
  location.reload();
  return true;
}

/** Asks for the session, which could not be loaded, again. The error is shown until then. */
export async function retrySession() {
  const { value: error } = signInError;
  await loadSession();
  if (signInError.value === error) signInError.value = undefined;
}

async function loadSession() {
  try {
    const found = await client.api('GET /api/console/session');
    const user = JSON.stringify([found.companyId, found.userId]);
    tabs.postMessage(user);
    if (leaveUser(user)) return;
    shownUser = user;
    await loadAgents();
    session.value = found;
  } catch (error) {
    if (error.status !== 401) signInError.value = error;
    session.value = null;
  }
}

/** Ends the session. @param {boolean} everywhere Ends the user's other sessions too. */
export async function signOut(everywhere) {
  await client.api('DELETE /api/console/session', { query: everywhere ? { all: true } : {} });
  session.value = null;
  location.hash = '';
}

export async function loadAgents() {
  agents.value = await listAll('GET /api/agents', 'agents');
}

/** Returns the agents as the options of a select. */
export const agentNames = () => agents.value.map(({ id, name }) => [id, name || id]);

/** Returns the name of an agent, which may be deleted. */
export const agentName = (id) => agents.value.find((agent) => agent.id === id)?.name || id;

/** Returns an address of the server. @param {string} path */
export const address = (path) => new URL(path, document.baseURI).href;

/** Parts of the route and its parameters: `#/chat/guide/t-1?tab=prompt`. */
export const route = signal(parseRoute());

function parseRoute() {
  const [path, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: parts[0] ?? 'chat', parts: parts.slice(1), query: new URLSearchParams(search) };
}

/** True while a view has changes that are not saved, so that it is left only if the user says so. */
export const hasUnsaved = signal(false);
/** Address that was requested while there were such changes. */
export const wantedHash = signal(undefined);
let shownHash = location.hash;
/** Place of the shown address in the browser's history, where the browser tells. */
const place = () => globalThis.navigation?.currentEntry?.index;
let shownPlace = place();

addEventListener('hashchange', () => {
  if (hasUnsaved.value && location.hash !== shownHash) {
    wantedHash.value = location.hash;
    // An entry of the history to which the user has gone back stays there.
    history[place() < shownPlace ? 'pushState' : 'replaceState'](null, '', shownHash);
    shownPlace = place();
    return;
  }
  // A link that is opened in the page's own tab loads nothing.
  if (location.hash.startsWith('#enter=')) {
    enter();
    return;
  }
  shownHash = location.hash;
  shownPlace = place();
  // What was announced is of the view that is left.
  status.value = '';
  route.value = parseRoute();
});

/** Continues to the requested address, and discards the changes. */
export function leaveUnsaved() {
  hasUnsaved.value = false;
  location.hash = wantedHash.value;
}

/** Returns the address of a view. @param {string} view @param {string[]} parts */
export const href = (view, ...parts) => `#/${[view, ...parts.filter(Boolean)].map(encodeURIComponent).join('/')}`;

/** Opens a view. */
export const go = (view, ...parts) => (location.hash = href(view, ...parts));

/** Changes the address without an entry in the history. */
export function replaceRoute(view, ...parts) {
  history.replaceState(null, '', href(view, ...parts));
  shownHash = location.hash;
  route.value = parseRoute();
}

const stored = (name) => {
  try {
    return localStorage.getItem(name) ?? undefined;
  } catch {
    return undefined;
  }
};

/** `auto`, `light` or `dark`. */
export const theme = signal(stored('agent-console.theme') ?? 'auto');

effect(() => {
  const { value } = theme;
  document.documentElement.dataset.theme = ['light', 'dark'].includes(value) ? value : 'auto';
  try {
    localStorage.setItem('agent-console.theme', value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
});
