// The files of console and widget, and their bytes on the wire.

import { readdirSync } from 'node:fs';
import { get } from 'node:http';

/** Returns the bytes of a response as they are on the wire, and their encoding. */
export const fetchRaw = (url, encoding) => new Promise((resolve, reject) => {
  const headers = encoding ? { 'accept-encoding': encoding } : {};
  get(url, { headers }, async (response) => {
    const pieces = [];
    for await (const piece of response) pieces.push(piece);
    const bytes = Buffer.concat(pieces);
    if (response.statusCode === 200) resolve({ bytes, encoding: response.headers['content-encoding'] });
    else reject(new Error(`${url} is ${response.statusCode}`));
  }).on('error', reject);
});

/** Returns the names of the files below a folder that are served. */
function filesBelow(folder, prefix = '') {
  return readdirSync(new URL(folder, import.meta.url), { withFileTypes: true }).flatMap((entry) => (entry.isDirectory()
    ? filesBelow(`${folder}/${entry.name}`, `${prefix}${entry.name}/`) : /\.(js|css|svg)$/.test(entry.name) ? [prefix + entry.name] : []));
}

/** Names of all embedded files but the page, as they are below the assets' path. */
export const names = [...filesBelow('../../agent-http/console/web'), ...filesBelow('../../clients/js/src', 'client/')];

/** Returns true if a file belongs to the widget alone. */
export const isWidget = (name) => name.startsWith('widget');

/** Returns the address of a file. `assets` is the address of the assets' folder. */
export function addressOf(name, assets, base) {
  if (name === 'widget.js') return new URL(name, base).href;
  return (isWidget(name) ? assets.replace('/assets/', '/widget/') : assets) + name;
}

/** Returns the addresses of the files that an open page has loaded. */
export const loadedFiles = (page) => page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/assets/')));

/** Returns the address of the assets' folder. */
export const assetsFolder = (loaded) => loaded.find((name) => name.endsWith('/app.js')).replace(/app\.js$/, '');
