// Compares what a spec says about a model with the model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/catalog.h"
#include "models/llama3/flavors.h"
#include "models/registry.h"

namespace titan::models {
namespace {

TEST(Registry, BuildsTheModelsOfTheCatalog) { EXPECT_EQ(registered_models(), model_names()); }

TEST(Spec, CountsTheParametersOfEveryFlavor) {
  for (const auto& [name, flavors] : llama_flavors()) {
    for (const auto& [flavor, args] : flavors) {
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

}  // namespace
}  // namespace titan::models
