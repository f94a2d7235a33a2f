// A web page in Node: happy-dom, which checks requests to other origins (CORS) as browsers do.

import { Window } from 'happy-dom';

const { Response } = globalThis;
const page = new Window({ url: 'http://shop.example/plants' });

/** The page's own `fetch`. Its answer is Node's class, since a clone of happy-dom's is empty. */
async function fetch(url, options) {
  const { status, headers, body } = await page.fetch(url, options);
  return new Response(body, { status, headers: Object.fromEntries(headers) });
}

const own = ['CustomEvent', 'Element', 'Event', 'EventTarget', 'Node', 'document', 'localStorage', 'location', 'navigator'];
for (const name of Object.getOwnPropertyNames(page)) {
  if (name in globalThis && !own.includes(name)) continue;
  Object.defineProperty(globalThis, name, { value: page[name], configurable: true, writable: true });
}
page.fetch = page.fetch.bind(page);
Object.assign(globalThis, { window: globalThis, fetch });
