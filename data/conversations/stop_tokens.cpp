#include "data/conversations/stop_tokens.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "data/tokenizer/tokenizer_export.h"

namespace titan::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kAnswer = "an answer that no template contains";

// Returns what the template writes behind an answer.
std::string text_behind_answer(const ChatFormat& format) {
  ChatOptions options;
  options.variables = format.special_tokens;
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "a"}},
                                           {{"role", "assistant"}, {"content", kAnswer}}};
  const std::string text = format.chat_template.render(messages, options).text;
  const auto at = text.rfind(kAnswer);
  return at == std::string::npos ? "" : text.substr(at + kAnswer.size());
}

// True if the folder has a tokenizer, and not the one in `path`.
bool has_other_tokenizer(const fs::path& folder, const fs::path& path) {
  return has_tokenizer(folder) && tokenizer_fingerprint(folder) != tokenizer_fingerprint(path);
}

}  // namespace

std::optional<std::int32_t> end_of_turn(const ChatFormat& format, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  try {
    tokenizer.encode_rendered(text_behind_answer(format), ids);
  } catch (const DataError& error) {
    if (speaks_for_all())
      spdlog::warn("which token ends an answer is not known: the chat template refuses a question and its answer: {}",
                   error.what());
  }
  const auto found = std::ranges::find_if(ids, [&](std::int32_t id) { return tokenizer.is_special(id); });
  return found == ids.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::int64_t> stop_tokens(const Tokenizer& tokenizer, const std::optional<std::int32_t>& turn_end,
                                      const std::vector<std::int64_t>& others) {
  std::vector<std::int64_t> ids;
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  if (turn_end && std::ranges::count(ids, *turn_end) == 0) ids.push_back(*turn_end);
  for (const std::int64_t id : others)
    if (std::ranges::count(ids, id) == 0) ids.push_back(id);
  return ids;
}

std::vector<std::int64_t> stops_that_stay(const std::vector<std::int64_t>& ids, const fs::path& folder,
                                          const Tokenizer& tokenizer, const fs::path& path) {
  if (ids.empty() || !has_other_tokenizer(folder, path)) return ids;
  std::vector<std::int64_t> out;
  for (const std::int64_t id : ids) {
    const bool is_known = id >= 0 && id < tokenizer.vocab_size();
    if (tokenizer.eos_id() == id || (is_known && tokenizer.is_special(static_cast<std::int32_t>(id)))) {
      out.push_back(id);
    } else if (speaks_for_all()) {
      spdlog::warn(
          "token {} ends a text of the model in {}, but it is not a special token of the tokenizer {}: it ends none",
          id, folder.string(), path.string());
    }
  }
  return out;
}

}  // namespace titan::data
