// A cache of the ids of words, bounded in memory, for one thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data {

// A flat table with linear probing. It is cleared when it is full: natural text refills it within milliseconds, and no
// order of use needs to be kept.
class WordCache {
 public:
  static constexpr std::size_t kMaxWordBytes = 64;

  explicit WordCache(std::size_t max_words = std::size_t{1} << 17) : max_words_(max_words) {
    std::size_t slots = 2;
    while (slots < 2 * max_words) slots *= 2;
    slots_.resize(slots);
  }

  // Returns the ids of `word`, or null data if it is not cached. Valid until the next insert().
  std::span<const std::int32_t> find(std::string_view word) const {
    const std::uint64_t hash = hash_of(word);
    for (std::size_t at = hash & (slots_.size() - 1); slots_[at].num_ids != 0; at = (at + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[at];
      if (slot.hash == hash && word == std::string_view(texts_).substr(slot.text, slot.text_size)) {
        return {ids_.data() + slot.ids, slot.num_ids};
      }
    }
    return {};
  }

  // Inserts a word that find() has just not found. Does not keep a word that is too long or has no ids.
  void insert(std::string_view word, std::span<const std::int32_t> ids) {
    if (word.size() > kMaxWordBytes || ids.empty()) return;
    if (num_words_ >= max_words_) clear();
    const std::uint64_t hash = hash_of(word);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].num_ids != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {hash, static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(ids_.size()),
                  static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
    texts_.append(word);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++num_words_;
  }

  std::size_t size() const { return num_words_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t text = 0;  // offset in texts_
    std::uint32_t ids = 0;   // offset in ids_
    std::uint16_t text_size = 0;
    std::uint16_t num_ids = 0;  // 0: empty slot
  };

  void clear() {
    slots_.assign(slots_.size(), Slot{});
    texts_.clear();
    ids_.clear();
    num_words_ = 0;
  }

  static std::uint64_t hash_of(std::string_view word) {
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
    std::uint64_t hash = word.size() * kFactor;
    while (word.size() >= 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, word.data(), 8);
      hash = mix(hash ^ bits);
      word.remove_prefix(8);
    }
    std::uint64_t bits = 0;
    std::memcpy(&bits, word.data(), word.size());
    return mix(hash ^ bits);
  }

  static std::uint64_t mix(std::uint64_t bits) {
    const auto product = static_cast<unsigned __int128>(bits ^ 0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  std::size_t max_words_;
  std::size_t num_words_ = 0;
  std::vector<Slot> slots_;
  std::string texts_;
  std::vector<std::int32_t> ids_;
};

}  // namespace titan::data
