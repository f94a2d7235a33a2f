"""The package openai against the API that follows OpenAI's: prints what each of its calls gives."""

import json
import os

import openai

URL, KEY = f"{os.environ['AGENTD_URL']}/v1", os.environ["API_TOKEN"]
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)
hello = [{"role": "user", "content": "Hello"}]


def refusal(model="text", key=KEY, retries=0, **more):
    """Returns the error of a request: its class, status and code."""
    refused = openai.OpenAI(base_url=URL, api_key=key, max_retries=retries)
    try:
        refused.chat.completions.create(model=model, messages=hello, **more)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]
    return None


def paint():
    """Paints by a tool of this program: returns the arguments of the call, and the answer to its result."""
    parameters = {"type": "object", "properties": {"color": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "paint", "parameters": parameters}}]
    messages = [{"role": "user", "content": "Paint it"}]
    asked = client.chat.completions.create(model="paint", messages=messages, tools=tools)
    message = asked.choices[0].message
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "painted"}]
    answered = client.chat.completions.create(model="paint", messages=messages, tools=tools)
    call = message.tool_calls[0].function
    return [asked.choices[0].finish_reason, call.name, json.loads(call.arguments), answered.choices[0].message.content]


def stream(model):
    """Returns the text of a stream, its usage, and the code of its error."""
    text, usage, code = "", None, None
    options = {"include_usage": True}
    try:
        for chunk in client.chat.completions.create(model=model, messages=hello, stream=True, stream_options=options):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage.total_tokens if chunk.usage else None
    except openai.APIError as error:
        code = error.code
    return [text, usage, code]


whole = client.chat.completions.with_raw_response.create(model="text", messages=hello)
run = whole.headers["x-agent-run-id"]
limited = os.environ["LIMITED_API_TOKEN"]
print(
    json.dumps(
        {
            "models": [model.id for model in client.models.list()],
            "model": client.models.retrieve("text").id,
            "text": whole.parse().choices[0].message.content,
            "usage": whole.parse().usage.total_tokens,
            "id": whole.parse().id == f"chatcmpl-{run}",
            "stream": stream("text"),
            "broken": stream("error"),
            "paint": paint(),
            "errors": [
                refusal(key="aga_wrong"),
                refusal(model="guarded"),
                refusal(n=2),
                refusal(model="error", retries=5),
                refusal(key=limited),
                refusal(key=limited),
            ],
        }
    )
)
