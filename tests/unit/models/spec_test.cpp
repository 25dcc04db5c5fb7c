// Compares what a spec says about a model with the model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "models/catalog.h"
#include "models/registry.h"

namespace titan::models {
namespace {

TEST(Spec, CountsTheParametersOfEveryFlavor) {
  for (const CatalogEntry& entry : catalog()) {
    for (const std::string& flavor : entry.flavors(entry.name)) {
      const std::string name = entry.name;
      config::Model model;
      model.name = name;
      model.flavor = flavor;
      const auto spec = make_train_spec(model, 8);
      std::int64_t all = 0, embedding = 0;
      const auto built = spec.build_model(std::nullopt);
      for (const auto& parameter : built->named_parameters()) {
        all += parameter.tensor().numel();
        if (parameter.fqn == "tok_embeddings.weight") embedding = parameter.tensor().numel();
      }
      EXPECT_EQ(spec.stats.num_parameters, all) << name << " " << flavor;
      EXPECT_EQ(spec.stats.num_embedding_parameters, embedding) << name << " " << flavor;
    }
  }
}

// TorchTitan's counts of its own models, a tied parameter counted once.
TEST(Spec, Qwen3HasTorchTitansNumbersOfParameters) {
  const std::map<std::string, std::int64_t> expected = {
      {"debugmodel", 31'987'968}, {"0.6B", 596'049'920},   {"1.7B", 1'720'574'976}, {"4B", 4'022'468'096},
      {"8B", 8'190'735'360},      {"14B", 14'768'307'200}, {"32B", 32'762'123'264}};
  for (const auto& [flavor, parameters] : expected) {
    config::Model model;
    model.name = "qwen3";
    model.flavor = flavor;
    EXPECT_EQ(make_train_spec(model, 8).stats.num_parameters, parameters) << flavor;
  }
}

}  // namespace
}  // namespace titan::models
