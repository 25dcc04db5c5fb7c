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

// Returns the special token of `tokenizer` that is written as the special token `id` of `theirs`; nullopt if there is
// none, or `id` is a token of text.
std::optional<std::int64_t> token_written_alike(std::int64_t id, const Tokenizer& theirs, const Tokenizer& tokenizer) {
  if (id < 0 || id >= theirs.vocab_size() || !theirs.is_special(static_cast<std::int32_t>(id))) return std::nullopt;
  std::vector<std::int32_t> ids;
  tokenizer.encode_rendered(theirs.special_text(static_cast<std::int32_t>(id)), ids);
  return ids.size() == 1 && tokenizer.is_special(ids[0]) ? std::optional<std::int64_t>(ids[0]) : std::nullopt;
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

bool has_other_tokenizer(const fs::path& folder, const fs::path& path) {
  try {
    return has_tokenizer(folder) && tokenizer_fingerprint(folder) != tokenizer_fingerprint(path);
  } catch (const std::exception&) {  // one of them cannot be read any more
    return true;
  }
}

std::vector<std::int64_t> stops_that_stay(const FolderStops& stops, const fs::path& folder, const Tokenizer& tokenizer,
                                          const fs::path& path) {
  if (stops.ids.empty()) return {};
  std::shared_ptr<const Tokenizer> theirs;
  std::string reason = "the tokenizer " + path.string() + " has no special token that is written like it";
  const bool is_other = has_other_tokenizer(folder, path);
  if (!is_other && stops.are_chosen) return stops.ids;
  try {
    if (is_other) theirs = make_tokenizer(folder);
  } catch (const DataError& error) {
    reason = error.what();
  }
  std::vector<std::int64_t> out;
  for (const std::int64_t id : stops.ids) {
    const Tokenizer* from = is_other ? theirs.get() : &tokenizer;
    const auto ours = from ? token_written_alike(id, *from, tokenizer) : std::nullopt;
    if (ours) {
      out.push_back(*ours);
    } else if (stops.are_chosen && speaks_for_all()) {
      spdlog::warn("token {} ends a text of the model in {}, and none here: {}", id, folder.string(), reason);
    }
  }
  return out;
}

}  // namespace titan::data
