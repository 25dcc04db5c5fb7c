"""Answers the requests of cases_chat.py with transformers' own renderer: JSON lines from standard input to standard output."""
import datetime
import json
import sys

from transformers.utils import chat_template_utils as peer


def at(time):
    """Returns a datetime class whose now() is `time`."""

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time, tz)

    return Fixed


def render(request):
    options = request["options"]
    peer.datetime = at(options["time"])
    is_open = options.get("continue_final_message", False)
    try:
        texts, ranges = peer.render_jinja_template(
            [peer._normalize_chat_messages(request["messages"])],
            tools=options.get("tools"),
            documents=options.get("documents"),
            chat_template=request["template"],
            return_assistant_tokens_mask=not is_open,
            continue_final_message=is_open,
            add_generation_prompt=options.get("add_generation_prompt", False),
            **options.get("variables", {}),
        )
    except Exception as error:  # whatever Python raises for a wrong template
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": texts[0], "generated": ranges[0] if ranges else []}


for line in sys.stdin:
    print(json.dumps(render(json.loads(line))), flush=True)
