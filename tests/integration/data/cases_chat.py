"""Tests that chat templates render as Python's jinja2 does, or are refused."""
import itertools
import json
import random
import subprocess

import chat_reference
import chat_snippets
import chat_statements
import chat_templates
from harness import ROOT, TIME_SCALE, case, expect, file_of_build, peer_python

TIME = 1_700_000_000  # what strftime_now() takes for now


def render_all(context, requests):
    """Returns chat_tool's answers."""
    tool = file_of_build(context, "chat_tool")
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([tool], input=lines.encode(), capture_output=True, timeout=100 * TIME_SCALE)
    expect(done.returncode == 0, f"chat_tool: exit code {done.returncode}\n{done.stderr.decode()[-2000:]}")
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    expect(len(answers) == len(requests), f"{len(answers)} answers to {len(requests)} requests")
    return answers


def request_of(template, messages, **options):
    variables = {**chat_templates.TOKENS, **options.pop("variables", {})}
    return {"template": template, "messages": messages, "options": {"time": TIME, "variables": variables, **options}}


def difference(answer, right):
    """Says where two answers differ."""
    found, expected = (str(a.get("text", a)) for a in (answer, right))
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    near = slice(max(0, at - 40), at + 40)
    marks = f"marks {answer.get('generated')}, {right.get('generated')}"
    return f"at {at}: chat_tool {found[near]!r}, jinja2 {expected[near]!r}; {marks}"


def check_same(names, answers, expected, refusals=()):
    """Checks that all answers are the expected ones. `refusals`: names for which only chat_tool may answer an error."""
    for name, answer, right in zip(names, answers, expected):
        if name in refusals:
            expect("error" in answer, f"{name}: rendered, but it is in the list of what is refused: {answer}")
        elif "error" in right:
            expect("error" in answer, f"{name}: jinja2 fails ({right['error']}), chat_tool renders {answer}")
        else:
            expect(answer == right, f"{name}: {difference(answer, right)}")


def family_requests():
    """Returns requests and their names: each template with each conversation and each set of options."""
    names, requests = [], []
    for family, talk in itertools.product(chat_templates.FAMILIES, chat_templates.CONVERSATIONS):
        template, messages = chat_templates.FAMILIES[family], chat_templates.CONVERSATIONS[talk]
        for options in chat_templates.OPTIONS:
            names.append(f"{family}, {talk}, {json.dumps(options)[:60]}")
            requests.append(request_of(template, messages, **options))
        if messages[-1].get("content") and "add_generation_prompt" not in options:
            names.append(f"{family}, {talk}, open")
            requests.append(request_of(template, messages, continue_final_message=True))
    return names, requests


@case(60, quick=True, processors=1)
def chat_templates_of_families(context):
    """Six families' formats, with all conversations and options, are rendered to the byte, with the assistant's ranges."""
    names, requests = family_requests()
    expected = [chat_reference.render(request) for request in requests]
    check_same(names, render_all(context, requests), expected)
    rendered = [name.split(",")[0] for name, answer in zip(names, expected) if "text" in answer]
    for family in chat_templates.FAMILIES:
        expect(rendered.count(family) > 50, f"{family} renders only {rendered.count(family)} conversations")
    expect(sum(bool(answer.get("generated")) for answer in expected) > 30, "too few conversations with marks")


# Snippets that jinja2 renders and this program refuses on purpose.
REFUSED = {
    "{{ range(0) }}",
    "{{ s.upper }}",  # prints an address in Python, as the next one
    "{{ l | map('upper') }}",
    "{{ s.zfill(3) }}",
    "{{ s.__class__ }}",
    "{{ '%s' % s }}",
    "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(1) }}",
    "{% set loop = 1 %}",
}


def snippet_requests():
    snippets = [f"{{{{ {expression} }}}}" for expression in chat_snippets.EXPRESSIONS] + chat_statements.TEMPLATES
    messages = [{"role": "user", "content": "Hi"}]
    return snippets, [request_of(snippet, messages, variables=chat_snippets.VARIABLES) for snippet in snippets]


@case(60, quick=True, processors=1)
def chat_template_snippets(context):
    """Each construct is rendered as jinja2 does, or refused with line and column."""
    names, requests = snippet_requests()
    answers = render_all(context, requests)
    check_same(names, answers, [chat_reference.render(request) for request in requests], REFUSED)
    for name, answer in zip(names, answers):
        error = answer.get("error", "template:1:1: ")
        expect(error.startswith("template:") and error.split(":")[2].isdigit(), f"{name}: no place in {error!r}")


@case(60, tier="wide", processors=1)
def chat_template_letters(context):
    """Upper and lower case, titles and repr() of every character are Python's. Leaves out characters that are newer
    than Unicode 3.2, whose properties depend on the version of Python."""
    import unicodedata

    points = [chr(p) for p in range(0x20, 0x11000) if not 0xD800 <= p < 0xE000 and unicodedata.ucd_3_2_0.category(chr(p)) not in ("Cn", "Co")]
    texts = ["".join(points[i : i + 500]) for i in range(0, len(points), 500)] + [f"x{p}Σ{p} {p}y Σ" for p in points[:3000]]
    template = "{{ t.upper() }}|{{ t.lower() }}|{{ t.title() }}|{{ t | capitalize }}|{{ [t] }}|{{ t.split() | tojson(true) }}"
    requests = [request_of(template, [{"role": "user", "content": ""}], variables={"t": text}) for text in texts]
    expected = [chat_reference.render(request) for request in requests]
    check_same([text[:20] for text in texts], render_all(context, requests), expected)


def mutations(templates, count, seed):
    """Yields damaged templates: characters are dropped, doubled or replaced by what has a meaning."""
    draw = random.Random(seed)
    pieces = ["{{", "}}", "{%", "%}", "{#", "#}", "-", "'", '"', "(", ")", "[", "]", "|", ".", ":", "\\", "\n", " if ", " for ", "0", "é"]
    pieces += ["messages", " in ", " is ", "range(99999)", "*", "%", "~", "loop", "{% endfor %}", "{% endif %}", "{% set x = x ~ x %}"]
    for _ in range(count):
        text = draw.choice(templates)
        for _ in range(draw.randint(1, 4)):
            at, end = sorted(draw.randint(0, len(text)) for _ in range(2))
            kind = draw.randrange(4)
            if kind == 0:
                text = text[:at] + text[min(end, at + 30) :]
            elif kind == 1:
                text = text[:at] + text[at : at + 30] * 2 + text[at + 30 :]
            else:
                text = text[:at] + draw.choice(pieces) + text[at + kind - 2 :]
        yield text


HOSTILE = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% for a in range(99999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor %}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% for b in [ns.l] %}{% set ns.l = loop %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(x=[0], y=[0]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "{% set ns = namespace(f=1) %}{% for a in range(9999) %}{% macro g() %}{{ ns.f }}{% endmacro %}{% set ns.f = g %}{% endfor %}{{ ns.f() }}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 'a' * 999999999999 }}",
    "{{ ['a'] * 999999999 }}",
    "{{ [1] | tojson(indent=999999999) }}",
    "{{ 'a\\nb' | indent(9999999) | indent(9999999) }}",
    "{{ 'aaaa' | replace('', 'x' * 60000000) }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ strftime_now('%c' * 9999999) }}",
    "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}",
    "{{ " + "[" * 100000 + "]" * 100000 + " }}",
    "{{ " + "-" * 100000 + "1 }}",
    "{{ " + "not " * 100000 + "1 }}",
    "{{ " + "1 + " * 100000 + "1 }}",
    "{{ 1" + " | abs" * 100000 + " }}",
    "{{ x" + ".a" * 100000 + " }}",
    "{{ x" + "[0]" * 100000 + " }}",
    "{{ " + "1 if 1 else " * 100000 + "1 }}",
    "{% if 1 %}" * 100000 + "{% endif %}" * 100000,
    "{% for (" + "(" * 100000 + "a in l %}{% endfor %}",
    "{% raw %}" + "{% " * 100000,
]  # fmt: skip


@case(120, processors=1)
def chat_templates_that_attack(context):
    """Templates that loop, recurse or grow without an end are refused in seconds and never crash the program."""
    messages = [{"role": "user", "content": "Hi"}]
    answers = render_all(context, [request_of(text, messages) for text in HOSTILE])
    rendered = [text[:60] for text, answer in zip(HOSTILE, answers) if "error" not in answer]
    expect(len(rendered) <= 3, f"these are not refused: {rendered}")


@case(120, processors=1, seed=[1, 2], wide=["1"])
def chat_templates_damaged(context, seed):
    """Damaged templates give errors or the text that jinja2 gives; they never crash the program."""
    templates = [*chat_templates.FAMILIES.values(), *chat_statements.TEMPLATES]
    talks = list(chat_templates.CONVERSATIONS.values())
    texts = list(mutations(templates, 3000, seed))
    requests = [
        request_of(text, talks[i % len(talks)], tools=[chat_templates.WEATHER], variables=chat_snippets.VARIABLES)
        for i, text in enumerate(texts)
    ]
    answers = render_all(context, requests)
    compared = 0
    for text, request, answer in zip(texts, requests, answers):
        if "error" in answer or "range(99999)" in text:
            continue
        right = chat_reference.render(request)
        compared += 1
        expect(answer == right, f"{difference(answer, right)}\n{text}")
    expect(compared > 300, f"only {compared} of the damaged templates render")


@case(120, tier="long", processors=1)
def chat_reference_is_transformers(context):
    """transformers' own function gives the answers of chat_reference.py, which the other cases compare with."""
    names, requests = family_requests()
    script = ROOT / "tests/integration/data/chat_peer.py"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([peer_python("transformers"), script], input=lines.encode(), capture_output=True, timeout=100 * TIME_SCALE)
    expect(done.returncode == 0, done.stderr.decode()[-2000:])
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    expect(len(answers) == len(requests), f"{len(answers)} answers")
    check_same(names, answers, [chat_reference.render(request) for request in requests])
