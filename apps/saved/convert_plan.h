// Plans the conversion of a checkpoint's tensors to another format: names, dtypes, and the order of rows.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tools/convert.h"
#include "contract/train_contract.h"
#include "models/registry.h"

namespace titan {

// Says where to read how a model was used, for an export. A value is "" or nullopt if nothing says it.
struct SavedTexts {
  std::string tokenizer;                          // of the run, or of the folder that came from Hugging Face's format
  std::optional<std::string> chat_template = {};  // of the run, instead of its tokenizer's: chat_template_of_run()
  bool has_chats = false;                         // the run put conversations into words
  std::filesystem::path generation = {};          // the folder with the generation_config.json that stays
};

// The model of a checkpoint, from a configuration or from Hugging Face's config.json.
struct ModelShape {
  std::optional<TrainSpec> spec;
  bool tied_embeddings = false;        // the output projection is the embedding, and may not be stored
  std::string origin;                  // for messages
  config::Lora lora;                   // of the run's configuration; without a rank if there are no adapters
  std::optional<TrainSpec> base = {};  // the model without adapters
  SavedTexts texts = {};
};

// In all plans, `dtype` is the target dtype of floating-point tensors; "same" keeps the stored dtype. Tensors outside
// the model (the optimizer's, a run's state) are skipped, and names lose the parts that PyTorch's module wrappers add
// (_orig_mod. and the like).

// Plans a conversion from our names to Hugging Face's (`to_hub`) or back. If embeddings are tied and the output
// projection is not stored, the plan has the embedding twice. Throws CheckpointError that lists tensors that are not
// parameters of the model or, if the model's parameters are known (shape.spec), all differences from them.
std::vector<checkpoint::Conversion> plan_renamed(const std::vector<checkpoint::TensorInfo>& tensors, bool to_hub,
                                                 const ModelShape& shape, const std::string& dtype);

// Checks that a source with both names of a tied parameter has equal values under them: one of them is not converted to
// Hugging Face's format. Throws CheckpointError. Reads both.
void check_ties(checkpoint::TensorSource& source, bool to_hub, const ModelShape& shape);

// Plans a conversion between formats with the same tensor names.
std::vector<checkpoint::Conversion> plan_same_names(const std::vector<checkpoint::TensorInfo>& tensors,
                                                    const std::string& dtype);

// Throws CheckpointError if a checkpoint of another format has Hugging Face's tensor names: nothing says which model
// they belong to.
void check_own_names(const std::vector<checkpoint::TensorInfo>& tensors, const std::string& source);

// Returns the dtype of the floating-point targets, which all such weights of a model share; float32 if there are none.
c10::ScalarType dtype_of(const std::vector<checkpoint::Conversion>& plan);

}  // namespace titan
