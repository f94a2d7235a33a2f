import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { corpus } from './corpus.js';
import { after, before, test } from './harness.js';
import { alterResponses, ask, base, close, forbidden, launch, signedIn, until, visit } from './support.js';

/** Further texts that are drawn as Markdown: an array in a file of JSON, which the variable names. */
const further = process.env.XSS_CORPUS ? JSON.parse(readFileSync(process.env.XSS_CORPUS, 'utf8')) : [];
/** Texts that are drawn before the page is examined. */
const BATCH = 200;

let browser, opened;
before(async () => {
  browser = await launch();
  opened = await signedIn(browser);
});
after(async () => {
  await close(opened);
});

const assertClean = async (page, name) => {
  assert.deepEqual(await page.evaluate(forbidden), [], name);
  assert.deepEqual(opened.faults, [], name);
};

/** Draws texts in seven forms, whole and in pieces, and returns the number of drawings. It runs in the page. */
async function drawAll(texts) {
  const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
  const { MarkdownView } = await import(`${folder}lib/markdown.js`);
  const host = document.body.appendChild(document.createElement('div'));
  host.id = 'drawn';
  const forms = [(text) => text, (text) => `Before ${text} after`, (text) => `- ${text}`, (text) => `> ${text}`,
    (text) => `| a |\n|--|\n| ${text} |`, (text) => `\`\`\`\n${text}\n\`\`\``, (text) => `**${text}**`];
  let count = 0;
  for (const text of texts) {
    for (const form of forms) {
      const whole = host.appendChild(document.createElement('div'));
      new MarkdownView(whole).update(form(text), true);
      const pieces = host.appendChild(document.createElement('div'));
      const view = new MarkdownView(pieces);
      for (let end = 0; end < form(text).length; end += 7) view.update(form(text).slice(0, end), false);
      view.update(form(text), true);
      count += 2;
    }
  }
  return count;
}

test('Markdown makes no forbidden node of any text, whole or in pieces', async (t) => {
  const { page } = opened;
  assert.ok(corpus.length >= 60, `${corpus.length} texts`);
  // No text becomes HTML, whatever its source: the page has no policy that could make it trusted.
  const refused = await page.evaluate(() => (document.createElement('div').innerHTML = '<b>x</b>')).catch((error) => error.message);
  assert.match(refused, /TrustedHTML/);
  await until(() => opened.faults.length > 0, 'the violation is reported');
  assert.match(opened.faults.splice(0).join(), /^policy: require-trusted-types-for/);

  const texts = [...corpus, ...further];
  let drawn = 0;
  for (let start = 0; start < texts.length; start += BATCH) {
    drawn += await page.evaluate(drawAll, texts.slice(start, start + BATCH));
    await assertClean(page, `Markdown from text ${start} on`);
    await page.evaluate(() => document.getElementById('drawn').remove());
  }
  assert.equal(drawn, texts.length * 14);
  t.diagnostic(`${drawn} renderings of ${texts.length} texts`);
  await page.reload();
});

test('text and reasoning of an answer', async () => {
  const { page } = opened;
  await visit(page, 'chat/echo');
  await ask(page, corpus.filter((text) => !text.includes('\u0000')).join('\n\n'));
  await page.locator('.reasoning summary').last().click();
  await assertClean(page, 'an answer');
  await page.reload();
  await page.locator('.message.answer').waitFor();
  await assertClean(page, 'a stored answer');
});

test('name, arguments and result of a tool', async () => {
  const { page } = opened;
  await visit(page, 'chat/echo-tools');
  for (const text of ['<img src=x onerror=alert(1)>', '"><script>alert(1)</script>', '[x](javascript:alert(1))']) {
    await ask(page, text);
  }
  for (const summary of await page.locator('.tool summary').all()) await summary.click();
  assert.match(await page.locator('.tool .tool-name').first().innerText(), /<img|script|javascript/);
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.locator('.event-row').nth(8).click();
  await assertClean(page, 'a tool card');
});

test('arguments of a call that waits, and the reason of its refusal', async () => {
  const { page } = opened;
  await visit(page, 'chat/approvals');
  await page.getByRole('textbox', { name: 'Message' }).fill('Write <img src=x onerror=alert(1)> and "><script>alert(1)</script>');
  await page.keyboard.press('Enter');
  await page.locator('.approval').nth(1).waitFor();
  await page.getByRole('button', { name: 'Edit arguments' }).first().click();
  await assertClean(page, 'an approval');
  await visit(page, 'approvals');
  const item = page.locator('.page .approval', { hasText: '<script>' }).first();
  await item.getByRole('button', { name: 'Deny', exact: true }).click();
  await item.getByLabel('Reason').fill('<svg onload=alert(1)>');
  await assertClean(page, 'the page of approvals');
  await item.getByRole('button', { name: 'Deny the call' }).click();
  await page.getByText('“<svg onload=alert(1)>”').waitFor();
  await assertClean(page, 'a decision');
});

test('names of agents, titles of threads, context and documents', async () => {
  const { page } = opened;
  await page.evaluate(async (corpus) => {
    const put = (path, method, body) => fetch(path, { method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
    const printable = corpus.filter((text) => !/[\u0000-\u001f\ud800-\udfff]/.test(text));
    // The fake model's server is the echo agent's; its key is not needed for a preview.
    const { children } = await (await fetch('api/agents/echo')).json();
    delete children[0].content.apiKey;
    for (const [place, text] of printable.slice(0, 24).entries()) {
      const title = text.slice(0, 180);
      await put(`api/agents/hostile-${place}`, 'PUT', { name: title, content: { systemPrompt: text, rules: [text] }, children });
      await put('api/threads', 'POST', { agentId: 'echo', title, messages: [{ role: 'user', content: text }] });
      await put(`api/documents/hostile-${place}`, 'PUT', { title, text });
    }
  }, corpus);
  await page.reload();
  await page.locator('.layout').waitFor();
  for (const [route, selector] of [['agents', '.card'], ['threads', '.item'], ['agents/hostile-0/documents', '.item'], ['agents/hostile-8', '.role-form'], ['chat/hostile-8', '.part']]) {
    await visit(page, route);
    await page.locator(selector).first().waitFor();
    await assertClean(page, route);
  }
  await visit(page, 'agents/hostile-8');
  await page.getByLabel('System prompt').fill(corpus.filter((text) => !/[\u0000-\u001f\ud800-\udfff]/.test(text)).join('\n'));
  await page.getByRole('button', { name: 'Preview', exact: true }).click();
  await page.locator('.part-changed .diff').first().waitFor();
  await assertClean(page, 'a difference');
  await page.getByRole('button', { name: 'Revert' }).click();
  await page.getByRole('button', { name: 'Form', exact: true }).click();
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Go to' }).fill('<');
  await page.getByRole('dialog').getByRole('option').first().waitFor();
  await assertClean(page, 'the list of places');
  await page.keyboard.press('Escape');
  await visit(page, 'jobs/new');
  await page.locator('.next-runs').waitFor();
  await assertClean(page, 'a new job');
  await visit(page, 'agents/hostile-8/tokens');
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Label').fill('"><img src=x onerror=alert(1)>');
  await page.getByRole('button', { name: 'Make the token' }).click();
  await page.getByRole('region', { name: 'snippet' }).waitFor();
  await assertClean(page, 'a snippet');
  await page.getByRole('button', { name: 'Done' }).click();
  await page.locator('.item', { hasText: 'onerror' }).first().waitFor();
  await assertClean(page, 'tokens');
  await visit(page, 'chat/hostile-8');
  await page.getByRole('tab', { name: 'Context' }).click();
  await page.getByLabel('pageContext').fill(JSON.stringify({ corpus: corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text)) }));
  await page.getByRole('region', { name: 'combinedContext' }).filter({ hasText: 'onerror' }).waitFor();
  await page.getByRole('tab', { name: 'Prompt' }).click();
  await page.locator('.part', { hasText: 'onerror' }).first().waitFor();
  for (const summary of await page.locator('.part summary').all()) await summary.click();
  await assertClean(page, 'a prompt');
});

test('jobs, the audit log and the subscription', async () => {
  const { page } = opened;
  const texts = corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text)).slice(0, 40);
  const json = (make) => (route) => route.fulfill({ json: make() });
  const jobs = texts.map((text, place) => ({
    jobId: `j${place}`, state: ['scheduled', 'discarded', text][place % 3], occurrence: 1, attempt: 1, lastError: text, createdAt: text,
    payload: { kind: place % 2 ? 'tool' : 'agent', agentId: text, toolId: place % 2 ? text : undefined, message: text, arguments: { [text]: text } },
    attempts: [{ occurrence: 1, attempt: 1, endedAt: text, durationMs: 1, status: 500, error: text }, { occurrence: 2, attempt: 1, endedAt: text, error: text }],
    schedule: { cron: text, timezone: text }, executeAt: place % 5 === 0 ? text : new Date(Date.now() + place * 3_600_000).toISOString(),
  }));
  const calls = texts.map((text) => ({ at: text, userId: text, credentialId: text, runId: text, tool: text, outcome: text, durationMs: 1 }));
  await page.route('**/api/pulse/jobs?*', json(() => ({ jobs })));
  await page.route(/\/api\/pulse\/jobs\/j\d+$/, (route) => route.fulfill({ json: jobs[Number(/\d+$/.exec(route.request().url())[0])] }));
  await page.route('**/api/agent/tools/audit?*', json(() => ({ calls })));
  await page.route('**/api/coding', json(() => ({ signedIn: true, state: 'ok', plan: texts[0], account: texts[1], refreshedAt: texts[2], limits: { primary: { usedPercent: 5, resetsAt: texts[3] }, credits: { hasCredits: true, balance: texts[4] } } })));
  for (const [route, selector] of [['jobs', '.item'], ['jobs/calendar', '.entry'], ['jobs/j1', '.facts'], ['jobs/j2', '.facts'], ['audit/echo', '.table'], ['account', '.limit']]) {
    await visit(page, route);
    await page.locator(selector).first().waitFor();
    await assertClean(page, route);
  }
  await page.unrouteAll();
});

test('what visitors have written, and the words of their ratings', async () => {
  const { page } = opened;
  const texts = corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text)).slice(0, 40);
  const threads = texts.map((text) => ({ id: text, owner: text, agentId: 'echo', title: text, status: text, messageCount: 1, createdAt: text, lastActivityAt: text }));
  const nodes = texts.map((text, place) => ({
    id: `n${place}`, status: 'complete', createdAt: text, feedback: { rating: text, comment: text },
    message: [{ role: 'user', content: text }, { role: 'assistant', content: text, toolCalls: [{ id: 'c', function: { name: text, arguments: text } }] }, { role: 'tool', content: text }][place % 3],
  }));
  const feedback = texts.map((text, place) => ({ id: `f${place}`, rating: place % 2 ? 'up' : text, tags: [text], comment: text, share: true, createdAt: text, message: { role: 'assistant', content: text } }));
  await page.route('**/api/agents/echo/threads?*', (route) => route.fulfill({ json: { threads, nextCursor: 'x' } }));
  await page.route('**/api/agents/echo/feedback?*', (route) => route.fulfill({ json: { feedback } }));
  await page.route('**/api/threads/hostile?*', (route) => route.fulfill({ json: { ...threads[0], nodes } }));
  for (const [route, selector] of [['agents/echo/visitors', '.item'], ['agents/echo/visitors/hostile?owner=x', '.read-only .message'], ['agents/echo/visitors/feedback', '.item']]) {
    await visit(page, route);
    await page.locator(selector).first().waitFor();
    for (const summary of await page.locator('.agent-panel summary').all()) await summary.click();
    await assertClean(page, route);
  }
  await page.unrouteAll();
});

test('names in the usage and in limits', async () => {
  const { page } = opened;
  const texts = corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text)).slice(0, 60);
  const day = new Date().toISOString().slice(0, 10);
  const rows = texts.map((text, place) => ({ day: place % 3 ? day : text, agentId: text, userId: text, provider: text, model: text, caller: text, runs: place % 2 ? 1 : text, calls: 1, inputTokens: text, outputTokens: 1, cost: place % 2 ? '1.000000000' : text, unpricedCalls: place }));
  await page.route('**/api/usage?*', (route) => route.fulfill({ json: { currency: texts[0], asOf: texts[1], rows } }));
  await page.route('**/api/limits', (route) => route.fulfill({ json: { asOf: 'x', limits: texts.map((text, place) => ({ policy: text, kind: text, unit: text, window: text, amount: place, used: 1, reserved: 1, resetsAt: text })) } }));
  for (const by of ['model', 'agent', 'user', 'caller', 'day']) {
    for (const time of ['7', '365']) {
      await visit(page, `usage?by=${by}&time=${time}&agent=${encodeURIComponent(texts[0])}`);
      await page.waitForFunction((head) => document.querySelector('.sums thead')?.textContent.toLowerCase().startsWith(head), by);
      await page.locator('.limit').first().waitFor();
      await assertClean(page, `usage by ${by}`);
    }
  }
  await page.unrouteAll();
});

test('the form of a tool, and what the tool answers', async () => {
  const { page } = opened;
  const texts = corpus.filter((text) => !/[\u0000\ud800-\udfff]/.test(text)).slice(0, 40);
  const kinds = [(text) => ({ type: 'string', description: text, examples: [text] }), (text) => ({ enum: [text, 'x'], description: text }), (text) => ({ type: 'object', description: text, default: { [text]: text } }), (text) => ({ type: 'number', minimum: text, maximum: text })];
  const properties = Object.fromEntries(texts.map((text, place) => [text, kinds[place % kinds.length](text)]));
  const tool = { name: '<img src=x onerror=alert(1)>', description: texts[1], inputSchema: JSON.parse(JSON.stringify({ type: 'object', properties }).replace('{"type":"object","properties":{', '{"type":"object","properties":{"__proto__":{"type":"string"},')), annotations: { readOnlyHint: true } };
  await alterResponses(page, '**/api/svcchat/previewPrompt', (preview) => ({ ...preview, tools: [tool] }));
  await page.route('**/api/agents/text/tokens', (route) => route.fulfill({ status: 201, json: { id: 't', token: 'agm_x' } }));
  await page.route('**/api/agents/text/tokens/t', (route) => route.fulfill({ status: 204 }));
  const content = texts.map((text, place) => [{ type: 'text', text }, { type: text, mimeType: text, data: text }, { type: 'resource_link', uri: text }][place % 3]);
  await page.route('**/api/agent/mcp', (route) => route.fulfill({ json: { jsonrpc: '2.0', id: 1, result: { content, isError: true } } }));
  await visit(page, 'chat/text');
  await page.getByRole('tab', { name: 'Tools' }).click();
  await page.locator('#debug-panel .fold summary').first().click();
  const form = page.locator('.try');
  await form.locator('.field').nth(texts.length).waitFor();
  assert.equal(await form.locator('.field').count(), texts.length + 1);
  await assertClean(page, 'a form');
  await form.getByRole('button', { name: 'Call' }).click();
  await form.locator('.outcome').waitFor();
  await assertClean(page, 'a result');
  await page.unrouteAll();
});

test('a thread that another page links does nothing by itself', async () => {
  const { page } = opened;
  for (const hash of ['#/chat/%3Cimg%20src=x%20onerror=alert(1)%3E/x', '#/agents/%22%3E%3Cscript%3Ealert(1)%3C/script%3E', '#/%E0%A4%A', '#enter=<script>']) {
    await page.goto(`${base}${hash}`);
    await page.locator('.layout').waitFor();
    await assertClean(page, hash);
  }
});
