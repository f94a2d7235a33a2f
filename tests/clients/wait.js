/** Waits until `found` returns something, within a test's own time limit. */
export async function until(found) {
  for (;;) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
