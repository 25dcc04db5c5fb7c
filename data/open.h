// Opens the data that the configuration names, as a source of batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "contract/batch_source.h"
#include "data/conversations/chat_packs.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

struct DataOptions {
  std::string dataset;  // a kind, see data/dataset_kinds.h
  std::filesystem::path dataset_path = {};
  std::vector<std::string> dataset_mix = {};  // several datasets with weights (mixture.h), instead of the two above
  std::string text_key = "text";              // the field of JSON lines that holds the document
  // "torchtitan", "elastic", or "auto": torchtitan for TorchTitan's own names (c4_test, c4, c4_validation), else
  // elastic.
  std::string data_order = "torchtitan";
  ChatDataset chat = {};                  // for kind "chat"; its on_bad_record is the one below
  std::string on_bad_record = "error";    // or "skip"
  std::int64_t seed = 0;                  // seed of the elastic order
  std::int64_t accumulation_steps = 1;    // microbatches per step; the elastic order depends on it
  std::filesystem::path sample_log = {};  // this rank's file; see LoaderOptions
  std::int64_t local_batch_size = 1;
  std::int64_t seq_len = 0;
  std::int64_t dp_rank = 0;
  std::int64_t dp_size = 1;
  bool infinite = true;  // must be true in elastic order, which has no end
  bool pin_memory = false;
};

// Opens the dataset at its beginning. Not collective. Throws DataError, and ConfigError for an unknown order or policy
// and for a mixture in TorchTitan's order.
std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace titan::data
