import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';

import { before, test } from './harness.js';
import { alterResponses, ask, launch, link, openPage, pageTests, picture, until, visit } from './support.js';
import { usageRows } from './usage-rows.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

/** Serves rows in pages of a few, and returns the queries. */
async function serve(page, rows, pageRows = 40) {
  const queries = [];
  await page.route('**/api/usage?*', (route) => {
    const query = new URL(route.request().url()).searchParams;
    const from = Number(query.get('cursor') ?? 0);
    const dimensions = query.get('groupBy').split(',');
    queries.push(Object.fromEntries(query));
    const found = rows(dimensions);
    const to = from + pageRows;
    return route.fulfill({ json: { currency: 'USD', asOf: new Date().toISOString(), rows: found.slice(from, to), nextCursor: to < found.length ? String(to) : undefined } });
  });
  return queries;
}

const cells = async (row) => (await row.locator('th, td').allInnerTexts()).map((text) => text.trim().replace(/\s+/g, ' '));
const press = (page, name) => page.getByRole('button', { name, exact: true }).click();

inPage('usage is drawn by day and group, summed up, and exported', async (page) => {
  const queries = await serve(page, usageRows);
  await page.getByRole('link', { name: 'Usage' }).click();
  await page.locator('.column-bar span').first().waitFor();
  await page.locator('.column-bar').nth(29).waitFor({ state: 'attached' });
  assert.equal(await page.locator('.column-bar').count(), 30);
  assert.deepEqual([queries[0].groupBy, queries[1].cursor, queries[0].limit], ['day,provider,model', '40', '1000']);
  assert.equal((new Date(queries[0].to) - new Date(queries[0].from)) / 86_400_000, 29);
  // Eight models, of which the first five have colours of their own.
  const legend = await page.locator('.chart .legend dt').allInnerTexts();
  assert.equal(legend.length, 6);
  assert.equal(legend.at(-1), '3 others');
  const rows = page.locator('.sums tbody tr');
  await rows.nth(7).waitFor();
  assert.equal(await rows.count(), 8);
  const sums = (await rows.evaluateAll((rows) => rows.map((row) => [...row.cells].slice(1, 7).map((cell) => Number(cell.innerText.replaceAll(',', '')))))).reduce((sum, row) => row.map((value, place) => value + sum[place]));
  const total = await cells(page.locator('.sums tfoot tr'));
  assert.deepEqual(total.slice(1, 7).map((text) => Number(text.replaceAll(',', ''))), sums);
  assert.equal(total[7].split(' ')[0], await page.locator('.figures dd').first().innerText());
  // The greatest column is as high as its part of the rounded maximum.
  const drawn = await page.evaluate(() => {
    const plot = document.querySelector('.columns').getBoundingClientRect();
    return Math.max(...[...document.querySelectorAll('.column-bar')].map((bar) => [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().height, 0))) / plot.height;
  });
  assert.ok(drawn > 0.35 && drawn <= 1.01, `${drawn}`);
  // A column under the pointer has its own figures, and nothing moves for them.
  const box = await page.locator('.chart').boundingBox();
  await page.locator('.column-bar').nth(12).hover();
  await page.locator('.column-bar.hovered').waitFor();
  assert.match(await page.locator('.chart figcaption').innerText(), /Cost by day\s+\w+ \d+|Cost by day\s+\d+ \w+/);
  assert.deepEqual(await page.locator('.chart').boundingBox(), box);
  await page.mouse.move(1, 1);
  assert.match(await page.locator('.note-warn').innerText(), /calls have no known price and are not in the cost:\s+ollama\/qwen3:8b \d+\s+The operator/);
  await picture(page, 'usage');

  const started = page.waitForEvent('download');
  await press(page, 'Export CSV');
  const download = await started;
  assert.match(download.suggestedFilename(), /^usage-model-20\d\d-\d\d-\d\d-20\d\d-\d\d-\d\d\.csv$/);
  const [head, ...lines] = (await readFile(await download.path(), 'utf8')).trim().split('\r\n');
  assert.equal(head, '"day","provider","model","runs","calls","inputTokens","cachedInputTokens","cacheWriteTokens","outputTokens","reasoningTokens","toolCalls","unpricedCalls","cost","estimatedCost"');
  assert.equal(lines.length, usageRows(['day', 'provider', 'model']).length);
  assert.match(lines[0], /^"20\d\d-\d\d-\d\d","[a-z]+","[^"]+","\d+","\d+",.*"\d+\.\d{9}","0\.000000000"$/);
});

inPage('the groups, the sums and the time of the usage are in the address', async (page) => {
  const queries = await serve(page, usageRows, 1000);
  await visit(page, 'usage');
  await page.locator('.sums').waitFor();
  await press(page, 'Tokens');
  await page.locator('.chart figcaption', { hasText: 'Tokens by day' }).waitFor();
  for (const [name, groupBy, head] of [['Agent', 'day,agent', 'Agent'], ['Caller', 'day,caller', 'Caller'], ['User', 'day,user', 'User'], ['Day', 'day', 'Day']]) {
    const asked = page.waitForResponse((response) => new URL(response.url()).searchParams.get('groupBy') === groupBy);
    await press(page, name);
    await asked;
    await page.locator('.sums thead th').first().filter({ hasText: new RegExp(`^${head}$`) }).waitFor();
  }
  assert.equal(await page.locator('.chart .legend').count(), 0, 'a chart of days has one series');
  await page.getByRole('combobox', { name: 'Time' }).selectOption('365');
  await page.locator('.chart figcaption', { hasText: 'Tokens by week' }).waitFor();
  assert.equal(await page.locator('.column-bar').count(), 53);
  await page.getByRole('combobox', { name: 'Agent' }).selectOption('garden');
  await page.getByText('for all users and visitors').waitFor();
  const mine = page.waitForRequest((request) => request.url().includes('userId=u1'));
  await page.getByLabel('Mine alone').check();
  await mine;
  await page.getByText('Your own calls').waitFor();
  assert.equal(queries.at(-1).agentId, 'garden');
  assert.match(page.url(), /#\/usage\?measure=tokens&by=day&time=365&agent=garden&mine=true$/);
  await page.reload();
  await page.locator('.chart figcaption', { hasText: 'Tokens by week' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Day', exact: true }).getAttribute('aria-pressed'), 'true');
  await visit(page, 'usage?by=__proto__&measure=toString&time=x');
  await page.locator('.chart figcaption', { hasText: 'Cost by day' }).waitFor();
});

inPage('a chart without a value says so', async (page) => {
  // The calls of a model in this process cost nothing.
  await serve(page, (dimensions) => usageRows(dimensions).map((row) => ({ ...row, cost: '0.000000000' })), 1000);
  await visit(page, 'usage');
  await page.locator('.plot').getByText('No cost in this time.').waitFor();
  await press(page, 'Tokens');
  await page.locator('.chart figcaption', { hasText: 'Tokens by day' }).waitFor();
  assert.equal(await page.locator('.plot p').count(), 0);
});

inPage('usage of an agent is what the server has booked', async (page) => {
  const id = `usage-${Date.now()}`;
  const put = (id, model) => page.evaluate(async ([id, model]) => {
    const { content, children } = await (await fetch('api/agents/text')).json();
    Object.assign(children[0].content, { apiKey: 'k', model });
    const body = JSON.stringify({ name: `Booked ${model}`, content, children });
    return (await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body })).status;
  }, [id, model]);
  const booked = async (calls) => {
    const read = () => page.evaluate(async (id) => (await (await fetch(`api/usage?agentId=${id}`)).json()).rows[0]?.calls ?? 0, id);
    await until(async () => (await read()) === calls, `${calls} calls are booked`);
  };
  assert.equal(await put(id, 'text'), 201);
  await page.reload();
  await page.locator('.layout').waitFor();
  await visit(page, `chat/${id}`);
  await ask(page, 'What does this cost?');
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.locator('.figures', { hasText: /Cost\s*< \$0\.0001/ }).waitFor();
  await page.locator('.message.answer .meta', { hasText: /s · < \$0\.0001$/ }).waitFor();
  await booked(1);
  await visit(page, 'usage');
  await page.getByRole('combobox', { name: 'Agent' }).selectOption(id);
  await page.getByText('by this agent, for all users').waitFor();
  const rows = page.locator('.sums tbody tr');
  // 11 tokens of input for two dollars a million, and 7 of output for ten. The rows of all agents are shown until they are there.
  const expected = ['text openai', '1', '1', '11', '0', '7', '0', '< $0.0001'];
  await until(async () => (await cells(rows.first())).join() === expected.join(), 'the row of the agent is shown');
  assert.equal(await page.locator('.note-warn').count(), 0);
  // The name of a model without a price is the one that its provider reports.
  assert.equal(await put(id, 'unpriced'), 200);
  await visit(page, `chat/${id}`);
  await ask(page, 'And this?');
  await booked(2);
  await visit(page, `usage?agent=${id}&by=caller`);
  await page.locator('.note-warn', { hasText: '1 call has no known price and is not in the cost' }).getByText('openai/fake-1').waitFor();
  assert.deepEqual((await cells(rows.first())).slice(0, 3), ['session', '2', '2']);
  await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
});

inPage('limits are shown with what is used of them', async (page) => {
  await visit(page, 'usage');
  const limits = page.locator('.limits');
  await limits.locator('.limit', { hasText: 'Runs a minute' }).waitFor();
  assert.match(await limits.innerText(), /Your limits[^]*Runs a minute\s+[\d,]+ of [\d,]+ used/);
  await page.route('**/api/limits', (route) => route.fulfill({ json: { asOf: 'x', limits: [{ policy: 'minute', kind: 'user', unit: 'runs', window: 'minute', amount: 20, used: 17, reserved: 2, resetsAt: new Date(Date.now() + 60_000).toISOString() }] } }));
  await visit(page, 'threads');
  await visit(page, 'usage');
  await limits.getByText('17 of 20 used, 2 reserved, free again').waitFor();
  assert.equal(await limits.locator('progress.full').getAttribute('value'), '19');
  const budget = { policy: 'budget', kind: 'company', unit: 'cost', window: 'month', amount: '50.000000000', used: '12.500000000', reserved: '10.250000000', resetsAt: '2026-12-01T00:00:00Z' };
  await page.route('**/api/limits', (route) => route.fulfill({ json: { asOf: 'x', limits: [budget] } }));
  await visit(page, 'threads');
  await visit(page, 'usage');
  await limits.getByText('$12.50 of $50.00 used, $10.25 reserved, free again').waitFor();
  await page.route('**/api/limits', (route) => route.fulfill({ json: { asOf: 'x', limits: [] } }));
  await page.route('**/api/usage?*', (route) => route.fulfill({ status: 503, contentType: 'application/problem+json', body: '{"code":"STORE_UNAVAILABLE","detail":"no disk"}' }));
  await visit(page, 'threads');
  await visit(page, 'usage');
  await page.getByRole('alert').filter({ hasText: 'STORE_UNAVAILABLE' }).waitFor();
  await limits.getByText('The operator has set none.').waitFor();
});

test('users see their own usage, and nothing of it where the server has none', async () => {
  const { page, context, faults } = await openPage(browser);
  await page.goto(await link('u8'));
  await page.locator('.layout').waitFor();
  await page.getByRole('link', { name: 'Usage' }).click();
  await page.getByText('Your own calls of models').waitFor();
  await page.getByText('No model was called in this time.').waitFor();
  assert.equal(await page.getByLabel('Mine alone').count(), 0);
  assert.ok(await page.getByRole('button', { name: 'Export CSV' }).isDisabled());
  await alterResponses(page, '**/api/console/session', (session) => ({ ...session, features: session.features.filter((feature) => feature !== 'usage') }));
  await page.reload();
  await page.getByRole('link', { name: 'Audit' }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Usage' }).count(), 0);
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Go to' }).fill('usage');
  await page.getByText('Nothing has this name.').waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

inPage('sums of money are exact, and charts end at round numbers', async (page) => {
  const made = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { columnsOf, daysUpTo, dollars, groupsOf, nanos, roundUp, sumOf } = await import(`${folder}lib/usage.js`);
    const days = daysUpTo(100, new Date('2026-03-01T23:59:00Z'));
    const rows = [
      { day: days[0], model: 'a', provider: 'p', runs: 1, cost: '0.000000001', inputTokens: 1, outputTokens: 1 }, { day: days[99], model: 'a', provider: 'p', runs: 2, cost: '9007199.254740993' },
      { day: days[99], model: '', provider: '', toolCalls: 3, cost: '0.000000000' }, { day: '1999-01-01', model: 'a', provider: 'p', runs: 4, cost: '-1' },
    ];
    const groups = groupsOf(rows, 'model', 'runs');
    const columns = columnsOf(rows, { days, by: 'model', measure: 'runs', groups });
    return {
      words: ['0.000000000', '0.000000001', '0.000100000', '1.500000000', '12.345678901', '1,5', '1e9', '-0.1'].map((text) => dollars(nanos(text))),
      round: [0, NaN, 0.00012, 1, 3, 7, 10, 26, 260_000].map(roundUp), cost: String(sumOf(rows).cost),
      groups: groups.map(({ name, sums }) => [name, sums.runs, sums.toolCalls]), count: columns.length, first: columns[0], last: columns.at(-1), days: [days[0], days[99]],
    };
  });
  assert.deepEqual(made.words, ['$0.00', '< $0.0001', '$0.0001', '$1.5000', '$12.35', '$0.00', '$0.00', '$0.00']);
  assert.deepEqual(made.round.map((value) => Number(value.toPrecision(6))), [1, 1, 0.0002, 1, 5, 10, 10, 50, 500_000]);
  assert.equal(made.cost, '9007199254740994');
  assert.deepEqual(made.groups, [['a', 7, 0], ['tools', 0, 3]]);
  assert.deepEqual([made.count, made.days], [15, ['2025-11-22', '2026-03-01']]);
  assert.deepEqual([made.first, made.last], [{ from: '2025-11-22', to: '2025-11-23', values: [1, 0], total: 1 }, { from: '2026-02-23', to: '2026-03-01', values: [2, 0], total: 2 }]);
});
