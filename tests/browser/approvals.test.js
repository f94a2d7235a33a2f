import assert from 'node:assert/strict';

import { before, test } from './harness.js';
import { base, close, launch, link, openPage, pageTests, picture, pictureIfFailed, signedIn, until, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inOwnPage, inPage } = pageTests(() => browser);

const card = (page, nth = 0) => page.locator('.chat .approval').nth(nth);
const button = (place, name) => place.getByRole('button', { name, exact: true });
/** A title that no other test has. */
const unique = (word) => `${word}-${Math.random().toString(36).slice(2, 8)}`;

/** Asks the agent to write documents, each of which needs approval. */
async function askFor(page, ...titles) {
  await visit(page, 'chat/approvals');
  await page.getByRole('textbox', { name: 'Message' }).fill(`Write ${titles.join(' and ')}`);
  await page.keyboard.press('Enter');
  await card(page, titles.length - 1).waitFor();
}

/** Returns the titles of the company's documents. */
const documents = (page) =>
  page.evaluate(async () => (await (await fetch('api/documents?limit=200')).json()).documents.map(({ title }) => title));

/** The page of a call whose time runs out while the other tests run. */
let expiring;

test('the time for a decision runs down', async () => {
  const opened = await signedIn(browser);
  const { page } = opened;
  await pictureIfFailed(page, 'expiring', async () => {
    await page.evaluate(async () => {
      const { content, children } = await (await fetch('api/agents/approvals')).json();
      content.approvals[0].ttlMs = 15_000;
      // The key is not needed, and not known for another agent.
      delete children[0].content.apiKey;
      const role = { name: 'Brief', content, children };
      await fetch('api/agents/approvals-brief', { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(role) });
    });
    await page.reload();
    await visit(page, 'chat/approvals-brief');
    const message = page.getByRole('textbox', { name: 'Message' });
    await message.fill('Write weeds');
    await message.press('Enter');
    await card(page).getByText(/expires in \d+ s/).waitFor();
  });
  expiring = opened;
});

inPage('a call that needs approval is made when it is approved', async (page) => {
  const title = unique('roses');
  await askFor(page, title);
  await card(page).getByText('Write this document?').waitFor();
  assert.match(await card(page).innerText(), /createDoc[^]*expires in (1 d|23 h 59 min)/);
  assert.ok((await card(page).innerText()).includes(title));
  assert.ok(!(await documents(page)).includes(title), 'nothing is done before the decision');
  await page.reload();
  await card(page).waitFor();
  await button(card(page), 'Approve').click();
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  await page.locator('.tool summary', { hasText: 'createDoc' }).click();
  await page.locator('.tool', { hasText: 'Approved by u1, in the chat' }).waitFor();
  assert.equal(await page.locator('.message.answer').count(), 1, 'the answer goes on');
  assert.ok((await documents(page)).includes(title));
});

inPage('arguments are changed by a form and as JSON', async (page) => {
  const title = unique('tulips');
  const changed = unique('lilies');
  await askFor(page, title);
  await button(card(page), 'Edit arguments').click();
  await card(page).getByLabel('title').fill('');
  await button(card(page), 'Approve changed').click();
  await card(page).getByText('It is required.').waitFor();
  await card(page).getByLabel('title').fill(changed);
  await picture(page, 'approval-form');
  await button(card(page), 'As JSON').click();
  const json = card(page).getByRole('textbox', { name: 'Arguments' });
  assert.equal(JSON.parse(await json.inputValue()).title, changed, 'the form’s edit goes along');
  await json.fill('{"title": "x",');
  await button(card(page), 'As a form').click();
  await card(page).getByText(/is not JSON/).waitFor();
  await json.fill(JSON.stringify({ title: changed, text: 7 }));
  await button(card(page), 'Approve changed').click();
  await page.getByRole('alert').filter({ hasText: 'arguments.text does not conform to the schema' }).waitFor();
  const again = card(page).getByRole('textbox', { name: 'Arguments' });
  assert.equal(JSON.parse(await again.inputValue()).text, 7, 'what was refused is there to be mended');
  await again.fill(JSON.stringify({ title: changed, text: 'All about it.' }));
  await button(card(page), 'Approve changed').click();
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  const titles = await documents(page);
  assert.deepEqual([titles.includes(title), titles.includes(changed)], [false, true]);
  await page.locator('.tool summary').click();
  await page.getByText('Changed arguments').waitFor();
});

inPage('whole numbers beyond 2^53 are shown and sent with all their digits', async (page) => {
  const approval = (more) => `{"id": "a-1", "runId": "r-1", "agentId": "approvals", "threadId": "t-1", "tool": "pay", "by": "user", "editable": true,
    "createdAt": "2026-11-20T10:00:00Z", "expiresAt": "2100-01-01T00:00:00Z", "arguments": {"account": 9007199254740993, "rate": 1.5}, ${more}}`;
  const schema = '{"properties": {"account": {"type": "integer", "maximum": 9223372036854775807}, "rate": {"type": "number"}}}';
  const respond = (route, body) => route.fulfill({ contentType: 'application/json', body });
  let sent;
  await page.route('**/api/approvals?*', (route) => respond(route, `{"approvals": [${approval('"state": "open"')}]}`));
  await page.route('**/api/runs/r-1', (route) => respond(route, `{"id": "r-1", "outcome": {"interrupts": [{"id": "a-1", "responseSchema": {"properties": {"editedArgs": ${schema}}}}]}}`));
  await page.route('**/api/approvals/a-1', (route) => {
    sent = route.request().postData();
    return respond(route, approval('"state": "approved", "editedArguments": {"account": 9007199254740995}'));
  });
  await visit(page, 'approvals');
  const item = page.locator('.page .approval');
  await item.locator('.code', { hasText: '"account": 9007199254740993,' }).waitFor();
  await button(item, 'Edit arguments').click();
  const account = item.getByLabel('account');
  assert.equal(await account.inputValue(), '9007199254740993');
  await account.fill('9007199254740995');
  await button(item, 'As JSON').click();
  assert.match(await item.getByRole('textbox', { name: 'Arguments' }).inputValue(), /"account": 9007199254740995,/);
  await button(item, 'As a form').click();
  assert.equal(await account.inputValue(), '9007199254740995');
  await button(item, 'Approve changed').click();
  await item.locator('.decision .code', { hasText: '"account": 9007199254740995' }).waitFor();
  assert.match(sent, /"arguments":\{"account":9007199254740995,"rate":1\.5\}/);
  // The card of a call has its arguments and its result as texts.
  const shown = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    const { pretty } = await import(`${folder}lib/format.js`);
    return pretty('{"id": -9007199254740993, "text": "9007199254740993", "rate": 0.1}');
  });
  assert.equal(shown, '{\n  "id": -9007199254740993,\n  "text": "9007199254740993",\n  "rate": 0.1\n}');
});

inPage('the arguments and the reason have the focus when they are opened, and their buttons when they are closed', async (page) => {
  await askFor(page, unique('thyme'));
  const hasFocus = (target) => target.evaluate((node) => node === document.activeElement);
  const fields = { 'Edit arguments': card(page).locator('.arguments').locator('input, select, textarea').first(), Deny: card(page).getByLabel('Reason') };
  for (const [name, field] of Object.entries(fields)) {
    await button(card(page), name).focus();
    await page.keyboard.press('Enter');
    await field.waitFor();
    assert.ok(await hasFocus(field), `the field has the focus after ${name}`);
    await button(card(page), 'Back').focus();
    await page.keyboard.press('Enter');
    await field.waitFor({ state: 'detached' });
    assert.ok(await hasFocus(button(card(page), name)), `the button ${name} has the focus`);
  }
  await page.keyboard.press('Enter');
  await button(card(page), 'Deny the call').click();
  await page.locator('.message.answer .markdown', { hasText: 'denied' }).waitFor();
});

inPage('a decision that is taken and changed keeps the focus, and so do those about all calls', async (page) => {
  await askFor(page, unique('sage'), unique('mint'));
  const hasFocus = (target) => target.evaluate((node) => node === document.activeElement);
  await button(card(page), 'Approve').focus();
  for (const name of ['Change', 'Approve', 'Change']) {
    await page.keyboard.press('Enter');
    await button(card(page), name).waitFor();
    assert.ok(await hasFocus(button(card(page), name)), `the button ${name} has the focus`);
  }
  await button(page, 'Approve all').focus();
  await page.keyboard.press('Enter');
  await page.getByText('2 of 2 decided.').waitFor();
  assert.ok(await hasFocus(button(page, 'Send decisions')), 'what is left to do has the focus');
  await page.keyboard.press('Enter');
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  assert.ok(await hasFocus(page.getByRole('textbox', { name: 'Message' })), 'the message has the focus');
});

inPage('a decision outside of the chat leaves the focus to the next call', async (page) => {
  const titles = [unique('chives'), unique('dill')];
  await askFor(page, ...titles);
  await visit(page, 'approvals');
  const item = (title) => page.locator('.page .approval', { hasText: title });
  for (const title of titles) await button(item(title), 'Approve').waitFor();
  await button(item(titles[0]), 'Approve').focus();
  await page.keyboard.press('Enter');
  await button(item(titles[0]), 'Approve').waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement.textContent === 'Approve' && document.activeElement.closest('.approval'));
  await button(item(titles[1]), 'Approve').click();
  await button(item(titles[1]), 'Approve').waitFor({ state: 'detached' });
});

inPage('several calls are decided together, with a reason', async (page) => {
  const [first, second] = [unique('asters'), unique('basil')];
  await askFor(page, first, second);
  const send = button(page.getByRole('group', { name: 'Decisions' }), 'Send decisions');
  await button(card(page, 0), 'Approve').click();
  assert.ok(await send.isDisabled(), 'one call has no decision');
  await button(card(page, 1), 'Deny').click();
  await card(page, 1).getByLabel('Reason').fill('no herbs');
  await button(card(page, 1), 'Deny the call').click();
  await page.getByText('2 of 2 decided').waitFor();
  await button(card(page, 0), 'Change').click();
  await button(card(page, 0), 'Approve').click();
  await picture(page, 'approvals-decided');
  await send.click();
  await page.locator('.message.answer .markdown', { hasText: 'no herbs' }).waitFor();
  const titles = await documents(page);
  assert.deepEqual([titles.includes(first), titles.includes(second)], [true, false]);
  await page.locator('.tool summary').nth(1).filter({ hasText: 'denied' }).waitFor();
});

inPage('the decisions of a thread stay when those of another one are sent', async (page) => {
  await askFor(page, unique('yarrow'), unique('tansy'));
  const { hash } = new URL(page.url());
  await button(card(page), 'Approve').click();
  await page.getByText('1 of 2 decided.').waitFor();
  await askFor(page, unique('borage'));
  // The page reads what is open once the decision is sent.
  const sent = page.waitForResponse('**/api/agent/chat').then(() => page.waitForResponse('**/api/approvals?state=open'));
  await button(card(page), 'Approve').click();
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  await sent;
  await page.evaluate((hash) => (location.hash = hash), hash);
  await page.getByText('1 of 2 decided.').waitFor();
});

inOwnPage('a decision elsewhere is seen without a reload', async (page, { context }) => {
  await page.clock.install();
  await page.reload();
  await page.locator('.layout').waitFor();
  await askFor(page, unique('ferns'));
  const other = await context.newPage();
  await other.goto(page.url());
  await button(card(other), 'Deny').click();
  await button(card(other), 'Deny the call').click();
  await other.locator('.message.answer .markdown', { hasText: 'denied' }).waitFor();
  // The page looks every five seconds.
  await until(async () => {
    await page.clock.fastForward(5000);
    return page.locator('.message.answer .markdown', { hasText: 'denied' }).isVisible();
  }, 'the page sees the decision');
  await page.locator('.tool summary', { hasText: 'denied' }).waitFor();
});

inPage('a decision that comes too late is not taken, and the page says so', async (page, { context }) => {
  const title = unique('hops');
  await askFor(page, title);
  // This page hears nothing of the other one.
  await page.route(/\/api\/runs\/[^/?]+$/, (route) => route.abort());
  const other = await context.newPage();
  await other.goto(page.url());
  await button(card(other), 'Deny').click();
  await button(card(other), 'Deny the call').click();
  await other.locator('.message.answer .markdown', { hasText: 'denied' }).waitFor();
  await button(card(page), 'Approve').click();
  await page.getByRole('alert').filter({ hasText: 'decided elsewhere' }).waitFor();
  await page.locator('.message.answer .markdown', { hasText: 'denied' }).waitFor();
  assert.ok(!(await documents(page)).includes(title));
});

inPage('a decision that did not reach the server can be taken again', async (page) => {
  await askFor(page, unique('clover'));
  await page.route('**/api/agent/chat', (route) => route.abort(), { times: 1 });
  await button(card(page), 'Approve').click();
  const alert = page.locator('.conversation').getByRole('alert').filter({ hasText: 'NETWORK' });
  await alert.waitFor();
  await button(card(page), 'Approve').click();
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  await alert.waitFor({ state: 'detached' });
});

inPage('a message while calls wait is held, and withdraws them', async (page) => {
  await askFor(page, unique('ivy'));
  const message = page.getByRole('textbox', { name: 'Message' });
  await message.fill('Something else');
  await page.keyboard.press('Enter');
  await button(page, 'Keep waiting').click();
  // The text is not lost.
  await page.waitForFunction(() => document.querySelector('#composer').value === 'Something else');
  await message.press('Enter');
  await picture(page, 'approval-held');
  await button(page, 'Withdraw and send').click();
  await page.locator('.message.answer .markdown', { hasText: 'Hello again' }).waitFor();
  await page.locator('.chat .approval').first().waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await page.locator('.tool summary', { hasText: 'withdrawn' }).waitFor();
});

test('a colleague decides where the role lets the company decide', async () => {
  const asking = await signedIn(browser);
  const title = unique('sage');
  await askFor(asking.page, title);
  const colleague = await openPage(browser);
  await colleague.page.goto(await link('u2'));
  await colleague.page.locator('.layout').waitFor();
  await visit(colleague.page, 'approvals');
  const item = colleague.page.locator('.page .approval', { hasText: title });
  await button(item, 'Edit arguments').click();
  // The run, which has the tool's schema, is another user's.
  const edited = colleague.page.locator('.page .approval:has(.arguments)');
  const json = edited.getByRole('textbox', { name: 'Arguments' });
  assert.equal(JSON.parse(await json.inputValue()).title, title);
  await json.fill(JSON.stringify({ title: `${title}-2`, text: 'By a colleague.' }));
  assert.equal(await edited.getByRole('link', { name: 'Open the chat' }).count(), 0);
  await button(edited, 'Approve changed').click();
  await colleague.page.getByText('Approved by u2').first().waitFor();
  // A page that is shown looks at once.
  await asking.page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await asking.page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  await asking.page.locator('.tool summary').click();
  await asking.page.locator('.tool', { hasText: 'Approved by u2, outside of the chat' }).waitFor();
  assert.ok((await documents(asking.page)).includes(`${title}-2`));
  assert.deepEqual([...asking.faults, ...colleague.faults], []);
  await Promise.all([close(asking), close(colleague)]);
});

inPage('a button whose decision is refused has the focus again', async (page) => {
  const title = unique('lichen');
  await askFor(page, title);
  await visit(page, 'approvals');
  await page.route('**/api/approvals/*', (route) => (route.request().method() === 'POST'
    ? route.fulfill({ status: 409, contentType: 'application/problem+json', body: '{"code":"CONFLICT","detail":"the run has not ended yet"}' })
    : route.fallback()));
  const approve = button(page.locator('.page .approval', { hasText: title }), 'Approve');
  await approve.press('Enter');
  await page.getByRole('alert').filter({ hasText: 'the run has not ended yet' }).waitFor();
  await page.waitForFunction((button) => !button.disabled, await approve.elementHandle());
  await page.waitForFunction((button) => document.activeElement === button, await approve.elementHandle());
});

inPage('the page of approvals decides, and the navigation counts', async (page, { context }) => {
  const title = unique('moss');
  await askFor(page, title);
  const chat = page.url();
  await visit(page, 'approvals');
  const item = page.locator('.page .approval', { hasText: title });
  await item.waitFor();
  await page.locator('.nav-link', { hasText: /Approvals\s*\d+\s*open/ }).waitFor();
  await picture(page, 'approvals');
  const late = await context.newPage();
  await late.goto(`${base}#/approvals`);
  const lateItem = late.locator('.page .approval', { hasText: title });
  await button(lateItem, 'Deny').click();
  await late.route('**/api/approvals?state=open', (route) => route.abort());
  await button(item, 'Approve').click();
  await page.getByText('Approved by u1, outside of the chat').waitFor();
  await button(lateItem, 'Deny the call').click();
  await late.getByRole('alert').filter({ hasText: 'the approval is already approved' }).waitFor();
  await late.getByText('Approved by u1, outside of the chat').waitFor();
  assert.notEqual(await late.evaluate(() => document.activeElement.tagName), 'BODY', 'the focus stays in the list');
  await page.goto(chat);
  await page.locator('.message.answer .markdown', { hasText: 'Result:' }).waitFor();
  assert.ok((await documents(page)).includes(title));
  await visit(page, 'approvals');
  await page.getByRole('combobox', { name: 'Show' }).selectOption('decided');
  await page.locator('.item', { hasText: 'Approved by u1' }).first().waitFor();
});

test('a decision is awaited until it expires', async () => {
  const { page, faults } = expiring;
  await pictureIfFailed(page, 'expired', async () => {
    await page.locator('.tool summary', { hasText: 'expired' }).waitFor();
    await page.locator('.chat .approval').first().waitFor({ state: 'detached' });
    const message = page.getByRole('textbox', { name: 'Message' });
    await message.fill('Hello?');
    await message.press('Enter');
    await page.locator('.message.answer .markdown', { hasText: /again|Result:/ }).waitFor();
    await page.evaluate(() => fetch('api/agents/approvals-brief', { method: 'DELETE' }));
  });
  assert.deepEqual(faults, []);
  await close(expiring);
});
