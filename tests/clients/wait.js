/** Time limit of a wait. A wait that goes on after its test's time limit would keep the process alive. */
const LIMIT_MS = 50_000;

/** Waits until `found` returns something. */
export async function until(found) {
  for (const end = Date.now() + LIMIT_MS; Date.now() < end; ) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`${found} has returned nothing for ${LIMIT_MS} ms`);
}
