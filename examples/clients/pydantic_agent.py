import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

guide = MCPToolset(
    f"{os.environ['AGENTD_URL']}/api/agent/mcp",
    headers={"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"},
)


async def ask(model, question):
    """Asks a model of Pydantic AI, such as "openai:gpt-5-mini", that has the agent's tools."""
    agent = Agent(model, toolsets=[guide])
    async with agent:
        return await agent.run(question)
