// Prefetches the batches of one rank on a thread.
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
  // Capacity of the queue: enough that tokenizing one long document does not delay a step.
  std::int64_t prefetch_batches = 8;
  bool has_documents = false;        // batches say which document a token belongs to
  bool weighs_samples = false;       // conversations count alike: batches have labels_of_sample
  bool report_bad_records = false;   // bad_records() returns a number
  std::filesystem::path sample_log;  // gets a line for each row that next() returns; empty: no log
  std::string description = {};      // see BatchSource
};

// Starts the thread with the first next(). The thread makes plain arrays and touches no tensor; next() wraps them.
// next() rethrows the thread's exception after the batches made before it, and every later call throws it again. The
// last batch of a finite source may have fewer than local_batch_size rows. Call next(), state(), load_state() and
// restart() from one thread; the last two are allowed at any time. `rows` must have the options' seq_len.
std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<RowSource> rows, const LoaderOptions& options);

}  // namespace titan::data
