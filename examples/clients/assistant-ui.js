import { useMemo } from 'react';
import { useAui, useRemoteThreadListRuntime } from '@assistant-ui/react';
import { AssistantChatTransport, useChatRuntime } from '@assistant-ui/react-ai-sdk';
import { createHistory } from './assistant-ui-history.js';
import { createThreadList } from './assistant-ui-threads.js';

/** Returns the runtime for `AssistantRuntimeProvider`. */
export function useAgentRuntime(agentdUrl, token) {
  const adapter = useMemo(() => createThreadList(agentdUrl, token, 'guide'), [agentdUrl, token]);
  return useRemoteThreadListRuntime({ adapter, runtimeHook: () => useThreadRuntime(agentdUrl, token) });
}

function useThreadRuntime(agentdUrl, token) {
  const aui = useAui();
  const threadId = () => aui.threadListItem().getState().remoteId;
  const history = useMemo(() => createHistory(agentdUrl, token, threadId), [agentdUrl, token, aui]);
  const transport = useMemo(() => new AssistantChatTransport({
    api: `${agentdUrl}/api/agent/chat?format=ui-message&agentId=guide&todoListId=garden`,
    headers: { Authorization: `Bearer ${token}` },
  }), [agentdUrl, token]);
  return useChatRuntime({ transport, adapters: { history } });
}
