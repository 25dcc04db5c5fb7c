// Batches of one rank, made ahead of the train loop by a thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "contract/batch_source.h"
#include "data/packer.h"
#include "data/tokenizer.h"

namespace titan::data {

struct LoaderOptions {
  std::int64_t local_batch_size = 1;
  std::int64_t seq_len = 0;
  bool pin_memory = false;            // page-locked host tensors, for asynchronous copies; needs a CUDA device
  std::int64_t prefetch_batches = 2;  // how many may wait in the queue
};

// The thread starts with the first next() and touches no tensor: it makes plain arrays, next() wraps them. What it
// throws comes out of next() in order, after the batches made before it, and again from every later call. The last
// batch of a finite source may have fewer than local_batch_size rows. next(), position() and seek() belong to one
// thread; seek() is allowed at any time. `packer` must have the options' seq_len.
std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<Packer> packer, const LoaderOptions& options);

struct DataOptions {
  std::string dataset;  // a kind, see data/registry.h
  std::filesystem::path dataset_path;
  std::int64_t local_batch_size = 1;
  std::int64_t seq_len = 0;
  std::int64_t dp_rank = 0;
  std::int64_t dp_size = 1;
  bool infinite = true;
  bool pin_memory = false;
};

// Opens the dataset and starts at the first document of the rank's block. Not collective. Throws DataError.
std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace titan::data
