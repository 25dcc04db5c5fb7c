#include "models/llama3/spec.h"

#include "models/common/decoder_spec.h"
#include "models/llama3/flavors.h"
#include "models/llama3/naming.h"

namespace titan::models {

TrainSpec llama_spec(const config::Model& model, std::int64_t seq_len) {
  const LlamaArgs args = llama_args(model);
  const HubDecoder decoder{args.decoder(), args.max_seq_len};
  return decoder_spec_of_job(model, decoder, seq_len, llama_naming(decoder));
}

TrainSpec llama_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                     std::optional<std::int64_t> seq_len) {
  const HubDecoder decoder = read_llama_config(config_json, what);
  return decoder_spec(what, decoder, seq_len.value_or(decoder.max_seq_len), llama_naming(decoder));
}

}  // namespace titan::models
