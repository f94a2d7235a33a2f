/** Time limit of a wait, far above its duration on a busy machine. The limit of a test, `--test-timeout`, is longer. */
const LIMIT_MS = 240_000;

/** Waits until `found` returns something, or a promise of something. */
export async function until(found) {
  for (const end = Date.now() + LIMIT_MS; Date.now() < end; ) {
    const value = await found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`${found} has returned nothing for ${LIMIT_MS} ms`);
}
