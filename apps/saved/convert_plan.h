// What each tensor of a checkpoint becomes in another format: its name, its dtype, and the order of its rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tools/convert.h"
#include "contract/train_contract.h"
#include "models/registry.h"

namespace titan {

// The model of a checkpoint, from a configuration or from Hugging Face's config.json.
struct ModelShape {
  std::optional<TrainSpec> spec;
  bool tied_embeddings = false;  // the output projection is the embedding, and may not be stored
  std::string origin;            // for messages
  std::string tokenizer;         // the run's: a path that its configuration names; "" when there is none
};

// `dtype` in all plans: of floating-point tensors; "same" leaves them as they are stored. Tensors that are not the
// model's (the optimizer's, a run's state) are left out, and names lose what PyTorch's wrappers of modules put into
// them (_orig_mod. and the like).

// Between our names and Hugging Face's, in the direction of `to_hub`. Where embeddings are tied and the output
// projection is not stored, the plan has the embedding twice. Throws CheckpointError that lists tensors that are not
// parameters of the model, and one that lists what the plan lacks where the model's parameters are known (shape.spec).
std::vector<checkpoint::Conversion> plan_renamed(const std::vector<checkpoint::TensorInfo>& tensors, bool to_hub,
                                                 const ModelShape& shape, const std::string& dtype);

// For formats that call the tensors alike.
std::vector<checkpoint::Conversion> plan_same_names(const std::vector<checkpoint::TensorInfo>& tensors,
                                                    const std::string& dtype);

// Throws CheckpointError for tensors with Hugging Face's names in a checkpoint of another format, where nothing says
// which model they are of.
void check_own_names(const std::vector<checkpoint::TensorInfo>& tensors, const std::string& source);

// That of the targets that are floating-point, float32 where there are none: all such weights of a model have the same.
c10::ScalarType dtype_of(const std::vector<checkpoint::Conversion>& plan);

}  // namespace titan
