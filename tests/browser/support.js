// Environment of the tests. The program that starts them sets:
//
//   BASE_URL          the application's address, with the console switched on
//   INTERNAL_SECRET   its secret, by which the tests make links
//   CHROMIUM          the browser's program
//   MODEL_URL         the fake model's address
//   SESSION_TOKEN     a session of the user u1, who owns the agents
//   PICTURES          a folder for pictures of each view
//   CPU_SLOWDOWN, LATENCY_MS
//                     a factor and a time, which may be absent: see below
//   APP_PROGRAM, APP_ARGUMENTS, APP_SETTINGS
//                     a program that is an application of its own over a database with the same agents, and that a test
//                     may kill: its arguments and its environment as JSON. It prints its address, and ends with its stdin

import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout } from 'node:timers/promises';

import { test } from './harness.js';

// An import would search its 7 MB for the names of exports first, in each file of tests: a third of the time that it takes to load.
const { chromium } = createRequire(import.meta.url)('playwright-core');

export function required(name) {
  const value = process.env[name];
  assert.ok(value, `the environment must set ${name}`);
  return value;
}

export const base = required('BASE_URL');
export const pictures = required('PICTURES');
mkdirSync(pictures, { recursive: true });

/**
 * Arguments of the browser. It finds no other host. It draws and sends requests in its main process, and draws few large tiles: messages to
 * further processes, and many small tiles, take a sixth of the CPU time.
 */
const ARGUMENTS = [
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1', '--in-process-gpu', '--default-tile-width=640', '--default-tile-height=416',
  // The last such argument counts, so it repeats what Playwright enables.
  '--enable-features=NetworkServiceInProcess2,CDPScreenshotNewSurface,SkipListAccountsWithoutGaiaCookies',
];

/** Time limit of a wait in milliseconds, far above its duration on a busy machine. */
export const LIMIT_MS = 120_000;

/** The browser of this process. */
let launched;

/** Returns the browser, which all files of tests that this process runs share, and starts it if it does not run. */
export async function launch() {
  if (!(await launched)?.isConnected()) {
    launched = chromium.launch({ executablePath: required('CHROMIUM'), args: ARGUMENTS });
  }
  return launched;
}

/** Factor by which the pages' scripts and layout are slower than they could be: a test that does not wait for them fails sooner. */
const SLOWDOWN = Number(process.env.CPU_SLOWDOWN ?? 1);
/** Time that each response takes longer. */
const LATENCY_MS = Number(process.env.LATENCY_MS ?? 0);

async function slowDown(page) {
  try {
    const session = await page.context().newCDPSession(page);
    await session.send('Emulation.setCPUThrottlingRate', { rate: SLOWDOWN });
    if (LATENCY_MS === 0) return;
    // Such a page is never offline, whatever a test sets.
    await session.send('Network.enable');
    await session.send('Network.emulateNetworkConditions', { offline: false, latency: LATENCY_MS, downloadThroughput: -1, uploadThroughput: -1 });
  } catch {
    // The page has been closed.
  }
}

/** Makes a link that signs in once. `at` is the address of the application, if it is another one. */
export async function link(user = 'u1', at = base) {
  const response = await fetch(new URL('api/console/links', at), {
    method: 'POST',
    headers: { Authorization: `Bearer ${required('INTERNAL_SECRET')}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ userId: user, companyId: 'c1' }),
  });
  assert.equal(response.status, 201);
  // A proxy has another address than the application.
  return new URL(new URL((await response.json()).url).hash, at).href;
}

/**
 * Opens a page, and records what no page of the console may do: break its content policy, throw, run what a payload
 * has brought, or call another host.
 */
export async function openPage(browser, options = {}, at = base) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, ...options });
  context.setDefaultTimeout(LIMIT_MS);
  const faults = [];
  await context.exposeBinding('reportFault', (_, fault) => faults.push(fault));
  await context.addInitScript(() => {
    addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sample }) =>
      reportFault(`policy: ${violatedDirective} ${blockedURI} ${sample}`));
    for (const name of ['alert', 'confirm', 'prompt']) {
      globalThis[name] = () => reportFault(`script: ${name}`);
    }
  });
  // The browser resolves no other host, so that nothing is sent elsewhere.
  context.on('request', (request) => {
    if (new URL(request.url()).origin !== new URL(at).origin) faults.push(`request: ${request.url()}`);
  });
  if (SLOWDOWN > 1 || LATENCY_MS > 0) context.on('page', slowDown);
  const page = await context.newPage();
  const opened = { context, page, faults };
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => {
    // The question about changes that are not saved, where a page is left.
    if (opened.isLeft && dialog.type() === 'beforeunload') return dialog.accept();
    faults.push(`dialog: ${dialog.message()}`);
    return dialog.dismiss().catch(() => {});
  });
  return opened;
}

/** Opens a page and signs in. */
export async function signedIn(browser, options, at = base) {
  const opened = await openPage(browser, options, at);
  await opened.page.goto(await link('u1', at));
  await opened.page.locator('.layout').waitFor();
  return opened;
}

/**
 * Answers the requests of a page with what `change` makes of the server's JSON. A request that the page has taken back,
 * or that its closing has ended, is dropped: its rejection would belong to no test.
 */
export const alterResponses = (target, pattern, change) => target.route(pattern, async (route) => {
  try {
    const response = await route.fetch();
    await route.fulfill({ response, json: change(await response.json()) });
  } catch {
    await route.abort().catch(() => {});
  }
});

/** Sets the route of the page, and waits for nothing. */
export const setRoute = (page, route) => page.evaluate((hash) => (location.hash = hash), `#/${route}`);

/**
 * Opens a view by its route, and waits until it is shown, which for a chat is when it shows the agent of the route, or, if the
 * session has ended, until the page to sign in is.
 */
export async function visit(page, route) {
  await setRoute(page, route);
  const [view, agent] = route.split(/[/?]/);
  if (view !== 'chat') {
    // The view of one agent or job has its name in the singular.
    await page.locator(`.page[aria-labelledby^="${view.replace(/s$/, '')}"], .sign-in`).waitFor();
    return;
  }
  await page.waitForFunction((agent) => {
    const shown = document.querySelector('.agent-pick select');
    return shown ? shown.value === agent && !document.querySelector('.message') : document.querySelector('.debug');
  }, agent);
}

/** Waits until a page has drawn what it has to draw now: a test can then see that nothing has changed. */
export const frames = (page) => page.evaluate(() => new Promise((resolve) => {
  requestAnimationFrame(() => requestAnimationFrame(resolve));
}));

/** Pause between two looks of `until`, in milliseconds. */
const LOOK_MS = 20;

/** Waits until a condition holds that no element of a page shows, and returns its value. */
export async function until(condition, words) {
  for (const end = Date.now() + LIMIT_MS; ;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, `in vain: ${words}`);
    await setTimeout(LOOK_MS);
  }
}

/** Lets the model `count` go on with its answer to "Count behind" and the name of the gate. */
export async function openGate(name) {
  const body = JSON.stringify({ model: 'release', messages: [{ role: 'user', content: name }] });
  const response = await fetch(`${required('MODEL_URL')}/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  assert.equal(response.status, 200);
  await response.text();
}

/** Sends a message as soon as the page takes one, and waits for the end of the answer. */
export async function ask(page, text) {
  await page.locator('.composer [type=submit]').waitFor();
  const answers = await page.locator('.message.answer').count();
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    (count) => document.querySelectorAll('.message.answer').length > count
      && !document.querySelector('[aria-busy=true]') && document.querySelector('.composer [type=submit]'),
    answers,
  );
}

/** Sessions of the browser's protocol by which pictures are taken, by page: a new one for each picture takes longer. */
const pictureSessions = new WeakMap();

/** Saves a picture of the page, for which the browser takes half the time that it would take for the smallest file. */
export async function picture(page, name) {
  const session = pictureSessions.get(page) ?? await page.context().newCDPSession(page);
  pictureSessions.set(page, session);
  const { data } = await session.send('Page.captureScreenshot', { format: 'png', optimizeForSpeed: true });
  writeFileSync(`${pictures}/${name}.png`, data, 'base64');
}

/** Runs a test in a page, and saves a picture of the page if it fails. */
export async function pictureIfFailed(page, name, run) {
  try {
    await run();
  } catch (error) {
    await picture(page, `failed-${name.replace(/\W+/g, '-')}`).catch(() => {});
    throw error;
  }
}

/** Returns what is in a page and must not be: elements, attributes and addresses. It runs in the page. */
export function forbidden(root = document.body) {
  const allowed = new Set(`A ABBR ARTICLE ASIDE B BLOCKQUOTE BR BUTTON CAPTION CODE COL COLGROUP DD DEL DETAILS DIALOG DIV DL
    DT EM FIELDSET FIGCAPTION FIGURE FORM H1 H2 H3 HEADER HR I INPUT INS KBD LABEL LEGEND LI MAIN NAV OL OPTION P PRE PROGRESS SECTION SELECT SPAN STRONG SUMMARY
    TABLE TBODY TD TEXTAREA TFOOT TH THEAD TIME TR UL`.split(/\s+/));
  const found = [];
  for (const node of root.querySelectorAll('*')) {
    const isMark = node.closest('.mark, button svg');
    if (!allowed.has(node.tagName) && !isMark) found.push(`element ${node.outerHTML.slice(0, 120)}`);
    for (const { name, value } of node.attributes) {
      if (/^on|^srcdoc$|^formaction$|^action$|^xlink:/i.test(name)) found.push(`attribute ${name}=${value}`);
      if (name === 'src') found.push(`address ${value}`);
      if (name === 'href' && !/^(#|https?:\/\/|mailto:)/.test(value)) found.push(`link ${value}`);
      if (name === 'href' && /^https?:\/\/[^/]*@/.test(value)) found.push(`user information ${value}`);
      if (name === 'style' && /url|expression|@import/i.test(value)) found.push(`style ${value}`);
    }
  }
  if ({}.polluted) found.push('a polluted prototype');
  return found;
}

/** Ends the session of a page. A further session of a user ends the oldest of 20, which may be that of a longer test. */
async function endSession(cookie) {
  const address = new URL('api/console/session', base);
  const response = await fetch(address, { method: 'DELETE', headers: { Origin: address.origin, Cookie: cookie } });
  await response.text();
}

const cookieOf = async (context) => (await context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');

/** Closes a page with its context, and ends its session. */
export async function close({ context }) {
  await endSession(await cookieOf(context));
  await context.close();
}

/** The page that the tests of `inPage` share, in all files that this process runs: absent before the first of them, and after one that failed. */
let shared;

/** Closes what a file of tests has left open, except the shared page. */
export async function closePages() {
  const contexts = (await launched)?.contexts() ?? [];
  await Promise.all(contexts.filter((context) => context !== shared?.context).map((context) => close({ context })));
}

/** Closes all pages and the browser. */
export async function closeBrowser() {
  shared = undefined;
  await closePages();
  await (await launched)?.close();
}

/** Reloads a page without the state that a test left in it: other pages, routes, listeners, storage, and changes that are not saved. */
async function reset(opened) {
  const { context, page } = opened;
  await Promise.all(context.pages().filter((other) => other !== page).map((other) => other.close()));
  await Promise.all([page, context].map((target) => target.unrouteAll({ behavior: 'ignoreErrors' })));
  for (const event of ['request', 'response', 'console', 'download']) page.removeAllListeners(event);
  await page.evaluate(() => [localStorage, sessionStorage].forEach((storage) => storage.clear()));
  opened.isLeft = true;
  // The view of the account asks for less than the chat does.
  await page.evaluate(() => history.replaceState(null, '', '#/account'));
  await page.reload();
  opened.isLeft = false;
  const layout = page.locator('.layout');
  await layout.or(page.locator('.sign-in')).first().waitFor();
  if (await layout.count() > 0) return;
  // Later sessions of the user have ended this one, as the oldest of 20.
  await page.goto('about:blank');
  await page.goto(await link());
  await layout.waitFor();
}

/**
 * Returns functions that add tests. A test fails if its page violates a rule, such as the content security policy. A test of `inPage` runs in a signed-in page that
 * it shares with others, and that is loaded anew for each: cookies are all that stays. A test of `inOwnPage` has a browser's context of
 * its own, with options: one that signs in or out, or in which something else than the server's data differs.
 *
 * @param {() => import('playwright-core').Browser} browser
 */
export function pageTests(browser) {
  const run = async (name, opened, test) => {
    await pictureIfFailed(opened.page, name, () => test(opened.page, opened));
    assert.deepEqual(opened.faults, []);
  };
  const inPage = (name, inside) => test(name, async () => {
    // The page of a test that fails is left to it.
    const before = shared;
    shared = undefined;
    if (before) await reset(before);
    const opened = before ?? await signedIn(browser());
    await run(name, opened, inside);
    shared = opened;
  });
  const inOwnPage = (name, inside, options) => test(name, async () => {
    const opened = await signedIn(browser(), options);
    await run(name, opened, inside);
    await close(opened);
  });
  return { inPage, inOwnPage };
}
