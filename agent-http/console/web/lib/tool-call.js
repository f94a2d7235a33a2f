/** Calls of one tool by hand, by the tool server. */

import { AgentdError, createClient } from '../client/index.js';
import { call } from './store.js';

/** Lifetime of the token of a call, which is revoked after the call. */
const TOKEN_TTL_MS = 10 * 60_000;

/**
 * Calls a tool of an agent as the signed-in user, and returns its result with its duration.
 *
 * The tool server takes no cookie. The token for the call is for this tool alone, stays in this function, and is revoked
 * when it ends; where that fails, it expires.
 *
 * @param {{agentId: string, name: string, args: object, todoListId?: string, signal: AbortSignal}} options
 * @returns {Promise<{ms: number, result: {content?: any[], structuredContent?: any, isError?: boolean}}>}
 * @throws {AgentdError} `TOOL_REFUSED` if the tool server did not call the tool.
 */
export async function callTool({ agentId, name, args, todoListId, signal }) {
  const label = `Console: ${name}`.slice(0, 60);
  const body = { kind: 'mcp', ttlMs: TOKEN_TTL_MS, tools: [name], label, todoListId: todoListId || undefined };
  const { data: token } = await call('POST /api/agents/{id}/tokens', { params: { id: agentId }, body, signal });
  try {
    const server = createClient({ baseUrl: document.baseURI, token: token.token });
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } };
    const start = performance.now();
    const answer = await server.api('POST /api/agent/mcp', { body: message, signal });
    const ms = performance.now() - start;
    if (answer.error) throw new AgentdError(`${answer.error.message} (${answer.error.code})`, { code: 'TOOL_REFUSED' });
    return { ms, result: answer.result };
  } finally {
    const params = { id: agentId, tokenId: token.id };
    call('DELETE /api/agents/{id}/tokens/{tokenId}', { params }).catch(() => {});
  }
}
