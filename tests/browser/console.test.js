import assert from 'node:assert/strict';

import { before, test } from './harness.js';
import { openHost, startHost } from './host.js';
import { ask, base, close, launch, link, openPage, pageTests, picture, setRoute, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

const text = (page, selector) => page.locator(selector).last().innerText();
const tab = (page, name) => page.getByRole('tab', { name, exact: false }).first().click();

test('a link signs in once, and leaves no code in the address', async () => {
  const url = await link();
  const { page, context, faults } = await openPage(browser);
  const sent = [];
  const sessions = [];
  page.on('request', (request) => {
    sent.push(`${request.url().split('#')[0]} ${JSON.stringify(request.headers())}`);
    if (request.url().endsWith('/api/console/session')) sessions.push(request.method());
  });
  await page.goto(url);
  await page.locator('.layout').waitFor();
  assert.deepEqual(sessions, ['POST', 'GET'], 'the session is read once');
  const code = url.split('enter=')[1];
  assert.ok(sent.length > 10 && sent.every((text) => !text.includes(code)), 'the code is in no address of a request, and in no Referer');
  assert.ok(!page.url().includes('enter='), page.url());
  assert.match(await page.locator('.account-name').innerText(), /u1/);
  assert.equal(await page.locator('.nav-link[aria-current=page]').innerText(), 'Chat');
  const [cookie] = await context.cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  const seen = await page.evaluate(() => document.documentElement.outerHTML + JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
  assert.ok(!seen.includes('ags_') && !seen.includes(code), 'no secret in the page');
  assert.deepEqual(faults, []);

  const second = await openPage(browser);
  await second.page.goto(url);
  await second.page.getByRole('alert').waitFor();
  assert.match(await second.page.getByRole('alert').innerText(), /UNAUTHENTICATED/);
  await picture(second.page, 'sign-in-used-link');
  await second.page.getByRole('textbox').fill(await link());
  await second.page.getByRole('button', { name: 'Sign in' }).click();
  await second.page.locator('.layout').waitFor();
  assert.deepEqual(second.faults, []);
  await Promise.all([close({ context }), close(second)]);
});

test('a link that is opened in a tab of the console signs in there, and another user finds nothing of the first', async () => {
  const { page, context, faults } = await openPage(browser);
  await page.goto(base);
  await page.getByRole('heading', { name: 'Agent console' }).waitFor();
  // The address differs in its fragment alone, so that no page is loaded.
  await page.goto(await link());
  await page.locator('.account-name', { hasText: 'u1' }).waitFor();
  await page.evaluate(() => (globalThis.isOld = true));
  await visit(page, 'agents');
  await page.goto(await link());
  await page.locator('.nav-link[aria-current=page]', { hasText: 'Chat' }).waitFor();
  assert.ok(await page.evaluate(() => isOld && !location.href.includes('enter=')));
  await page.goto(await link('u2'));
  await page.locator('.account-name', { hasText: 'u2' }).waitFor();
  assert.ok(await page.evaluate(() => globalThis.isOld === undefined && !location.href.includes('enter=')), 'the memory of the page is new');
  assert.deepEqual(faults, []);
  await context.close();
});

inOwnPage('a tab shows and writes nothing more for its user when another one signs in beside it', async (page, { context }) => {
  await visit(page, 'agents/text');
  await page.getByLabel('System prompt').fill('Words of the first user.');
  const sent = [];
  page.on('request', (request) => { if (request.method() !== 'GET') sent.push(request.url()); });
  const other = await context.newPage();
  await other.goto(await link('u2'));
  await other.locator('.account-name', { hasText: 'u2' }).waitFor();
  await page.locator('.account-name', { hasText: 'u2' }).waitFor();
  await page.getByLabel('System prompt').waitFor();
  assert.ok(!(await page.getByLabel('System prompt').inputValue()).includes('first user'));
  assert.deepEqual(sent, []);
});

test('a page of another origin cannot frame the console', async () => {
  const host = await startHost();
  const { page, context } = await openHost(browser, host.page(`<!doctype html><iframe src="${base}"></iframe>`));
  const [, frame] = page.frames();
  assert.equal(await frame.locator('#app').count(), 0);
  assert.ok(!frame.url().startsWith(base), frame.url());
  await context.close();
  host.close();
});

inOwnPage('a session that is signed out elsewhere ends', async (page, { context }) => {
  const other = await context.newPage();
  await other.goto(base);
  await other.getByRole('button', { name: 'Sign out' }).click();
  await other.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
  await other.getByRole('heading', { name: 'Agent console' }).waitFor();
  assert.equal(await other.getByRole('alert').count(), 0);
  await visit(page, 'threads');
  await page.getByRole('heading', { name: 'Agent console' }).waitFor();
  await page.getByRole('alert').filter({ hasText: 'The session has ended.' }).waitFor();
});

inPage('an address without a view shows the chat, also in the navigation', async (page) => {
  await visit(page, 'agents');
  await page.locator('.nav-link[aria-current=page]', { hasText: 'Agents' }).waitFor();
  for (const name of ['nonsense', '__proto__']) {
    await setRoute(page, name);
    await page.locator('#composer').waitFor();
    assert.equal(await page.locator('.nav-link[aria-current=page]').innerText(), 'Chat');
    await visit(page, 'agents');
    await page.locator('.nav-link[aria-current=page]', { hasText: 'Agents' }).waitFor();
  }
});

inPage('an answer streams as Markdown, and the thread survives a reload', async (page) => {
  await visit(page, 'chat/garden');
  await ask(page, 'When are you open?');
  const answer = page.locator('.message.answer').last();
  assert.equal(await answer.locator('table tbody tr').count(), 2);
  assert.equal(await answer.locator('strong').first().innerText(), 'Green Corner');
  assert.match(await answer.locator('pre code').innerText(), /def water/);
  assert.equal(await answer.locator('img').count(), 0, 'no picture is loaded that a model names');
  const pictured = answer.getByRole('link', { name: 'picture: a picture' });
  assert.equal(await pictured.getAttribute('href'), 'https://tracker.example/pixel.png');
  assert.match(await answer.innerText(), /shop\.example/, 'the host of a link is shown');
  assert.match(await text(page, '.message.answer .meta'), /stop · 11 in · 7 out/);
  assert.match(await text(page, '.reasoning summary'), /Thought/);
  const drawn = await answer.locator('.markdown').innerHTML();
  await page.reload();
  await page.locator('.message.answer table').waitFor();
  assert.equal(await page.locator('.message.answer .markdown').innerHTML(), drawn, 'a reload draws the same');
  assert.match(page.url(), /#\/chat\/garden\/[\w-]+$/);
});

inPage('a tool call is a card with arguments and result', async (page) => {
  await visit(page, 'chat/tools');
  await tab(page, 'Context');
  await page.getByLabel('Todo list').fill('l1');
  await ask(page, 'What is open?');
  const card = page.locator('.tool').last();
  assert.match(await card.locator('summary').innerText(), /readTodos\s+done/);
  await card.locator('summary').click();
  assert.match(await card.innerText(), /Water the basil/);
  assert.match(await text(page, '.message.answer .markdown'), /one open item/);
});

inPage('a run is stopped by the button and by the keyboard', async (page) => {
  await visit(page, 'chat/slow');
  for (const stop of [() => page.getByRole('button', { name: 'Stop' }).click(), () => page.keyboard.press('Escape')]) {
    await page.getByRole('textbox', { name: 'Message' }).fill('Go on');
    await page.keyboard.press('Enter');
    await page.locator('.message.answer[aria-busy=true]', { hasText: 'tick tick' }).waitFor();
    await stop();
    await page.getByRole('button', { name: 'Send' }).waitFor();
    assert.match(await text(page, '.message.answer'), /tick tick/);
    assert.match(await text(page, '[role=status]'), /cancelled/);
  }
});

inPage('a run goes on while the page is loaded again', async (page) => {
  await visit(page, 'chat/slow');
  await page.getByRole('textbox', { name: 'Message' }).fill('Go on');
  await page.keyboard.press('Enter');
  const running = page.locator('.message.answer[aria-busy=true]', { hasText: 'tick tick' });
  await running.waitFor();
  await page.reload();
  await running.waitFor();
  const length = (await running.innerText()).length;
  await page.waitForFunction((length) => document.querySelector('.message.answer').innerText.length > length, length);
  assert.equal(await page.locator('.message.user').count(), 1);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByRole('button', { name: 'Send' }).waitFor();
  assert.match(await text(page, '[role=status]'), /cancelled/);
});

inPage('a recorded run is inspected', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'Record this');
  await page.reload();
  await page.getByRole('button', { name: 'Inspect' }).click();
  await tab(page, 'Events');
  await page.locator('.event-row').first().waitFor();
  assert.equal(await page.locator('.event-type').first().innerText(), 'RUN_STARTED');
  await page.locator('.waterfall').getByText('round-1').waitFor();
  await page.locator('.figures', { hasText: /Whole run\s*\d/ }).waitFor();
  assert.match(await page.locator('.run-pick select').inputValue(), /^[\w-]{36}$/);
});

inPage('a conversation that the server does not keep is the page\'s, and goes with each message', async (page) => {
  const id = `unkept-${Date.now()}`;
  await page.evaluate(async (id) => {
    const { content, children } = await (await fetch('api/agents/echo')).json();
    // The key is not needed, and not known for another agent.
    delete children[0].content.apiKey;
    const role = { name: 'Unkept', content: { ...content, conversations: { store: false } }, children };
    await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(role) });
  }, id);
  await page.reload();
  await page.locator('.layout').waitFor();
  await visit(page, `chat/${id}`);
  const bodies = [];
  page.on('request', (request) => request.url().endsWith('/api/agent/chat') && bodies.push(request.postDataJSON()));
  const answers = page.locator('.message.answer .markdown');
  for (const text of ['one', 'two']) await ask(page, text);
  assert.deepEqual(await answers.allInnerTexts(), ['one', 'two']);
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.deepEqual(bodies[1].messages.map(({ role, content }) => [role, content]), [['user', 'one'], ['assistant', 'one']]);
  await page.getByRole('button', { name: 'Regenerate' }).last().click();
  await page.locator('.message.answer .siblings', { hasText: '2/2' }).waitFor();
  await page.getByRole('button', { name: 'Previous alternative' }).click();
  await page.locator('.message.answer .siblings', { hasText: '1/2' }).waitFor();
  assert.deepEqual(await answers.allInnerTexts(), ['one', 'two']);
  await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
});

inPage('a run that fails has a code and what to do', async (page) => {
  await visit(page, 'chat/broken');
  await ask(page, 'Try');
  assert.match(await text(page, '.message.answer'), /Half an/);
  assert.match(await page.getByRole('alert').last().innerText(), /STREAM_TRUNCATED[^]*Try again/);
});

inPage('an edited message and an answer made anew are alternatives', async (page) => {
  await visit(page, 'chat/echo');
  await ask(page, 'one');
  await page.locator('.message.user').getByRole('button', { name: 'Edit' }).click();
  await page.getByRole('textbox', { name: 'Edit the message' }).fill('two');
  await page.keyboard.press('Enter');
  await page.locator('.message.answer .markdown', { hasText: 'two' }).waitFor();
  await page.locator('.message.user .siblings', { hasText: '2/2' }).waitFor();
  await page.locator('.message.user').getByRole('button', { name: 'Previous alternative' }).click();
  await page.locator('.message.answer .markdown', { hasText: 'one' }).waitFor();
  await page.locator('.message.answer').getByRole('button', { name: 'Regenerate' }).click();
  await page.locator('.message.answer .siblings', { hasText: '2/2' }).waitFor();
  assert.equal(await page.locator('.message.answer').count(), 1);
});

inPage('the Prompt tab shows the parts, and that they are what was sent', async (page) => {
  await visit(page, 'chat/text');
  await tab(page, 'Prompt');
  await page.locator('.part').first().waitFor();
  const names = await page.locator('.part-name').allInnerTexts();
  assert.ok(names.includes('system-prompt') && names.includes('rules'), names.join());
  assert.equal(await page.locator('.cache-line').count(), 1);
  assert.match(await page.locator('.part', { hasText: 'system-prompt' }).first().innerText(), /role · fixed by the role/);
  await page.locator('.part summary').first().click();
  assert.match(await page.locator('.part .code').first().innerText(), /You are Pip/);
  const payload = page.locator('details', { hasText: 'Payload' });
  await payload.locator('summary').click();
  assert.match(await payload.innerText(), /"stream": true/);
  await page.evaluate(() => (navigator.clipboard.writeText = async (text) => (globalThis.copied = text)));
  await page.getByRole('textbox', { name: 'Message' }).fill("It's `x`");
  await payload.getByRole('button', { name: 'Copy as curl' }).click();
  const [, address, body] = /^curl '([^']+)' -H "Authorization: Bearer \$TOKEN" --json '(.+)'$/.exec(await page.evaluate(() => copied));
  assert.deepEqual([address, JSON.parse(body.replaceAll("'\\''", "'")).message], [new URL('api/svcchat/previewPrompt', base).href, "It's `x`"]);
  assert.ok(!(await page.content()).includes('role-key-canary'), 'no key in the page');
});

inPage('a preview in a thread is what the next run is sent', async (page) => {
  await visit(page, 'chat/echo');
  await tab(page, 'Context');
  const context = page.getByLabel('pageContext');
  const message = page.getByRole('textbox', { name: 'Message' });
  await context.fill('{"visit": 0}');
  await ask(page, 'Turn 0');
  const threadId = page.url().split('/').at(-1);
  let isSame = false;
  // The prompt has the minute: a turn in which it changes is followed by another one.
  for (let turn = 1; !isSame; turn += 1) {
    await context.fill(`{"visit": ${turn}}`);
    const isOfDraft = (request) => {
      const { message, pageContext } = request.url().endsWith('previewPrompt') ? request.postDataJSON() : {};
      return message === `Turn ${turn}` && pageContext.visit === turn;
    };
    const started = Math.floor(Date.now() / 60_000);
    const [response] = await Promise.all([page.waitForResponse((response) => isOfDraft(response.request())), message.fill(`Turn ${turn}`)]);
    const { payload, requestSha256, cache } = await response.json();
    const { messages = [], threadId: previewed } = response.request().postDataJSON();
    assert.deepEqual([previewed, messages], [threadId, []], 'the server has the history');
    assert.ok(cache.reusableShare > 0 && cache.firstChangedPart === undefined, JSON.stringify(cache));
    for (const visit of [turn - 1, turn]) assert.match(JSON.stringify(payload), new RegExp(`visit\\W+${visit}\\b`));
    await ask(page, `Turn ${turn}`);
    const [run] = await page.evaluate(async (id) => (await (await fetch(`api/runs?threadId=${id}&limit=1`)).json()).runs, threadId);
    isSame = Math.floor(Date.now() / 60_000) === started;
    if (isSame) assert.equal(run.requestSha256, requestSha256);
    assert.ok(turn < 5, 'no turn within a minute');
  }
  // Without a draft, the latest turn stands for it.
  await tab(page, 'Prompt');
  await page.locator('.note', { hasText: /This is what was sent|another request/ }).waitFor();
  assert.equal(await page.locator('.note-broke').count(), 0);
});

inPage('the context that is edited goes with the message', async (page) => {
  await visit(page, 'chat/text');
  await tab(page, 'Context');
  await page.getByLabel('pageContext').fill('{"url": "/plants/basil"}');
  await page.getByLabel('blocksContext').fill('{"not": "an array"}');
  await page.getByText('must be an array').waitFor();
  await page.getByLabel('blocksContext').fill('[{"kind": "order"}]');
  const combined = page.getByRole('region', { name: 'combinedContext' });
  await combined.filter({ hasText: '/plants/basil' }).filter({ hasText: 'order' }).waitFor();
  await picture(page, 'context');
});

inPage('the Tools tab says what is allowed and why', async (page) => {
  await visit(page, 'chat/text');
  await tab(page, 'Context');
  await page.getByLabel('Todo list').fill('l1');
  await tab(page, 'Tools');
  const tool = page.locator('#debug-panel .fold', { hasText: 'createTodo' });
  await tool.filter({ hasText: 'in mcpPreset' }).waitFor();
  await tool.locator('summary').first().click();
  assert.match(await tool.innerText(), /title/);
  await picture(page, 'tools');
});

inPage('the Events tab lists every event and its time', async (page) => {
  await visit(page, 'chat/tools');
  await ask(page, 'What is open?');
  await tab(page, 'Events');
  const row = (type) => page.locator('.event-row', { hasText: type }).first();
  await row('TOOL_CALL_RESULT').waitFor();
  const all = Number(await row('RUN_STARTED').getAttribute('aria-setsize'));
  assert.equal(await page.locator('.event-type').first().innerText(), 'RUN_STARTED');
  await page.locator('.figures', { hasText: /First token\s*[\d.]+ m?s/ }).waitFor();
  await page.locator('.waterfall tbody tr').nth(3).waitFor();
  await page.getByRole('listbox').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.locator('#debug-panel .code', { hasText: 'agent.prompt' }).waitFor();
  await page.getByRole('searchbox').fill('readTodos');
  await row('RUN_STARTED').waitFor({ state: 'detached' });
  assert.ok(Number(await row('TOOL_CALL').getAttribute('aria-setsize')) < all);
});

inPage('threads are renamed, archived and deleted', async (page) => {
  await visit(page, 'chat/text');
  await ask(page, 'A thread to delete');
  await visit(page, 'threads');
  const row = () => page.locator('.item', { hasText: /A thread to delete|Renamed/ }).first();
  await row().getByRole('button', { name: 'Rename' }).click();
  const title = page.getByRole('textbox', { name: 'Title' });
  await title.fill('Renamed');
  // A title that could not be saved is there to be saved again.
  await page.route('**/api/threads/*', (route) => (route.request().method() === 'PATCH'
    ? route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"the store is away"}' }) : route.fallback()));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').filter({ hasText: 'the store is away' }).waitFor();
  assert.equal(await title.inputValue(), 'Renamed');
  await page.unrouteAll();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('link', { name: 'Renamed' }).waitFor();
  await title.waitFor({ state: 'detached' });
  await row().getByRole('button', { name: 'Archive' }).click();
  await page.getByRole('link', { name: 'Renamed' }).waitFor({ state: 'detached' });
  await page.getByRole('combobox', { name: 'Show' }).selectOption('true');
  const remove = async () => {
    await row().getByRole('button', { name: 'More for Renamed' }).click();
    await page.keyboard.press('End');
    await row().getByRole('button', { name: 'Delete' }).click();
  };
  await remove();
  await picture(page, 'confirm');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await remove();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('link', { name: 'Renamed' }).waitFor({ state: 'detached' });
});

inPage('a thread is forked and exported', async (page) => {
  const title = `Fork me ${Date.now()}`;
  await visit(page, 'chat/echo');
  await ask(page, title);
  const address = page.url();
  await visit(page, 'threads');
  const more = page.getByRole('button', { name: `More for ${title}` });
  await more.click();
  // The menu has the focus.
  await page.waitForFunction(() => document.activeElement.textContent === 'Fork');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.querySelector('[aria-expanded=true]'));
  await more.click();
  for (const [name, end, expected] of [['Export as Markdown', '.md', /Fork me/], ['Export as JSON', '.json', /^\{"thread":/]]) {
    const link = page.getByRole('link', { name });
    assert.match(await link.getAttribute('download'), new RegExp(`^thread-[\\w-]+\\${end}$`));
    const [status, text] = await page.evaluate(async (href) => {
      const response = await fetch(href);
      return [response.status, await response.text()];
    }, await link.getAttribute('href'));
    assert.equal(status, 200);
    assert.match(text, expected);
  }
  await page.getByRole('button', { name: 'Fork', exact: true }).click();
  await page.locator('.message.answer').waitFor();
  assert.notEqual(page.url(), address);
  assert.match(await text(page, '.message.user .bubble'), /Fork me/);
});

inPage('an answer is rated, and its reader takes the rating back', async (page) => {
  await visit(page, 'chat/echo');
  await ask(page, 'Rate this');
  const rated = async () => page.evaluate(async () => {
    const { nodes } = await (await fetch(`api/threads/${location.hash.split('/')[3]}`)).json();
    return nodes.at(-1).feedback;
  });
  const good = page.getByRole('button', { name: 'Good answer' });
  await good.click();
  await page.locator('.rate[aria-pressed=true]').waitFor();
  assert.equal((await rated()).rating, 'up');
  await page.getByRole('button', { name: 'Bad answer' }).click();
  const form = page.getByRole('form', { name: 'Comment on the rating' });
  await form.getByRole('textbox').fill('Too short.');
  await form.getByRole('checkbox').check();
  await picture(page, 'feedback');
  await form.getByRole('button', { name: 'Save' }).click();
  await form.waitFor({ state: 'detached' });
  await page.reload();
  await page.locator('.rate[aria-label="Bad answer"][aria-pressed=true]').waitFor();
  const { rating, comment, share } = await rated();
  assert.deepEqual([rating, comment, share], ['down', 'Too short.', true]);
  await visit(page, 'agents/echo/visitors/feedback');
  await page.locator('.item', { hasText: 'Too short.' }).getByText('Rated answer').click();
  await page.locator('.item .markdown', { hasText: 'Rate this' }).first().waitFor();
  await page.goBack();
  await page.getByRole('button', { name: 'Bad answer' }).click();
  await page.locator('.rate[aria-pressed=true]').waitFor({ state: 'detached' });
  assert.equal(await rated(), undefined);
});

inPage('the part that breaks the cached prompt is shown with its difference', async (page) => {
  const id = `cache-${Date.now()}`;
  await page.evaluate(async (id) => {
    const { content, children } = await (await fetch('api/agents/text')).json();
    delete children[0].content.apiKey;
    children[0].content.apiKey = 'k';
    await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ name: 'Cached', content, children }) });
  }, id);
  await page.reload();
  await page.locator('.layout').waitFor();
  await visit(page, `chat/${id}`);
  await ask(page, 'Hello');
  await page.locator('.note-good', { hasText: 'This is what was sent' }).or(page.locator('.note', { hasText: 'another request' })).waitFor();
  assert.equal(await page.locator('.note-broke').count(), 0);
  await page.evaluate(async (id) => {
    const agent = await (await fetch(`api/agents/${id}`)).json();
    agent.content.rules[0] = 'Be long.';
    await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(agent) });
  }, id);
  await page.getByRole('textbox', { name: 'Message' }).fill('More');
  const broken = page.getByRole('region', { name: 'Cache' });
  await broken.getByText('rules').first().waitFor();
  assert.equal(await broken.locator('del').innerText(), 'brief');
  assert.equal(await broken.locator('ins').innerText(), 'long');
  await page.locator('.part.broke').waitFor();
  await picture(page, 'cache-broken');
  await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
});

inPage('Ctrl+K goes to anything', async (page) => {
  await visit(page, 'threads');
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Go to' }).fill('garden role');
  await page.getByText('Nothing has this name.').waitFor();
  await page.getByRole('combobox', { name: 'Go to' }).fill('pip');
  await page.getByRole('option', { name: 'Pip role' }).waitFor();
  assert.deepEqual((await page.getByRole('dialog').getByRole('option').allInnerTexts()).slice(0, 2).map((text) => text.split(/\s+/)), [['Pip', 'chat'], ['Pip', 'role']]);
  await picture(page, 'palette');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.locator('.role-form').waitFor();
  assert.match(page.url(), /#\/agents\/garden$/);
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Go to' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
});

inPage('a role is edited with its version', async (page, { context }) => {
  await visit(page, 'agents/text');
  await page.getByRole('button', { name: 'JSON' }).click();
  const area = page.getByRole('textbox', { name: 'Role block' });
  await area.waitFor();
  const saved = await area.inputValue();
  assert.ok(!saved.includes('role-key-canary') && saved.includes('***'), 'keys are masked');
  const other = await context.newPage();
  await other.goto(`${base}#/agents/text`);
  await other.getByRole('button', { name: 'JSON' }).click();
  await other.getByRole('textbox', { name: 'Role block' }).waitFor();
  const changed = (words) => saved.replace(/"You are Pip[^"]*"/, `"You are Pip, ${words}."`);
  const mark = `version ${Date.now()}`;
  await area.fill(changed(mark));
  await page.getByRole('button', { name: 'Save' }).click();
  await page.waitForFunction((mark) => document.querySelector('#role-json').value.includes(mark) && document.querySelector('button.primary').disabled, mark);
  await other.getByRole('textbox', { name: 'Role block' }).fill(changed('too late'));
  await other.getByRole('button', { name: 'Save' }).click();
  await other.getByRole('alert').filter({ hasText: 'PRECONDITION_FAILED' }).waitFor();
  await area.fill('{');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').filter({ hasText: 'not JSON' }).waitFor();
});

inPage('an agent is created, and does not replace another one', async (page) => {
  await visit(page, 'agents/new');
  for (const [id, isNew] of [['text', false], ['fresh', true]]) {
    await page.getByLabel('Identifier').fill(id);
    await page.getByRole('button', { name: 'Save' }).click();
    if (isNew) await page.getByRole('tab', { name: 'Backend' }).waitFor();
    else await page.getByRole('alert').filter({ hasText: 'PRECONDITION_FAILED' }).waitFor();
  }
  await page.getByRole('button', { name: 'Delete agent' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Agents' }).waitFor();
  await page.getByRole('link', { name: 'Guide', exact: true }).waitFor({ state: 'detached' });
});

inPage('everything is reached by the keyboard', async (page) => {
  await visit(page, 'chat/text');
  await page.getByRole('textbox', { name: 'Message' }).waitFor();
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'composer');
  assert.equal(await page.evaluate(() => document.querySelector('a, button, input, select, textarea').className), 'skip');
  await page.locator('.skip').focus();
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.getByRole('tab', { name: 'Prompt' }).focus();
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.getByRole('tab', { name: 'Context' }).getAttribute('aria-selected'), 'true');
  await page.keyboard.press('End');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-retrieval');
});

inPage('a long answer is drawn once, and not again with each piece', async (page) => {
  await visit(page, 'chat/text');
  const counted = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { MarkdownView } = await import(`${folder}lib/markdown.js`);
    const root = document.body.appendChild(document.createElement('div'));
    let added = 0;
    const observer = new MutationObserver((records) => {
      for (const { addedNodes } of records) for (const node of addedNodes) added += 1 + (node.querySelectorAll?.('*').length ?? 0);
    });
    observer.observe(root, { childList: true, subtree: true });
    const view = new MarkdownView(root);
    const frame = () => new Promise((resolve) => setTimeout(resolve));
    let text = '';
    for (let line = 0; line < 600; line += 1) {
      text += line % 12 === 0 ? `\n\n## Part ${line}\n\n` : `Line ${line} with **bold** words, \`code\` and more. `;
      view.update(text, false);
    }
    await frame();
    const ofText = { added, nodes: root.querySelectorAll('*').length };
    added = 0;
    text += '\n\n```\n';
    for (let line = 0; line < 3000; line += 1) {
      text += `let line${line} = ${line};\n`;
      view.update(text, false);
    }
    await frame();
    const ofCode = { added };
    view.update(`${text}\`\`\`\n`, true);
    const result = { ofText, ofCode, blocks: root.childElementCount, code: root.querySelectorAll('pre').length };
    observer.disconnect();
    root.remove();
    return result;
  });
  const { ofText, ofCode, blocks, code } = counted;
  assert.ok(blocks > 90 && code === 1, JSON.stringify(counted));
  // Each piece draws the last paragraph again, which has eleven sentences at most.
  assert.ok(ofText.added < 12 * ofText.nodes, JSON.stringify(counted));
  assert.ok(ofCode.added < 40, JSON.stringify(counted));
});
