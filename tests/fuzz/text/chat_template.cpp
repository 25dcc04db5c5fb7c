#include "data/chat/chat_template.h"

#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {

bool run_chat_template(std::string_view input) {
  using Json = nlohmann::ordered_json;
  const std::size_t end = std::min(input.find('\x1e'), input.size());
  Json messages = Json::parse(input.substr(std::min(end + 1, input.size())), nullptr, /*allow_exceptions=*/false);
  if (!messages.is_array()) messages = {{{"role", "user"}, {"content", "Hi"}}};
  return accepts([&] {
    data::ChatOptions options;
    options.add_generation_prompt = true;
    options.variables = {{"bos_token", "<s>"}};
    options.clock = [] { return std::time_t{0}; };
    const auto parsed = data::ChatTemplate::parse(input.substr(0, end), "t.jinja");
    const auto rendered = parsed.render(messages, options);
    std::size_t before = 0;
    for (const auto& range : rendered.generated) {
      require(before <= range.begin && range.begin <= range.end && range.end <= rendered.text.size(),
              "a range beyond the text");
      before = range.end;
    }
  });
}

Seeds chat_template_seeds() {
  const std::string talk =
      "\x1e"
      R"([{"role": "system", "content": " Be brief. "}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
 {"role": "assistant", "content": "Hello", "tool_calls": [{"name": "f", "arguments": {"x": 1.5, "y": [null, true]}}]}])";
  return {{"llama", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})" +
                        talk},
          {"macros", R"({%- macro one(m, tail='') -%}{{ m['content'] | tojson(indent=2) }}{{ tail }}
{%- endmacro %}{% set ns = namespace(n=0, last=none) %}{# comment #}
{%- for m in messages[::-1] if m.role != 'system' %}{% set ns.n = ns.n + loop.index0 * 2 ** 3 %}
{{- one(m, tail=loop.last | string ~ ns.n | string) }}{% generation %}{{ m.role }}{% endgeneration %}{% else %}none{% endfor %}
{%- if ns.n is defined and not (ns.n in [1, 2] or ns.n // 2 == 0) %}{{ (messages | map(attribute='role') | join(',')).upper() }}
{%- elif false %}{{ raise_exception('no') }}{% endif %}{{ strftime_now('%d %b %Y') }}{{ range(3) | list }}{{ {'a': 1}.items() | list }})" +
                         talk}};
}

}  // namespace titan::fuzz
