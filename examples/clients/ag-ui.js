import { HttpAgent } from '@ag-ui/client';

const { AGENTD_URL, AGENTD_TOKEN } = process.env;

export const guide = new HttpAgent({
  url: `${AGENTD_URL}/api/agent/chat?agentId=guide&todoListId=garden`,
  headers: { Authorization: `Bearer ${AGENTD_TOKEN}` },
});

/** Sends a message; the agent object keeps the conversation. */
export async function ask(content) {
  guide.addMessage({ id: crypto.randomUUID(), role: 'user', content });
  const { newMessages } = await guide.runAgent({}, {
    onTextMessageContentEvent: ({ event }) => process.stdout.write(event.delta),
    onRunErrorEvent: ({ event }) => console.error(event.code, event.message),
  });
  return newMessages;
}
