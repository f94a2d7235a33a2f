import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';

export function createChat(agentdUrl, token) {
  return new Chat({
    transport: new DefaultChatTransport({
      api: `${agentdUrl}/api/agent/chat?format=ui-message&agentId=guide&todoListId=garden`,
      headers: () => ({ Authorization: `Bearer ${token}` }),
    }),
    onError: (error) => console.error(error.message),
  });
}
