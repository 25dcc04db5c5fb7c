#include "models/registry.h"

#include "models/catalog.h"
#include "models/common/decoder_spec.h"
#include "models/common/lora/adapters.h"

namespace titan::models {

TrainSpec make_train_spec(const config::Model& model, std::int64_t seq_len) {
  const CatalogEntry& entry = entry_of(model);
  const HubDecoder decoder = entry.decoder(model);
  return decoder_spec_of_job(model, decoder, seq_len, entry.naming(decoder));
}

TrainSpec make_train_spec(const config::Model& model, const config::Lora& lora, std::int64_t seq_len) {
  TrainSpec spec = make_train_spec(model, seq_len);
  return lora.rank == 0 ? spec : with_adapters(std::move(spec), lora, model.from);
}

TrainSpec make_train_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                          std::optional<std::int64_t> seq_len) {
  const CatalogEntry& entry = entry_of_config(config_json, what);
  const HubDecoder decoder = entry.read_config(config_json, what);
  return decoder_spec(what, decoder, seq_len.value_or(decoder.max_seq_len), entry.naming(decoder));
}

std::optional<std::string> parameter_of_hub_name(const std::string& name) {
  static const std::vector<ModelNaming> kNamings = [] {
    std::vector<ModelNaming> namings;
    for (const CatalogEntry& entry : catalog()) {
      config::Model model;
      model.name = entry.name;
      model.from = "";  // any size: all have the same names
      namings.push_back(entry.naming(entry.decoder(model)));
    }
    return namings;
  }();
  for (const ModelNaming& naming : kNamings)
    if (const auto origin = naming.from_hub(name)) return origin->fqn;
  return std::nullopt;
}

}  // namespace titan::models
