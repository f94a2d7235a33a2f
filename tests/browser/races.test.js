// Actions of a user while requests are in flight: nothing is lost, shown in the wrong place, or requested twice.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { ask, base, frames, launch, link, pageTests, setRoute, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

/** Holds requests of a page by method and path until `release` is called. `begun` resolves at the first one. */
async function hold(page, method, pattern) {
  const held = { count: 0 };
  const released = new Promise((resolve) => (held.release = resolve));
  let begin;
  held.begun = new Promise((resolve) => (begin = resolve));
  await page.route(pattern, async (route) => {
    if (route.request().method() !== method) return route.fallback();
    held.count += 1;
    begin();
    await released;
    return route.fallback().catch(() => {});
  });
  return held;
}

const isIdle = (page) => page.waitForFunction(() => !document.querySelector('[aria-busy=true]') && document.querySelector('.composer [type=submit]'));

inPage('an alternative of a thread that is left changes nothing in the next one', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'Hello');
  await page.getByRole('button', { name: 'Regenerate' }).click();
  await page.locator('.message.answer .siblings', { hasText: '2/2' }).waitFor();
  await isIdle(page);
  await page.evaluate(() => {
    globalThis.alerts = [];
    new MutationObserver(() => alerts.push(...[...document.querySelectorAll('.conversation [role=alert]')].map(({ textContent }) => textContent)))
      .observe(document.body, { childList: true, subtree: true });
  });
  const patch = await hold(page, 'PATCH', '**/api/threads/*');
  await page.getByRole('button', { name: 'Previous alternative' }).click();
  await patch.begun;
  await visit(page, 'chat/text');
  const answered = page.waitForResponse((response) => response.request().method() === 'PATCH');
  patch.release();
  await answered;
  await ask(page, 'In the next one');
  assert.equal(await page.locator('.message.user').count(), 1);
  assert.deepEqual(await page.evaluate(() => alerts), []);
});

inPage('an edited message stays while another answer streams, and is sent after it', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'Hello');
  await page.locator('.message.user').getByRole('button', { name: 'Edit' }).click();
  const editor = page.getByRole('textbox', { name: 'Edit the message' });
  await editor.fill('Hello again');
  const chat = await hold(page, 'POST', '**/api/agent/chat');
  await page.locator('#composer').fill('Meanwhile');
  await page.locator('#composer').press('Enter');
  await chat.begun;
  await page.locator('.editor [type=submit]:disabled').waitFor();
  await editor.press('Enter');
  assert.equal(await editor.inputValue(), 'Hello again');
  chat.release();
  await page.locator('.editor [type=submit]:enabled').waitFor();
  await isIdle(page);
  await editor.press('Enter');
  await page.locator('.message.user', { hasText: 'Hello again' }).locator('.siblings', { hasText: '2/2' }).waitFor();
  await isIdle(page);
});

inPage('a page that is shown again and again asks once at a time', async (page) => {
  const approvals = await hold(page, 'GET', '**/api/approvals?*');
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await approvals.begun;
  const status = await page.evaluate(async () => {
    for (let time = 0; time < 5; time += 1) document.dispatchEvent(new Event('visibilitychange'));
    return (await fetch('api/console/session')).status;
  });
  assert.equal(status, 200);
  assert.equal(approvals.count, 1);
  const answered = page.waitForResponse('**/api/approvals?*');
  approvals.release();
  await answered;
});

inOwnPage('what a user has written is not there for the next one who signs in in the same page', async (page) => {
  await visit(page, 'chat/text');
  await page.locator('#composer').fill('A draft of the first user');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('textbox', { name: 'Link or code' }).fill(await link('u2'));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('.account-name', { hasText: 'u2' }).waitFor();
  await visit(page, 'chat/text');
  assert.equal(await page.locator('#composer').inputValue(), '');
});

inOwnPage('a sign-out that does not reach the server is told, and can be tried again', async (page) => {
  await visit(page, 'chat/text');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.route('**/api/console/session', (route) => (route.request().method() === 'DELETE' ? route.abort() : route.fallback()));
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Sign out' }).click();
  await dialog.getByRole('alert').waitFor();
  assert.ok(await page.locator('#composer').isVisible(), 'the user is still signed in');
  await page.unroute('**/api/console/session');
  await dialog.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('textbox', { name: 'Link or code' }).waitFor();
});

inPage('an answer stays where its thread cannot be read', async (page) => {
  await visit(page, 'chat/text');
  await page.route(/\/api\/threads\/[\w-]+\?/, (route) => route.abort());
  await ask(page, 'Hello');
  await page.getByRole('alert').filter({ hasText: 'NETWORK' }).waitFor();
  assert.match(await page.locator('.message.answer').innerText(), /Hello from the model\./);
  await page.unrouteAll();
  await ask(page, 'And now?');
  await page.locator('.message.user').nth(1).waitFor();
  assert.equal(await page.locator('.message.answer').count(), 2);
  assert.equal(await page.getByRole('alert').count(), 0);
});

inPage('an address chooses a tab of the debug layer, also while the chat is shown', async (page) => {
  await visit(page, 'chat/text');
  for (const [tab, name] of [['context', 'Context'], ['events', 'Events']]) {
    await page.evaluate((tab) => (location.hash = `#/chat/text?tab=${tab}`), tab);
    await page.getByRole('tab', { name, selected: true }).waitFor();
  }
});

inPage('the chosen tab of the debug layer stays while another view is shown', async (page) => {
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Context' }).click();
  await visit(page, 'threads');
  await page.getByRole('tab', { name: 'Context' }).waitFor({ state: 'detached' });
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Context', selected: true }).waitFor();
});

inPage('what is unfolded or selected while an answer streams stays so when it ends, and has the focus', async (page) => {
  await visit(page, 'chat/garden');
  // An answer whose end is the test's.
  await page.evaluate(() => {
    const { fetch } = globalThis;
    globalThis.fetch = (url, options) => {
      if (!String(url).includes('/api/agent/chat')) return fetch(url, options);
      const { runId, threadId } = JSON.parse(options.body);
      let sink;
      const body = new ReadableStream({ start: (controller) => (sink = controller) });
      const send = (...events) => events.forEach((event) => sink.enqueue(new TextEncoder().encode(`${JSON.stringify(event)}\n`)));
      send({ type: 'RUN_STARTED', runId, threadId }, { type: 'REASONING_MESSAGE_START', messageId: 'n2' }, { type: 'REASONING_MESSAGE_CONTENT', messageId: 'n2', delta: 'I think. ' },
        { type: 'TEXT_MESSAGE_START', messageId: 'n3' }, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'n3', delta: 'Hello.\n\nGoodbye.' });
      globalThis.endRun = () => send({ type: 'REASONING_MESSAGE_END', messageId: 'n2' }, { type: 'TEXT_MESSAGE_END', messageId: 'n3' }, { type: 'RUN_FINISHED', runId, threadId, result: { finishReason: 'stop' } });
      globalThis.ids = { runId, threadId };
      return Promise.resolve(new Response(body, { headers: { 'Content-Type': 'application/x-ndjson' } }));
    };
  });
  await page.getByRole('textbox', { name: 'Message' }).fill('Go');
  await page.keyboard.press('Enter');
  const summary = page.locator('.reasoning summary');
  await summary.filter({ hasText: 'Thinking' }).focus();
  await page.keyboard.press('Enter');
  await page.locator('.answer .markdown').getByText('Goodbye.').waitFor();
  const { runId, threadId } = await page.evaluate(() => {
    getSelection().selectAllChildren(document.querySelector('.answer .markdown p'));
    return ids;
  });
  const node = (id, parentId, message) => ({ id, parentId, turnId: 't', runId, status: 'complete', message });
  const nodes = [node('n1', undefined, { role: 'user', content: 'Go' }), node('n2', 'n1', { role: 'reasoning', content: 'I think.' }), node('n3', 'n2', { role: 'assistant', content: 'Hello.\n\nGoodbye.' })];
  await page.route(`**/api/threads/${threadId}?*`, (route) => route.fulfill({ json: { id: threadId, agentId: 'garden', title: 'Go', status: 'idle', head: 'n3', nodes } }));
  await page.evaluate(() => endRun());
  await page.locator('.message.answer').getByRole('button', { name: 'Regenerate' }).waitFor();
  await summary.filter({ hasText: 'Thought' }).waitFor();
  assert.deepEqual(await page.evaluate(() => [document.querySelector('.reasoning').open, document.activeElement.tagName, String(getSelection())]), [true, 'SUMMARY', 'Hello.']);
  // It is closed once and for all by the user alone.
  await page.keyboard.press('Enter');
  await visit(page, 'threads');
  await page.locator('.item').first().waitFor();
  await page.evaluate((thread) => (location.hash = `#/chat/garden/${thread}`), threadId);
  await summary.waitFor();
  assert.equal(await page.locator('.reasoning').evaluate((fold) => fold.open), false);
});

inPage('a run that is stopped before it starts is cancelled on the server', async (page) => {
  await visit(page, 'chat/text');
  const held = await hold(page, 'POST', '**/api/agent/chat');
  await page.getByRole('textbox', { name: 'Message' }).fill('Wait');
  const asked = page.waitForRequest('**/api/agent/chat');
  await page.keyboard.press('Enter');
  await held.begun;
  const chat = await asked;
  const cancelled = page.waitForRequest('**/api/runs/*/cancel');
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.ok((await cancelled).url().includes(chat.postDataJSON().runId));
  held.release();
});

inPage('a page whose files are gone is loaded again if the server has others, and stays where the server is away', async (page, { faults }) => {
  await page.evaluate(() => (globalThis.isOld = true));
  const asked = page.waitForRequest((request) => request.url() === base && !request.isNavigationRequest());
  await page.route('**/views/usage.js', (route) => route.abort());
  await page.route(base, (route) => route.abort());
  await setRoute(page, 'usage');
  await asked;
  const absent = page.getByRole('alert').filter({ hasText: 'A part of the page could not be loaded.' });
  await absent.waitFor();
  await visit(page, 'agents');
  await page.locator('.card').first().waitFor();
  assert.ok(await page.evaluate(() => globalThis.isOld));
  await page.unroute('**/views/usage.js');
  await visit(page, 'usage');
  await page.locator('.limits').waitFor();
  assert.equal(await absent.count(), 0);
  await page.route('**/views/audit.js', (route) => route.fulfill({ status: 404 }), { times: 1 });
  await page.route(base, (route) => (route.request().isNavigationRequest() ? route.continue() : route.fulfill({ contentType: 'text/html', body: 'another page' })));
  await setRoute(page, 'audit/text');
  await page.waitForFunction(() => globalThis.isOld === undefined && document.querySelector('.layout'));
  // The imports that failed.
  assert.ok(faults.splice(0).every((fault) => fault.includes('module')), faults.join());
});

inPage('a role is saved once, however often the button is pressed meanwhile', async (page) => {
  await visit(page, 'agents/new');
  await page.getByRole('textbox', { name: 'Identifier' }).fill('saved-twice');
  // A refused agent does not appear in the other tests.
  const refusal = { status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"it is not written"}' };
  await page.route('**/api/agents/saved-twice', (route) => route.fulfill(refusal));
  const put = await hold(page, 'PUT', '**/api/agents/saved-twice');
  const save = page.getByRole('button', { name: 'Save', exact: true });
  await save.click();
  await put.begun;
  await save.click();
  await page.evaluate(() => fetch('api/console/session').then(({ status }) => status));
  assert.equal(put.count, 1);
  put.release();
  await page.getByRole('alert').filter({ hasText: 'it is not written' }).waitFor();
  const again = page.waitForResponse('**/api/agents/saved-twice');
  await save.click();
  await again;
  assert.equal(put.count, 2);
});

inOwnPage('the page is not there before the agents of a sign-in are', async (page, { context }) => {
  await context.clearCookies();
  await page.reload();
  const agents = await hold(page, 'GET', '**/api/agents?*');
  await page.getByRole('textbox', { name: 'Link or code' }).fill(await link());
  await page.getByRole('button', { name: 'Sign in' }).click();
  await agents.begun;
  await frames(page);
  assert.equal(await page.getByText('No agent yet').count(), 0);
  agents.release();
  await page.locator('#composer').waitFor();
});

inPage('an answer that comes late does not take the user back', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'To be forked');
  const requests = [
    ['POST', '**/api/pulse/jobs', { jobId: 'late' }, async () => {
      await visit(page, 'jobs/new');
      await page.locator('#job-message').fill('Later');
      await page.getByRole('button', { name: 'Schedule' }).click();
    }],
    ['POST', '**/api/threads/*/fork', { id: 'late', agentId: 'text' }, async () => {
      await visit(page, 'threads');
      await page.getByRole('button', { name: /^More for/ }).first().click();
      await page.getByRole('button', { name: 'Fork', exact: true }).click();
    }],
    ['PUT', '**/api/agents/late', { id: 'late' }, async () => {
      await visit(page, 'agents/new');
      await page.getByLabel('Identifier').fill('late');
      await page.getByRole('button', { name: 'Save' }).click();
    }],
  ];
  for (const [method, pattern, json, begin] of requests) {
    await page.route(pattern, (route) => route.fulfill({ json }));
    const held = await hold(page, method, pattern);
    await begin();
    await held.begun;
    await visit(page, 'usage');
    await page.locator('.limits').waitFor();
    // What follows the answer: the list of the threads is not shown any more, and that of the agents is read again.
    const answered = page.waitForResponse(method === 'PUT' ? '**/api/agents?*' : pattern);
    held.release();
    await answered;
    await frames(page);
    assert.equal(new URL(page.url()).hash, '#/usage', pattern);
  }
});

inPage('a role that is saved late leaves the changes of the next one guarded', async (page) => {
  const change = (text) => page.getByLabel('Personality').fill(text);
  await page.route('**/api/agents/text', (route) => (route.request().method() === 'PUT' ? route.fulfill({ json: {} }) : route.fallback()));
  const put = await hold(page, 'PUT', '**/api/agents/text');
  await visit(page, 'agents/text');
  await change('Calm.');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await put.begun;
  await visit(page, 'agents/garden');
  await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
  await page.waitForFunction(() => document.title.startsWith('Pip'));
  await change('Bold.');
  const isGuarded = () => !dispatchEvent(new Event('beforeunload', { cancelable: true }));
  await page.waitForFunction(isGuarded);
  const agents = page.waitForResponse('**/api/agents?*');
  put.release();
  await agents;
  await frames(page);
  assert.ok(await page.evaluate(isGuarded));
});
