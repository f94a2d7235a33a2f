import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { before } from './harness.js';
import { launch, pageTests, picture, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

let count = 0;

/** Adds a test with an agent of its own. */
function withAgent(name, role, run) {
  inPage(name, async (page) => {
    const id = `role-${(count += 1)}`;
    const put = (role) => page.evaluate(async ([id, role]) => {
      const response = await fetch(`api/agents/${id}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(role) });
      return response.ok ? '' : response.text();
    }, [id, role]);
    assert.equal(await put(role), '');
    /** The role as the server has it. */
    const stored = () => page.evaluate(async (id) => (await fetch(`api/agents/${id}`)).json(), id);
    await visit(page, `agents/${id}`);
    await page.locator('.role-form').waitFor();
    await run(page, { id, stored });
    await page.evaluate((id) => fetch(`api/agents/${id}`, { method: 'DELETE' }), id);
  });
}

const open = (page, title) => page.locator('.section > summary', { hasText: title }).click();
const save = async (page) => {
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.waitForFunction(() => document.querySelector('.save-bar .primary').disabled);
};
const view = (page, name) => page.getByRole('button', { name, exact: true }).click();

const ROLE = {
  name: 'Former',
  content: {
    systemPrompt: 'Be kind.', rules: ['One.', 'Two.'], agentConfig: { tone: ['warm', { depth: 3 }] }, documentIds: ['hours'],
    council: { purpose: 'advice', members: [{ name: 'Ada', expertise: 'sums' }] },
    approvals: [{ tools: ['createDoc'], by: 'owner', ttlMs: 7_200_000 }],
  },
  children: [
    { name: 'EmbeddedAI', content: { provider: 'openai', model: 'text', baseUrl: 'http://127.0.0.1:9/v1', apiKey: 'form-key-canary' } },
    { name: 'Other', content: { anything: [1, 2] } },
  ],
};

withAgent('the form edits a role, and keeps what it does not know', ROLE, async (page, { stored }) => {
  await page.getByLabel('System prompt').fill('Be very kind.');
  await page.getByRole('button', { name: 'Add a rule' }).click();
  await page.keyboard.type('Three.');
  await page.getByRole('button', { name: 'Remove rule 1' }).click();
  await view(page, 'JSON');
  const json = JSON.parse(await page.getByLabel('Role block').inputValue());
  assert.deepEqual(json.content.rules, ['Two.', 'Three.'], 'what is not saved goes along');
  assert.deepEqual([json.content.agentConfig, json.content.council], [ROLE.content.agentConfig, ROLE.content.council]);
  json.content.personality = 'Calm.';
  await page.getByLabel('Role block').fill(JSON.stringify(json));
  await view(page, 'Form');
  assert.equal(await page.getByLabel('Personality').inputValue(), 'Calm.');
  await page.getByText('The JSON view has the rest: council, agentConfig').or(page.getByText('The JSON view has the rest: agentConfig, council')).waitFor();
  await open(page, 'Tools');
  await page.getByLabel('createDoc for the agent').check();
  await page.getByLabel('readTodos for visitors').check();
  assert.ok(await page.getByLabel('readTodos for the agent').isDisabled(), 'a default tool');
  await open(page, 'Approvals');
  assert.equal(await page.getByLabel('Time to decide, in hours').inputValue(), '2');
  await page.getByLabel('Tools', { exact: true }).fill('createDoc, appendDoc');
  await open(page, 'Documents and retrieval');
  await page.getByLabel('In the prompt: Plants').check();
  await page.getByLabel('Search the documents for each message').check();
  await open(page, 'Backends');
  await page.getByLabel('Temperature').selectOption('0.4');
  await page.getByLabel('Longest answer', { exact: true }).fill('800');
  await picture(page, 'role-form');
  await save(page);
  const { content, children, name } = await stored();
  assert.equal(name, 'Former');
  assert.deepEqual(
    { ...content },
    {
      ...ROLE.content, systemPrompt: 'Be very kind.', rules: ['Two.', 'Three.'], personality: 'Calm.', tools: ['createDoc'], widgetTools: ['readTodos'],
      documentIds: ['hours', 'plants'], enableAutoRag: true, approvals: [{ tools: ['createDoc', 'appendDoc'], by: 'owner', unattended: 'deny', ttlMs: 7_200_000 }],
    },
  );
  assert.deepEqual(children[1], ROLE.children[1]);
  assert.equal(children[0].content.apiKey, '***', 'the key is kept');
  assert.deepEqual(children[0].content.parameters, { temperature: 0.4, maxOutputTokens: 800 });
});

withAgent('a field that the server refuses has the server’s words', ROLE, async (page) => {
  await view(page, 'JSON');
  const json = JSON.parse(await page.getByLabel('Role block').inputValue());
  json.content.tools = ['nope'];
  json.children[0].content.provider = 'no provider';
  await page.getByLabel('Role block').fill(JSON.stringify(json));
  await view(page, 'Form');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.locator('.field-error', { hasText: 'content.tools[0] is not the name of a tool' }).waitFor();
  const provider = page.getByLabel('Provider');
  assert.equal(await provider.getAttribute('aria-invalid'), 'true');
  const words = page.locator(`#${(await provider.getAttribute('aria-describedby')).split(' ').at(-1)}`);
  assert.match(await words.innerText(), /is not a provider: expected one of anthropic, auto/);
  await page.waitForFunction(() => document.activeElement.getAttribute('aria-invalid') === 'true');
  await picture(page, 'role-form-refused');
  await provider.selectOption('ollama');
  await words.waitFor({ state: 'detached' });
});

withAgent('the form survives a role that is no role', ROLE, async (page) => {
  await view(page, 'JSON');
  const area = page.getByLabel('Role block');
  const saved = await area.inputValue();
  for (const odd of [
    { content: { rules: 'x', systemPrompt: 5, tools: {}, approvals: [null, 5, { tools: 'x', ttlMs: 'soon' }], documentIds: 7, council: [], mcpPreset: 3 }, children: [null, 'x', { name: 'EmbeddedAI', content: [] }] },
    { content: 'text', children: {} }, { content: null }, {}, { __proto__: null, name: ['x'], content: { promptBlocks: [[], 1, 'text'] } },
  ]) {
    await area.fill(JSON.stringify(odd));
    await view(page, 'Form');
    await page.locator('.section').last().waitFor();
    await page.evaluate(() => document.querySelectorAll('.section').forEach((section) => (section.open = true)));
    await page.getByLabel('System prompt').fill('Again.');
    await view(page, 'JSON');
    assert.equal(JSON.parse(await area.inputValue()).content.systemPrompt, 'Again.');
  }
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('alert').filter({ hasText: 'INVALID_REQUEST' }).waitFor();
  await page.getByRole('button', { name: 'Revert' }).click();
  assert.equal(await area.inputValue(), saved);
  await view(page, 'Form');
});

withAgent('a saved secret is kept, replaced and cleared', ROLE, async (page, { stored }) => {
  await open(page, 'Backends');
  const key = page.getByRole('group', { name: 'API key' });
  await key.getByText('is saved').waitFor();
  await key.getByRole('button', { name: 'Replace' }).click();
  await key.getByLabel('API key').fill('second-canary');
  await key.getByRole('button', { name: 'Keep the saved one' }).click();
  assert.ok(await page.getByRole('button', { name: 'Save', exact: true }).isDisabled(), 'nothing has changed');
  await key.getByRole('button', { name: 'Replace' }).click();
  await key.getByLabel('API key').fill('second-canary');
  await save(page);
  await open(page, 'Backends');
  assert.ok(!(await page.content()).includes('canary'), 'no key in the page');
  await page.getByLabel('Address', { exact: true }).fill('http://127.0.0.1:10/v1');
  await page.getByText('a saved key is deleted').waitFor();
  await page.getByLabel('Address', { exact: true }).fill('http://127.0.0.1:9/v1');
  await key.getByRole('button', { name: 'Clear' }).click();
  await key.getByText('is deleted when the role is saved').waitFor();
  await save(page);
  const [{ content }] = (await stored()).children;
  assert.equal(content.apiKey, undefined);
});

withAgent('what is written during a save stays, and is not saved yet', ROLE, async (page, { id, stored }) => {
  const prompt = page.getByLabel('System prompt');
  await page.route(`**/api/agents/${id}`, async (route) => {
    if (route.request().method() === 'PUT') await prompt.fill('Be kind. Be brief. Be calm.');
    return route.continue();
  }, { times: 1 });
  const version = await page.locator('.view-bar > .muted').innerText();
  await prompt.fill('Be kind. Be brief.');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.waitForFunction((version) => document.querySelector('.view-bar > .muted').innerText !== version, version);
  assert.equal(await prompt.inputValue(), 'Be kind. Be brief. Be calm.');
  assert.ok(await prompt.evaluate((field) => field === document.activeElement));
  assert.equal((await stored()).content.systemPrompt, 'Be kind. Be brief.');
  await page.locator('.nav-link', { hasText: 'Threads' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await save(page);
  assert.equal((await stored()).content.systemPrompt, 'Be kind. Be brief. Be calm.');
});

withAgent('changes that are not saved are not lost by a link', ROLE, async (page, { id }) => {
  await page.getByLabel('System prompt').fill('Unsaved words.');
  await page.locator('.nav-link', { hasText: 'Threads' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Leave without saving?').waitFor();
  assert.ok(page.url().endsWith(`#/agents/${id}`), page.url());
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.waitForFunction(() => document.activeElement.matches('.nav-link'));
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Unsaved words.');
  await page.getByRole('tab', { name: 'Documents' }).click();
  await dialog.getByRole('button', { name: 'Discard' }).click();
  await page.getByText('Documents of the company').waitFor();
  await page.getByRole('tab', { name: 'Role' }).click();
  assert.equal(await page.getByLabel('System prompt').inputValue(), 'Be kind.');
  await page.locator('.nav-link', { hasText: 'Threads' }).click();
  await page.getByRole('heading', { name: 'Threads' }).waitFor();
});

inPage('the tools of the form are those of the documentation', async (page) => {
  const catalogue = await page.evaluate(async () => {
    const folder = document.querySelector('script[type=module]').src.replace(/app\.js$/, '');
    return (await import(`${folder}lib/catalogue.js`)).CATALOGUE;
  });
  const [, ...parts] = readFileSync(new URL('../../docs/tools.md', import.meta.url), 'utf8').split('## Tools\n')[1].split('\n### ');
  const documented = parts.map((part) => {
    const [name, , description] = part.split('\n');
    const [hints, isDefault] = /^- hints: (.*)$/m.exec(part)[1].split('; ');
    return { name, description, hints: hints.split(', '), ...(isDefault && { isDefault: true }), ...(/must be listed/.test(part) && { mustBeListed: true }) };
  });
  assert.ok(documented.length > 20, `${documented.length} tools`);
  assert.deepEqual(catalogue, documented);
});

withAgent('an edited role is previewed beside the saved one, and nothing is saved', ROLE, async (page, { stored }) => {
  const before = await stored();
  await page.getByLabel('System prompt').fill('Be stern.');
  await view(page, 'Preview');
  const preview = page.getByRole('region', { name: 'Preview', exact: true });
  await preview.getByText('One part differs').waitFor();
  const part = preview.locator('.part-changed');
  assert.match(await part.locator('summary').innerText(), /system-prompt\s*changed/);
  assert.deepEqual([await part.locator('del').innerText(), await part.locator('ins').innerText()], ['kind', 'stern']);
  assert.equal(await preview.locator('.compare thead th').count(), 3);
  await view(page, 'Form');
  await page.getByRole('button', { name: 'Remove rule 1' }).click();
  await page.getByRole('button', { name: 'Remove rule 1' }).click();
  await open(page, 'Tools');
  await page.getByLabel('createDoc for the agent').check();
  await view(page, 'Preview');
  await preview.locator('.part-removed', { hasText: 'rules' }).waitFor();
  await preview.locator('.state-added', { hasText: 'createDoc' }).waitFor();
  await picture(page, 'role-preview');
  assert.ok(!(await page.content()).includes('form-key-canary'));
  assert.deepEqual(await stored(), before);
  await view(page, 'JSON');
  const json = JSON.parse(await page.getByLabel('Role block').inputValue());
  json.content.tolls = [];
  await page.getByLabel('Role block').fill(JSON.stringify(json));
  await view(page, 'Preview');
  await preview.getByRole('alert').filter({ hasText: 'content.tolls' }).waitFor();
  await page.getByRole('button', { name: 'Revert' }).click();
  await preview.getByText('The prompt is the saved one.').waitFor();
});

inPage('a role keeps the digits of whole numbers beyond 2^53', async (page) => {
  let sent;
  await page.route('**/api/agents/text', async (route) => {
    const response = await route.fetch({ method: 'GET', postData: undefined });
    if (route.request().method() === 'PUT') sent = route.request().postData();
    await route.fulfill({ response, body: (await response.text()).replace('"content":{', '"content":{"ledger":9007199254740993,') });
  });
  await visit(page, 'agents/text');
  await page.getByLabel('Name', { exact: true }).first().fill('Scribe');
  await view(page, 'JSON');
  assert.match(await page.locator('#role-json').inputValue(), /"ledger": 9007199254740993,/);
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByRole('button', { name: 'Revert' }).and(page.locator(':disabled')).waitFor();
  assert.match(sent, /"name":"Scribe".*"ledger":9007199254740993,|"ledger":9007199254740993,.*"name":"Scribe"/);
});
