// Calls about which a visitor of the widget decides.

import assert from 'node:assert/strict';

import { corpus } from './corpus.js';
import { after, before, test } from './harness.js';
import { manage, mint, startHost } from './host.js';
import { forbidden, launch, picture } from './support.js';
import { answers, checkWidget, input, isIdle, openWidget, say, showPanel } from './widget.js';

const QUESTION = 'Shall I look through our documents?';

let browser, host;
before(async () => {
  browser = await launch();
  host = await startHost();
});
after(async () => {
  host.close();
});

const cards = (page) => page.getByRole('group', { name: QUESTION });
const button = (place, name) => place.getByRole('button', { name, exact: true });
const statuses = (page) => page.evaluate(() => told.filter(([name]) => name === 'run').map(([, { status }]) => status));

/** Opens the chat of an agent and asks it to look for things, each of which needs the visitor's decision. */
async function openQuestions(things, { agent = 'questions', ...fields } = {}) {
  const opened = await openWidget(browser, host, agent, { data: { 'data-title': 'Green Corner' }, ...fields });
  await showPanel(opened.page);
  await say(opened.page, `Look for ${things}`);
  await cards(opened.page).nth(things.split(' and ').length - 1).waitFor();
  return opened;
}

async function close({ context, faults }) {
  assert.deepEqual(faults, []);
  await context.close();
}

test('a visitor approves a call by the keyboard, after a reload too, and the answer goes on', async () => {
  const opened = await openQuestions('basil');
  const { page } = opened;
  assert.equal(await page.getByRole('status').innerText(), `Your decision is needed: ${QUESTION}`);
  assert.match(await cards(page).innerText(), /searchDocs\s+query\s+basil\s+limit\s+3/);
  assert.equal(await answers(page).count(), 0, 'nothing is done before the decision');
  assert.deepEqual(await statuses(page), ['started', 'waiting']);
  await picture(page, 'widget-question');
  await page.reload();
  await cards(page).waitFor();
  assert.equal(await page.locator('.message.user').count(), 1);
  assert.ok(await page.locator('.notice').isHidden());
  await input(page).focus();
  for (const name of ['Deny', 'Approve']) {
    await page.keyboard.press('Shift+Tab');
    assert.ok(await button(page, name).evaluate((node) => node.getRootNode().activeElement === node), name);
  }
  await page.keyboard.press('Enter');
  await answers(page).filter({ hasText: 'Result:' }).waitFor();
  await isIdle(page);
  assert.match(await answers(page).innerText(), /Basil likes sun/);
  assert.equal(await cards(page).locator('.end').innerText(), 'Approved');
  assert.ok(await page.getByRole('log').evaluate((node) => node.getRootNode().activeElement === node), 'the focus stays in the conversation');
  assert.deepEqual(await statuses(page), ['started', 'finished']);
  await picture(page, 'widget-question-approved');
  await page.reload();
  await answers(page).waitFor();
  assert.equal(await cards(page).count(), 0);
  await close(opened);
});

test('a visitor sees all digits of a whole number beyond 2^53', async () => {
  const opened = await openQuestions('basil');
  const { page } = opened;
  await page.route('**/api/approvals?*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replace(/"limit":\s*3/, '"limit":9007199254740993') });
  });
  await page.reload();
  await cards(page).filter({ hasText: /limit\s*9007199254740993/ }).waitFor();
  await close(opened);
});

test('several calls are decided one after the other, and those that are denied are not made', async () => {
  const opened = await openQuestions('basil and ferns');
  const { page } = opened;
  await button(cards(page).nth(0), 'Deny').click();
  assert.ok(await button(cards(page).nth(1), 'Approve').evaluate((node) => node.getRootNode().activeElement === node));
  assert.equal(await answers(page).count(), 0, 'one call has no decision');
  await button(cards(page).nth(1), 'Deny').click();
  await answers(page).filter({ hasText: 'a person has denied it' }).waitFor();
  assert.deepEqual(await cards(page).locator('.end').allInnerTexts(), ['Denied', 'Denied']);
  await close(opened);
});

test('a message in place of a decision withdraws the question', async () => {
  const opened = await openQuestions('basil');
  const { page } = opened;
  await say(page, 'Hello instead');
  await answers(page).filter({ hasText: /withdrawn|again/ }).waitFor();
  await isIdle(page);
  assert.equal(await cards(page).locator('.end').innerText(), 'Withdrawn');
  assert.equal(await page.locator('.message.user').count(), 2);
  await page.reload();
  await answers(page).waitFor();
  assert.equal(await cards(page).count(), 0);
  await close(opened);
});

test('a question that another page has answered is shown as it is', async () => {
  const opened = await openQuestions('basil');
  const { page, context } = opened;
  const other = await context.newPage();
  await other.goto(page.url());
  await showPanel(other);
  await button(cards(other), 'Deny').click();
  await answers(other).filter({ hasText: 'denied' }).waitFor();
  await isIdle(other);
  await button(cards(page), 'Approve').click();
  await page.locator('.notice').getByText('The question is no longer open.').waitFor();
  await answers(page).filter({ hasText: 'denied' }).waitFor();
  assert.equal(await cards(page).count(), 0);
  assert.equal(await page.getByText(/Basil likes/).count(), 0, 'the call is not made');
  await close(opened);
});

test('a question whose time is over says so, and the conversation goes on', async () => {
  const { content, children } = await manage('GET', 'api/agents/questions');
  content.approvals[0].ttlMs = 3000;
  // The key is not needed, and not known for another agent.
  delete children[0].content.apiKey;
  await manage('PUT', 'api/agents/brief-questions', { name: 'Brief', content, children });
  const token = await mint('brief-questions', { origins: [host.origin] });
  const opened = await openQuestions('basil', { agent: 'brief-questions', token });
  const { page } = opened;
  await cards(page).getByText('The time for the decision is over.').waitFor();
  assert.equal(await cards(page).getByRole('button').count(), 0);
  await say(page, 'Hello?');
  await answers(page).filter({ hasText: /again|in time/ }).waitFor();
  await close(opened);
  await manage('DELETE', 'api/agents/brief-questions');
});

test('nothing of a question is wrong for people who use other means, and no argument becomes anything but text', async () => {
  const texts = corpus.filter((text) => !/[\u0000-\u001f\ud800-\udfff]| and /.test(text)).slice(0, 20);
  const opened = await openQuestions(`basil and ${texts.join(' ')}`, { options: { reducedMotion: 'reduce' } });
  const { page } = opened;
  const found = await page.evaluate((source) => (0, eval)(`(${source})`)(document.querySelector('agent-chat').shadowRoot), forbidden.toString());
  assert.deepEqual(found, []);
  await cards(page).first().scrollIntoViewIfNeeded();
  await checkWidget(page, 'question');
  await button(cards(page).first(), 'Approve').click();
  await checkWidget(page, 'question-decided');
  await close(opened);
});
