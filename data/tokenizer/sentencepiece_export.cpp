#include "data/tokenizer/sentencepiece_export.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/sentencepiece_check.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace titan::data {
namespace {

using OrderedJson = nlohmann::ordered_json;
using sentencepiece::SentencePieceProcessor;

bool is_mark(const SentencePieceProcessor& pieces, int id) { return pieces.IsControl(id) || pieces.IsUnknown(id); }

std::string reason_against(const SentencePieceProcessor& pieces, const SentencePieceModelInfo& info) {
  if (info.model_type != kModelTypeBpe) return "it is not a byte-pair encoding";
  if (info.has_charsmap) return "it normalizes text by a table of its own";
  if (info.remove_extra_whitespaces) return "it removes spaces";
  if (!info.add_dummy_prefix || !info.escape_whitespaces || info.treat_whitespace_as_suffix)
    return "it treats spaces in a way of its own";
  if (info.has_user_defined) return "it has pieces that its maker defined, which take part in no merges";
  int bytes = 0;
  for (int id = 0; id < pieces.GetPieceSize(); ++id) bytes += pieces.IsByte(id);
  return bytes == 256 ? "" : "it has no pieces for single bytes";
}

// Ranks the merge of two pieces by the score of the merged piece. The model stores no pairs: every pair of pieces that
// forms a third is a merge. Pieces of equal scores (Mistral's and Llama 2's white space) are merged from the left: the
// longer left piece first, then the longer right one.
std::vector<std::pair<int, int>> merges_of(const SentencePieceProcessor& pieces) {
  std::unordered_map<std::string, int> mergeable;
  for (int id = 0; id < pieces.GetPieceSize(); ++id) {
    if (!is_mark(pieces, id) && !pieces.IsByte(id) && !pieces.IsUnused(id)) mergeable.emplace(pieces.IdToPiece(id), id);
  }
  // Sort keys, best first: the negative score, the negative lengths of left and right, and both ids for a unique order.
  std::vector<std::tuple<float, std::int64_t, std::int64_t, int, int>> merges;
  for (const auto& [piece, id] : mergeable) {
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = mergeable.find(piece.substr(0, cut)), right = mergeable.find(piece.substr(cut));
      if (left != mergeable.end() && right != mergeable.end())
        merges.emplace_back(-pieces.GetScore(id), -std::ssize(left->first), -std::ssize(right->first), left->second,
                            right->second);
    }
  }
  std::ranges::sort(merges);
  std::vector<std::pair<int, int>> out;
  for (const auto& [score, left_length, right_length, left, right] : merges) out.emplace_back(left, right);
  return out;
}

OrderedJson to_json(const SentencePieceProcessor& pieces, const std::vector<std::pair<int, int>>& merges) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [left, right] : merges)
    list.push_back(OrderedJson::array({pieces.IdToPiece(left), pieces.IdToPiece(right)}));
  return list;
}

OrderedJson added_tokens_of(const SentencePieceProcessor& pieces) {
  OrderedJson list = OrderedJson::array();
  for (int id = 0; id < pieces.GetPieceSize(); ++id) {
    if (!is_mark(pieces, id)) continue;
    list.push_back({{"id", id},
                    {"content", pieces.IdToPiece(id)},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

OrderedJson replacement(std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

// Returns a template in which a text begins with BOS, as Llama's do.
OrderedJson template_of(const std::string& bos, int bos_id) {
  const auto token = [&](int type) { return OrderedJson{{"SpecialToken", {{"id", bos}, {"type_id", type}}}}; };
  const auto text = [](const char* id, int type) { return OrderedJson{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  const OrderedJson known = {
      {bos, {{"id", bos}, {"ids", OrderedJson::array({bos_id})}, {"tokens", OrderedJson::array({bos})}}}};
  return {{"type", "TemplateProcessing"},
          {"single", OrderedJson::array({token(0), text("A", 0)})},
          {"pair", OrderedJson::array({token(0), text("A", 0), token(1), text("B", 1)})},
          {"special_tokens", known}};
}

OrderedJson model_of(const SentencePieceProcessor& pieces, const std::vector<std::pair<int, int>>& merges) {
  OrderedJson vocab = OrderedJson::object();
  for (int id = 0; id < pieces.GetPieceSize(); ++id) vocab[pieces.IdToPiece(id)] = id;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", pieces.IdToPiece(pieces.unk_id())},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", true},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", to_json(pieces, merges)}};
}

}  // namespace

MadeTokenizerJson make_tokenizer_json(std::string_view model) {
  SentencePieceProcessor pieces;
  if (const std::string fault = load_sentencepiece(model, pieces); !fault.empty())
    throw DataError("not a SentencePiece model: " + fault);
  MadeTokenizerJson out;
  out.reason = reason_against(pieces, read_sentencepiece_model_info(model));
  if (!out.reason.empty()) return out;
  OrderedJson root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = added_tokens_of(pieces);
  root["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", OrderedJson::array({OrderedJson{{"type", "Prepend"}, {"prepend", kSpaceSymbol}},
                                                            replacement(" ", kSpaceSymbol)})}};
  root["pre_tokenizer"] = nullptr;
  root["post_processor"] = nullptr;
  root["decoder"] = {
      {"type", "Sequence"},
      {"decoders", OrderedJson::array({replacement(kSpaceSymbol, " "), OrderedJson{{"type", "ByteFallback"}},
                                       OrderedJson{{"type", "Fuse"}},
                                       OrderedJson{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}})}};
  for (const auto& [name, id] :
       {std::pair{"bos_token", pieces.bos_id()}, {"eos_token", pieces.eos_id()}, {"unk_token", pieces.unk_id()}}) {
    if (id >= 0) out.special_tokens[name] = pieces.IdToPiece(id);
  }
  if (pieces.bos_id() >= 0) root["post_processor"] = template_of(out.special_tokens["bos_token"], pieces.bos_id());
  const auto merges = merges_of(pieces);
  if (const std::string fault = find_merge_fault(pieces, merges); !fault.empty())
    throw DataError("no tokenizer.json with the same ids can be made of this SentencePiece model: the text " + fault +
                    ". Export without it: name a folder with a tokenizer.json of its own");
  root["model"] = model_of(pieces, merges);
  out.json = root.dump() + "\n";
  return out;
}

}  // namespace titan::data
