#include "data/tokenizer/tokenizer_json.h"

#include "base/fs.h"
#include "data/chat/chat_files.h"
#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

std::string good_tokenizer() { return read_file(fs::path(TITAN_FUZZ_TESTS) / "golden/tokenizer/tokenizer.json"); }

// Encodes and decodes a text. Every id must be one of the tokenizer's.
void use(const data::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  accepts([&] { tokenizer.encode_document("Hello, w\xc3\xb6rld! 12345\n\n  \xff<s></s><|im_end|>", ids); });
  for (const auto id : ids) require(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
  accepts([&] { tokenizer.decode(ids); });
}

}  // namespace

bool run_tokenizer_json(std::string_view input) {
  static const MemoryFolder folder;
  const fs::path file = folder.path() / "tokenizer.json";
  write_over(file, input);
  data::is_sentencepiece_json(file);
  return accepts([&] { use(*data::make_tokenizer(folder.path())); });
}

bool run_tokenizer_config(std::string_view input) {
  static const MemoryFolder folder;
  static const bool is_there = [&] { return write_over(folder.path() / "tokenizer.json", good_tokenizer()), true; }();
  require(is_there, "no tokenizer");
  write_over(folder.path() / "tokenizer_config.json", input);
  bool accepted = accepts([&] { use(*data::make_tokenizer(folder.path())); });
  accepted &= accepts([&] {
    const auto files = data::read_chat_files(folder.path());
    const auto& text = files.choose(/*with_tools=*/false);
    data::ChatOptions options;
    options.variables = files.special_tokens;
    options.clock = [] { return std::time_t{0}; };
    data::ChatTemplate::parse(text.text, text.name).render({{{"role", "user"}, {"content", "Hi"}}}, options);
  });
  return accepted;
}

Seeds tokenizer_json_seeds() {
  return {{"golden", good_tokenizer()}, {"small", R"json({"version": "1.0", "truncation": null, "padding": null,
 "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
   {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|[^\\s]+|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": false},
   {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
 "post_processor": {"type": "TemplateProcessing",
   "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
   "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
 "decoder": {"type": "ByteLevel"},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "ignore_merges": true,
   "vocab": {"H": 0, "e": 1, "He": 2, "?": 3}, "merges": ["H e"]}}
)json"}};
}

Seeds tokenizer_config_seeds() {
  return {{"template", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false, "special": true},
 "added_tokens_decoder": {"0": {"content": "<s>", "single_word": false}},
 "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role + m['content'] | trim }}{% endfor %}"})"},
          {"templates", R"({"chat_template": [{"name": "default", "template": "{{ messages }}"},
 {"name": "tool_use", "template": "x"}], "pad_token": null})"}};
}

}  // namespace titan::fuzz
