#include "data/sentencepiece_training.h"

#include <sentencepiece_trainer.h>

#include <thread>
#include <unordered_map>

#include "base/error.h"

namespace titan::data {
namespace {

constexpr std::size_t kMaxSentenceBytes = 8192;  // the trainer leaves longer ones out, so they are cut

// The lines of all documents, in order.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const TextSource& source) : source_(source) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    do {
      while (at_ >= text_.size()) {
        if (document_ == source_.num_documents()) {
          done_ = true;
          return;
        }
        text_ = source_.document(document_++);
        at_ = 0;
      }
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::size_t length = cut(std::string_view(text_).substr(at_, end - at_));
      line_ = text_.substr(at_, length);
      at_ += length;
      if (at_ == end) ++at_;
      std::erase(line_, '\0');  // the trainer takes it for the end
    } while (line_.empty());
  }

 private:
  // The length of a line, or of its start that ends with a whole character.
  static std::size_t cut(std::string_view line) {
    if (line.size() <= kMaxSentenceBytes) return line.size();
    std::size_t length = kMaxSentenceBytes;
    while ((static_cast<unsigned char>(line[length]) & 0xC0) == 0x80) --length;
    return length;
  }

  const TextSource& source_;
  std::int64_t document_ = 0;  // the next one
  std::string text_;
  std::size_t at_ = 0;
  std::string line_;
  bool done_ = false;
};

}  // namespace

std::string train_sentencepiece(const TextSource& source, const SentencePieceTraining& options) {
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.unigram ? "unigram" : "bpe"},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"max_sentence_length", std::to_string(kMaxSentenceBytes)},
      {"character_coverage", "1.0"},
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},  // indentation becomes one piece
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"num_threads", std::to_string(std::max(1U, std::thread::hardware_concurrency()))},
      {"minloglevel", "2"}};
  Lines lines(source);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  if (!status.ok()) {
    throw DataError("SentencePiece could not train a tokenizer of " + std::to_string(options.vocab_size) +
                    " pieces: " + status.message());
  }
  return model;
}

}  // namespace titan::data
