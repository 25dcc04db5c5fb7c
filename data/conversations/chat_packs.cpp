#include "data/conversations/chat_packs.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/conversations/packing.h"
#include "data/io/cache.h"
#include "data/io/hash.h"
#include "data/sources/jsonl_source.h"
#include "data/sources/token_marks.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

std::uint64_t mixed(std::uint64_t key, const std::string& text) {
  key = mix_bits(key ^ text.size());
  for (const char byte : text) key = mix_bits(key ^ static_cast<unsigned char>(byte));
  return key;
}

// Returns a key that changes with everything that decides the lengths.
std::uint64_t key_of_lengths(const fs::path& path, const std::string& format, const ChatDataset& options,
                             const LengthOptions& lengths) {
  std::uint64_t key = mixed(mixed(0, format), options.tokenizer_fingerprint);
  key = mixed(mixed(key, options.too_long), options.on_bad_record);
  key = mix_bits(key ^ static_cast<std::uint64_t>(lengths.most_tokens));
  for (const fs::path& file : list_jsonl_files(path)) key = mix_bits(key ^ key_of(file, InputFile(file).stamp()));
  return key;
}

class ChatPacks final : public TokenSource {
 public:
  ChatPacks(ChatSamples samples, LengthOptions options, SampleLengths lengths)
      : samples_(std::move(samples)),
        options_(options),
        lengths_(std::move(lengths)),
        packs_(pack_best_fit(lengths_.tokens, options.most_tokens)) {}

  std::int64_t num_items() const override { return packs_.size(); }

  TokenRun tokens(std::int64_t index) const override {
    std::vector<std::int32_t> pack;
    for (const std::int64_t sample : packs_[index]) {
      const auto tokens = fitted_tokens(samples_, sample, options_);
      if (std::ssize(tokens) != lengths_.tokens[static_cast<std::size_t>(sample)])
        throw DataError(
            samples_.where(sample) +
            ": the conversation, its template or the tokenizer has changed since its tokens were counted; start again");
      pack.insert(pack.end(), tokens.begin(), tokens.end());
    }
    const std::int32_t padding = samples_.tokenizer().eos_id().value_or(0) | kNoLabel;
    const auto begin = pack.size();
    pack.resize(static_cast<std::size_t>(options_.most_tokens), padding);
    if (begin < pack.size()) pack[begin] |= kBegins;
    return whole_run(std::move(pack));
  }

  std::int64_t vocab_size() const override { return samples_.tokenizer().vocab_size(); }
  std::string name() const override { return "dataset \"chat\""; }
  bool holds_packs() const override { return true; }

  std::string contents() const override {
    std::int64_t tokens = 0;
    for (const std::int32_t length : lengths_.tokens) tokens += length;
    const std::int64_t room = num_items() * options_.most_tokens;
    const auto share = [](std::int64_t part, std::int64_t all) {
      return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(all));
    };
    std::string text = counted(samples_.size(), "conversation");
    if (num_items() == 0) return text + left_out();
    return text + " in " + counted(num_items(), "row") + " of " + with_thousands(options_.most_tokens) + " tokens, " +
           share(room - tokens, room) + " of them padding; " + share(lengths_.labels, tokens) + " of " +
           counted(tokens, "token") + " are trained" + left_out();
  }

 private:
  std::string left_out() const {
    std::string text;
    if (lengths_.cut > 0) text += "; " + with_thousands(lengths_.cut) + " too long and cut";
    if (lengths_.dropped > 0) text += "; " + with_thousands(lengths_.dropped) + " too long and dropped";
    if (lengths_.unlabeled > 0) text += "; " + with_thousands(lengths_.unlabeled) + " without an answer left, dropped";
    if (lengths_.bad_records > 0) text += "; " + with_thousands(lengths_.bad_records) + " unusable and skipped";
    return text;
  }

  ChatSamples samples_;
  LengthOptions options_;
  SampleLengths lengths_;
  Packs packs_;
};

}  // namespace

std::shared_ptr<const TokenSource> open_chats(const fs::path& path, std::shared_ptr<const Tokenizer> tokenizer,
                                              std::int64_t seq_len, const ChatDataset& options) {
  ChatFormat format = read_chat_format(options.tokenizer, *tokenizer, options.chat_template);
  const LengthOptions lengths{.most_tokens = seq_len + 1,
                              .too_long = parse_too_long(options.too_long),
                              .on_bad_record = parse_on_bad_record(options.on_bad_record)};
  const std::uint64_t key = key_of_lengths(path, format.fingerprint, options, lengths);
  ChatSamples samples(path, std::move(format), std::move(tokenizer));
  SampleLengths measured = cached_lengths(samples, lengths, "chat", key);
  if (measured.split_tokens > 0 && speaks_for_all())
    spdlog::warn(
        "{} of {}: an answer begins within a token, so that the model sees other tokens before an answer when it "
        "generates than in training. Let the text that the chat template puts before an answer end with a line break "
        "or a special token, not with a space",
        counted(measured.split_tokens, "conversation"), path.string());
  if (measured.open_ends > 0 && speaks_for_all())
    spdlog::warn(
        "{} of {}: an answer has no special token at its end, so that the model does not learn where to stop. Let the "
        "chat template write the EOS token, or another one, behind an answer",
        counted(measured.open_ends, "conversation"), path.string());
  auto packs = std::make_shared<ChatPacks>(std::move(samples), lengths, std::move(measured));
  if (packs->num_items() == 0)
    throw DataError("no conversation of " + path.string() + " is left to train on: " + packs->contents() +
                    ". Look at one with titan-train tokenize --dataset chat --show 1: the chat template may write no "
                    "answers");
  return packs;
}

}  // namespace titan::data
