// A pre-norm decoder of parts: embedding, blocks, norm, output projection. Single-device math; parallelize.h adds the
// rest from outside.
//
// B rows, T tokens, V vocabulary, D width, E head dim.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/model.h"
#include "models/common/shapes.h"
#include "nn/layers.h"
#include "pipeline/stage_split.h"

namespace titan::models {

// The projection to logits. With labels, it also computes the loss.
class Output : public nn::Linear {
 public:
  using nn::Linear::Linear;
  // [B, T, D] -> [B, T, V]; with labels [B, T], 0-d; a third input is Batch::labels_of_sample.
  at::Tensor forward(const nn::Tensors& inputs) override;
};

class Decoder : public LanguageModel {
 public:
  // The children by these names, null where drop_child() has removed one: another rank has it.
  struct Parts {
    nn::Embedding* tok_embeddings;
    nn::ModuleList* layers;
    nn::RMSNorm* norm;
    Output* output;
  };

  // A part of the model that one call runs: blocks, by their indices among those that this rank has, and what is around
  // them.
  struct Stage {
    std::size_t first_block = 0, end_block = 0;
    bool has_embedding = true, has_norm = true, has_output = true;
  };

  // `seq_len`: number of rows of the rotary table. `document_end`: token that ends a document, for block-causal
  // attention.
  Decoder(const DecoderShape& shape, std::int64_t seq_len, std::optional<std::int64_t> document_end = std::nullopt);

  // As LanguageModel says. Without the embedding, the first input is its output [B, T, D]; without the output
  // projection, the result is [B, T, D].
  at::Tensor forward(const nn::Tensors& inputs) override;
  void init_weights(nn::Initializer& initializer, at::Device buffer_device) override;
  nn::Module& output() override;
  std::optional<std::int64_t> document_end() const override;

  // Drops the modules that are in none of these stages of a pipeline, this rank's; the sixth input of forward() then
  // selects one of them. Names of parameters stay. Call before anything is attached to the modules. Throws
  // InternalError for blocks that the model does not have.
  void keep_stages(const std::vector<pipeline::StageModules>& stages);
  const std::vector<Stage>& stages() const { return stages_; }

  const DecoderShape& shape() const { return shape_; }
  Parts parts() { return {tok_embeddings_.get(), layers_.get(), norm_.get(), output_.get()}; }

 private:
  struct Drawn {
    std::string fqn;
    std::vector<std::int64_t> shape;
  };
  void init_one(nn::Initializer& initializer, const nn::InitTarget& target) const;
  Stage stage_of(const nn::Tensors& inputs) const;
  nn::Tensors block_inputs(const nn::Tensors& inputs, const Stage& stage);

  DecoderShape shape_;
  std::int64_t seq_len_;
  std::optional<std::int64_t> document_end_;
  std::shared_ptr<nn::Embedding> tok_embeddings_;
  std::shared_ptr<nn::ModuleList> layers_;
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<Output> output_;
  std::vector<Drawn> drawn_;   // all parameters of the full model, in the order in which they are drawn
  at::Tensor freqs_cis_;       // complex64 [seq_len, E / 2]
  std::vector<Stage> stages_;  // of a pipeline
};

}  // namespace titan::models
