// Batches of one rank, made ahead of the train loop by a thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "contract/batch_source.h"
#include "data/order/row_source.h"

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
// batch of a finite source may have fewer than local_batch_size rows. next(), state(), load_state() and restart()
// belong to one thread; the last two are allowed at any time. `rows` must have the options' seq_len.
std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<RowSource> rows, const LoaderOptions& options);

}  // namespace titan::data
