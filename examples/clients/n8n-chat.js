import { createChat } from '@n8n/chat';

export function openChat(agentdUrl, widgetToken, format = 'n8n') {
  return createChat({
    webhookUrl: `${agentdUrl}/api/agent/chat?format=${format}`,
    webhookConfig: { headers: { 'X-Widget-Token': widgetToken } },
    enableStreaming: format === 'n8n',
    loadPreviousSession: false,
    initialMessages: ['Hello! Ask me about the garden centre.'],
  });
}
