#include "models/common/decoder_spec.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "models/common/decoder.h"
#include "models/common/parallelize.h"

namespace titan::models {

TrainSpec decoder_spec(const std::string& name, const HubDecoder& model, std::int64_t seq_len, ModelNaming naming) {
  TrainSpec spec;
  spec.name = name;
  spec.max_seq_len = model.max_seq_len;
  spec.stats = stats_of(model.shape);
  spec.separates_documents = model.shape.block_causal;
  spec.build_model = [shape = model.shape, seq_len](std::optional<std::int64_t> document_end) {
    return std::make_unique<Decoder>(shape, seq_len, document_end);
  };
  spec.passes = decoder_passes();
  spec.naming = std::move(naming);
  return spec;
}

TrainSpec decoder_spec_of_job(const config::Model& job, const HubDecoder& model, std::int64_t seq_len,
                              ModelNaming naming) {
  const std::string name = job.from ? job.name + " of " + *job.from : job.name + " " + job.flavor;
  if (seq_len > model.max_seq_len)
    spdlog::warn("training.seq_len ({}) is longer than the {} tokens that {} is made for", seq_len, model.max_seq_len,
                 name);
  return decoder_spec(name, model, seq_len, std::move(naming));
}

}  // namespace titan::models
