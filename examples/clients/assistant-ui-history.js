/** Returns assistant-ui's `ThreadHistoryAdapter` of the thread whose id `threadId` returns, for runtimes of the AI SDK. */
export function createHistory(agentdUrl, token, threadId) {
  const load = async () => {
    const url = `${agentdUrl}/api/threads/${encodeURIComponent(threadId())}?format=ui-message`;
    const response = await fetch(url, { headers: { Authorization: `Bearer ${token}` } });
    if (!response.ok) throw new Error((await response.json()).detail);
    const messages = (await response.json()).nodes.map(({ message }) => message);
    const items = messages.map((message, place) => ({ parentId: messages[place - 1]?.id ?? null, message }));
    return { headId: messages.at(-1)?.id ?? null, messages: items };
  };
  // The application stores each message with the run that it belongs to.
  const stored = async () => {};
  const history = { load, append: stored, update: stored };
  return { ...history, withFormat: () => history };
}
