// Sums of words times factors on CPU, on ATen's threads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/rows/words_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of words_rows.h that this processor runs.
const WordSums& best_word_sums();

// Sets sums[k] to the sum (WordSums::sum) over the k-th part of `count` words: each part has as many words as there are
// factors, the last one perhaps fewer. The result does not depend on the number of threads.
void sum_words(const WordSums& kernels, std::int64_t count, const void* words, std::span<const std::uint64_t> factors,
               std::span<std::uint64_t> sums);

}  // namespace titan::kernels
