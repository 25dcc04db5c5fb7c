#include "apps/commands/show_chats.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/print_result.h"
#include "base/env.h"
#include "base/process/signal.h"
#include "base/text.h"
#include "data/conversations/chat_samples.h"
#include "data/sources/text_source.h"
#include "data/sources/token_marks.h"
#include "data/tokenizer/token_json.h"
#include "data/tokenizer/tokenizer.h"

namespace titan {
namespace {

// How trained and other text begins and ends.
struct Style {
  const char *trained, *end_trained, *other, *end_other;
};

constexpr Style kColors = {"\x1b[1;32m", "\x1b[0m", "\x1b[2m", "\x1b[0m"};
constexpr Style kBrackets = {"\u27e6", "\u27e7", "", ""};

Style style_of_output() {
  const auto no_color = get_env("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && !(no_color && !no_color->empty()) ? kColors : kBrackets;
}

// A run of tokens that are all trained, or all not.
struct Stretch {
  std::vector<std::int32_t> ids;
  bool is_trained = false;
};

// The first token does not count as a label: nothing before it leads to it.
std::vector<Stretch> stretches_of(const std::vector<std::int32_t>& tokens) {
  std::vector<Stretch> out;
  for (const std::int32_t token : tokens) {
    const bool is_trained = data::is_label(token) && !data::begins(token);
    if (out.empty() || out.back().is_trained != is_trained) out.push_back({{}, is_trained});
    out.back().ids.push_back(static_cast<std::int32_t>(data::id_of(token)));
  }
  return out;
}

std::string text_of(const Stretch& stretch, const data::Tokenizer& tokenizer) {
  std::string text;
  std::vector<std::int32_t> plain;
  const auto flush = [&] {
    text += tokenizer.decode(plain);
    plain.clear();
  };
  for (const std::int32_t id : stretch.ids) {
    if (!tokenizer.is_special(id)) {
      plain.push_back(id);
      continue;
    }
    flush();
    text += tokenizer.special_text(id);
  }
  flush();
  return text;
}

std::string as_json(const std::string& where, const std::vector<Stretch>& stretches) {
  std::vector<std::int32_t> ids, labels;
  for (const Stretch& stretch : stretches) {
    ids.insert(ids.end(), stretch.ids.begin(), stretch.ids.end());
    labels.insert(labels.end(), stretch.ids.size(), stretch.is_trained ? 1 : 0);
  }
  return "{\"where\":" + data::string_to_json(where) + ",\"ids\":" + data::ids_to_json(ids) +
         ",\"trained\":" + data::ids_to_json(labels) + "}\n";
}

std::string as_text(const std::string& where, const std::vector<Stretch>& stretches, const data::Tokenizer& tokenizer,
                    const Style& style) {
  std::int64_t tokens = 0, trained = 0;
  std::string text;
  for (const Stretch& stretch : stretches) {
    tokens += std::ssize(stretch.ids);
    trained += stretch.is_trained ? std::ssize(stretch.ids) : 0;
    text += (stretch.is_trained ? style.trained : style.other) + text_of(stretch, tokenizer) +
            (stretch.is_trained ? style.end_trained : style.end_other);
  }
  return where + ": " + counted(tokens, "token") + ", " + with_thousands(trained) + " of them trained\n" + text +
         (text.ends_with('\n') ? "" : "\n");
}

}  // namespace

int show_chats(const TokenizeFlags& flags) {
  const auto tokenizer = std::shared_ptr<const data::Tokenizer>(data::make_tokenizer(flags.tokenizer));
  std::optional<std::filesystem::path> chat_template;
  if (!flags.chat_template.empty()) chat_template = flags.chat_template;
  const data::ChatSamples samples(flags.input, data::read_chat_format(flags.tokenizer, *tokenizer, chat_template),
                                  tokenizer);
  const Style style = style_of_output();
  for (std::int64_t i = 0; i < std::min(flags.show, samples.size()); ++i) {
    if (const auto signal = stop_requested()) return 128 + *signal;
    const std::string where = samples.where(i);
    std::vector<Stretch> stretches;
    try {
      stretches = stretches_of(samples.read(i).tokens);
    } catch (const data::BadRecord& error) {
      if (flags.on_bad_record == "error") throw;
      spdlog::warn("skipped a record: {}", error.what());
      continue;
    }
    print_result(flags.json ? as_json(where, stretches)
                            : (i > 0 ? "\n" : "") + as_text(where, stretches, *tokenizer, style));
  }
  return kExitDone;
}

}  // namespace titan
