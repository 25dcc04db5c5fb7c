// Checks that an ordered list of merges gives the ids of the SentencePiece model from which it was made.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace titan::data {

// Encodes texts with both the model and `merges` (ids of a left and a right piece, best first), applied as the
// `tokenizers` package does with byte_fallback. The texts are made of the model's own pieces, and of runs of each
// character that a piece repeats. Returns the first text whose ids differ, with both results, in words; "" if there is
// none.
std::string find_merge_fault(const sentencepiece::SentencePieceProcessor& pieces,
                             const std::vector<std::pair<int, int>>& merges);

}  // namespace titan::data
