#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/error.h"
#include "data/text/code_points.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/word_cache.h"

namespace titan::data {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
// Longest word, in symbols, for which scanning all pairs for each merge is faster than a queue.
constexpr std::size_t kShortWord = 48;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t slot_of(std::uint64_t pair, std::size_t mask) {
  return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15) >> 32) & mask;
}

std::int32_t id_in(const BpeSpec& spec, const std::string& token, const std::string& left, const std::string& right) {
  const auto found = spec.vocab.find(token);
  if (found != spec.vocab.end()) return found->second;
  throw DataError("model.merges has \"" + left + "\" + \"" + right + "\", but model.vocab has no \"" + token + "\"");
}

}  // namespace

// A symbol of the word being merged, and the pair that it makes with the next one.
struct Symbol {
  std::int32_t id;
  std::uint32_t rank;     // rank of the pair; kNoRank if it is not merged
  std::int32_t merged;    // id of the merged pair
  std::int32_t next;      // merge_long(): index, -1 at the end
  std::int32_t previous;  // merge_long()
};

struct BpeModel::Scratch {
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;  // rank << 32 | index of the left symbol, a heap with the smallest first
  std::vector<std::int32_t> ids;
};

void BpeModel::FreeScratch::operator()(Scratch* scratch) const { delete scratch; }

BpeModel::ScratchPtr BpeModel::make_scratch() { return ScratchPtr(new Scratch); }

BpeModel::BpeModel(const BpeSpec& spec) : ignore_merges_(spec.ignore_merges) {
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string token;
    append_utf8(token, byte_characters()[byte]);
    const auto found = spec.vocab.find(token);
    byte_ids_[byte] = found == spec.vocab.end() ? -1 : found->second;
    if (byte_ids_[byte] < 0) ++missing_bytes_;
  }
  if (missing_bytes_ > 0 && spec.unk_token) {
    throw DataError("model.unk_token = \"" + *spec.unk_token + "\" would stand for the " +
                    std::to_string(missing_bytes_) +
                    " bytes that model.vocab has no token for; unknown tokens are not supported");
  }
  std::size_t slots = 16;
  while (slots < 2 * spec.merges.size()) slots *= 2;
  merges_.resize(slots);
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    const std::uint64_t pair = pair_of(id_in(spec, left, left, right), id_in(spec, right, left, right));
    add_merge(pair, static_cast<std::uint32_t>(rank), id_in(spec, left + right, left, right));
  }
  if (!ignore_merges_) return;
  for (const auto& [token, id] : spec.vocab) {
    if (auto bytes = bytes_of_token(token)) words_.emplace(std::move(*bytes), id);
  }
}

void BpeModel::add_merge(std::uint64_t pair, std::uint32_t rank, std::int32_t id) {
  std::size_t at = slot_of(pair, merges_.size() - 1);
  // The last of two equal pairs counts, as in the `tokenizers` package.
  while (merges_[at].pair != kNoPair && merges_[at].pair != pair) at = (at + 1) & (merges_.size() - 1);
  merges_[at] = {pair, rank, id};
}

const BpeModel::Merge* BpeModel::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t at = slot_of(pair, merges_.size() - 1);; at = (at + 1) & (merges_.size() - 1)) {
    if (merges_[at].pair == pair) return &merges_[at];
    if (merges_[at].pair == kNoPair) return nullptr;
  }
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (const auto known = scratch.cache.find(word); !known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
    return;
  }
  scratch.ids.clear();
  const auto whole = ignore_merges_ ? words_.find(std::string(word)) : words_.end();
  if (whole != words_.end()) {
    scratch.ids.push_back(whole->second);
  } else {
    scratch.symbols.clear();
    for (const char byte : word) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id >= 0) scratch.symbols.push_back({id, kNoRank, 0, 0, 0});
    }
    if (scratch.symbols.size() <= kShortWord) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  scratch.cache.insert(word, scratch.ids);
}

void BpeModel::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  const auto look_up = [&](std::size_t i) {
    const Merge* merge = i + 1 < symbols.size() ? find(symbols[i].id, symbols[i + 1].id) : nullptr;
    symbols[i].rank = merge ? merge->rank : kNoRank;
    symbols[i].merged = merge ? merge->id : 0;
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) look_up(i);
  while (symbols.size() > 1) {
    const auto best = std::ranges::min_element(symbols, {}, &Symbol::rank);  // the leftmost of equals
    if (best->rank == kNoRank) break;
    const auto at = static_cast<std::size_t>(best - symbols.begin());
    best->id = best->merged;
    symbols.erase(best + 1);
    look_up(at);
    if (at > 0) look_up(at - 1);
  }
  for (const Symbol& symbol : symbols) scratch.ids.push_back(symbol.id);
}

void BpeModel::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  const auto at = [&](std::int32_t index) -> Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  // Looks up the pair at `index` again. Returns true if it can be merged.
  const auto look_up = [&](std::int32_t index) {
    Symbol& symbol = at(index);
    const Merge* merge = symbol.next >= 0 ? find(symbol.id, at(symbol.next).id) : nullptr;
    symbol.rank = merge ? merge->rank : kNoRank;
    symbol.merged = merge ? merge->id : 0;
    if (merge) queue.push_back(static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(index));
    return merge != nullptr;
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1 < count ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i < count; ++i) look_up(i);
  std::ranges::make_heap(queue, std::greater<>());
  while (!queue.empty()) {
    std::ranges::pop_heap(queue, std::greater<>());
    const auto rank = static_cast<std::uint32_t>(queue.back() >> 32);
    const auto index = static_cast<std::int32_t>(queue.back() & 0xFFFFFFFF);
    queue.pop_back();
    Symbol& left = at(index);
    if (left.rank != rank) continue;  // one of the two has been merged since
    Symbol& right = at(left.next);
    left.id = left.merged;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next >= 0) at(left.next).previous = index;
    if (look_up(index)) std::ranges::push_heap(queue, std::greater<>());
    if (left.previous >= 0 && look_up(left.previous)) std::ranges::push_heap(queue, std::greater<>());
  }
  for (std::int32_t i = 0; i >= 0; i = at(i).next) scratch.ids.push_back(at(i).id);
}

}  // namespace titan::data
