"""The package openai with response_format: prints what each of its calls gives."""

import json
import os

import openai
import pydantic

client = openai.OpenAI(base_url=f"{os.environ['AGENTD_URL']}/v1", api_key=os.environ["API_TOKEN"], max_retries=0)
completions = client.chat.completions
hello = [{"role": "user", "content": "Order three pears."}]


class Order(pydantic.BaseModel):
    """An order."""

    item: str
    count: int


def refusal(response_format):
    """Returns the error of a request: its class, status, code and parameter."""
    try:
        completions.create(model="a2", messages=hello, response_format=response_format)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return None


def described(schema):
    """Returns the parameter for a schema."""
    return {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}


parsed = completions.parse(model="a1", messages=hello, response_format=Order).choices[0].message
with completions.stream(model="a1", messages=hello, response_format=Order) as stream:
    streamed = stream.get_final_completion().choices[0].message
free = completions.create(model="a1", messages=hello, response_format={"type": "json_object"})
print(
    json.dumps(
        {
            "parsed": parsed.parsed.model_dump(),
            "streamed": streamed.parsed.model_dump(),
            "free": json.loads(free.choices[0].message.content),
            "invalid": refusal(described(Order.model_json_schema())),
            "hostile": refusal(described({"properties": {"a": {"$ref": "http://h/s.json"}}})),
        }
    )
)
