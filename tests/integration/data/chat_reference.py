"""Renders chat templates with jinja2, set up as transformers' apply_chat_template does it (version 5.24)."""
import contextlib
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

REASONING = ("reasoning_content", "thinking", "reasoning")
OPEN_END = "CONTINUE_FINAL_MESSAGE_TAG "


class Generation(jinja2.ext.Extension):
    """The block {% generation %}, which notes where its output begins and ends in what was rendered so far."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(track=self.track)
        self.blocks = self.ranges = None

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        text = caller()
        if self.blocks is None:
            return text
        begin = len("".join(self.blocks))
        self.ranges.append([begin, begin + len(text)])
        return text

    @contextlib.contextmanager
    def track(self, blocks, ranges):
        self.blocks, self.ranges = blocks, ranges
        yield


class Dict:
    """Stands for the function dict()."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"underscore: {name}")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment(time):
    """`time`: seconds since 1970 that strftime_now() takes for now, in the local zone."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(time).strftime(format)
    environment.globals["dict"] = Dict()
    environment.globals["namespace"] = Namespace
    return environment


def prepare(messages):
    """Returns the messages as templates see them: without keys that are null, and with reasoning under two names."""
    prepared = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        reasoning = next((message[key] for key in REASONING if key in message), None)
        prepared.append(message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning})
    return prepared


def render_open(template, messages, variables):
    """Renders with the last message left open."""
    text = messages[-1]["content"]
    if isinstance(text, list):
        part = next(part for part in reversed(text) if "text" in part)
        text = part["text"]
        part["text"] += OPEN_END
    else:
        messages[-1]["content"] += OPEN_END
    rendered = template.render(messages=messages, **variables)
    if text.strip() not in rendered or OPEN_END.strip() not in rendered:
        raise ValueError("the text is not in the result")
    at = rendered.rindex(OPEN_END.strip())
    return rendered[:at] if rendered[at:].startswith(OPEN_END) else rendered[:at].rstrip()


def render(request):
    """Returns {"text", "generated"} or {"error"} for a line of chat_tool's input."""
    options = request["options"]
    environment = make_environment(options.get("time", 0))
    variables = {
        "tools": options.get("tools"),
        "documents": options.get("documents"),
        "add_generation_prompt": options.get("add_generation_prompt", False),
        **options.get("variables", {}),
    }
    messages = json.loads(json.dumps(prepare(request["messages"])))
    try:
        template = environment.from_string(request["template"])
        if options.get("continue_final_message"):
            return {"text": render_open(template, messages, variables), "generated": []}
        blocks, ranges = [], []
        with environment.track(blocks, ranges):
            for block in template.generate(messages=messages, **variables):
                blocks.append(block)
        return {"text": "".join(blocks), "generated": ranges}
    except Exception as error:  # whatever Python raises for a wrong template
        return {"error": f"{type(error).__name__}: {error}"}
