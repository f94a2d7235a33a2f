/** Links to the exports of a thread. */

/** Returns the entries of a menu. @param {string} id @param {string} [owner] A visitor, for the agent's owner. */
export function exportLinks(id, owner) {
  const address = (format) => {
    const url = new URL(`api/threads/${encodeURIComponent(id)}/export`, document.baseURI);
    if (format) url.searchParams.set('format', format);
    if (owner) url.searchParams.set('owner', owner);
    return url.href;
  };
  const name = `thread-${id.replace(/[^\w.-]/g, '_')}`;
  return [
    { name: 'Export as Markdown', href: address('markdown'), download: `${name}.md` },
    { name: 'Export as JSON', href: address(), download: `${name}.json` },
  ];
}
