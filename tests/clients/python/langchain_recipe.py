"""The recipe for LangChain, with its fake chat model: prints the names of the tools and the messages of the run."""

import asyncio
import json

import langchain_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

offered = []


class FakeModel(FakeMessagesListChatModel):
    """Answers with a tool call and then a text, and records the tools that it is offered."""

    def bind_tools(self, tools, **kwargs):
        offered.extend(tool.name for tool in tools)
        return self


call = {"name": "readTodos", "args": {}, "id": "c1"}
model = FakeModel(responses=[AIMessage(content="", tool_calls=[call]), AIMessage(content="Water the basil.")])
_, _, result, answer = asyncio.run(langchain_agent.ask(model, "Any todos?"))
print(json.dumps({"tools": offered[:2], "result": result.artifact["structured_content"], "answer": answer.content}))
