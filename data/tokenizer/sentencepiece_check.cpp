#include "data/tokenizer/sentencepiece_check.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace titan::data {
namespace {

using sentencepiece::SentencePieceProcessor;
using Ids = std::vector<int>;

std::size_t length_of_character(const std::string& text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

std::string with_symbols(const std::string& text) {
  std::string out(kSpaceSymbol);
  for (const char c : text) c == ' ' ? out += kSpaceSymbol : out += c;
  return out;
}

// Merges by rank, and the leftmost first among equal ranks, as the `tokenizers` package does.
class Merger {
 public:
  Merger(const SentencePieceProcessor& pieces, const std::vector<std::pair<int, int>>& merges) {
    for (int id = 0; id < pieces.GetPieceSize(); ++id) {
      const std::string& piece = pieces.IdToPiece(id);
      if (pieces.IsByte(id)) {
        bytes_[static_cast<std::size_t>(std::stoi(piece.substr(1, 4), nullptr, 16))] = id;  // "<0x0A>"
      } else if (!pieces.IsControl(id) && !pieces.IsUnknown(id) && !pieces.IsUnused(id)) {
        ids_.emplace(piece, id);
      }
    }
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto& [left, right] = merges[rank];
      ranks_[key(left, right)] = {static_cast<int>(rank), ids_.at(pieces.IdToPiece(left) + pieces.IdToPiece(right))};
    }
  }

  Ids encode(const std::string& text) const {
    Ids ids = characters(with_symbols(text));
    const std::size_t size = ids.size();
    std::vector<std::size_t> next(size), previous(size);
    std::priority_queue<Merge, std::vector<Merge>, std::greater<>> queue;
    const auto offer = [&](std::size_t left) {
      if (next[left] == size) return;
      const auto found = ranks_.find(key(ids[left], ids[next[left]]));
      if (found != ranks_.end()) queue.emplace(found->second.first, left, ids[left], ids[next[left]]);
    };
    for (std::size_t i = 0; i < size; ++i) next[i] = i + 1, previous[i] = i - 1;
    for (std::size_t i = 0; i + 1 < size; ++i) offer(i);
    while (!queue.empty()) {
      const auto [rank, left, left_id, right_id] = queue.top();
      queue.pop();
      if (ids[left] != left_id || next[left] == size || ids[next[left]] != right_id) continue;  // outdated
      const std::size_t right = next[left];
      ids[left] = ranks_.at(key(left_id, right_id)).second;
      ids[right] = kGone;
      next[left] = next[right];
      if (next[left] < size) previous[next[left]] = left;
      offer(left);
      if (left > 0) offer(previous[left]);
    }
    std::erase(ids, kGone);
    return ids;
  }

 private:
  using Merge = std::tuple<int, std::size_t, int, int>;  // rank, position, and the ids there and after it
  static constexpr int kGone = -1;

  static std::uint64_t key(int left, int right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }

  Ids characters(const std::string& text) const {
    Ids ids;
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      length = length_of_character(text, at);
      const auto found = ids_.find(text.substr(at, length));
      if (found != ids_.end()) {
        ids.push_back(found->second);
      } else {
        for (std::size_t i = 0; i < length; ++i) ids.push_back(bytes_[static_cast<unsigned char>(text[at + i])]);
      }
    }
    return ids;
  }

  std::unordered_map<std::string, int> ids_;
  std::array<int, 256> bytes_{};
  std::unordered_map<std::uint64_t, std::pair<int, int>> ranks_;  // pair -> its rank and the merged id
};

std::vector<std::string> own_pieces(const SentencePieceProcessor& pieces) {
  std::vector<std::string> out;
  for (int id = 0; id < pieces.GetPieceSize(); ++id) {
    if (pieces.IsByte(id) || pieces.IsControl(id) || pieces.IsUnknown(id) || pieces.IsUnused(id)) continue;
    std::string text = pieces.IdToPiece(id);
    for (auto at = text.find(kSpaceSymbol); at != std::string::npos; at = text.find(kSpaceSymbol, at))
      text.replace(at, std::string_view(kSpaceSymbol).size(), " ");
    out.push_back(std::move(text));
  }
  return out;
}

// Returns runs of one character. Models have many equal scores in pieces of one repeated character: white space,
// dashes.
std::vector<std::string> runs(const std::vector<std::string>& pieces) {
  std::map<std::string, std::size_t> longest = {{" ", 8}};
  for (const std::string& piece : pieces) {
    const std::string first = piece.empty() ? "" : piece.substr(0, length_of_character(piece, 0));
    if (first.empty() || piece.size() == first.size()) continue;
    std::size_t count = 0;
    while (piece.compare(count * first.size(), first.size(), first) == 0 && count * first.size() < piece.size())
      ++count;
    if (count * first.size() == piece.size()) longest[first] = std::max(longest[first], count);
  }
  std::vector<std::string> out;
  for (const auto& [character, count] : longest) {
    std::string run;
    for (std::size_t length = 1; length <= std::min<std::size_t>(4 * count + 3, 300); ++length) {
      run += character;
      out.push_back("a" + run + "b");
      out.push_back(run);
    }
  }
  return out;
}

// Returns texts of several pieces in a row, each piece about four times, always in the same order.
std::vector<std::string> joined(const std::vector<std::string>& pieces) {
  constexpr std::size_t kTogether = 8;
  std::vector<std::string> out;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < pieces.size() / 2 + 1 && !pieces.empty(); ++i) {
    std::string text;
    for (std::size_t n = 0; n < kTogether; ++n) {
      state = state * 6364136223846793005 + 1442695040888963407;
      text += pieces[(state >> 33) % pieces.size()];
    }
    out.push_back(std::move(text));
  }
  return out;
}

std::string list_of(const Ids& ids) {
  std::vector<std::string> out;
  for (const int id : ids) out.push_back(std::to_string(id));
  return "[" + join(out, ", ") + "]";
}

}  // namespace

std::string find_merge_fault(const SentencePieceProcessor& pieces, const std::vector<std::pair<int, int>>& merges) {
  const Merger merger(pieces, merges);
  const auto own = own_pieces(pieces);
  auto texts = runs(own);
  for (auto& text : joined(own)) texts.push_back(std::move(text));
  for (const std::string& text : texts) {
    const Ids expected = pieces.EncodeAsIds(text), found = merger.encode(text);
    if (expected != found)
      return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true) + " is " + list_of(expected) +
             " to the model and would be " + list_of(found);
  }
  return "";
}

}  // namespace titan::data
