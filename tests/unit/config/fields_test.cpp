#include "config/keys/fields.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "config/command_line/modes.h"
#include "config/command_line/variables.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::HasSubstr;

TEST(Fields, KeysAreUniqueAndDocumented) {
  std::set<std::string> seen;
  for (const Field& field : fields()) {
    EXPECT_TRUE(seen.insert(field.key).second) << field.key;
    EXPECT_FALSE(field.doc.empty()) << field.key;
    EXPECT_EQ(field.status.reason.empty(), field.status.support == Support::kSupported) << field.key;
  }
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.push_back(it->str());
  return out;
}

// Texts must not mention a key, flag or variable that no longer exists.
TEST(Fields, TextsNameWhatThereIs) {
  std::set<std::string> names, flags;
  for (const Variable& variable : variables()) names.emplace(variable.name);
  for (const Mode& mode : modes()) flags.insert("--" + typed_name(mode));
  for (const Field& field : fields()) {
    const std::string text = field.doc + " " + field.status.reason;
    for (const std::string& word : matches(text, "[a-z_]+(\\.[a-z_0-9]+)+")) {
      const bool is_file = std::ranges::any_of(std::array{".json", ".jsonl", ".csv", ".md"},
                                               [&](const char* end) { return word.ends_with(end); });
      if (!is_table(word.substr(0, word.find('.'))) || is_file) continue;
      EXPECT_TRUE(find_field(word) || is_table(word)) << field.key << ": " << word;
    }
    for (const std::string& word : matches(text, "TITAN_[A-Z_]+")) EXPECT_TRUE(names.contains(word)) << word;
    for (const std::string& word : matches(text, "--[a-z-]+")) EXPECT_TRUE(flags.contains(word)) << word;
  }
}

// A member of job_config.h without a row in fields.cpp could not be read or printed.
TEST(Fields, EveryMemberHasARow) {
  // TorchTitan 0.2.2's keys, [model.args] with its rope_scaling_args, and our own: training.device, dataset_mix,
  // data_order, on_bad_record, on_nan and those of spikes, checkpoint.on_save_error, files_per_rank, interval_minutes,
  // allow_changed and allow_export_overflow, validation.at_last_step, prompts and prompt_tokens, [cpu], [cuda],
  // profiling.ranks, metrics.enable_csv and gradient_histograms, debug.checksum_freq, checkpoint.last_save_as,
  // parallelism.fsdp_wrap, [chat], [lora], [evaluation], and optimizer.state_dtype, no_decay and lr_factors. Besides,
  // model.from and six keys of [model.args] for models that TorchTitan does not have.
  EXPECT_EQ(fields().size(), 153u + 12u + 6u + 4u + 8u + 3u + 2u + 2u + 4u + 2u + 7u + 2u + 3u + 3u + 5u + 6u + 3u);
  EXPECT_EQ(find_field("training.step"), nullptr);
  EXPECT_TRUE(is_table("quantize.grouped_mm"));
  EXPECT_FALSE(is_table("training.steps"));
}

TEST(Fields, DefaultsSatisfyTheirOwnRules) {
  for (const Field& field : fields()) EXPECT_EQ(find_fault(field, default_value(field)), std::nullopt) << field.key;
}

TEST(Fields, SetWritesWhatGetReads) {
  for (const Field& field : fields()) {
    JobConfig config;
    FieldValue value;
    switch (field.kind) {
      case ValueKind::kBool:
        value = default_value(field) != FieldValue(true);
        break;
      case ValueKind::kInt:
        value = std::int64_t{12345};
        break;
      case ValueKind::kFloat:
        value = 0.12345;
        break;
      case ValueKind::kString:
        value = std::string("a text");
        break;
      case ValueKind::kStringList:
        value = StringList{"x", "y"};
        break;
      case ValueKind::kStringLists:
        value = StringLists{{"x"}, {"y", "z"}};
        break;
    }
    field.set(config, value);
    EXPECT_EQ(field.get(config), value) << field.key;
    EXPECT_FALSE(config == JobConfig{}) << field.key;  // set() changed this configuration
    if (!field.optional) continue;
    field.set(config, None{});
    EXPECT_EQ(field.get(config), FieldValue(None{})) << field.key;
  }
}

// A key that is not implemented yet refuses every value except its default, and says why.
TEST(Fields, KeysNotBuiltRefuseWithAReason) {
  int num_not_built = 0;
  for (const Field& field : fields()) {
    if (field.status.support != Support::kNotBuilt) continue;
    ++num_not_built;
    FieldValue value = std::string("text");
    if (field.kind == ValueKind::kBool) value = default_value(field) != FieldValue(true);
    if (field.kind == ValueKind::kInt) value = std::int64_t{2};
    if (field.kind == ValueKind::kStringList) value = StringList{"x"};
    const auto fault = find_fault(field, value);
    ASSERT_TRUE(fault) << field.key;
    EXPECT_THAT(*fault, HasSubstr(field.key + " = "));
    EXPECT_THAT(*fault, HasSubstr("known but not built yet: " + field.status.reason));
  }
  EXPECT_GT(num_not_built, 0);
}

struct Limits {
  const char* key;
  FieldValue good;
  FieldValue bad;
};

TEST(Fields, RangesAndChoices) {
  const auto i = [](std::int64_t v) { return FieldValue(v); };
  const auto s = [](const char* v) { return FieldValue(std::string(v)); };
  const double inf = std::numeric_limits<double>::infinity();
  const Limits cases[] = {
      {"training.steps", i(1), i(0)},
      {"training.global_batch_size", i(-1), i(0)},
      {"training.global_batch_size", i(1), i(-2)},
      {"training.max_norm", 0.5, 0.0},
      {"training.max_norm", 1e30, inf},
      {"optimizer.lr", 0.0, -1e-9},
      {"optimizer.lr", 1.0, std::nan("")},
      {"optimizer.beta1", 0.0, 1.0},
      {"optimizer.name", s("AdamW"), s("SGD")},
      {"optimizer.name", s("AdamW"), s("Adam")},
      {"optimizer.implementation", s("for-loop"), s("for_loop")},
      {"lr_scheduler.decay_ratio", 1.0, 1.01},
      {"lr_scheduler.decay_ratio", 0.0, -0.01},
      {"lr_scheduler.decay_type", s("cosine"), s("Cosine")},
      {"parallelism.data_parallel_shard_degree", i(-1), i(0)},
      {"parallelism.tensor_parallel_degree", i(2), i(0)},
      {"parallelism.data_parallel_replicate_degree", i(2), i(0)},
      {"parallelism.fsdp_reshard_after_forward", s("never"), s("sometimes")},
      {"parallelism.fsdp_reshard_after_forward", s("2"), s("0")},
      {"training.dtype", s("bfloat16"), s("float16")},
      {"training.mixed_precision_reduce", s("float16"), s("float64")},
      {"training.mixed_precision_param", s("float16"), s("half")},
      {"training.device", s("cpu"), s("tpu")},
      {"checkpoint.folder", s("c"), s("")},
      {"checkpoint.async_mode", s("async"), s("sync")},
      {"checkpoint.files_per_rank", i(4), i(0)},
      {"training.on_nan", s("warn"), s("ignore")},
      {"checkpoint.on_save_error", s("warn"), s("ignore")},
      {"checkpoint.export_dtype", s("bfloat16"), s("float64")},
      {"checkpoint.exclude_from_loading", StringList{"optimizer"}, StringList{"optimizer", "weights"}},
      {"activation_checkpoint.selective_ac_option", s("3"), s("ops")},
      {"activation_checkpoint.selective_ac_option", s("op"), s("-1")},
      {"activation_checkpoint.determinism_check", s("none"), s("strict")},
      {"activation_checkpoint.selective_ac_option", s("1"), s("0")},
      {"activation_checkpoint.selective_ac_option", s("2"), s("two")},
      {"activation_checkpoint.mode", s("full"), s("memory_budget")},
      {"validation.steps", i(-1), i(0)},
  };
  for (const auto& [key, good, bad] : cases) {
    const Field* field = find_field(key);
    ASSERT_TRUE(field) << key;
    EXPECT_EQ(find_fault(*field, good), std::nullopt) << key << " = " << to_toml_value(good);
    const auto fault = find_fault(*field, bad);
    ASSERT_TRUE(fault) << key << " = " << to_toml_value(bad);
    EXPECT_THAT(*fault, HasSubstr(key));
  }
}

TEST(Fields, TextIsUtf8) {
  const std::string bad = "caf\xe9/\xff";
  int num_texts = 0;
  for (const Field& field : fields()) {
    FieldValue value;
    if (field.kind == ValueKind::kString) value = bad;
    if (field.kind == ValueKind::kStringList) value = StringList{bad};
    if (field.kind == ValueKind::kStringLists) value = StringLists{{"good"}, {"good", bad}};
    if (std::holds_alternative<None>(value)) continue;
    ++num_texts;
    const auto fault = find_fault(field, value);
    ASSERT_TRUE(fault) << field.key;
    EXPECT_THAT(*fault, HasSubstr(field.key + ": expected text in UTF-8; found \"caf\\xE9/\\xFF\""));
  }
  EXPECT_GT(num_texts, 30);
  EXPECT_EQ(find_fault(*find_field("job.dump_folder"), std::string("caf\xc3\xa9")), std::nullopt);
}

TEST(Fields, AWrongChoiceGetsTheNearest) {
  EXPECT_THAT(*find_fault(*find_field("optimizer.implementation"), std::string("fussed")),
              HasSubstr("one of fused, foreach, for-loop; found \"fussed\"; did you mean \"fused\"?"));
}

}  // namespace
}  // namespace titan::config
