import assert from 'node:assert/strict';

import { axeViolations } from './axe.js';
import { before, test } from './harness.js';
import { alterResponses, ask, close, launch, link, openPage, picture, pictureIfFailed, setRoute, visit } from './support.js';
import { usageRows } from './usage-rows.js';

/** Widths of the window, of which the first two have chat and debug layer one at a time, and the last has them side by side. */
const WIDTHS = [360, 900, 1280];
/** Width of which no pictures are kept: its views look as they do at one of the others, or between both. */
const UNPICTURED_WIDTH = 900;
const sizeOf = (width) => ({ width, height: width === 360 ? 740 : 820 });

let browser;
before(async () => (browser = await launch()));

/**
 * Returns the violations in the visible page: violations that axe finds in it or in a part, and what is wider than the
 * window. The dark scheme has other colours only. A picture is kept if `isPictured`, or if there are violations.
 */
async function checkShown(page, name, { part, isPictured }) {
  const found = [];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const violations = await axeViolations(page, part, colorScheme === 'dark');
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    const words = [...violations, ...(overflow > 0 ? [`${overflow} px too wide`] : [])];
    if (isPictured || words.length > 0) await picture(page, `${name}-${colorScheme}`);
    found.push(...words.map((words) => `${name}, ${colorScheme}: ${words}`));
  }
  await page.emulateMedia({ colorScheme: 'light' });
  return found;
}

/** Returns what is wrong with a view that is shown, at each of some widths, and leaves the window at the first one. */
async function check(page, name, widths, { wait, part }) {
  const found = [];
  for (const width of widths) {
    await page.setViewportSize(sizeOf(width));
    await wait(page);
    found.push(...await checkShown(page, `${name}-${width}`, { part, isPictured: width !== UNPICTURED_WIDTH }));
  }
  await page.setViewportSize(sizeOf(widths[0]));
  return found;
}

const tab = (page, name) => page.getByRole('tab', { name }).first().click();
/** Shows the chat, which a narrow window has in its row of tabs. */
const showChat = async (page) => {
  const chat = page.getByRole('tab', { name: 'Chat' });
  if (await chat.count() > 0) await chat.click();
};
const settled = (selector) => async (page) => page.locator(selector).first().waitFor();

/** A subscription, and the beginning of a sign-in to one. */
const SIGNED_IN = {
  signedIn: true, state: 'ok', plan: 'plus', account: '…1234', refreshedAt: '2026-11-22T08:00:00Z',
  limits: {
    primary: { usedPercent: 12.5, windowMinutes: 300, resetsAt: '2026-11-22T13:00:00Z' },
    secondary: { usedPercent: 93, windowMinutes: 10_080, resetsAt: '2026-11-29T13:00:00Z' },
  },
};
const BEGUN = {
  signInId: 's', userCode: 'ABCD-EFGH', verificationUri: 'https://issuer.example/device', expiresIn: 900, interval: 5,
  notice: 'Enter this code only if you asked for it yourself, here, a moment ago.',
};

/** Schedules jobs of several kinds, once for each user and key. */
const schedule = (page) => page.evaluate(async () => {
  const tool = (title) => ({ kind: 'tool', agentId: 'text', toolId: 'createTodo', arguments: { title }, todoListId: 'l1' });
  const jobs = [
    { payload: tool('Sow the peas'), cron: '0 7 * * 1', timezone: 'Europe/Berlin' },
    { payload: tool('Turn the compost'), everyMs: 7_200_000 },
    { payload: tool('Look after the bees'), everyMs: 7_200_000 },
    { payload: tool('Order seeds'), executeAt: '2100-01-01T00:00:00Z' },
    { payload: tool('Plan the beds'), executeAt: '2100-02-01T00:00:00Z' },
    { payload: { kind: 'agent', agentId: 'garden', message: 'Write the news of the garden' }, cron: '30 18 * * 5', timezone: 'America/New_York' },
    { payload: { ...tool('x'), arguments: {} }, delayMs: 1, maxAttempts: 1 },
  ];
  for (const [place, job] of jobs.entries()) {
    const body = JSON.stringify({ ...job, idempotencyKey: `axe-${job.payload.arguments?.title ?? place}` });
    await fetch('api/pulse/jobs', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  }
});

const VISITOR_THREAD = { id: 'v-1', owner: 'visitor:x', agentId: 'garden', title: 'When are you open?', status: 'idle', messageCount: 2, createdAt: '2026-11-20T10:00:00Z', lastActivityAt: '2026-11-20T10:00:00Z' };
const VISITOR_NODES = [
  { id: 'n-1', status: 'complete', createdAt: '2026-11-20T10:00:00Z', message: { role: 'user', content: 'When are you open?' } },
  { id: 'n-2', status: 'complete', feedback: { rating: 'down', comment: 'No hours.' }, message: { role: 'assistant', content: 'From **Tuesday** to Saturday.' } },
];
const FEEDBACK = [
  { id: 'f-1', rating: 'down', tags: ['wrong'], comment: 'No hours.', share: true, createdAt: '2026-11-20T10:00:00Z', message: { role: 'assistant', content: 'From **Tuesday**.' } },
  { id: 'f-2', rating: 'up', share: false, createdAt: '2026-11-20T10:00:00Z' },
];

/** The record of a run's prompt, and that of the run before it, which has another rule, another tool and no text of one part. */
const PART = { source: 'role', stability: 'role', placement: 'system', bytes: 12 };
const BEFORE = {
  requestSha256: 'b'.repeat(64), backend: 'EmbeddedAI', messages: 1, tokens: { system: 12, tools: 40, messages: 7 }, cache: { stablePrefixBytes: 24 },
  parts: [
    { ...PART, id: 'system-prompt', tokens: 8, sha256: '1'.repeat(64), content: 'You are Pip.' }, { ...PART, id: 'rules', tokens: 4, sha256: '2'.repeat(64), content: 'Be brief.' },
    { ...PART, id: 'documents', source: 'documents', tokens: 20, sha256: '3'.repeat(64) },
  ],
  tools: [{ name: 'readTodos', sha256: '4'.repeat(64), tokens: 20 }, { name: 'createTodo', sha256: '5'.repeat(64), tokens: 20 }],
};
const AFTER = {
  ...BEFORE, requestSha256: 'a'.repeat(64), cache: { ...BEFORE.cache, previousRunId: 'before' }, trimmedMessages: 2,
  parts: [BEFORE.parts[0], { ...BEFORE.parts[1], tokens: 5, sha256: '6'.repeat(64), content: 'Be very long.' }, { ...BEFORE.parts[2], id: 'memory', source: 'memory' }],
  tools: [{ ...BEFORE.tools[0], sha256: '7'.repeat(64) }, { name: 'searchDocs', sha256: '8'.repeat(64), tokens: 20 }],
};

/** Tools that a role defines, and the changed definitions of its tool server. */
const OWN_TOOLS = {
  tools: [
    { name: 'getOrder', source: 'http', status: 'ok', approval: 'ask' }, { name: 'shop_search', source: 'toolServer', status: 'changed', fingerprint: 'f'.repeat(64) },
  ],
  skipped: [{ openApiId: 'images', operation: 'upload', reason: 'has a body that is neither JSON nor a form' }],
  incomplete: [{ openApiId: 'images', operation: 'create', reason: 'has a body that is neither JSON nor a form, so it is called without a body' }],
};
const DEFINITION = { name: 'search', description: 'Searches orders.', inputSchema: { type: 'object' } };
const FOUND = {
  status: 'changed', tools: [
    { name: 'search', status: 'changed', isAllowed: true, fingerprint: 'e'.repeat(64), pinned: DEFINITION, definition: { ...DEFINITION, description: 'Searches all orders.' } },
    { name: 'refund', status: 'new', isAllowed: false, fingerprint: 'd'.repeat(64), definition: { ...DEFINITION, name: 'refund' } },
  ],
};

/** Assignments in each state. */
const ASSIGNMENT = {
  id: 'morning', agentId: 'garden', userId: 'u1', kind: 'tool', toolId: 'createTodo', arguments: { title: 'Water the basil' },
  schedule: { enabled: true, cron: '0 9 * * *', timezone: 'Europe/Berlin' }, sync: { inStep: true, jobId: 'j', executeAt: '2030-01-01T08:00:00.000Z' },
};
const ASSIGNMENTS = [
  ASSIGNMENT, { ...ASSIGNMENT, id: 'evening', schedule: { ...ASSIGNMENT.schedule, enabled: false } }, { ...ASSIGNMENT, id: 'noon', sync: { inStep: false } },
  { ...ASSIGNMENT, id: 'a-rather-long-name-of-an-assignment-that-no-scheduler-takes', kind: 'agent', message: 'Write the news of the garden', sync: { inStep: false, problem: 'the time zone is unknown' } },
];

/** Calls that were decided, and calls without a decision. */
const CALL = { agentId: 'approvals', threadId: 't', tool: 'createDoc', arguments: { title: 'Roses', text: 'About roses.' }, decidedAt: '2026-11-20T10:00:00Z', decidedBy: 'u1' };
const DECIDED = [
  { ...CALL, id: 'd-1', state: 'approved', via: 'chat', editedArguments: { title: 'Tulips', text: 'About tulips.' } }, { ...CALL, id: 'd-2', state: 'denied', via: 'approvals', reason: 'There is one already.' },
  { ...CALL, id: 'd-3', state: 'expired', decidedBy: undefined, decidedAt: undefined },
];

/**
 * Each view of chat and debug layer: the steps that open it, those that wait until it is there, and the part that is examined if not
 * all is. It is drawn again when the two come side by side, so it is opened for the narrow widths and for the wide one.
 */
const CHAT_VIEWS = {
  welcome: [(page) => visit(page, 'chat/garden'), settled('.welcome')],
  chat: [async (page) => {
    await visit(page, 'chat/garden');
    await ask(page, 'When are you open?');
    await page.locator('.reasoning summary').last().click();
    await page.getByRole('button', { name: 'Bad answer' }).last().click();
  }, settled('.message.answer .comment')],
  prompt: [(page) => tab(page, 'Prompt'), settled('.part')],
  'prompt-record': [async (page) => {
    await page.route('**/api/runs/*/prompt', (route) => route.fulfill({ json: route.request().url().includes('/before/') ? BEFORE : AFTER }));
    await page.locator('.fold > summary', { hasText: 'Prompt of the inspected run' }).click();
  }, settled('.role-preview ins'), '.role-preview'],
  context: [(page) => tab(page, 'Context'), settled('#context-page')],
  tools: [async (page) => {
    await tab(page, 'Tools');
    await page.locator('#debug-panel .fold summary').first().click();
  }, settled('#debug-panel .facts')],
  try: [async (page) => {
    await tab(page, 'Context');
    await page.getByLabel('Todo list').fill('l1');
    await tab(page, 'Tools');
    const tool = page.locator('#debug-panel .fold', { hasText: 'createTodo' });
    await tool.locator('summary').first().click();
    await tool.getByRole('button', { name: 'Call' }).click();
    await tool.locator('.field-error').waitFor();
    await tool.getByLabel('title').fill('Water the fern');
    await tool.getByRole('button', { name: 'Call' }).click();
  }, settled('.outcome .code')],
  events: [async (page) => {
    await tab(page, 'Events');
    await page.locator('.event-row').nth(1).click();
  }, settled('.event-row')],
  retrieval: [(page) => tab(page, 'Retrieval'), settled('#debug-panel p')],
  'retrieval-hits': [async (page) => {
    await visit(page, 'chat/reader');
    await showChat(page);
    await ask(page, 'Which plants like shade, and which like sun?');
    await tab(page, 'Retrieval');
  }, settled('.fragment.kept')],
  broken: [async (page) => {
    await visit(page, 'chat/broken');
    await showChat(page);
    await ask(page, 'Try');
  }, settled('.note-error')],
  toolcard: [async (page) => {
    await visit(page, 'chat/tools');
    await ask(page, 'What is open?');
    await page.locator('.tool summary').last().click();
  }, settled('.tool .code')],
  'tried-again': [(page) => page.getByRole('link', { name: 'Try again in Tools' }).last().click(), settled('#debug-panel details[open] .try')],
  raw: [async (page) => {
    await showChat(page);
    for (const button of await page.getByRole('button', { name: 'Raw' }).all()) await button.click();
  }, settled('.message.answer > .code')],
  edit: [(page) => page.getByRole('button', { name: 'Edit', exact: true }).click(), settled('.editor')],
  'own-tools': [async (page) => {
    await alterResponses(page, '**/api/agents/reader', (role) => ({ ...role, content: { ...role.content, toolServers: [{ id: 'shop' }] } }));
    await page.route('**/api/agents/reader/tools', (route) => route.fulfill({ json: OWN_TOOLS }));
    await page.route('**/api/agents/reader/tools/discover', (route) => route.fulfill({ json: FOUND }));
    await visit(page, 'chat/reader');
    await tab(page, 'Tools');
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.locator('section .fold > summary').first().click();
  }, settled('section ins')],
  approval: [async (page) => {
    await visit(page, 'chat/approvals');
    await showChat(page);
    await page.getByRole('textbox', { name: 'Message' }).fill('Write roses and tulips');
    await page.keyboard.press('Enter');
    await page.locator('.approval').nth(1).waitFor();
    await page.getByRole('button', { name: 'Edit arguments' }).first().click();
    await page.getByRole('button', { name: 'Deny', exact: true }).last().click();
    await page.getByRole('textbox', { name: 'Message' }).fill('And now?');
    await page.keyboard.press('Enter');
  }, settled('.held')],
  attachments: [async (page) => {
    await visit(page, 'chat/text');
    await showChat(page);
    const file = (name) => ({ name, mimeType: 'text/plain', buffer: Buffer.from('x') });
    const broken = { ...file('a-rather-long-name-of-a-drawing-that-is-no-picture.svg'), mimeType: 'image/svg+xml' };
    await page.getByLabel('Files to attach').setInputFiles([file('notes.txt'), broken]);
    await page.locator('.attachment [role=alert]').waitFor();
    await page.getByRole('button', { name: 'Remove a-rather' }).waitFor();
  }, settled('.attachment.failed')],
  'attachments-sent': [async (page) => {
    await page.getByRole('button', { name: 'Remove a-rather' }).click();
    await page.getByRole('textbox', { name: 'Message' }).fill('Read the notes');
    await page.getByRole('button', { name: 'Send' }).click();
  }, settled('.message-file')],
};

/** The other views, which differ in their style alone from width to width, and list what the chats have left. */
const VIEWS = {
  approvals: [(page) => visit(page, 'approvals'), settled('.page .approval .code')],
  'approvals-decided': [async (page) => {
    await page.route('**/api/approvals', (route) => route.fulfill({ json: { approvals: DECIDED } }));
    await page.getByLabel('Show').selectOption('decided');
    await page.locator('.item details summary').first().click();
  }, settled('.item .decision')],
  threads: [(page) => visit(page, 'threads'), settled('.item')],
  // A target partly covered by an open menu would be a finding, so the menu is examined by itself.
  'threads-menu': [(page) => page.getByRole('button', { name: /^More for/ }).first().click(), settled('.menu-list'), '.menu'],
  palette: [(page) => page.keyboard.press('Control+k'), settled('.palette li')],
  agents: [async (page) => {
    await page.keyboard.press('Escape');
    await visit(page, 'agents');
  }, settled('.card')],
  agent: [async (page) => {
    await visit(page, 'agents/garden');
    // Every section, and every kind of row.
    await page.locator('.section').last().waitFor();
    await page.evaluate(() => document.querySelectorAll('.section').forEach((section) => (section.open = true)));
    for (const name of ['Add a block', 'Add an approval rule']) await page.getByRole('button', { name }).click();
    for (const kind of ['AgentServer', 'WorkflowConnector', 'SubscriptionConnector']) {
      await page.getByRole('combobox', { name: 'Kind of backend' }).selectOption(kind);
      await page.getByRole('button', { name: 'Add', exact: true }).click();
    }
    await page.getByLabel('Authentication').selectOption({ label: 'user and password' });
  }, settled('.picker tbody tr')],
  'agent-json': [(page) => page.getByRole('button', { name: 'JSON', exact: true }).click(), settled('#role-json')],
  'role-preview': [(page) => page.getByRole('button', { name: 'Preview', exact: true }).click(), settled('.role-preview .compare, .role-preview .note-error')],
  unsaved: [(page) => setRoute(page, 'threads'), settled('dialog')],
  backend: [async (page) => {
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.locator('.item').first().waitFor();
    await visit(page, 'agents/garden/backend');
  }, settled('.rules')],
  documents: [async (page) => {
    await visit(page, 'agents/garden/documents');
    await page.locator('.as-link').first().click();
  }, settled('.item .code')],
  uploads: [async (page) => {
    await page.route('**/api/documents/*/content?*', (route) => (route.request().url().includes('broken')
      ? route.fulfill({ status: 415, contentType: 'application/problem+json', body: '{"code":"UNSUPPORTED_MEDIA_TYPE","detail":"the bytes are no text"}' })
      : route.fulfill({ status: 202, json: { id: 'ferns', version: 1, status: 'pending' } })));
    await page.route('**/api/documents/ferns', (route) => route.fulfill({ json: { id: 'ferns', title: 'ferns', content: { status: 'extracting' } } }));
    const file = (name) => ({ name, mimeType: 'text/plain', buffer: Buffer.from('x') });
    await page.getByLabel('Files to upload').setInputFiles([file('a-rather-long-name-of-a-file-that-is-broken.txt'), file('ferns.txt')]);
    await page.locator('.uploads li', { hasText: 'ferns.txt' }).getByText('text is extracted').waitFor();
  }, settled('.uploads [role=alert]')],
  tokens: [async (page) => {
    await visit(page, 'agents/garden/tokens');
    await page.getByRole('button', { name: 'New token' }).click();
    await page.getByLabel('Origins').fill('shop.example');
    await page.getByRole('button', { name: 'Make the token' }).click();
  }, settled('.field-error')],
  'token-made': [async (page) => {
    await page.getByLabel('Origins').fill('https://shop.example');
    await page.getByRole('button', { name: 'Make the token' }).click();
  }, settled('.token-made')],
  assignments: [async (page) => {
    await page.route('**/api/agents/garden/assignments?*', (route) => route.fulfill({ json: { assignments: ASSIGNMENTS } }));
    await visit(page, 'agents/garden/assignments');
  }, settled('.item')],
  'assignments-confirm': [(page) => page.getByRole('button', { name: 'Delete morning' }).click(), settled('dialog[open]')],
  visitors: [async (page) => {
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.route('**/api/agents/garden/threads?*', (route) => route.fulfill({ json: { threads: [VISITOR_THREAD] } }));
    await page.route('**/api/threads/v-1?*', (route) => route.fulfill({ json: { ...VISITOR_THREAD, nodes: VISITOR_NODES } }));
    await visit(page, 'agents/garden/visitors');
  }, settled('.item')],
  'visitor-thread': [(page) => page.locator('a.item-title').click(), settled('.read-only .message')],
  'visitor-feedback': [async (page) => {
    await page.route('**/api/agents/garden/feedback?*', (route) => route.fulfill({ json: { feedback: FEEDBACK } }));
    await visit(page, 'agents/garden/visitors/feedback');
  }, settled('.item')],
  'new-agent': [(page) => visit(page, 'agents/new'), settled('#agent-id')],
  jobs: [async (page) => {
    await schedule(page);
    await visit(page, 'jobs');
    await page.locator('.item .select').first().check();
    await page.locator('.item .select').nth(1).check();
  }, settled('.bulk')],
  'jobs-confirm': [(page) => page.getByRole('button', { name: 'Cancel', exact: true }).click(), settled('dialog[open]')],
  job: [async (page) => {
    await page.getByRole('dialog').getByRole('button', { name: /^Keep/ }).click();
    await page.locator('.item a').first().click();
  }, settled('.facts')],
  reschedule: [async (page) => {
    await visit(page, 'jobs');
    await page.getByRole('link', { name: 'Sow the peas' }).first().click();
    await page.getByText('Reschedule').click();
  }, settled('#schedule-cron')],
  'new-job': [(page) => visit(page, 'jobs/new'), settled('.next-runs li')],
  'new-job-tool': [async (page) => {
    await page.getByLabel('Agent', { exact: true }).selectOption('text');
    await page.getByText('a call of one of the agent’s tools').click();
    await page.getByLabel('Tool', { exact: true }).selectOption('createTodo');
    await page.getByRole('button', { name: 'Schedule' }).click();
  }, settled('.arguments .field-error')],
  calendar: [(page) => visit(page, 'jobs/calendar'), settled('.entry')],
  usage: [async (page) => {
    await page.route('**/api/usage?*', (route) => {
      const query = new URL(route.request().url()).searchParams;
      return route.fulfill({ json: { currency: 'USD', asOf: new Date().toISOString(), rows: usageRows(query.get('groupBy').split(',')) } });
    });
    await visit(page, 'usage');
    await page.locator('.limit').first().waitFor();
  }, settled('.sums')],
  'usage-year': [(page) => visit(page, 'usage?by=user&measure=tokens&time=365'), async (page) => page.waitForFunction(() => document.querySelectorAll('.column-bar').length === 53 && /User/.test(document.querySelector('.sums thead').textContent))],
  'usage-day': [(page) => visit(page, 'usage?by=day&measure=runs&time=7'), async (page) => page.waitForFunction(() => document.querySelectorAll('.column-bar').length === 7 && /Day/.test(document.querySelector('.sums thead').textContent))],
  audit: [(page) => visit(page, 'audit/garden'), settled('.table')],
  account: [async (page) => {
    await page.route('**/api/coding', (route) => route.fulfill({ json: SIGNED_IN }));
    await visit(page, 'account');
  }, settled('.limit')],
  'subscription-code': [async (page) => {
    await page.route('**/api/coding', (route) => route.fulfill({ json: { signedIn: false, state: 'signInRequired' } }));
    await page.route('**/api/coding/sign-in', (route) => route.fulfill({ json: BEGUN }));
    await page.route('**/api/coding/sign-in/*', (route) => route.fulfill({ json: { status: 'pending', expiresIn: 900 } }));
    await visit(page, 'threads');
    await page.locator('.item').first().waitFor();
    await visit(page, 'account');
    await page.getByRole('button', { name: 'Sign in' }).click();
  }, settled('.device')],
  'sign-in': [async (page) => {
    await page.getByRole('button', { name: 'Sign out here' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
  }, settled('.sign-in')],
};

test('what is wrong in one scheme, at one width, or on one background alone is found', async () => {
  const opened = await openPage(browser, { bypassCSP: true });
  const { page } = opened;
  await page.setContent(`<!doctype html><html lang="en"><title>Garden</title><style>
    :root { color-scheme: light dark; color: light-dark(#222, #ddd); background: light-dark(#fff, #111); }
    .pale { color: light-dark(#222, #333); }
    .behind { position: absolute; inset: 0; background: #333; }
    @media (max-width: 600px) { button span { display: none; } }
    </style><main><h1>Garden</h1><p>Basil</p><p class="pale">Fern</p><button type="button"><span>Water</span></button></main>`);
  const rulesOf = async (isRecoloured) => (await axeViolations(page, undefined, isRecoloured)).map((words) => words.split(':')[0]);
  assert.deepEqual(await rulesOf(), []);
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.deepEqual(await rulesOf(true), ['color-contrast'], 'a text that is too dark in the dark scheme');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(sizeOf(WIDTHS[0]));
  assert.deepEqual(await rulesOf(), ['button-name'], 'a button whose text is hidden at one width');
  const add = (markup) => page.evaluate((markup) => document.querySelector('main').insertAdjacentHTML('beforeend', markup), markup);
  await add('<div style="background: #333"><p>Basil</p></div>');
  assert.ok((await rulesOf()).includes('color-contrast'), 'a known text on another background');
  await add('<div style="position: relative"><div class="behind"></div><p style="position: relative">Basil</p></div>');
  assert.ok((await rulesOf()).includes('color-contrast'), 'a known text over an element beside it');
  await close(opened);
});

/** Adds a test that opens views, and examines each at some widths. */
const examine = (name, views, widths) => test(`nothing is wrong for people who use other means: ${name}, light and dark, ${widths.join(', ')} px`, async () => {
  // Axe is put into the page, which its policy would not allow; everywhere else the policy is on.
  const opened = await openPage(browser, { viewport: sizeOf(widths[0]), bypassCSP: true, reducedMotion: 'reduce' });
  const { page, faults } = opened;
  await page.goto(await link());
  await page.locator('.layout').waitFor();
  const found = [];
  for (const [view, [show, wait, part]] of Object.entries(views)) {
    await pictureIfFailed(page, view, async () => {
      await show(page);
      found.push(...await check(page, view, widths, { wait, part }));
    });
  }
  assert.deepEqual([...found, ...faults], []);
  await close(opened);
});

examine('the chat', CHAT_VIEWS, WIDTHS.slice(0, 2));
examine('the chat', CHAT_VIEWS, WIDTHS.slice(2));
examine('the other views', VIEWS, WIDTHS);
