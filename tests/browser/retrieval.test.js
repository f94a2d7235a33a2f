// The Retrieval tab: the passages that a message finds in uploaded documents.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { manage } from './host.js';
import { alterResponses, ask, launch, pageTests, picture, until, visit } from './support.js';

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

const FERNS = '# Ferns\n\nFerns like shade and water, and no lime.\n\n# Basil\n\nBasil likes the sun on a wall.\n';
const WELLS = '# Wells\n\nThe well of the yard was dug in the year of the long winter, and has been dry since then.\n';

inPage('a question shows what was found in the documents, and why each hit is in the prompt or not', async (page) => {
  const id = `reader-${Date.now()}`;
  const { content, children } = await manage('GET', 'api/agents/reader');
  delete children[0].content.apiKey;
  await manage('PUT', `api/agents/${id}`, { name: 'Reader', content: { ...content, ragDocumentIds: ['hours'] }, children });
  // Two documents with the same text, of which one is enough, and an unrelated one.
  await visit(page, `agents/${id}/documents`);
  const names = ['Care of ferns', 'Copy of the care', 'Old wells'].map((name) => `${name} ${id}`);
  const files = names.map((name, place) => ({ name: `${name}.md`, mimeType: 'text/markdown', buffer: Buffer.from(place < 2 ? FERNS : WELLS) }));
  await page.getByLabel('Files to upload').setInputFiles(files);
  for (const name of names) await page.locator('.uploads li', { hasText: name }).getByText('ready').waitFor();
  for (const [place, name] of names.entries()) {
    const row = page.locator('.item', { hasText: name });
    await row.getByRole('checkbox', { name: /^searched/ }).click();
    await until(async () => (await manage('GET', `api/agents/${id}`)).content.ragDocumentIds.length === place + 2, `${name} is searched`);
    // The rows of searched documents move to the top once the role is read again: a click while its row moves has no effect.
    await row.getByRole('checkbox', { name: /^searched/, checked: true }).waitFor();
  }
  await page.reload();
  await visit(page, `chat/${id}`);
  await page.getByRole('tab', { name: 'Retrieval' }).click();
  await page.getByText('Nothing is searched for this message').waitFor();

  // The draft is searched for before it is sent.
  await page.getByRole('textbox', { name: 'Message' }).fill('Do ferns like shade and water?');
  const hits = page.locator('#debug-panel .fragment');
  await hits.filter({ hasText: names[0] }).first().waitFor();
  await ask(page, 'Do ferns like shade and water?');
  await hits.filter({ hasText: names[0] }).first().waitFor();
  const found = await hits.allInnerTexts();
  const of = (words) => found.filter((text) => names.slice(0, 2).some((name) => text.includes(name)) && text.includes(words));
  assert.ok(of('in the prompt').length > 0 && of('said already').length > 0, found.join('\n\n'));
  assert.match(of('in the prompt')[0], /^1\.\s[^]*in the prompt, as \[1\] · characters \d+–\d+ · [^]*\bfern[^]*by words \d+\.\d{3} · together \d+\.\d{3} · relevance [01]\.\d{3}/);
  assert.equal(await page.locator('.fragment.kept').count(), found.filter((text) => text.includes('in the prompt')).length);
  assert.ok(found.every((text) => !text.includes('Wells') || text.includes('not relevant enough')), found.join('\n\n'));
  assert.match(await page.locator('#debug-panel .figure').innerText(), /^(1 fragment|\d+ fragments), \d+ tokens, by words$/);
  assert.ok((await page.locator('#debug-panel .chips').innerText()).includes('shade'));
  await picture(page, 'retrieval-hits');

  // What is kept stands in the prompt, under its number.
  await page.getByRole('tab', { name: 'Prompt' }).click();
  await page.locator('.part', { hasText: 'retrieval' }).first().waitFor();
  const { systemPromptParts } = await manage('POST', 'api/svcchat/previewPrompt', { agentId: id, message: 'Do ferns like shade and water?' });
  assert.match(systemPromptParts.map(({ content }) => content).join('\n'), /<fragment-\w+ id="1"[^>]*>[^<]*Ferns like shade/);
  await manage('DELETE', `api/agents/${id}`);
});

inPage('a word of the query that several messages have is shown once', async (page) => {
  const terms = [{ term: 'fern', weight: 0.5, from: 'query' }, { term: 'shade', weight: 0.25, from: 'query' }, { term: 'fern', weight: 0.25, from: 'previous' }];
  await alterResponses(page, '**/api/svcchat/previewPrompt', (preview) => ({ ...preview, retrieval: { terms, fragments: [], skipped: [], tokens: 0 } }));
  await visit(page, 'chat/reader');
  await page.getByRole('tab', { name: 'Retrieval' }).click();
  const words = page.locator('#debug-panel .chips .chip');
  await words.filter({ hasText: 'shade' }).waitFor();
  assert.deepEqual(await words.allInnerTexts(), ['fern', 'shade']);
  assert.equal(await words.first().getAttribute('title'), 'weight 0.5, from the query; weight 0.25, from the previous');
});
