// The page of another product that embeds the widget, on a server and origin of its own, and a connection that can be lost.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer } from 'node:net';

import { LIMIT_MS, base, required } from './support.js';

async function listen(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

/** Starts a server of pages; `page` returns the address of a new one. */
export async function startHost() {
  const pages = [];
  const server = createHttpServer((request, response) => {
    const page = pages[Number(request.url.slice(1).split(/\D/)[0])];
    response.writeHead(page ? 200 : 404, { 'Content-Type': 'text/html; charset=utf-8', ...page?.headers });
    response.end(page?.html);
  });
  const origin = await listen(server);
  return {
    origin,
    page: (html, headers) => `${origin}/${pages.push({ html, headers }) - 1}`,
    close: () => server.close(),
  };
}

/** Starts a proxy in front of the application, whose connections can be cut. */
export async function startProxy() {
  const { hostname, port } = new URL(base);
  const sockets = new Set();
  let isUp = true;
  const server = createServer((socket) => {
    if (!isUp) return socket.destroy();
    const upstream = connect(Number(port), hostname);
    for (const [one, other] of [[socket, upstream], [upstream, socket]]) {
      sockets.add(one);
      one.pipe(other);
      one.on('error', () => {});
      one.on('close', () => { sockets.delete(one); other.destroy(); });
    }
    return undefined;
  });
  const address = await listen(server);
  return {
    address: `${address}/`,
    cut() {
      isUp = false;
      for (const socket of sockets) socket.destroy();
    },
    restore: () => (isUp = true),
    close() {
      this.cut();
      server.close();
    },
  };
}

/** Calls a route as the owner of the agents. */
export async function manage(method, path, body) {
  const headers = { Authorization: `Bearer ${required('SESSION_TOKEN')}`, 'Content-Type': 'application/json' };
  const response = await fetch(new URL(path, base), { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status}`);
  return response.status === 204 ? undefined : response.json();
}

/** Creates a widget token of an agent. */
export const mint = (agent, fields) => manage('POST', `api/agents/${agent}/tokens`, { kind: 'widget', caps: { runsPerMinute: 1000 }, ...fields });

/** Revokes a token. */
export const revoke = (agent, id) => manage('DELETE', `api/agents/${agent}/tokens/${id}`);

/** Opens a page with the widget. Its shadow root is opened, so that the test sees into it, unless `isClosed`. */
export async function openHost(browser, url, { isClosed = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, ...options });
  context.setDefaultTimeout(LIMIT_MS);
  const faults = [];
  const lines = [];
  await context.exposeBinding('reportFault', (_, fault) => faults.push(fault));
  await context.addInitScript((isClosed) => {
    addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => reportFault(`policy: ${violatedDirective} ${blockedURI}`));
    for (const name of ['alert', 'confirm', 'prompt']) globalThis[name] = () => reportFault(`script: ${name}`);
    globalThis.told = [];
    for (const name of ['ready', 'open', 'message', 'run', 'error']) {
      addEventListener(`agent-${name}`, ({ detail }) => told.push([name, detail ?? null]));
    }
    const { attachShadow } = Element.prototype;
    if (!isClosed) Element.prototype.attachShadow = function open(init) { return attachShadow.call(this, { ...init, mode: 'open' }); };
  }, isClosed);
  const page = await context.newPage();
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error') lines.push(message.text()); });
  page.on('request', (request) => {
    const host = new URL(request.url()).hostname;
    if (host !== '127.0.0.1') faults.push(`request: ${request.url()}`);
  });
  await page.goto(url);
  return { context, page, faults, lines };
}
