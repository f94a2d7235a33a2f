/** Comma-separated values (RFC 4180), and files that the page makes. */

/** Quotes a value. Spreadsheets run texts that begin like a formula, so an apostrophe goes before those. */
function cell(value) {
  const text = value === undefined || value === null ? '' : String(value);
  const isFormula = typeof value === 'string' && /^[=+\-@\t\r]/.test(text);
  return `"${isFormula ? '\'' : ''}${text.replaceAll('"', '""')}"`;
}

/** @param {string[]} names @param {unknown[][]} rows */
export const csv = (names, rows) => [names, ...rows].map((row) => `${row.map(cell).join(',')}\r\n`).join('');

/** Saves a text as a file, without a request. @param {string} name @param {string} type @param {string} text */
export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser has read the address by then, and reads the file from memory.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
