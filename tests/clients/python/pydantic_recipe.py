"""The recipe for Pydantic AI, with its test model: prints the names of the tools and the messages of the run."""

import asyncio
import json

import pydantic_agent
from pydantic_ai.models.test import TestModel

model = TestModel(call_tools=["readTodos"], custom_output_text="Water the basil.")
run = asyncio.run(pydantic_agent.ask(model, "Any todos?"))
tools = [tool.name for tool in model.last_model_request_parameters.function_tools]
_, _, results, _ = run.all_messages()
print(json.dumps({"tools": tools, "result": results.parts[0].content, "answer": run.output}))
