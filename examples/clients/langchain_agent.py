import os

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

guide = {
    "transport": "streamable_http",
    "url": f"{os.environ['AGENTD_URL']}/api/agent/mcp",
    "headers": {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"},
}


async def ask(model, question):
    """Asks a model of LangChain, such as "openai:gpt-5-mini", that has the agent's tools."""
    tools = await MultiServerMCPClient({"guide": guide}).get_tools()
    agent = create_agent(model, tools)
    answer = await agent.ainvoke({"messages": [("user", question)]})
    return answer["messages"]
