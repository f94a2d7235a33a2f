import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';

import { before, test } from './harness.js';
import { alterResponses, frames, launch, link, openPage, pageTests, picture, until, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage, inOwnPage } = pageTests(() => browser);

const tab = (page, name) => page.getByRole('tab', { name, exact: false }).first().click();

/** Sends a request as the page does. */
const send = (page, method, path, body) => page.evaluate(async ([method, path, body]) => {
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' };
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await response.text();
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
}, [method, path, body]);

/** Opens the form of a tool of an agent, with a todo list. */
async function openTool(page, name, agentId = 'text') {
  await visit(page, `chat/${agentId}`);
  await tab(page, 'Context');
  await page.getByLabel('Todo list').fill('l1');
  await tab(page, 'Tools');
  const tool = page.locator('#debug-panel .fold', { hasText: name });
  await tool.locator('summary').first().click();
  return tool.getByRole('form', { name: `try ${name}` });
}

inPage('a tool is tried, and its token never reaches the page', async (page, { context }) => {
  const tokens = [];
  await alterResponses(context, '**/api/agents/text/tokens', (token) => {
    tokens.push(token);
    return token;
  });
  const revoked = page.waitForResponse((response) => response.request().method() === 'DELETE' && response.url().includes('/tokens/'));
  const form = await openTool(page, 'createTodo');
  assert.match(await form.innerText(), /This changes data\.[^]*really called, as u1, with the todo list l1/);
  await form.getByRole('button', { name: 'Call for real' }).click();
  await form.getByText('It is required.').waitFor();
  await page.locator('.try input:focus').waitFor();
  assert.equal(tokens.length, 0, 'nothing is called');

  const title = `Tried ${Date.now()}`;
  await form.getByLabel('title').fill(title);
  await page.keyboard.press('Enter');
  await form.getByRole('status').filter({ hasText: title }).waitFor();
  assert.match(await form.getByRole('status').innerText(), /Result[^]*\d m?s/);
  assert.equal((await revoked).status(), 204);
  const [{ token, kind, tools, expiresAt, createdAt, id }] = tokens;
  assert.deepEqual([kind, tools], ['mcp', ['createTodo']]);
  assert.ok(new Date(expiresAt) - new Date(createdAt) <= 600_000, expiresAt);
  const seen = await page.evaluate(() => document.documentElement.outerHTML + JSON.stringify({ ...localStorage, ...sessionStorage }) + location.href);
  assert.ok(token.length > 20 && !seen.includes(token), 'the token is nowhere in the page');
  const listed = await send(page, 'GET', 'api/agents/text/tokens');
  assert.ok(listed.body.tokens.find((one) => one.id === id).revokedAt, 'the token is revoked');
  const call = await page.evaluate(async (token) => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
    return (await fetch('api/agent/mcp', { method: 'POST', credentials: 'omit', headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' }, body })).status;
  }, token);
  assert.equal(call, 401);
  await picture(page, 'try');
});

inPage('a tool that reads has no warning, and an error of a tool is shown', async (page) => {
  const form = await openTool(page, 'readTodos');
  await form.getByRole('button', { name: 'Call' }).waitFor();
  assert.equal(await form.locator('.note-warn').count(), 0);
  await form.getByRole('button', { name: 'Call' }).click();
  await form.getByRole('status').filter({ hasText: 'Water the basil' }).waitFor();
  await tab(page, 'Context');
  await page.getByLabel('Todo list').fill('no-such-list');
  await tab(page, 'Tools');
  const fold = page.locator('#debug-panel .fold', { hasText: 'readTodos' });
  await fold.locator('summary').first().click();
  await fold.getByRole('button', { name: 'Call' }).click();
  await fold.locator('.outcome .bad, .outcome .note-error').waitFor();
});

inPage('the fields of a schema make the arguments', async (page) => {
  const made = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { argumentsOf, fieldsOf } = await import(`${folder}lib/arguments.js`);
    const schema = JSON.parse(`{"type":"object","required":["title","count","empty"],"properties":{
      "title":{"type":"string","minLength":1},"empty":{"type":"string"},"long":{"type":"string","maxLength":5000},"count":{"type":"integer"},
      "share":{"type":["number","null"]},"done":{"type":"boolean"},"state":{"enum":["open",3,null]},
      "kind":{"anyOf":[{"const":"a"},{"const":"b"}]},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},
      "list":{"type":"array","items":{"type":"string"}},"__proto__":{"type":"string"},"odd":true}}`);
    const fields = fieldsOf(schema);
    const kinds = Object.fromEntries(fields.filter(({ name }) => name !== '__proto__').map(({ name, kind }) => [name, kind]));
    const wrong = argumentsOf(fields, new Map([['count', '1.5'], ['share', 'x'], ['list', '[']]));
    const texts = new Map([['title', 'T'], ['count', '2'], ['done', 'false'], ['state', '1'], ['kind', '1'], ['list', '["x"]'], ['__proto__', 'p']]);
    const right = argumentsOf(fields, texts);
    return { kinds, wrong: [...wrong.errors.keys()], text: JSON.stringify(right.value), errors: right.errors.size, none: fieldsOf(undefined).length };
  });
  assert.deepEqual(made.kinds, {
    title: 'text', empty: 'text', long: 'lines', count: 'number', share: 'number', done: 'boolean', state: 'choice', kind: 'choice',
    maybe: 'text', list: 'json', odd: 'json',
  });
  assert.deepEqual(made.wrong, ['title', 'count', 'share', 'list']);
  assert.deepEqual([made.errors, made.none], [0, 0]);
  assert.equal(made.text, '{"title":"T","empty":"","count":2,"done":false,"state":3,"kind":"b","list":["x"],"__proto__":"p"}');
});

inPage('a component that is drawn while it is loaded elsewhere appears', async (page) => {
  const drawn = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const [{ lazy }, { html, render }] = await Promise.all([import(`${folder}lib/ui.js`), import(`${folder}vendor/ui.js`)]);
    const root = () => document.body.appendChild(document.createElement('div'));
    const roots = [root(), root()];
    const loading = Promise.withResolvers();
    const Lazy = await new Promise((called) => {
      const Lazy = lazy(() => { called(Lazy); return loading.promise; }, 'Late');
      render(html`<${Lazy} />`, roots[0]);
    });
    // The second is drawn before the component is there, and its effect runs afterwards.
    render(html`<${Lazy} />`, roots[1]);
    loading.resolve({ Late: () => html`<b>there</b>` });
    const appeared = () => roots.every((root) => root.textContent === 'there');
    for (let frames = 0; frames < 100 && !appeared(); frames += 1) await new Promise(requestAnimationFrame);
    return roots.map((root) => root.textContent);
  });
  assert.deepEqual(drawn, ['there', 'there']);
});

inPage('the audit log is filtered and exported', async (page) => {
  await visit(page, 'audit/audited');
  await page.getByRole('status').filter({ hasText: /^No tool has been called yet\.$/ }).waitFor();
  for (const name of ['readTodos', 'createTodo']) {
    const form = await openTool(page, name, 'audited');
    if (name === 'createTodo') await form.getByLabel('title').fill('Audited');
    await form.getByRole('button', { name: 'Call' }).click();
    await form.getByRole('status').filter({ hasText: 'Result' }).waitFor();
    await visit(page, 'threads');
  }
  const logged = async () => (await send(page, 'GET', 'api/agent/tools/audit?agentId=audited')).body.calls;
  await until(async () => (await logged()).map(({ tool }) => tool).join() === 'createTodo,readTodos', 'both calls are logged');
  await page.getByRole('link', { name: 'Audit' }).click();
  // The view before it has a choice of the same name.
  await page.getByRole('heading', { name: 'Audit' }).waitFor();
  await page.getByRole('combobox', { name: 'Agent' }).selectOption('audited');
  const rows = page.locator('.table tbody tr');
  await rows.filter({ hasText: 'createTodo' }).first().waitFor();
  assert.match(await rows.first().innerText(), /u1\s+createTodo\s+ok\s+[\d.]+ m?s\s+tool server/);
  await page.getByRole('searchbox').fill('READtodos');
  await rows.filter({ hasText: 'createTodo' }).first().waitFor({ state: 'detached' });
  assert.equal(await rows.count(), 1);
  const started = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export CSV' }).click();
  const download = await started;
  assert.equal(download.suggestedFilename(), 'audit-audited.csv');
  const [head, first, ...rest] = (await readFile(await download.path(), 'utf8')).split('\r\n');
  assert.equal(head, '"at","agentId","userId","tool","outcome","durationMs","credentialId","runId"');
  assert.match(first, /^"20[\dT:.-]+Z","audited","u1","readTodos","ok","\d+","[\w-]+",""$/);
  assert.equal(rest.length, await rows.count());
  await page.getByRole('combobox', { name: 'Outcome' }).selectOption('timedOut');
  await page.getByRole('status').filter({ hasText: /^0 of/ }).waitFor();
});

inPage('a log of several pages is read on, and one of another owner is refused', async (page) => {
  const calls = Array.from({ length: 250 }, (_, place) => ({
    at: new Date(Date.UTC(2026, 0, 2) - place * 1000).toISOString(), userId: 'u1', credentialId: 'internal', tool: `tool${place}`, durationMs: place, outcome: 'ok',
  }));
  await page.route('**/api/agent/tools/audit?*', (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get('cursor') ?? 0);
    const to = from + Number(query.get('limit'));
    if (query.get('agentId') !== 'text') return route.fallback();
    return route.fulfill({ json: { calls: calls.slice(from, to), nextCursor: to < calls.length ? String(to) : undefined } });
  });
  await visit(page, 'audit/text');
  const rows = page.locator('.table tbody tr');
  for (const count of [100, 200, 250]) {
    await page.waitForFunction((count) => document.querySelectorAll('.table tbody tr').length === count, count);
    if (count < 250) await page.getByRole('button', { name: 'Load older calls' }).click();
  }
  assert.equal(await page.getByRole('button', { name: 'Load older calls' }).count(), 0);
  assert.match(await rows.last().innerText(), /tool249/);
  await visit(page, 'audit/nobody');
  await page.getByRole('alert').filter({ hasText: 'NOT_FOUND' }).waitFor();
});

inPage('cells of a CSV file are no formulas', async (page) => {
  const text = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { csv } = await import(`${folder}lib/csv.js`);
    return csv(['a', 'b'], [['=cmd|x', 'a "quoted"\nline'], [-3, undefined], ['@x', '+1'], ['plain', '-1']]);
  });
  assert.equal(text, '"a","b"\r\n"\'=cmd|x","a ""quoted""\nline"\r\n"-3",""\r\n"\'@x","\'+1"\r\n"plain","\'-1"\r\n');
});

inPage('a user signs in to the subscription and out of it', async (page, { context }) => {
  let release;
  const isRead = new Promise((resolve) => (release = resolve));
  // The status is requested after the code has been read.
  await page.route('**/api/coding/sign-in/*', async (route) => {
    await isRead;
    return route.fallback();
  });
  await send(page, 'DELETE', 'api/coding/sign-in');
  await page.locator('.account-name').click();
  await page.getByRole('heading', { name: 'Account' }).waitFor();
  await page.getByText('You are not signed in.').waitFor();
  await page.getByRole('button', { name: 'Sign in' }).click();
  assert.match(await page.getByRole('status', { name: 'code' }).innerText(), /^CANARY-\d+$/);
  const link = page.locator('.device a');
  assert.equal(await link.getAttribute('href'), 'https://issuer.example/device');
  assert.equal(await link.getAttribute('rel'), 'noopener noreferrer');
  assert.match(await page.locator('.device').innerText(), /Enter this code only if you asked for it yourself[^]*good for 1[45]:\d\d/);
  release();
  await page.getByText('You are signed in.').waitFor();
  assert.match(await page.locator('[aria-labelledby=subscription-title]').innerText(), /Plan\s+plus\s+Account\s+…\d{4}/);
  const seen = await page.evaluate(() => document.documentElement.outerHTML);
  assert.ok(!/refresh-canary|access-canary/.test(seen), 'no token in the page');
  await page.getByRole('button', { name: 'Sign out of the subscription' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
  await page.getByText('You are not signed in.').waitFor();
  assert.equal((await context.pages()).length, 1);
});

inPage('what takes time is begun once, also by a double click', async (page) => {
  const counts = { signIn: 0, compare: 0 };
  const holds = [];
  const hold = (name) => async (route) => {
    counts[name] += 1;
    await new Promise((resolve) => holds.push(resolve));
    await route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"NOT_CONFIGURED","detail":"it is not set"}' });
  };
  await page.route('**/api/coding', (route) => route.fulfill({ json: { signedIn: false, state: 'signInRequired' } }));
  await page.route('**/api/coding/sign-in', hold('signIn'));
  await alterResponses(page, '**/api/agents/text', (role) => ({ ...role, content: { ...role.content, toolServers: [{ id: 'shop' }] } }));
  await page.route('**/api/agents/text/tools/discover', hold('compare'));
  const begin = async (name) => {
    const button = page.getByRole('button', { name });
    await button.click({ clickCount: 2 });
    await until(() => holds.length > 0, 'the request is sent');
    await page.waitForFunction(() => document.querySelector('.main button:disabled'));
    holds.splice(0).forEach((release) => release());
    await page.getByRole('alert').filter({ hasText: 'it is not set' }).waitFor();
  };
  await visit(page, 'account');
  await begin('Sign in');
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Tools' }).click();
  await begin('Compare');
  assert.deepEqual(counts, { signIn: 1, compare: 1 });
});

inPage('a sign-in to the subscription ends in words', async (page) => {
  let outcome;
  const begun = { signInId: 's', userCode: 'AAAA-0000', verificationUri: 'javascript:alert(1)', expiresIn: 900, interval: 0.1, notice: 'Only if you asked.' };
  await page.route('**/api/coding', (route) => route.fulfill({ json: { signedIn: false, state: 'signInRequired', account: '…1234' } }));
  await page.route('**/api/coding/sign-in', (route) => (outcome.code === 'NOT_CONFIGURED'
    ? route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"NOT_CONFIGURED","detail":"CODING_AUTH_URL is not set"}' })
    : route.fulfill({ json: begun })));
  await page.route('**/api/coding/sign-in/s', (route) => (outcome.http ? route.fulfill({ status: outcome.http, contentType: 'application/problem+json', body: `{"code":"${outcome.code}"}` }) : route.fulfill({ json: outcome })));
  await visit(page, 'account');
  for (const [next, words] of [
    [{ status: 'denied' }, 'was refused'], [{ status: 'expired' }, 'has expired'], [{ status: 'failed', code: 'SUBSCRIPTION_REFUSED' }, 'has failed. SUBSCRIPTION_REFUSED'],
    [{ http: 404, code: 'NOT_FOUND' }, 'cancelled elsewhere'],
  ]) {
    outcome = next;
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText(words).waitFor();
    assert.equal(await page.locator('.device').count(), 0);
  }
  outcome = { status: 'pending', expiresIn: 899 };
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('.device').waitFor();
  assert.equal(await page.locator('.device a').count(), 0, 'an address that is no web page is no link');
  const cancelled = page.waitForRequest((request) => request.method() === 'DELETE');
  await page.route('**/api/coding/sign-in/s', (route) => (route.request().method() === 'DELETE' ? route.fulfill({ status: 204 }) : route.fallback()));
  await page.getByRole('button', { name: 'Cancel' }).click();
  assert.match((await cancelled).url(), /sign-in\/s$/);
  await page.locator('.device').waitFor({ state: 'detached' });
  outcome = { code: 'NOT_CONFIGURED' };
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').filter({ hasText: 'NOT_CONFIGURED' }).waitFor();
});

test('theme and sessions are in the account', async () => {
  // Another user than that of the other tests, which go on.
  const open = async () => {
    const opened = await openPage(browser);
    await opened.page.goto(await link('u7'));
    await opened.page.locator('.layout').waitFor();
    return opened;
  };
  const [{ page, context, faults }, other] = [await open(), await open()];
  await page.getByRole('link', { name: 'u7' }).click();
  await page.getByRole('radio', { name: 'Dark' }).check();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.reload();
  await page.getByText('This session ends on').waitFor();
  assert.ok(await page.getByRole('radio', { name: 'Dark' }).isChecked());
  await page.getByRole('button', { name: 'Sign out everywhere' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Agent console' }).waitFor();
  assert.deepEqual(await context.cookies(), []);
  await visit(other.page, 'threads');
  await other.page.getByRole('heading', { name: 'Agent console' }).waitFor();
  assert.deepEqual([...faults, ...other.faults], []);
  await Promise.all([context.close(), other.context.close()]);
});

/** Schedules jobs of the agent `text`, and returns their identifiers. */
async function schedule(page, ...jobs) {
  const ids = [];
  for (const { payload, ...rest } of jobs) {
    const work = { kind: 'tool', agentId: 'text', toolId: 'createTodo', todoListId: 'l1', ...payload };
    const { status, body } = await send(page, 'POST', 'api/pulse/jobs', { payload: work, ...rest });
    assert.equal(status, 201, JSON.stringify(body));
    ids.push(body.jobId);
  }
  return ids;
}

const titled = (title) => ({ arguments: { title } });

inPage('several jobs are paused, resumed and cancelled at once', async (page) => {
  const run = `bulk ${Date.now()}`;
  await schedule(page, ...['one', 'two', 'three'].map((name) => ({ payload: titled(`${name} ${run}`), cron: '0 9 * * 1-5', timezone: 'Europe/Berlin' })));
  await visit(page, 'jobs');
  const rows = page.locator('.item', { hasText: run });
  await rows.nth(2).waitFor();
  assert.equal(await rows.count(), 3);
  assert.match(await rows.first().innerText(), /createTodo three[^]*scheduled · text · on weekdays at 09:00, Europe\/Berlin/);
  const act = async (name, count, confirm) => {
    for (const box of (await rows.getByRole('checkbox').all()).slice(0, count)) await box.check();
    await page.getByRole('button', { name, exact: true }).click();
    const dialog = page.getByRole('dialog');
    assert.match(await dialog.innerText(), new RegExp(`${name} ${count} jobs\\?`));
    await dialog.getByRole('button', { name: confirm ?? name }).click();
    await page.locator('.bulk [role=status]').filter({ hasText: `${name}: done for ${count} of ${count} jobs` }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), 'jobs-panel', 'the buttons are disabled');
    assert.equal(await rows.locator('input:checked').count(), 0);
  };
  await act('Pause', 2);
  await page.waitForFunction((run) => [...document.querySelectorAll('.item')].filter(({ innerText }) => innerText.includes(run) && innerText.includes('paused')).length === 2, run);
  for (const box of await rows.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  assert.match(await page.getByRole('dialog').innerText(), /Resume 2 jobs\?[^]*1 selected job is left as it is/);
  await page.getByRole('dialog').getByRole('button', { name: 'Resume' }).click();
  await page.locator('.bulk [role=status]').filter({ hasText: 'Resume: done for 2 of 2 jobs' }).waitFor();
  await act('Cancel', 3, 'Cancel 3 jobs');
  await page.getByRole('combobox', { name: 'State' }).selectOption('open');
  await rows.first().waitFor({ state: 'detached' });
});

inPage('jobs that could not be changed are named, and the others are', async (page) => {
  const run = `part ${Date.now()}`;
  const [, gone] = await schedule(page, ...['kept', 'gone'].map((name) => ({ payload: titled(`${name} ${run}`), everyMs: 7_200_000 })));
  await page.route(`**/api/pulse/jobs/${gone}/pause`, (route) => route.fulfill({ status: 409, contentType: 'application/problem+json', body: '{"code":"CONFLICT","detail":"it has ended"}' }));
  await visit(page, 'jobs');
  const rows = page.locator('.item', { hasText: run });
  await rows.nth(1).waitFor();
  assert.match(await rows.first().innerText(), /every 2 hours/);
  for (const box of await rows.getByRole('checkbox').all()) await box.check();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
  const failed = page.locator('.bulk').getByRole('alert');
  await failed.waitFor();
  assert.match(await failed.innerText(), /1 job could not be changed\.[^]*CONFLICT it has ended/);
  await rows.filter({ hasText: 'kept' }).filter({ hasText: 'paused' }).waitFor();
  assert.equal(await rows.filter({ hasText: 'gone' }).filter({ hasText: 'paused' }).count(), 0);
});

inPage('a job shows what it does, its error and what can be done', async (page) => {
  const [bad] = await schedule(page, { payload: { arguments: { title: ' ', wrong: 'argument' } }, delayMs: 1, maxAttempts: 1 });
  await visit(page, `jobs/${bad}`);
  const facts = page.locator('.facts');
  await facts.waitFor();
  // The page reads a job when it is asked to.
  await until(async () => (await send(page, 'GET', `api/pulse/jobs/${bad}`)).body.state === 'discarded', 'the job has failed');
  await page.getByRole('button', { name: 'Reload' }).click();
  await facts.filter({ hasText: 'discarded' }).waitFor();
  assert.match(await page.locator('.note-error').innerText(), /The last attempt failed:[^]*title/);
  assert.match(await facts.innerText(), /calls the tool createTodo[^]*Agent\s+Text[^]*once[^]*Occurrence\s+1, attempt 1/);
  assert.match(await page.getByRole('region', { name: 'payload' }).innerText(), /"wrong": "argument"/);
  const attempts = page.getByRole('region', { name: 'Attempts' }).locator('tbody tr');
  assert.equal(await attempts.count(), 1);
  assert.match(await attempts.innerText(), /^1\t[^\t]+\t\d[^\t]*s\t4\d\d\tfailed[^\t]*title/);
  await picture(page, 'job-attempts');
  assert.equal(await page.getByRole('button', { name: 'Cancel' }).count(), 0, 'it is over');
  await page.getByRole('button', { name: 'Run again' }).click();
  const redriven = page.waitForResponse((response) => response.url().endsWith(`${bad}/redrive`));
  await page.getByRole('dialog').getByRole('button', { name: 'Run again' }).click();
  assert.equal((await redriven).status(), 200);
  const [next] = await schedule(page, { payload: { kind: 'agent', toolId: undefined, todoListId: undefined, message: 'Say hello' }, cron: '30 18 * * 5', timezone: 'America/New_York' });
  await visit(page, `jobs/${next}`);
  await page.getByRole('heading', { name: 'Say hello' }).waitFor();
  assert.match(await facts.innerText(), /runs a turn with “Say hello”[^]*on Fridays at 18:30, America\/New_York[^]*Next run/);
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel the job' }).click();
  await facts.filter({ hasText: 'cancelled' }).waitFor();
  await visit(page, 'jobs/no-such-job');
  await page.getByText('You have no such job').waitFor();
});

inPage('the job of an assignment can be paused, and neither cancelled nor rescheduled', async (page) => {
  const path = `api/agents/text/assignments/kept-${Date.now()}`;
  const { status, body } = await send(page, 'PUT', path, { toolId: 'createTodo', todoListId: 'l1', ...titled('Water the basil'), schedule: { enabled: true, cron: '0 9 * * *' } });
  assert.equal(status, 201, JSON.stringify(body));
  await visit(page, `jobs/${body.sync.jobId}`);
  await page.locator('.facts', { hasText: 'every day at 09:00' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Pause' }).count(), 1);
  assert.equal(await page.getByRole('button', { name: 'Cancel' }).count(), 0);
  assert.equal(await page.getByText('Reschedule').count(), 0);
  assert.equal((await send(page, 'DELETE', path)).status, 204);
});

inOwnPage('a job is rescheduled', async (page) => {
  const [id] = await schedule(page, { payload: titled(`moved ${Date.now()}`), cron: '0 9 * * *', timezone: 'Europe/Berlin' });
  await visit(page, `jobs/${id}`);
  const facts = page.locator('.facts');
  const open = async () => {
    await page.getByText('Reschedule').click();
    return page.getByRole('button', { name: 'Replace the schedule' });
  };
  let save = await open();
  assert.equal(await page.getByLabel('Cron expression').inputValue(), '0 9 * * *');
  await page.getByLabel('Cron expression').fill('99 9 * * *');
  await save.click();
  await page.getByRole('alert').filter({ hasText: /INVALID_REQUEST[^]*minute/ }).waitFor();
  await page.getByLabel('Cron expression').fill('30 18 * * 5');
  await page.getByText('on Fridays at 18:30', { exact: true }).waitFor();
  await save.click();
  await facts.filter({ hasText: 'on Fridays at 18:30, Europe/Berlin' }).waitFor();
  save = await open();
  await page.getByLabel('Runs').selectOption('interval');
  await page.getByLabel('Every').fill('2');
  await page.getByLabel('Unit').selectOption('days');
  await save.click();
  await facts.filter({ hasText: 'every 2 days' }).waitFor();
  save = await open();
  await page.getByLabel('Runs').selectOption('once');
  await page.getByLabel('Time, in').fill('2030-06-01T12:00');
  await save.click();
  await facts.filter({ hasText: 'once' }).waitFor();
  assert.equal(await facts.locator('time').first().getAttribute('datetime'), '2030-06-01T10:00:00.000Z');
}, { timezoneId: 'Europe/Berlin' });

inPage('the calendar has the next run of each job on its day', async (page) => {
  const run = `cal ${Date.now()}`;
  const inDays = (days) => new Date(Date.now() + days * 86_400_000).toISOString();
  await schedule(page, { payload: titled(`soon ${run}`), executeAt: inDays(3) }, { payload: titled(`late ${run}`), executeAt: inDays(30) });
  await visit(page, 'jobs');
  await page.getByRole('tab', { name: 'List' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.locator('.day').first().waitFor();
  assert.equal(await page.locator('.day').count(), 14);
  await page.locator('.day').nth(3).filter({ hasText: `soon ${run}` }).waitFor();
  await page.locator('#jobs-panel > .plain', { hasText: `late ${run}` }).waitFor();
  assert.match(page.url(), /#\/jobs\/calendar$/);
  await page.getByRole('link', { name: `soon ${run}` }).click();
  await page.locator('.facts').waitFor();
});

inPage('the calendar has the runs after the next one, and a day with very many jobs is short', async (page) => {
  const time = (hours) => new Date(Date.now() + hours * 3_600_000);
  const soon = time(26);
  const job = (jobId, title, schedule, executeAt) => ({ jobId, state: 'scheduled', payload: { kind: 'tool', agentId: 'text', toolId: 'createTodo', arguments: { title } }, schedule, executeAt: executeAt.toISOString(), occurrence: 1, attempt: 0, createdAt: soon.toISOString() });
  const jobs = [
    job('daily', 'Daily', { cron: '0 12 * * *', timezone: 'UTC' }, time(2)), job('hourly', 'Hourly', { everyMs: 3_600_000 }, time(0.5)),
    ...Array.from({ length: 500 }, (_, place) => job(`many-${place}`, `Many ${place}`, { executeAt: soon.toISOString() }, soon)),
  ];
  await page.route('**/api/pulse/jobs?*', (route) => route.fulfill({ json: { jobs } }));
  await visit(page, 'jobs/calendar');
  await page.locator('.day', { hasText: 'Many' }).waitFor();
  const days = await page.locator('.day').allInnerTexts();
  // On the busy day, the run at noon is below the button.
  for (const text of days.slice(1, 13).filter((text) => !text.includes('Many'))) assert.match(text, /Daily/, text);
  assert.match(days[5], /Hourly\s+and 23 more runs/);
  const busy = page.locator('.day', { hasText: 'Many' });
  assert.equal(await busy.count(), 1);
  assert.ok(await busy.locator('.entry').count() <= 9);
  await picture(page, 'calendar-busy');
  await busy.getByRole('button', { name: /^49\d more$/ }).click();
  await busy.locator('.entry', { hasText: 'Many' }).nth(499).waitFor();
  assert.equal(await busy.locator('.entry', { hasText: 'Many' }).count(), 500);
  await page.unrouteAll();
});

inPage('a job is made by a form, which shows when it runs', async (page) => {
  const message = `Say good morning ${Date.now()}`;
  await visit(page, 'jobs');
  await page.getByRole('link', { name: 'New job' }).click();
  await page.getByLabel('Agent', { exact: true }).selectOption('text');
  await page.getByRole('textbox', { name: 'Message' }).fill(message);
  await page.getByLabel('Runs', { exact: true }).selectOption('cron');
  await page.getByLabel('Cron expression').fill('99 9 * * *');
  await page.locator('.next-runs.field-error', { hasText: 'minute' }).waitFor();
  await page.getByLabel('Cron expression').fill('30 9 * * 1-5');
  await page.waitForFunction(() => document.querySelectorAll('.next-runs li').length === 5);
  await picture(page, 'new-job');
  await page.getByRole('button', { name: 'Schedule' }).click();
  await page.locator('.facts', { hasText: message }).waitFor();
  assert.match(await page.locator('.facts').innerText(), /on weekdays at 09:30/);
  const { body: { jobs } } = await send(page, 'GET', 'api/pulse/jobs?state=open');
  assert.equal(jobs.filter(({ payload }) => payload.message === message).length, 1);

  await visit(page, 'jobs/new');
  await page.getByLabel('Agent', { exact: true }).selectOption('text');
  await page.getByText('a call of one of the agent’s tools').click();
  await page.getByLabel('Tool', { exact: true }).selectOption('createTodo');
  await page.getByLabel('Todo list').fill('l1');
  await page.getByRole('button', { name: 'Schedule' }).click();
  await page.getByText('It is required.').waitFor();
  await page.getByLabel('title').fill('Repot the fern');
  await page.getByRole('button', { name: 'Schedule' }).click();
  await page.locator('.facts', { hasText: 'createTodo' }).waitFor();
});

inPage('documents are uploaded, indexed and given to an agent', async (page) => {
  const id = `docs-${Date.now()}`;
  const made = await page.evaluate(async (id) => {
    const { content, children } = await (await fetch('api/agents/text')).json();
    children[0].content.apiKey = 'k';
    const body = JSON.stringify({ name: 'Reader', content: { ...content, documentIds: ['hours'] }, children });
    return (await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body })).status;
  }, id);
  assert.equal(made, 201);
  await visit(page, `agents/${id}/documents`);
  await page.locator('.item', { hasText: 'Opening hours' }).getByText(/indexed/).waitFor();
  const name = `Care of ferns ${Date.now()}`;
  const file = { name: `${name}.md`, mimeType: 'text/markdown', buffer: Buffer.from('# Ferns\n\nFerns like shade and water.') };
  const wrong = { name: 'picture.json', mimeType: 'application/json', buffer: Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 1, 2, 3]) };
  await page.getByLabel('Files to upload').setInputFiles([file, wrong]);
  const uploads = page.locator('.uploads li');
  await uploads.filter({ hasText: name }).getByText('ready').waitFor();
  await uploads.filter({ hasText: 'picture.json' }).getByRole('alert').waitFor();
  const row = page.locator('.item', { hasText: name });
  await row.getByRole('checkbox', { name: /^searched/ }).click();
  const named = () => page.evaluate(async (id) => {
    const { content } = await (await fetch(`api/agents/${id}`)).json();
    return [content.documentIds, content.ragDocumentIds ?? []].join('; ');
  }, id);
  await until(async () => /^hours; [^,;]+$/.test(await named()), 'the document is searched');
  // A document is indexed when it is searched first.
  const { status } = await send(page, 'POST', `api/agents/${id}/retrieve`, { query: 'ferns' });
  assert.equal(status, 200);
  // The index may be stored after the answer, and the page reads its state when it is opened.
  for (let visits = 0; visits < 40 && await row.getByText('1 chunk indexed').count() === 0; visits += 1) {
    await visit(page, 'agents');
    await page.locator('.card').first().waitFor();
    await visit(page, `agents/${id}/documents`);
    await row.getByText(/indexed/).waitFor();
  }
  await row.getByText('1 chunk indexed').waitFor();
  await picture(page, 'documents');
  await row.getByRole('button', { name: /^More for/ }).click();
  assert.match(await row.getByRole('link', { name: 'Download the original' }).getAttribute('href'), /\/api\/documents\/care-of-ferns-\d+\/content$/);
  await row.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await row.getByRole('alert').filter({ hasText: 'CONFLICT' }).waitFor();
  await row.getByRole('checkbox', { name: /^searched/ }).click();
  await until(async () => (await named()) === 'hours; ', 'the document is not searched');
  await row.getByRole('button', { name: /^More for/ }).click();
  await row.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await row.waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement.textContent === 'More' && document.activeElement.closest('.item'));
  await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
});

inPage('a role of 300 documents can be read and edited', async (page) => {
  const documents = Array.from({ length: 300 }, (_, place) => ({ id: `d-${place}`, title: `Document ${place}`, bytes: 100, version: 1 }));
  const content = { systemPrompt: 'x', documentIds: documents.map(({ id }) => id) };
  let indexes = 0;
  await page.route('**/api/documents?*', (route) => route.fulfill({ json: { documents } }));
  await page.route('**/api/documents/d-*', (route) => {
    indexes += 1;
    const embeddingFailure = route.request().url().endsWith('/d-3') ? { reason: 'invalidAnswer', failures: 4, retryAt: '2031-11-29T09:30:08Z' } : undefined;
    return route.fulfill({ json: { id: 'd', title: 'd', text: 't', indexed: { chunks: 2, language: 'en', embedded: 0, embeddingFailure } } });
  });
  await page.route('**/api/agents/text', (route) => route.fulfill({ json: { id: 'text', name: 'Text', ownerId: 'u1', companyId: 'c1', content, children: [] }, headers: { ETag: '"1"' } }));
  await visit(page, 'agents/text/documents');
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 100);
  const failed = page.locator('.item', { hasText: 'the embedding model’s answer was not valid' });
  assert.match(await failed.innerText(), /Document 3\b[^]*2 chunks indexed, 0 with vectors: .* valid, next attempt .*2031/);
  await page.getByRole('button', { name: 'Show all 300' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 300);
  await page.getByLabel('Search the documents').fill('document 29');
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 11);
  await page.locator('.item', { hasText: '2 chunks indexed' }).first().waitFor();
  await visit(page, 'agents/text');
  await page.locator('.section > summary', { hasText: 'Documents and retrieval' }).click();
  await page.getByLabel('Search the documents').first().fill('Document 299');
  assert.ok(await page.getByLabel('In the prompt: Document 299').isChecked());
  assert.ok(indexes <= 40, `${indexes} indexes`);
  await page.unrouteAll();
});

inPage('documents keep their places when they are ticked', async (page) => {
  const documents = ['ants', 'bees', 'cats'].map((id) => ({ id, title: id, bytes: 100, version: 1 }));
  let content = { systemPrompt: 'x', documentIds: ['cats'] };
  await page.route('**/api/documents?*', (route) => route.fulfill({ json: { documents } }));
  await page.route('**/api/documents/*', (route) => route.fulfill({ json: documents[0] }));
  await page.route('**/api/agents/text', (route) => {
    content = route.request().postDataJSON()?.content ?? content;
    return route.fulfill({ json: { id: 'text', name: 'Text', ownerId: 'u1', companyId: 'c1', content, children: [] }, headers: { ETag: '"1"' } });
  });
  await visit(page, 'agents/text/documents');
  const titles = page.locator('.item-title');
  await titles.first().waitFor();
  assert.deepEqual(await titles.allInnerTexts(), ['cats', 'ants', 'bees'], 'what the role names is first');
  const tick = async (label, isOn) => {
    const saved = page.waitForResponse((response) => response.request().method() === 'PUT');
    await page.getByLabel(label).setChecked(isOn);
    await saved;
    await page.waitForFunction(() => !document.querySelector('.note-error'));
  };
  await tick('searched: bees', true);
  await tick('in the prompt: cats', false);
  // What cannot be saved is not ticked.
  await page.route('**/api/agents/text', (route) => (route.request().method() === 'PUT'
    ? route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"the store is away"}' }) : route.fallback()));
  await page.getByLabel('searched: ants').click();
  await page.getByRole('alert').filter({ hasText: 'the store is away' }).waitFor();
  assert.ok(!await page.getByLabel('searched: ants').isChecked());
  assert.deepEqual([content.documentIds, content.ragDocumentIds], [[], ['bees']]);
  await frames(page);
  assert.deepEqual(await titles.allInnerTexts(), ['cats', 'ants', 'bees']);
  await visit(page, 'agents/text');
  await visit(page, 'agents/text/documents');
  await page.waitForFunction(() => document.querySelector('.item-title')?.textContent === 'bees');
});

inOwnPage('schedules are said in words, and days know their clocks', async (page) => {
  const made = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { calendarDays, cronWords, intervalWords, scheduleWords } = await import(`${folder}lib/jobs.js`);
    const crons = ['* * * * *', '*/15 * * * *', '5 * * * *', '0 9 * * *', '30 7 * * 1-5', '0 9 * * MON,7', '15 6 2 * *', '0 9 1 1 *', '0 9,17 * * *', '0 9 * * 1#2', '@daily', ''];
    const jobs = ['2026-03-28T09:00:00Z', '2026-03-29T22:30:00Z', '2026-01-01T00:00:00Z', '2026-06-01T00:00:00Z'].map((executeAt) => ({ executeAt }));
    const { days, later } = calendarDays(jobs, new Date('2026-03-28T08:00:00Z'), 14);
    const { days: autumn } = calendarDays([], new Date('2026-10-24T08:00:00Z'), 14);
    return {
      words: crons.map(cronWords), intervals: [1, 1000, 90_000, 7_200_000, 86_400_000].map(intervalWords),
      schedules: [scheduleWords({ executeAt: 'x' }), scheduleWords(undefined), scheduleWords({ cron: '0 9 * * *', timezone: 'UTC' })],
      counts: days.map(({ jobs }) => jobs.length), later: later.length, shifts: days.map(({ shiftMinutes }) => shiftMinutes), back: autumn[1].shiftMinutes,
    };
  });
  assert.deepEqual(made.words, ['every minute', 'every 15 minutes', 'every hour at :05', 'every day at 09:00', 'on weekdays at 07:30',
    'on Mondays and Sundays at 09:00', 'on day 2 of each month at 06:15', '0 9 1 1 *', '0 9,17 * * *', '0 9 * * 1#2', '@daily', '']);
  assert.deepEqual(made.intervals, ['every millisecond', 'every second', 'every 90 seconds', 'every 2 hours', 'every day']);
  assert.deepEqual(made.schedules, ['once', 'once', 'every day at 09:00, UTC']);
  // An overdue job is on the first day; 22:30 in UTC is the next day in Berlin's summer.
  assert.deepEqual([made.counts.slice(0, 4), made.later], [[2, 0, 1, 0], 1]);
  assert.deepEqual([made.shifts.slice(0, 3), made.back], [[0, 60, 0], -60]);
}, { timezoneId: 'Europe/Berlin' });

inPage('a tool server is compared with the accepted definitions', async (page) => {
  const id = 'own-tools';
  const content = {
    mcpPreset: 'none',
    toolServers: [{ id: 'shop', url: process.env.TOOL_SERVER_URL, tools: ['search'] }],
    httpTools: [{ name: 'getOrder', description: 'Gets an order.', inputSchema: { type: 'object' }, request: { method: 'GET', url: 'https://shop.example/order' } }],
    openApi: [{
      id: 'images', server: 'https://shop.example', operations: ['upload', 'create'],
      document: {
        openapi: '3.1.0',
        paths: {
          '/image': { post: { operationId: 'upload', requestBody: { required: true, content: { 'image/png': {} } } } },
          '/album': { post: { operationId: 'create', requestBody: { content: { 'image/png': {} } } } },
        },
      },
    }],
  };
  const children = [{ name: 'EmbeddedAI', content: { provider: 'openai', model: 'text', baseUrl: 'http://127.0.0.1:9/v1' } }];
  const put = await send(page, 'PUT', `api/agents/${id}`, { name: 'Own tools', content, children });
  assert.ok(put.status < 300, JSON.stringify(put.body));
  await page.reload();
  await visit(page, `chat/${id}`);
  await tab(page, 'Tools');
  const panel = page.locator('#debug-panel');
  await panel.locator('.fold', { hasText: 'getOrder' }).filter({ hasText: 'defined by the role' }).waitFor();
  await panel.getByRole('listitem').filter({ hasText: 'shop_search' }).filter({ hasText: 'new' }).waitFor();
  const below = (heading) => panel.locator(`h2:text-is("${heading}") + ul`).getByRole('listitem');
  await below('Operations that cannot be tools').filter({ hasText: 'upload of images has a body that is neither JSON nor a form' }).waitFor();
  await below('Tools without a part of their body').filter({ hasText: 'create of images has a body that is neither JSON nor a form, so it is called without a body' }).waitFor();
  const server = page.getByRole('region', { name: 'tool server shop' });
  await server.getByRole('button', { name: 'Compare' }).click();
  await server.getByRole('button', { name: 'Accept 1 definition' }).waitFor();
  await server.locator('summary').click();
  await server.getByRole('region', { name: 'definition of search' }).filter({ hasText: 'Searches orders.' }).waitFor();
  // The server changes its definition after it was read: what was not seen is not accepted.
  await server.getByRole('button', { name: 'Accept' }).click();
  await server.getByRole('alert').filter({ hasText: 'CONFLICT' }).waitFor();
  await server.getByRole('button', { name: 'Compare' }).click();
  await server.getByRole('region', { name: 'definition of search' }).filter({ hasText: 'passwords' }).waitFor();
  await picture(page, 'own-tools');
  await server.getByRole('button', { name: 'Accept' }).click();
  await panel.getByRole('listitem').filter({ hasText: 'shop_search' }).filter({ hasText: 'ok' }).waitFor();
  await panel.locator('.fold', { hasText: 'shop_search' }).waitFor();
  assert.equal((await send(page, 'DELETE', `api/agents/${id}`)).status, 204);
});
