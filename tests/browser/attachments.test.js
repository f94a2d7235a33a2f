// Files that go with messages.

import assert from 'node:assert/strict';

import { before } from './harness.js';
import { ask, launch, pageTests, picture, visit } from './support.js';

/** A picture of one pixel. */
const PNG = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
const SVG = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>');

let browser;
before(async () => (browser = await launch()));

const { inPage } = pageTests(() => browser);

const choose = (page, files) => page.getByLabel('Files to attach').setInputFiles(files);
const plant = { name: 'plant.png', mimeType: 'image/png', buffer: PNG };
const notes = { name: 'notes <b>.txt', mimeType: 'text/plain', buffer: Buffer.from('Water it on Mondays.') };

const list = (page) => page.getByRole('list', { name: 'Attached files' }).getByRole('listitem');
const stored = (page, number) => page.waitForFunction((number) => document.querySelectorAll('.attachment').length === number && !document.querySelector('.attachment .meta'), number);
const send = (page) => page.getByRole('button', { name: 'Send' });
const lastAnswer = (page) => page.locator('.message.answer').last();

/** Waits until the conversation has one picture, which is drawn. */
const pictureDrawn = (page) => page.waitForFunction(() => {
  const images = [...document.querySelectorAll('.message-file img')];
  return images.length === 1 && images[0].complete && images[0].naturalWidth > 0;
});

inPage('a picture and a text go with a message, and stay in the thread', async (page) => {
  await visit(page, 'chat/text');
  await choose(page, [plant, notes]);
  await stored(page, 2);
  await picture(page, 'attachments');
  await page.getByRole('textbox', { name: 'Message' }).fill('Which plant is it?');
  await send(page).click();
  await lastAnswer(page).getByText('Seen: data:image/png').waitFor();
  await lastAnswer(page).getByText('Water it on Mondays').waitFor();
  await list(page).first().waitFor({ state: 'detached' });

  const check = async (words) => {
    await pictureDrawn(page);
    const message = page.locator('.message.user').last();
    assert.equal(await message.locator('.bubble').innerText(), words);
    await message.getByRole('link', { name: 'notes <b>.txt 20 B', exact: true }).waitFor();
    await message.getByRole('img', { name: 'plant.png' }).waitFor();
  };
  await check('Which plant is it?');
  await page.reload();
  await lastAnswer(page).getByText('Seen: data:image/png').waitFor();
  await check('Which plant is it?');
  await picture(page, 'attachments-sent');
  const [address] = await page.locator('.message-file img').evaluateAll((images) => images.map(({ src }) => src));
  assert.match(address, /\/api\/files\/[\w-]+$/);

  // An edited message has the same files.
  await page.locator('.message.user').hover();
  await page.getByRole('button', { name: 'Edit' }).click();
  const area = page.getByRole('textbox', { name: 'Edit the message' });
  assert.equal(await area.inputValue(), 'Which plant is it?');
  await area.fill('And now?');
  await page.keyboard.press('Enter');
  await page.getByRole('group', { name: 'Alternatives' }).first().getByText('2/2').waitFor();
  await lastAnswer(page).getByText('Seen: data:image/png').waitFor();
  await check('And now?');

  // A deleted file is reported.
  await page.evaluate((address) => fetch(address, { method: 'DELETE' }), address);
  await page.reload();
  await page.getByText('Picture, no longer stored').first().waitFor();
});

inPage('a file that is refused says why, and holds the message until it is removed', async (page) => {
  await visit(page, 'chat/text');
  await page.getByRole('textbox', { name: 'Message' }).fill('What is it?');
  await choose(page, [{ name: 'drawing.svg', mimeType: 'image/svg+xml', buffer: SVG }]);
  await list(page).getByRole('alert').waitFor();
  assert.match(await list(page).innerText(), /picture/);
  assert.ok(await send(page).isDisabled());
  await page.getByRole('button', { name: 'Remove drawing.svg' }).click();
  await list(page).waitFor({ state: 'detached' });
  await send(page).click();
  await lastAnswer(page).getByText('Hello from the model.').waitFor();
});

inPage('pasted and dropped files are attached, and a file needs no text', async (page) => {
  await visit(page, 'chat/text');
  await page.locator('.composer').waitFor();
  await page.evaluate((bytes) => {
    const transfer = () => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], 'pasted.png', { type: 'image/png' }));
      return data;
    };
    document.querySelector('#composer').dispatchEvent(new ClipboardEvent('paste', { clipboardData: transfer(), bubbles: true, cancelable: true }));
    document.querySelector('.composer').dispatchEvent(new DragEvent('drop', { dataTransfer: transfer(), bubbles: true, cancelable: true }));
  }, [...PNG]);
  await stored(page, 2);
  const deleted = page.waitForResponse((response) => response.request().method() === 'DELETE');
  await page.getByRole('button', { name: 'Remove pasted.png' }).first().click();
  assert.equal((await deleted).status(), 204);
  await send(page).click();
  await lastAnswer(page).getByText('Seen: data:image/png').waitFor();
  await pictureDrawn(page);
  assert.equal(await page.locator('.message.user .bubble').count(), 0);
  await ask(page, 'Again');
  await lastAnswer(page).getByText('Hello from the model.').waitFor();
});
