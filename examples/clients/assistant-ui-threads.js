import { createAssistantStream } from 'assistant-stream';

/** Returns assistant-ui's `RemoteThreadListAdapter` over the threads of the token's user with one agent. */
export function createThreadList(agentdUrl, token, agentId) {
  const request = async (method, path, body) => {
    const response = await fetch(`${agentdUrl}/api/threads${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: body && JSON.stringify(body),
    });
    if (!response.ok) throw new Error((await response.json()).detail);
    return response.status === 204 ? undefined : response.json();
  };
  const path = (id) => `/${encodeURIComponent(id)}`;
  const metadata = ({ id, title, archived, lastActivityAt }) => ({
    remoteId: id,
    status: archived ? 'archived' : 'regular',
    title: title || undefined,
    lastMessageAt: new Date(lastActivityAt),
  });
  const read = (id) => request('GET', `${path(id)}?messages=none`);
  return {
    async list({ after } = {}) {
      const query = new URLSearchParams({ agentId, archived: 'any', ...(after && { cursor: after }) });
      const { threads, nextCursor } = await request('GET', `?${query}`);
      return { threads: threads.map(metadata), nextCursor };
    },
    fetch: async (id) => metadata(await read(id)),
    initialize: async () => ({ remoteId: (await request('POST', '', { agentId })).id }),
    rename: (id, title) => request('PATCH', path(id), { title }),
    archive: (id) => request('PATCH', path(id), { archived: true }),
    unarchive: (id) => request('PATCH', path(id), { archived: false }),
    delete: (id) => request('DELETE', path(id)),
    // The application has named the thread by its first message.
    generateTitle: async (id) => {
      const { title } = await read(id);
      return createAssistantStream((controller) => controller.appendText(title));
    },
  };
}
