// Checks that merges in an order give the ids of the SentencePiece model that they were made of.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace titan::data {

// Encodes texts made of the model's own pieces, and runs of each character of which it has several in a row, both by
// the model and by `merges` (ids of a left and a right piece, the best first), as the `tokenizers` package does with
// byte_fallback. Returns the first text that differs with both results, in words; "" where none does.
std::string find_merge_fault(const sentencepiece::SentencePieceProcessor& pieces,
                             const std::vector<std::pair<int, int>>& merges);

}  // namespace titan::data
