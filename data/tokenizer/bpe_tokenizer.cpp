#include "data/tokenizer/bpe_tokenizer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/log.h"
#include "data/text/code_points.h"
#include "data/text/nfc.h"
#include "data/text/split_regex.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/tokenizer_json.h"

namespace titan::data {
namespace {

// Working memory of one call, kept between calls.
struct Workspace {
  SplitRegex::Scratch regex;
  BpeModel::ScratchPtr model = BpeModel::make_scratch();
  std::vector<AddedTokens::Piece> raw;
  std::vector<AddedTokens::Piece> normalized;
  std::vector<std::string_view> words;
  std::vector<std::string_view> smaller_words;
};

constexpr std::size_t kSpareIds = 1'000'000;

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, const TokenizerConfig& config)
      : spec_(std::move(spec)), model_(spec_.model), added_(make_added_tokens()) {
    for (const SplitStep& step : spec_.splits) splits_.emplace_back(step.pattern);
    add_tokens(config);
    collect_texts();
    check_template();
    if (config.bos_token) bos_id_ = added_.id_of(*config.bos_token);
    if (config.eos_token) eos_id_ = added_.id_of(*config.eos_token);
    if (model_.missing_bytes() > 0 && speaks_for_all()) {
      spdlog::warn(
          "the tokenizer has no token for {} of the 256 bytes: text loses them, as with the tokenizers package",
          model_.missing_bytes());
    }
    spec_.model = {};  // everything needed has been copied
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    std::unique_ptr<Workspace> work = borrow();
    encode_valid(ValidText(text).view(), *work, ids);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(work));
  }

  Marks usual_marks() const override { return {.bos = false, .eos = false}; }

  void encode_marked(std::string_view text, Marks marks, std::vector<std::int32_t>& ids) const override {
    if (marks.bos && bos_id_ && !is_put_around(*bos_id_)) ids.push_back(*bos_id_);
    ids.insert(ids.end(), spec_.prefix_ids.begin(), spec_.prefix_ids.end());
    encode(text, ids);
    ids.insert(ids.end(), spec_.suffix_ids.begin(), spec_.suffix_ids.end());
    if (marks.eos && eos_id_ && !is_put_around(*eos_id_)) ids.push_back(*eos_id_);
  }

  // Replaces bytes that are not UTF-8 by U+FFFD, one for every maximal ill-formed sequence, as the package does.
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string bytes;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw DataError("cannot decode token id " + std::to_string(id) + ": the tokenizer has ids 0 to " +
                        std::to_string(vocab_size() - 1));
      }
      bytes += texts_[static_cast<std::size_t>(id)];
    }
    return replace_invalid_utf8(bytes);
  }

  std::optional<std::int32_t> bos_id() const override { return bos_id_; }
  std::optional<std::int32_t> eos_id() const override { return eos_id_; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(texts_.size()); }
  bool is_special(std::int32_t id) const override { return added_.is_special(id); }

 private:
  AddedTokens make_added_tokens() const {
    const auto model_id = [&vocab = spec_.model.vocab](const std::string& token) -> std::optional<std::int32_t> {
      const auto found = vocab.find(token);
      return found == vocab.end() ? std::nullopt : std::optional(found->second);
    };
    const auto normalize = [nfc = spec_.nfc](std::string_view text) { return nfc ? to_nfc(text) : std::string(text); };
    return {model_id, static_cast<std::int64_t>(spec_.model.vocab.size()), normalize};
  }

  void add_tokens(const TokenizerConfig& config) {
    added_.add(spec_.added_tokens);
    for (std::size_t i = 0; i < spec_.added_tokens.size(); ++i) {
      const auto id = added_.id_of(spec_.added_tokens[i].content);
      if (id == spec_.added_ids[i]) continue;
      throw DataError("the added token \"" + spec_.added_tokens[i].content + "\" says id " +
                      std::to_string(spec_.added_ids[i]) + ", but by the vocabulary and the order of added_tokens it " +
                      (id ? "has id " + std::to_string(*id) : "has none"));
    }
    added_.add(config.special_tokens);
  }

  // Collects the decoded text of every id. An id without a token decodes to nothing.
  void collect_texts() {
    std::int32_t last = -1;
    for (const auto& [token, id] : spec_.model.vocab) last = std::max(last, id);
    if (!added_.texts().empty()) last = std::max(last, added_.texts().rbegin()->first);
    // Ids leave few gaps. A slip in one of them must not take memory for all ids below it.
    const std::size_t count = spec_.model.vocab.size() + added_.texts().size();
    if (static_cast<std::size_t>(last) > kSpareIds + 16 * count)
      throw DataError("the largest token id is " + std::to_string(last) + ", but there are only " +
                      std::to_string(count) + " tokens");
    texts_.resize(static_cast<std::size_t>(last) + 1);
    const auto put = [&](std::int32_t id, const std::string& token) {
      texts_[static_cast<std::size_t>(id)] = bytes_of_token(token).value_or(token);
    };
    for (const auto& [token, id] : spec_.model.vocab) put(id, token);
    for (const auto& [id, token] : added_.texts()) put(id, token);
  }

  // Checks the ids that the post-processor puts around a text: the file writes them beside their token, unchecked.
  void check_template() const {
    for (const auto& ids : {spec_.prefix_ids, spec_.suffix_ids}) {
      const auto beyond = std::ranges::find_if(ids, [&](std::int32_t id) { return id >= vocab_size(); });
      if (beyond == ids.end()) continue;
      throw DataError("post_processor puts the token id " + std::to_string(*beyond) +
                      " around each text, but the tokenizer has ids 0 to " + std::to_string(vocab_size() - 1));
    }
  }

  bool is_put_around(std::int32_t id) const {
    return std::ranges::count(spec_.prefix_ids, id) > 0 || std::ranges::count(spec_.suffix_ids, id) > 0;
  }

  std::unique_ptr<Workspace> borrow() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> work = std::move(idle_.back());
    idle_.pop_back();
    return work;
  }

  void encode_valid(std::string_view text, Workspace& work, std::vector<std::int32_t>& ids) const {
    work.raw.clear();
    added_.split_raw(text, work.raw);
    for (const AddedTokens::Piece& piece : work.raw) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else if (spec_.nfc && !is_surely_nfc(piece.text)) {
        encode_normalized(to_nfc(piece.text), work, ids);
      } else {
        encode_normalized(piece.text, work, ids);
      }
    }
  }

  void encode_normalized(std::string_view text, Workspace& work, std::vector<std::int32_t>& ids) const {
    work.normalized.clear();
    added_.split_normalized(text, work.normalized);
    for (const AddedTokens::Piece& piece : work.normalized) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else if (spec_.add_prefix_space && !piece.text.starts_with(' ')) {
        encode_text(std::string(1, ' ').append(piece.text), work, ids);
      } else {
        encode_text(piece.text, work, ids);
      }
    }
  }

  void encode_text(std::string_view text, Workspace& work, std::vector<std::int32_t>& ids) const {
    work.words.assign(1, text);
    for (std::size_t i = 0; i < splits_.size(); ++i) {
      work.smaller_words.clear();
      for (const std::string_view word : work.words) {
        splits_[i].split(word, spec_.splits[i].only_matches, work.regex, work.smaller_words);
      }
      std::swap(work.words, work.smaller_words);
    }
    for (const std::string_view word : work.words) model_.encode(word, *work.model, ids);
  }

  TokenizerSpec spec_;
  BpeModel model_;
  AddedTokens added_;
  std::vector<SplitRegex> splits_;
  std::vector<std::string> texts_;  // by id, as bytes
  std::optional<std::int32_t> bos_id_;
  std::optional<std::int32_t> eos_id_;
  mutable std::mutex mutex_;                              // guards idle_
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  // not in use by a call
};

}  // namespace

std::shared_ptr<Tokenizer> make_bpe_tokenizer(const std::filesystem::path& file) {
  TokenizerSpec spec = read_tokenizer_json(file);
  const TokenizerConfig config = read_tokenizer_config(file.parent_path() / "tokenizer_config.json");
  try {
    return std::make_shared<BpeTokenizer>(std::move(spec), config);
  } catch (const DataError& error) {
    throw DataError(file.string() + ": " + error.what());
  }
}

}  // namespace titan::data
