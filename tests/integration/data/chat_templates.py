"""Chat templates, conversations and options for cases_chat.py: made up here, in the formats of six families of models."""

# Role headers; tools are JSON in the system message.
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2025" %}
    {%- endif %}
{%- endif %}
{#- A first message of the system is taken out of the list. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_text = messages[0]['content'] if messages[0].content is string else messages[0]['content'][0].text %}
    {%- set system_text = system_text | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_text = "" %}
{%- endif %}
{%- macro header(role) -%}
    {{ '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}
{%- endmacro %}
{{- header('system') }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today: " ~ date_string ~ "\\n\\n" }}
{%- if tools is not none %}
    {{- "Answer with JSON to call a function.\\n\\n" }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_text }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- header(message['role']) + (message['content'] | trim if message.content is string else message.content | map(attribute='text') | select('defined') | join('|')) + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls|length != 1 %}
            {{- raise_exception("one call at a time, not " ~ message.tool_calls|length) }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- header('assistant') }}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- header('ipython') }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- header('assistant') }}
{%- endif %}
"""

QWEN25 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nCall as <tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Thinking is kept only after the last question: found by a walk from the end, with a namespace.
QWEN3 = """\
{%- macro content_of(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.type == 'image' or 'image' in part -%}<|image|>{%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}
        {%- endfor -%}
    {%- elif content is none or content is undefined -%}
        {{- '' -}}
    {%- else -%}
        {{- raise_exception('unexpected content') -}}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and not (content_of(message.content).startswith('<tool_response>') and content_of(message.content).endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = content_of(message.content)|trim %}
    {%- if message.role in ["user", "system"] %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '<tool_call>\\n<function=' ~ call.name ~ '>\\n' }}
            {%- for name, value in call.arguments|items if call.arguments is mapping %}
                {{- '<parameter=' ~ name ~ '>\\n' }}
                {{- (value | tojson | safe) if value is mapping or (value is sequence and value is not string) else value | string }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

# Roles must alternate; tools go before the last user message.
MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate: user, assistant, user, ...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {{- ", " if not loop.last else "]" }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Ids of calls have 9 characters") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {%- set content = message.content.content if message.content is mapping and message.content.content is defined else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("There is no role " ~ message.role) }}
    {%- endif %}
{%- endfor %}
"""

# Relies on trim_blocks and lstrip_blocks instead of minus signs.
ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
    {{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""

SMOLLM3 = """\
{%- set default_system = "You help." -%}
{%- set mode = "/think" if enable_thinking | default(true) else "/no_think" -%}
{%- set system = namespace(text="") -%}
{%- if messages[0].role == "system" -%}
  {%- set system.text = messages[0].content.replace("/no_think", "").replace("/system_override", "").rstrip() -%}
  {%- if "/no_think" in messages[0].content -%}{%- set mode = "/no_think" -%}{%- endif -%}
{%- endif -%}
<|im_start|>system
{% if "/system_override" in messages[0].content %}
{{ system.text }}
{% else %}
{{ "## Metadata\\n\\nReasoning mode: " + mode + "\\n\\n" }}
{%- if system.text %}{{ system.text | indent(2, first=true) + "\\n\\n" }}{% else %}{{ default_system ~ "\\n\\n" }}{% endif %}
{%- if xml_tools or python_tools or tools %}
### Tools

{% set listing = namespace(all="") %}
{% for tool in (xml_tools or []) + (tools or []) %}
  {% set listing.all = listing.all ~ (tool | string) ~ "\\n" %}
{% endfor %}
<tools>
{{ listing.all }}</tools>
{% endif %}
{% endif %}
<|im_end|>
{% for message in messages %}
  {% set content = message.content if message.content is string else "" %}
  {% if message.role == "user" %}
{{ "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
  {%- elif message.role == "assistant" %}
{{- "<|im_start|>assistant\\n" }}
{%- generation %}
    {%- if mode == "/think" %}
{{- content.lstrip("\\n") + "<|im_end|>" }}
    {%- else %}
{{- "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>" }}
    {%- endif %}
{% endgeneration %}
{{ "\\n" }}
  {%- elif message.role == "tool" %}
    {%- filter trim %} {{ "<|im_start|>user\\n" + content + "<|im_end|>" }} {% endfilter %}

  {% endif %}
{% endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% if mode == "/no_think" %}{{ "<think>\\n\\n</think>\\n" }}{% endif %}{% endif %}
"""

FAMILIES = {"llama3": LLAMA3, "qwen25": QWEN25, "qwen3": QWEN3, "mistral": MISTRAL, "zephyr": ZEPHYR, "smollm3": SMOLLM3}

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a <city> & more, in °C",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}, "scale": {"enum": ["C", "F"]}},
            "required": ["city"],
        },
        "return": {"type": "object"},
    },
}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identifier="abcdefghi"):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


RESULT = message("tool", '{"temp": 3}', name="weather", tool_call_id="abcdefghi")
CONVERSATIONS = {
    "question": [message("user", "Hi")],
    "spaces": [message("system", " Be  brief.\n"), message("user", "\tHello \n"), message("assistant", "\n\n Hi there  ")],
    "turns": [message("system", "s /no_think"), *[m for i in range(3) for m in (message("user", f"q{i}"), message("assistant", f"a{i}\n"))]],
    "open": [message("user", "one"), message("assistant", "two"), message("user", "three ")],
    "unicode": [message("system", "日本語 🙂"), message("user", "é\u0301 \u00a0x\u3000"), message("assistant", "<b> & 'x' \"y\" \\n \u2028")],
    "thinking": [message("user", "q"), message("assistant", "<think>\nwell\n</think>\n\nyes"), message("user", "r"), message("assistant", "<think>a</think>b")],
    "reasoning": [message("user", "q"), message("assistant", "yes", reasoning_content="because\n")],
    "older": [message("user", "q"), message("assistant", "yes", thinking="because"), message("user", "z")],
    "parts": [message("system", parts("sys")), message("user", [*parts("look"), {"type": "image"}, *parts("here")]), message("assistant", parts("I see"))],
    "tool": [message("user", "w?"), message("assistant", "", tool_calls=[call("weather", {"city": "Zürich", "days": 2, "more": [1, None, True, 1.5]})]), RESULT, message("assistant", "3 degrees")],
    "tools": [message("user", "w?"), message("assistant", "so", tool_calls=[call("weather", {"city": "X"}), call("add", {"n": {"a": 1e300}}, "123456789")]), RESULT, message("tool", "5", tool_call_id="123456789")],
    "text arguments": [message("user", "w?"), message("assistant", None, tool_calls=[call("weather", '{"city": "X"}')]), RESULT],
    "object result": [message("user", "w?"), message("assistant", None, tool_calls=[call("weather", {})]), message("tool", {"content": {"t": 1}}, tool_call_id="abcdefghi")],
    "two users": [message("user", "a"), message("user", "b")],
    "assistant first": [message("assistant", "a"), message("user", "b")],
    "late system": [message("user", "a"), message("system", "b")],
    "other role": [message("narrator", "a")],
    "empty": [message("user", ""), message("assistant", "")],
    "override": [message("system", "only this /system_override"), message("user", "x")],
    "nothing": [{"role": "user"}],
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"tools": [WEATHER, ADD]},
    {"tools": [WEATHER], "add_generation_prompt": True},
    {"tools": []},
    {"add_generation_prompt": True, "variables": {"enable_thinking": False}},
    {"variables": {"date_string": "today", "enable_thinking": True, "xml_tools": [ADD]}},
]
