// Batches of one rank, made ahead of the train loop by a thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "contract/batch_source.h"
#include "data/order/row_source.h"
#include "data/sources/token_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

struct LoaderOptions {
  std::int64_t local_batch_size = 1;
  std::int64_t seq_len = 0;
  bool pin_memory = false;  // page-locked host tensors, for asynchronous copies; needs a CUDA device
  // How many may wait in the queue: enough that a long document, which is tokenized whole, holds no step up.
  std::int64_t prefetch_batches = 8;
  bool report_bad_records = false;   // bad_records() has a number
  std::filesystem::path sample_log;  // a file that gets a line for each row that next() returns; empty: none
  std::string description = {};      // see BatchSource
};

// The thread starts with the first next() and touches no tensor: it makes plain arrays, next() wraps them. What it
// throws comes out of next() in order, after the batches made before it, and again from every later call. The last
// batch of a finite source may have fewer than local_batch_size rows. next(), position() and seek() belong to one
// thread; seek() is allowed at any time. `rows` must have the options' seq_len.
std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<RowSource> rows, const LoaderOptions& options);

struct DataOptions {
  std::string dataset;  // a kind, see data/registry.h
  std::filesystem::path dataset_path;
  std::vector<std::string> dataset_mix;   // several, with weights (mixture.h), instead of the two above
  std::string data_order = "torchtitan";  // "torchtitan", "elastic", or "auto": see resolve_data_order()
  std::string on_bad_record = "error";    // or "skip"
  std::int64_t seed = 0;                  // of the elastic order
  std::int64_t accumulation_steps = 1;    // microbatches of a step: part of the elastic order
  std::filesystem::path sample_log;       // a file of this rank; see LoaderOptions
  std::int64_t local_batch_size = 1;
  std::int64_t seq_len = 0;
  std::int64_t dp_rank = 0;
  std::int64_t dp_size = 1;
  bool infinite = true;
  bool pin_memory = false;
};

// "auto" is TorchTitan's order for c4_test, c4 and c4_validation, TorchTitan's names, and elastic order for everything
// else. Throws ConfigError for an unknown order, and for a mixture or a finite source in an order that has none.
std::string resolve_data_order(const DataOptions& options);

// Opens the dataset and starts at its beginning. Not collective. Throws DataError and ConfigError.
std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace titan::data
