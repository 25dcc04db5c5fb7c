#include "data/sources/sentencepiece_training.h"

#include <sentencepiece_trainer.h>
#include <spdlog/spdlog.h>

#include <unordered_map>

#include "base/error.h"
#include "base/process/processors.h"
#include "base/text.h"

namespace titan::data {
namespace {

constexpr std::size_t kMaxSentenceBytes = 8192;  // the trainer skips longer ones, so they are cut

// Iterates over the lines of all documents, in order.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const TextSource& source, OnBadRecord policy) : source_(source), policy_(policy) { Next(); }

  std::int64_t bad_records() const { return bad_records_; }

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
        read_document(document_++);
      }
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      const std::size_t length = cut(std::string_view(text_).substr(at_, end - at_));
      line_ = text_.substr(at_, length);
      at_ += length;
      if (at_ == end) ++at_;
      std::erase(line_, '\0');  // the trainer takes it for the end of the line
    } while (line_.empty());
  }

 private:
  void read_document(std::int64_t index) {
    at_ = 0;
    text_.clear();
    try {
      text_ = source_.document(index);
    } catch (const BadRecord& error) {
      if (policy_ == OnBadRecord::kError) throw;
      ++bad_records_;
      spdlog::warn("skipped a record: {}", error.what());
    }
  }

  // Returns the length of `line`, or of its longest prefix that fits and ends with a complete character.
  static std::size_t cut(std::string_view line) {
    if (line.size() <= kMaxSentenceBytes) return line.size();
    std::size_t length = kMaxSentenceBytes;
    while ((static_cast<unsigned char>(line[length]) & 0xC0) == 0x80) --length;
    return length;
  }

  const TextSource& source_;
  OnBadRecord policy_;
  std::int64_t bad_records_ = 0;
  std::int64_t document_ = 0;  // the next one
  std::string text_;
  std::size_t at_ = 0;
  std::string line_;
  bool done_ = false;
};

// Returns the number that follows `mark`, or "" if there is none.
std::string number_after(const std::string& text, std::string_view mark) {
  const auto at = text.find(mark);
  if (at == std::string::npos) return "";
  const auto begin = at + mark.size();
  return text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

// Explains the library's message: a place in its source, the condition that failed there, and text about its own
// options.
std::string reason_of(const std::string& message) {
  if (message.find("sentences_.empty()") != std::string::npos) return "the input holds no text";
  if (message.find("Vocabulary size too high") != std::string::npos) {
    if (const auto most = number_after(message, "value <= "); !most.empty())
      return "the text is enough for " + most + " pieces; give more text, or set --vocab-size to " + most + " or less";
  }
  if (message.find("smaller than required_chars") != std::string::npos) {
    if (const auto least = number_after(message, " vs "); !least.empty())
      return "its characters and the pieces of single bytes take " + least + "; set --vocab-size to " + least +
             " or more";
  }
  const auto end_of_condition = message.rfind("] ");
  return end_of_condition == std::string::npos ? message : message.substr(end_of_condition + 2);
}

}  // namespace

TrainedSentencePiece train_sentencepiece(const TextSource& source, const SentencePieceTraining& options) {
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
      {"num_threads", std::to_string(own_processors().quota)},
      {"minloglevel", "2"}};
  Lines lines(source, options.on_bad_record);
  TrainedSentencePiece trained;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &trained.model);
  if (!status.ok()) {
    throw DataError("cannot make a tokenizer of " + counted(options.vocab_size, "piece") + ": " +
                    reason_of(status.message()));
  }
  trained.bad_records = lines.bad_records();
  return trained;
}

}  // namespace titan::data
