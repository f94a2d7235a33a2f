import { createServer } from 'node:http';
import { HttpAgent } from '@ag-ui/client';
import { CopilotRuntime, InMemoryAgentRunner } from '@copilotkit/runtime/v2';
import { createCopilotNodeListener } from '@copilotkit/runtime/v2/node';

const { AGENTD_URL, AGENTD_TOKEN } = process.env;

const guide = new HttpAgent({
  url: `${AGENTD_URL}/api/agent/chat?agentId=guide&todoListId=garden`,
  headers: { Authorization: `Bearer ${AGENTD_TOKEN}` },
});

const runtime = new CopilotRuntime({ agents: { guide }, runner: new InMemoryAgentRunner() });

export const server = createServer(createCopilotNodeListener({ runtime, basePath: '/api/copilotkit' }));
