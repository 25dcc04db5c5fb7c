#include "data/conversations/chat_record.h"
#include "data/sources/json_line_files.h"
#include "data/sources/jsonl_source.h"
#include "data/tasks/choice_formats.h"
#include "data/tasks/json_records.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {

bool run_jsonl(std::string_view input) {
  static const MemoryFolder folder;
  const std::filesystem::path file = folder.path() / "a.jsonl";
  write_over(file, input);
  bool accepted = false;
  accepts([&] {
    const auto source = data::open_jsonl_files(file);
    for (std::int64_t i = 0; i < source->num_documents(); ++i) accepted |= accepts([&] { source->document(i); });
    const data::JsonLines lines(file);
    for (std::int64_t i = 0; i < lines.size(); ++i)
      accepted |= accepts([&] { data::parse_conversation(lines.object<nlohmann::ordered_json>(i)); });
  });
  for (const auto read : {data::read_hellaswag, data::read_arc, data::read_mmlu, data::read_choice}) {
    accepts([&] {
      data::for_each_record(file, [&](const data::JsonRecord& record) {
        accepted |= accepts([&] {
          const data::ChoiceItem item = read(record);
          require(item.gold >= 0 && item.gold < std::ssize(item.choices), "no such choice");
        });
        record.to_json();
      });
    });
  }
  return accepted;
}

Seeds jsonl_seeds() {
  return {
      {"text", "\xef\xbb\xbf{\"text\": \"one\\n\\u00e9\"}\n\n  {\"id\": NaN, \"text\": \"two\"}\r\n{\"text\": 3}\n"},
      {"chat", R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "weight": 1}]}
{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s", "tools": "[]"}
{"prompt": "a", "completion": [{"role": "assistant", "content": "b"}], "chat_template_kwargs": {"x": 1}}
)"},
      {"tasks", R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["d", "e"], "label": "1"}
{"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
{"subject": "s_t", "question": "q", "choices": ["a", "b", "c", "d"], "answer": 2}
{"query": "q", "choices": ["a", "b"], "gold": 1}
)"}};
}

}  // namespace titan::fuzz
