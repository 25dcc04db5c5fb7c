// Tests chat templates with expected text. The integration cases chat_* compare many more with Python's jinja2.
#include "data/chat/chat_template.h"

#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "data/chat/chat_files.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using OrderedJson = nlohmann::ordered_json;
using Range = ChatTemplate::Range;

const OrderedJson kTalk = {{{"role", "system"}, {"content", " Be brief. "}},
                           {{"role", "user"}, {"content", "Hi"}},
                           {{"role", "assistant"}, {"content", "Hello\n"}}};

std::string render(const std::string& text, const OrderedJson& messages = kTalk, const ChatOptions& options = {}) {
  return ChatTemplate::parse(text, "t.jinja").render(messages, options).text;
}

// Renders with the variables of a JSON object.
std::string with(const char* variables, const std::string& text) {
  ChatOptions options;
  options.variables = OrderedJson::parse(variables);
  return render(text, kTalk, options);
}

std::string error_of(const std::string& text, const OrderedJson& messages = kTalk) {
  return data_error([&] { render(text, messages); });
}

TEST(ChatTemplate, Llama3Headers) {
  const std::string text = R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";
  ChatOptions options;
  options.variables["bos_token"] = "<s>";
  options.add_generation_prompt = true;
  EXPECT_EQ(render(text, kTalk, options),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatTemplate, ToolsAndTheirCalls) {
  const std::string text = R"({%- for tool in tools or [] %}{{ tool | tojson }}{{ '\n' }}{% endfor %}
{%- for m in messages if m.tool_calls is defined %}
    {%- for call in m.tool_calls %}{{- call.function.name ~ call.function.arguments | tojson }}{% endfor %}
{%- endfor %})";
  const OrderedJson messages =
      OrderedJson::parse(R"([{"role": "user", "content": "w"}, {"role": "assistant", "content": null,
      "tool_calls": [{"function": {"name": "w", "arguments": {"city": "Zürich", "b": [1, 2.0, null, true]}}}]}])");
  ChatOptions options;
  options.tools = OrderedJson::parse(R"([{"z": "<&>'", "a": {}}])");
  EXPECT_EQ(render(text, messages, options),
            "{\"z\": \"<&>'\", \"a\": {}}\nw{\"city\": \"Zürich\", \"b\": [1, 2.0, null, true]}");
}

TEST(ChatTemplate, WhiteSpaceOfBlocks) {
  // As with trim_blocks and lstrip_blocks: a statement's line leaves nothing behind.
  EXPECT_EQ(render("{% for m in messages %}\n  {% if m.role == 'user' %}\n  {{ m.content }}\n  {% endif %}\n{% endfor "
                   "%}\nend\n"),
            "  Hi\nend");
  EXPECT_EQ(render("a {{- 1 -}}  b {%- set x = 1 +%}\n c {#- x #}\nd"), "a1b\n cd");
}

TEST(ChatTemplate, MarksWhatTheAssistantWrote) {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}é{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.{% "
      "endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "t.jinja");
  EXPECT_TRUE(chat.has_generation_marks());
  const auto rendered = chat.render(kTalk, {});
  ASSERT_THAT(rendered.generated, ElementsAre(Range{41, 48}));
  EXPECT_EQ(rendered.text.substr(41, 7), "Hello\n.");
  EXPECT_FALSE(ChatTemplate::parse("{{ messages }}", "t.jinja").has_generation_marks());
  EXPECT_THAT(ChatTemplate::parse("x", "t.jinja").render(kTalk, {}).generated, IsEmpty());
}

TEST(ChatTemplate, LeavesTheLastMessageOpen) {
  const std::string text = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  ChatOptions options;
  options.continue_final_message = true;
  EXPECT_EQ(render(text, kTalk, options), "< Be brief. ><Hi><Hello\n");
  EXPECT_EQ(render("{{ messages[-1].content | trim }}!", kTalk, options), "Hello");
  EXPECT_THAT(data_error([&] { render("{{ messages[0].content }}", kTalk, options); }), HasSubstr("not be continued"));
  options.add_generation_prompt = true;
  EXPECT_THAT(data_error([&] { render(text, kTalk, options); }), HasSubstr("choose one of both"));
}

TEST(ChatTemplate, PreparesMessagesAsTransformersDoes) {
  const OrderedJson messages = OrderedJson::parse(R"([{"role": "user", "content": null, "reasoning": "r"}])");
  EXPECT_EQ(render("{{ messages[0] }}", messages),
            "{'thinking': 'r', 'role': 'user', 'reasoning': 'r', 'reasoning_content': 'r'}");
  EXPECT_THAT(error_of("x", OrderedJson::array()), HasSubstr("at least one message; found array"));
  EXPECT_THAT(error_of("x", OrderedJson::parse("[1]")), HasSubstr("a message must be an object"));
  EXPECT_EQ(render("{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ nope }}"), "NoneNoneFalse");
  ChatOptions options;
  options.variables["messages"] = 1;
  EXPECT_THAT(data_error([&] { render("x", kTalk, options); }), HasSubstr("`messages` cannot be a variable"));
}

TEST(ChatTemplate, PrintsAsPython) {
  EXPECT_EQ(with(R"({"x": [1, 1.0, 1e16, null, true, "it's", "\"'", "a\n", {"k": []}]})", "{{ x }}"),
            R"([1, 1.0, 1e+16, None, True, "it's", '"\'', 'a\n', {'k': []}])");
  EXPECT_EQ(render("{{ 7 // -2 }} {{ -7 % 3 }} {{ 1 / 2 }} {{ 2 ** 10 }} {{ 'é日x'[::-1] }} {{ (1,) }}"),
            "-4 2 0.5 1024 x日é (1,)");
}

TEST(ChatTemplate, AssignmentsStayInTheirLoop) {
  EXPECT_EQ(
      render("{% set x = 1 %}{% for i in [2, 3] %}{{ loop.previtem }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}"),
      "3;24;1");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [2, 3] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"),
            "6");
}

TEST(ChatTemplate, ClockIsTheCallers) {
  ChatOptions options;
  options.clock = [] { return std::time_t{0}; };
  EXPECT_THAT(render("{{ strftime_now('%Y') }}", kTalk, options), ::testing::AnyOf("1970", "1969"));
  EXPECT_THAT(error_of("{{ strftime_now('%f') }}"), HasSubstr("does not support the directive \"%f\""));
}

TEST(ChatTemplate, RefusesWhenParsed) {
  const auto refusal = [](const char* text) { return data_error([&] { ChatTemplate::parse(text, "t.jinja"); }); };
  EXPECT_THAT(refusal("a\n{{ x | groupby('y') }}"),
              StartsWith("t.jinja:2:8: the filter `groupby` is not supported; expected one of abs, capitalize, "));
  EXPECT_THAT(refusal("é {{ x is escaped }}"),
              StartsWith("t.jinja:1:11: the test `escaped` is not supported; expected"));
  EXPECT_THAT(refusal("{{ x | map('groupby') }}"), HasSubstr("`groupby`"));
  EXPECT_THAT(refusal("{{ x | selectattr('y', 'escaped') }}"), HasSubstr("`escaped`"));
  EXPECT_THAT(refusal("{{ x.format(1) }}"), StartsWith("t.jinja:1:6: the method `format` is not supported"));
  EXPECT_THAT(refusal("{{ x.__class__ }}"), HasSubstr("internal to Python"));
  EXPECT_THAT(refusal("{% include 'x' %}"), AllOf(StartsWith("t.jinja:1:4:"), HasSubstr("`include` is not supported")));
  EXPECT_THAT(refusal("{% for x in y recursive %}{% endfor %}"), HasSubstr("write a macro that calls itself"));
  EXPECT_THAT(refusal("{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}"),
              HasSubstr("move it outside"));
  EXPECT_THAT(refusal("{% if x %}"), HasSubstr("`if` does not end; close it with {% endif %}"));
  EXPECT_THAT(refusal("{{ x"), HasSubstr("close it with \"}}\""));
  EXPECT_THAT(refusal("\xff"), HasSubstr("not UTF-8"));
}

TEST(ChatTemplate, FailsWithPlaceAndReason) {
  EXPECT_EQ(error_of("a\n  {{ raise_exception('only ' ~ 1) }}"),
            "t.jinja:2:6: the template refuses this conversation: only 1");
  EXPECT_EQ(error_of("{{ x.y }}"), "t.jinja:1:6: 'x' is undefined");
  EXPECT_EQ(error_of("{{ messages[0].x.y }}"), "t.jinja:1:18: 'dict object' has no attribute 'x'");
  EXPECT_THAT(error_of("{{ 1 + 'a' }}"), HasSubstr("t.jinja:1:6: `+` is not defined for int and str"));
  EXPECT_THAT(error_of("{{ messages.append(1) }}"), HasSubstr("templates must not do"));
  EXPECT_THAT(error_of("{{ messages | map('upper') }}"), HasSubstr("add the filter `list` or `join`"));
}

TEST(ChatTemplate, HasLimits) {
  EXPECT_THAT(error_of("{{ range(100001) }}"), HasSubstr("more than 100000 numbers"));
  EXPECT_THAT(error_of("{{ 'x' * 99999999999 }}"), HasSubstr("larger than 64 MiB"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("recurses"));
  EXPECT_THAT(error_of("{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("levels deep"));
  EXPECT_THAT(error_of("{% set n = namespace() %}{% set n.x = n %}{{ n }}"), HasSubstr("contains itself"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), HasSubstr("too deeply"));
}

TEST(ChatTemplate, DamagedTemplatesOnlyGiveErrors) {
  const std::string good =
      "{% macro f(a, b=1) %}{{ a[::-1] ~ b }}{% endmacro %}{% for m in messages if m.role %}{% set x = {'k': [m, 1.5]} "
      "%}"
      "{{- f(m.content | replace('e', '\\u00e9') | trim, loop.index) }}{% if x.k[0].role in ['user'] and not loop.last "
      "%}"
      "{{ x | tojson(indent=2) }}{% elif loop.first %}{% generation %}a{% endgeneration %}{% endif %}{% endfor %}";
  ASSERT_NE(render(good), "");
  std::mt19937 random(3);
  int rendered = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::string text = good;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(at, 1 + random() % 8);
      } else {
        text.insert(at, 1, "{}%#-|()[]'\".:~*\\ x0\xff"[random() % 22]);
      }
    }
    try {
      render(text);
      ++rendered;
    } catch (const DataError& error) {
      ASSERT_THAT(error.what(), StartsWith("t.jinja:")) << text;
    }
  }
  EXPECT_GT(rendered, 100);
}

TEST(ChatTemplate, ThreadsMayShareOne) {
  const auto chat =
      ChatTemplate::parse("{% for m in messages %}{{ m.content | upper }}{{ 'ab' * 3 }}{% endfor %}", "t.jinja");
  const std::string expected = chat.render(kTalk, {}).text;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(chat.render(kTalk, {}).text, expected);
    });
}

TEST(ChatFiles, TemplateFileGoesFirst) {
  const TempFolder folder;
  EXPECT_THAT(data_error([&] { read_chat_files(folder.path()).choose(false); }),
              HasSubstr("has no chat template; add"));
  folder.write("chat_template.json", R"({"chat_template": "legacy"})");
  EXPECT_EQ(read_chat_files(folder.path()).choose(false).text, "legacy");
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(read_chat_files(folder.path()).choose(false).text, "config");
  folder.write("chat_template.jinja", "file");
  const ChatFiles files = read_chat_files(folder.path());
  EXPECT_EQ(files.choose(true).text, "file");
  EXPECT_EQ(files.choose(true).name, (folder.path() / "chat_template.jinja").string());
  folder.write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(read_chat_files(folder.path()).choose(true).text, "tools");
  EXPECT_EQ(read_chat_files(folder.path()).choose(false).text, "file");
}

TEST(ChatFiles, NamedTemplatesOfTheConfig) {
  const TempFolder folder;
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(read_chat_files(folder.path()).choose(false).text, "d");
  EXPECT_EQ(read_chat_files(folder.path()).choose(true).text, "t");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "d"}]})");
  EXPECT_THAT(data_error([&] { read_chat_files(folder.path()).choose(false); }), HasSubstr("templates rag, and none"));
  folder.write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THAT(data_error([&] { read_chat_files(folder.path()); }), HasSubstr("expected text, or a list of"));
  folder.write("tokenizer_config.json", "[");
  EXPECT_THAT(data_error([&] { read_chat_files(folder.path()); }), HasSubstr("tokenizer_config.json"));
}

TEST(ChatFiles, SpecialTokens) {
  const TempFolder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null,
                   "add_bos_token": true, "image_token": "<i>", "extra_special_tokens": {"eoc_token": "<c>"}})");
  folder.write("special_tokens_map.json", R"({"bos_token": "<b>", "unk_token": {"content": "<u>"}})");
  EXPECT_EQ(
      read_chat_files(folder.path()).special_tokens,
      OrderedJson::parse(
          R"({"bos_token": "<b>", "eos_token": "</s>", "image_token": "<i>", "eoc_token": "<c>", "unk_token": "<u>"})"));
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(read_chat_files(folder.path()).special_tokens, OrderedJson::parse(R"({"bos_token": "<s>"})"));
}

}  // namespace
}  // namespace titan::data
