"""The questions about conversations that tests/golden answers: golden.py has what they share."""

# Words of the golden tokenizer, which has few letters. A model can tell from the marks what the assistant writes.
MARKED = """\
{{- bos_token }}
{%- for message in messages %}
    {{- ' ' + message.role + ': ' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content | trim + eos_token }}{% endgeneration %}
    {%- else %}
        {{- message.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- ' assistant: ' }}
{%- endif %}
"""
PLAIN = MARKED.replace("{%- generation %}", "").replace("{% endgeneration %}", "")

FAMILY = "qwen25"  # of golden_families.py
SEQ_LEN = 96
ROWS = 4  # that the conversations are packed into


def _talk(*texts, system=None):
    first = [] if system is None else [{"role": "system", "content": system}]
    return first + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


CONVERSATIONS = [
    _talk("the rain", "the train"),
    _talk("one, two", " three four "),
    _talk("the mill", "a note", "the water", "two notes"),
    _talk("a note: one", "the rain in the train", system="the water"),
    _talk("the water", "the mill"),
    _talk("two", "one"),
    _talk("in the rain", "in the train", "in the train", "in the rain", "a note", "no"),
]
