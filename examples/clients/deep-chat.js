import 'deep-chat';

export function createChat(agentdUrl, widgetToken) {
  const chat = document.createElement('deep-chat');
  chat.connect = {
    url: `${agentdUrl}/api/agent/chat`,
    headers: { 'X-Widget-Token': widgetToken },
    stream: true,
  };
  chat.requestBodyLimits = { maxMessages: 40 };
  chat.errorMessages = { displayServiceErrorMessages: true };
  chat.requestInterceptor = ({ headers, body }) => {
    const messages = body.messages.map(({ role, text }) => ({
      role: role === 'user' ? 'user' : 'assistant',
      content: text,
    }));
    return { headers, body: { messages } };
  };
  chat.responseInterceptor = ({ type, delta, message }) => {
    if (type === 'RUN_ERROR') return { error: message };
    if (type === 'TEXT_MESSAGE_END') return { text: '\n\n' };
    return { text: type === 'TEXT_MESSAGE_CONTENT' ? delta : '' };
  };
  return chat;
}
