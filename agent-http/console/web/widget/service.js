/** The application as a visitor has it: chat, the visitor's threads, and what the browser keeps of them. */

import { AgentdError, connectionError, responseError } from '../client/errors.js';

/** Bytes of a visitor's key. */
const KEY_BYTES = 24;

/** Returns random text of the base64url alphabet; unlike `crypto.randomUUID`, on pages without HTTPS too. */
export function randomText() {
  const text = String.fromCharCode(...crypto.getRandomValues(new Uint8Array(KEY_BYTES)));
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_');
}

/** Replacer that serializes arrays as such, also where a library of the page has given them a `toJSON` of its own. */
function keepArrays(key, value) {
  return Array.isArray(this[key]) ? this[key] : value;
}

/** Reviver that makes a whole number that would be rounded the text of its digits: visitors decide about what they read. */
function keepDigits(_, value, context) {
  return /^-?\d{16,}$/.test(context?.source) && !Number.isSafeInteger(value) ? context.source : value;
}

/** Stored data of one token: the visitor's key, and the shown thread. */
class Memory {
  #name;
  #store;
  key;
  thread;

  /** @param {string} name @param {'local' | 'session' | 'off'} where */
  constructor(name, where) {
    this.#name = name;
    if (where === 'off') return;
    try {
      this.#store = where === 'session' ? sessionStorage : localStorage;
      const { key, thread } = JSON.parse(this.#store.getItem(name)) ?? {};
      if (/^[\w-]{22,128}$/.test(key)) Object.assign(this, { key, thread });
    } catch {
      // The browser keeps nothing for this page, or another script has written here: the visitor is a new one.
    }
    this.key ??= randomText();
  }

  save() {
    try {
      this.#store?.setItem(this.#name, JSON.stringify({ key: this.key, thread: this.thread }));
    } catch {
      // As above: the conversation lasts as long as the page.
    }
  }
}

export class Service {
  #base;
  #token;
  /** The thread that the application has kept. */
  #kept;
  /** False if the application keeps no conversations, or the page lets the browser keep nothing. */
  hasThreads;

  constructor(base, token, store) {
    this.#base = base;
    this.#token = token;
    this.memory = new Memory(`agent-chat:${token.slice(-12)}`, store);
    this.hasThreads = this.memory.key !== undefined;
  }

  /**
   * Sends a request.
   *
   * @param {string} route Method and path.
   * @param {unknown} [body]
   * @param {AbortSignal} [signal]
   * @returns {Promise<Response>}
   */
  async send(route, body, signal) {
    const [method, path] = route.split(' ');
    const headers = { Accept: 'application/x-ndjson, application/json;q=0.9', 'X-Widget-Token': this.#token };
    if (this.memory.key) headers['X-Visitor-Key'] = this.memory.key;
    if (body) headers['Content-Type'] = 'application/json';
    let response;
    try {
      const init = { method, headers, signal, body: body && JSON.stringify(body, keepArrays), credentials: 'omit', redirect: 'error' };
      // The request that deletes a conversation outlives the page.
      if (method === 'DELETE') init.keepalive = true;
      response = await fetch(new URL(path, this.#base), init);
    } catch (cause) {
      throw connectionError(cause, signal);
    }
    if (!response.ok) throw await responseError(response);
    return response;
  }

  /**
   * Returns the visitor's thread with its messages, and with the `questions` that it waits with and the class that draws
   * them; `undefined` if there is none.
   */
  async loadThread() {
    if (!this.hasThreads) return undefined;
    const { thread } = this.memory;
    const path = thread ? `api/threads/${encodeURIComponent(thread)}?limit=500` : 'api/threads?limit=1';
    try {
      const found = await (await this.send(`GET ${path}`)).json();
      for (let page = found; thread && page.nextCursor; found.nodes.push(...page.nodes)) {
        page = await (await this.send(`GET ${path}&cursor=${encodeURIComponent(page.nextCursor)}`)).json();
      }
      if (thread && found.status === 'waiting') {
        // Loaded only when needed, since few visitors are asked.
        const [{ Questions }, open] = await Promise.all([import('./questions.js'), this.send('GET api/approvals?state=open')]);
        const { approvals } = JSON.parse(await open.text(), keepDigits);
        Object.assign(found, { Questions, questions: approvals.filter(({ threadId }) => threadId === thread) });
      }
      this.#kept = thread;
      return thread && found;
    } catch (error) {
      if (error.status !== 404) throw error;
      this.memory.thread = undefined;
      // The list has no 404 of its own: the application keeps no conversations.
      if (thread) return this.loadThread();
      this.hasThreads = false;
      return undefined;
    }
  }

  /** Returns true if the application has the history of the thread. */
  get isKept() {
    return this.#kept === this.memory.thread;
  }

  /** Checks after a run that its thread is kept: an agent's role may say that nothing is. */
  async checkThread() {
    if (!this.hasThreads || this.isKept) return;
    try {
      this.hasThreads = (await this.loadThread()) !== undefined;
      this.memory.save();
    } catch {
      // The check is repeated after the next run.
    }
  }

  /**
   * Converts a failed first request into what the page's owner must know. A page of another origin is not told a
   * refusal, so that it looks like a lost connection.
   */
  async explain(error) {
    if (error.code !== 'NETWORK' || navigator.onLine === false) return error;
    try {
      await fetch(new URL('widget.js', this.#base), { method: 'HEAD', cache: 'no-store' });
    } catch {
      return error;
    }
    try {
      await this.send('GET api/threads?limit=1');
    } catch (again) {
      if (again.code !== 'NETWORK') return this.memory.key ? again : error;
      const text = `the token is not valid for pages of ${location.origin}`;
      return new AgentdError(text, { code: 'FORBIDDEN', status: 403 });
    }
    return error;
  }
}
