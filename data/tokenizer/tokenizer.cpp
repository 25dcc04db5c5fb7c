#include "data/tokenizer/tokenizer.h"

#include <spdlog/spdlog.h>
#include <zlib.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "data/io/files.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"

namespace titan::data {

namespace fs = std::filesystem;

namespace {

constexpr char kSentencePieceName[] = "tokenizer.model";
constexpr char kHuggingFaceName[] = "tokenizer.json";
constexpr char kHuggingFaceConfigName[] = "tokenizer_config.json";

// Throws DataError if files beside `model` name tokens that it does not have: it would encode them as plain text. `why`
// is the reason why those files are not the tokenizer.
void check_added_tokens(const fs::path& model, const Tokenizer& tokenizer, const std::string& why) {
  const fs::path folder = model.parent_path();
  const auto pieces = read_sentencepiece_pieces(model);
  const auto last_id = std::ssize(pieces) - 1;
  const auto what_to_do = [&] {
    return why + " Name " + model.string() + " itself as the tokenizer to go without what is beside it, or a " +
           kHuggingFaceName + " of byte-level BPE.";
  };
  const auto is_missing = [&](const NumberedToken& token) {
    if (token.id < 0 || token.id > last_id) return true;
    std::string content;  // a space in it is a space symbol in the model
    for (const char byte : token.content) content += byte == ' ' ? std::string(kSpaceSymbol) : std::string(1, byte);
    const std::string& piece = pieces[static_cast<std::size_t>(token.id)];
    return piece != token.content && piece != content;
  };
  auto missing = read_added_tokens(folder);
  std::erase_if(missing, [&](const NumberedToken& token) { return !is_missing(token); });
  if (!missing.empty()) {
    const NumberedToken& first = missing.front();
    const auto count = std::ranges::count(missing, first.file, &NumberedToken::file);
    const std::string found = first.id < 0 || first.id > last_id
                                  ? "the model has ids 0 to " + std::to_string(last_id)
                                  : "there the model has \"" + pieces[static_cast<std::size_t>(first.id)] + "\"";
    throw DataError(first.file.string() + " has " + counted(count, "added token") + " that " + model.string() +
                    " does not have, the first is \"" + first.content + "\" with id " + std::to_string(first.id) +
                    ": " + found + ". They would be encoded as plain characters." + what_to_do());
  }
  const TokenizerConfig config = read_tokenizer_config(folder / kHuggingFaceConfigName);
  const auto check_mark = [&](const char* key, const std::optional<std::string>& wanted,
                              std::optional<std::int32_t> id) {
    if (!wanted || wanted->empty() || (id && pieces[static_cast<std::size_t>(*id)] == *wanted)) return;
    throw DataError((folder / kHuggingFaceConfigName).string() + ": " + key + " = \"" + *wanted + "\", but " +
                    model.string() + " has " +
                    (id ? "\"" + pieces[static_cast<std::size_t>(*id)] + "\"" : "no such token") + " in its place." +
                    what_to_do());
  };
  check_mark("bos_token", config.bos_token, tokenizer.bos_id());
  check_mark("eos_token", config.eos_token, tokenizer.eos_id());
}

// Opens the model of a Hugging Face folder.
std::shared_ptr<Tokenizer> open_sentencepiece(const fs::path& model) {
  const auto prefix = prefixes_each_text(model.parent_path()) ? SpacePrefix::kEachText : SpacePrefix::kFirstText;
  return make_sentencepiece_tokenizer(model, /*by_words=*/true, prefix);
}

// Uses tokenizer.json if it is supported, else tokenizer.model. Folders of Llama 2, and our exports with a
// SentencePiece model, have both, and the former is the latter in another format. This is normal, and gets no warning.
std::shared_ptr<Tokenizer> choose_of_two(const fs::path& json, const fs::path& model) {
  try {
    auto tokenizer = make_bpe_tokenizer(json);
    spdlog::info("tokenizer: {}; {} beside it is not used", json.string(), kSentencePieceName);
    return tokenizer;
  } catch (const DataError& unsupported) {
    std::shared_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = open_sentencepiece(model);
    } catch (const DataError&) {
      throw unsupported;
    }
    check_added_tokens(model, *tokenizer,
                       std::string(" The other file is not used because of ") + unsupported.what() + ".");
    if (is_sentencepiece_json(json)) {
      spdlog::info("tokenizer: {}; {} beside it is SentencePiece in another format", model.string(), kHuggingFaceName);
    } else if (speaks_for_all()) {
      spdlog::warn("tokenizer: {}, because of {}", model.string(), unsupported.what());
    }
    return tokenizer;
  }
}

}  // namespace

std::string Tokenizer::decode_text(std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> text;
  std::ranges::copy_if(ids, std::back_inserter(text),
                       [&](std::int32_t id) { return id < vocab_size() && !is_special(id); });
  return decode(text);
}

void Tokenizer::encode_marked(std::string_view text, Marks marks, std::vector<std::int32_t>& ids) const {
  if (const auto bos = marks.bos ? bos_id() : std::nullopt) ids.push_back(*bos);
  encode(text, ids);
  if (const auto eos = marks.eos ? eos_id() : std::nullopt) ids.push_back(*eos);
}

std::shared_ptr<Tokenizer> make_tokenizer(const fs::path& path) {
  std::error_code ignored;
  const std::string expected = std::string("a folder with ") + kHuggingFaceName + " or " + kSentencePieceName;
  if (!fs::exists(path, ignored)) {
    throw DataError("no tokenizer at " + path.string() + ": there is no such file or folder. Expected " + expected +
                    "; scripts/setup.sh makes one in assets/tokenizer.");
  }
  if (!fs::is_directory(path, ignored)) {
    return path.extension() == ".json" ? make_bpe_tokenizer(path) : make_sentencepiece_tokenizer(path);
  }
  const fs::path json = path / kHuggingFaceName;
  const fs::path model = path / kSentencePieceName;
  if (fs::exists(json, ignored)) {
    return fs::exists(model, ignored) ? choose_of_two(json, model) : make_bpe_tokenizer(json);
  }
  if (fs::exists(model, ignored)) {
    auto tokenizer = open_sentencepiece(model);
    check_added_tokens(model, *tokenizer, "");
    return tokenizer;
  }
  throw DataError("no tokenizer in " + path.string() + ": expected " + expected + "; the folder holds " +
                  describe_folder(path) + ".");
}

std::string tokenizer_fingerprint(const fs::path& path) {
  std::vector<fs::path> files = {path};
  if (fs::is_directory(path)) {
    const bool is_hugging_face = fs::exists(path / kHuggingFaceName);
    files = {path / (is_hugging_face ? kHuggingFaceName : kSentencePieceName)};
    if (is_hugging_face && fs::exists(path / kHuggingFaceConfigName)) files.push_back(path / kHuggingFaceConfigName);
  }
  std::string fingerprint;
  for (const auto& file : files) {
    const std::string bytes = read_file(file);
    const auto checksum = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    fingerprint +=
        fmt::format("{}{}:{}:{:08x}", fingerprint.empty() ? "" : " ", file.filename().string(), bytes.size(), checksum);
  }
  return fingerprint;
}

void check_vocab_size(const Tokenizer& tokenizer, std::int64_t model_vocab_size) {
  if (tokenizer.vocab_size() <= model_vocab_size) return;
  throw DataError("the tokenizer has " + with_thousands(tokenizer.vocab_size()) +
                      " tokens but the model's vocab_size is " + with_thousands(model_vocab_size) +
                      ": its larger ids have no embedding. Set model.args.vocab_size to " +
                      std::to_string(tokenizer.vocab_size()) + " or more, or use the model's own tokenizer.",
                  {"model.args.vocab_size"});
}

}  // namespace titan::data
