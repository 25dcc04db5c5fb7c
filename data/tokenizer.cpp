#include "data/tokenizer.h"

#include "base/error.h"
#include "base/text.h"
#include "data/files.h"
#include "data/sentencepiece_tokenizer.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr char kSentencePieceName[] = "tokenizer.model";
constexpr char kHuggingFaceName[] = "tokenizer.json";

[[noreturn]] void refuse_hugging_face(const fs::path& path) {
  throw DataError("Hugging Face tokenizer.json is not supported yet; found " + path.string() +
                  ". Use a folder that holds the same tokenizer as SentencePiece tokenizer.model.");
}

}  // namespace

void Tokenizer::encode_document(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const auto bos = bos_id()) ids.push_back(*bos);
  encode(text, ids);
  if (const auto eos = eos_id()) ids.push_back(*eos);
}

std::shared_ptr<Tokenizer> make_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw DataError("no tokenizer at " + path.string() + ": there is no such file or folder. Expected a folder with " +
                    kSentencePieceName + "; scripts/setup.sh makes one in assets/tokenizer.");
  }
  if (!fs::is_directory(path, ignored)) {
    if (path.extension() == ".json") refuse_hugging_face(path);
    return make_sentencepiece_tokenizer(path);
  }
  const fs::path model = path / kSentencePieceName;
  if (fs::exists(model, ignored)) return make_sentencepiece_tokenizer(model);
  if (fs::exists(path / kHuggingFaceName, ignored)) refuse_hugging_face(path / kHuggingFaceName);
  throw DataError("no tokenizer in " + path.string() + ": expected " + kSentencePieceName + ", the folder holds " +
                  describe_folder(path) + ".");
}

void check_vocab_size(const Tokenizer& tokenizer, std::int64_t model_vocab_size) {
  if (tokenizer.vocab_size() <= model_vocab_size) return;
  throw DataError("the tokenizer has " + with_thousands(tokenizer.vocab_size()) +
                  " tokens but the model's vocab_size is " + with_thousands(model_vocab_size) +
                  ": its larger ids have no embedding. Set model.args.vocab_size to " +
                  std::to_string(tokenizer.vocab_size()) + " or more, or use the model's own tokenizer.");
}

}  // namespace titan::data
