import asyncio
import os

from mcp import Client


async def main():
    url = f"{os.environ['AGENTD_URL']}/api/agent/mcp?token={os.environ['MCP_TOKEN']}"
    async with Client(url) as client:
        listed = await client.list_tools()
        print([tool.name for tool in listed.tools])
        created = await client.call_tool("createTodo", {"title": "Repot the basil"})
        print(created.structured_content["todo"]["title"])


asyncio.run(main())
