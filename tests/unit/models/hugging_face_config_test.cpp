// config.json of Hugging Face's transformers, as several of its versions write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fs.h"
#include "config/job_config.h"
#include "models/common/hub/rope_config.h"
#include "models/llama3/flavors.h"
#include "models/llama3/naming.h"
#include "models/registry.h"
#include "tests/support/message_of.h"

namespace titan::models {
namespace {

using testing::HasSubstr;

std::string json(const std::string& more) {
  return R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 180, "num_hidden_layers": 3,
             "num_attention_heads": 8, "vocab_size": 100)" +
         more + "}";
}

std::string exported_config(const LlamaArgs& args) {
  return llama_naming({args.decoder(), args.max_seq_len}).config_json;
}

std::vector<HubDifference> differences(const DecoderShape& theirs, const DecoderShape& ours) {
  return llama_naming({ours, 2048}).differences(llama_naming({theirs, 2048}).config_json, "theirs");
}

TEST(HuggingFaceConfig, WhatWeExportIsReadBack) {
  for (const char* name : {"llama3", "llama2"}) {
    for (const auto& [flavor, args] : llama_flavors().at(name)) {
      if (args.block_causal) continue;  // only matters for training
      const std::string exported = exported_config(args);
      const HubDecoder found = read_llama_config(exported, "config.json");
      EXPECT_EQ(llama_naming(found).config_json, exported) << flavor;
      EXPECT_EQ(found.shape.block.hidden_dim, args.hidden_dim()) << flavor;
      config::Model model;
      model.name = name;
      model.flavor = flavor;
      const auto spec = make_train_spec_of_hugging_face(exported, "config.json"), of_flavor = make_train_spec(model, 8);
      EXPECT_EQ(spec.stats.num_parameters, of_flavor.stats.num_parameters);
      EXPECT_EQ(spec.max_seq_len, of_flavor.max_seq_len);
    }
  }
}

TEST(HuggingFaceConfig, TakesTransformersDefaultsAndBothPlacesOfTheRotaryScaling) {
  const HubDecoder plain = read_llama_config(json(""), "");
  EXPECT_EQ(plain.shape.block.attention.n_kv_heads, 8);
  EXPECT_EQ(plain.shape.rope_theta, 10000);
  EXPECT_EQ(plain.shape.block.norm_eps, 1e-6);
  EXPECT_EQ(plain.max_seq_len, 2048);
  EXPECT_FALSE(plain.shape.rope_scaling);
  const std::string llama3 = R"("rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
                                "original_max_position_embeddings": 128)";
  for (const std::string& more : {R"(, "rope_theta": 5e5, "rope_scaling": {)" + llama3 + "}",
                                  R"(, "rope_parameters": {"rope_theta": 500000, )" + llama3 + "}"}) {
    const DecoderShape scaled = read_llama_config(json(more), "").shape;
    EXPECT_EQ(scaled.rope_theta, 500000);
    ASSERT_TRUE(scaled.rope_scaling);
    EXPECT_EQ(scaled.rope_scaling->scaling_factor, 4);
    EXPECT_EQ(scaled.rope_scaling->high_freq_factor, 3);
    EXPECT_EQ(scaled.rope_scaling->original_max_position_embeddings, 128);
  }
  EXPECT_EQ(read_llama_config(json(R"(, "rope_parameters": {"rope_type": "default"})"), "").shape.rope_theta, 10000);
}

// The expected answers come from transformers (tests/golden).
TEST(HuggingFaceConfig, IsReadAsTransformersDoes) {
  const auto variants = nlohmann::json::parse(read_file(std::filesystem::path(TITAN_GOLDEN) / "config_variants.json"));
  EXPECT_GE(variants.size(), 60u);
  for (const auto& [name, variant] : variants.items()) {
    const auto refused = variant["refused"].get<std::string>();
    const std::string text = variant["config"].dump();
    if (!refused.empty()) {
      EXPECT_THAT(test::message_of<ConfigError>([&] { read_llama_config(text, "c"); }), HasSubstr(refused)) << name;
      continue;
    }
    const auto& answer = variant["answer"];
    const auto& [shape, max_seq_len] = read_llama_config(text, name);
    const AttentionShape& attention = shape.block.attention;
    EXPECT_EQ(attention.n_heads, answer["heads"]) << name;
    EXPECT_EQ(attention.n_kv_heads, answer["kv_heads"]) << name;
    if (answer["head_dim"] != 0) {
      EXPECT_EQ(attention.head_dim, answer["head_dim"]) << name;
    }
    EXPECT_EQ(shape.block.norm_eps, answer["eps"]) << name;
    EXPECT_EQ(max_seq_len, answer["positions"]) << name;
    EXPECT_EQ(shape.rope_theta, answer["theta"]) << name;
    ASSERT_EQ(shape.rope_scaling.has_value(), !answer["scaling"].is_null()) << name;
    if (!shape.rope_scaling) continue;
    // Without the original length of llama3 and yarn, ours is written out.
    const auto found = nlohmann::json::parse(rope_scaling_json(shape.rope_scaling));
    for (const auto& [key, value] : answer["scaling"].items())
      EXPECT_EQ(found.value(key, nlohmann::json()), value) << name << " " << key;
  }
}

TEST(HuggingFaceConfig, SaysWhatDiffersByOurKeys) {
  const DecoderShape ours = read_llama_config(json(R"(, "num_key_value_heads": 4)"), "").shape;
  EXPECT_TRUE(differences(ours, ours).empty());
  const DecoderShape theirs =
      read_llama_config(json(R"(, "rope_theta": 500000, "rms_norm_eps": 0.5, "num_key_value_heads": 2,
              "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})"),
                        "")
          .shape;
  std::vector<std::string> found;
  for (const auto& [key, there, here] : differences(theirs, ours)) found.push_back(key + ": " + there + ", " + here);
  EXPECT_THAT(found, testing::ElementsAre("model.args.n_kv_heads: 2, 4", "model.args.norm_eps: 0.5, 1e-06",
                                          "model.args.rope_theta: 500000, 10000",
                                          "model.args.rope_scaling_args.scaling_factor: 8, 1 (no scaling)"));
  // Llama 3 has no scaling; a factor of 1 makes the flavor of 3.1 the same.
  DecoderShape scaled = ours;
  scaled.rope_scaling = RopeScaling{};
  EXPECT_EQ(differences(ours, scaled).size(), 1u);
  scaled.rope_scaling->scaling_factor = 1;
  EXPECT_TRUE(differences(ours, scaled).empty());
}

TEST(HuggingFaceConfig, ExportsFloatsAsFloats) {
  for (const auto& [flavor, args] : llama_flavors().at("llama3")) {
    const auto exported = nlohmann::json::parse(exported_config(args));
    EXPECT_TRUE(exported["rope_theta"].is_number_float()) << flavor;
    EXPECT_TRUE(exported["rms_norm_eps"].is_number_float()) << flavor;
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
      if (exported["rope_scaling"].is_object()) {
        EXPECT_TRUE(exported["rope_scaling"][key].is_number_float()) << flavor;
      }
  }
}

TEST(HuggingFaceConfig, RefusesWhatIsNoLlamaOfOurs) {
  const auto fault = [](const std::string& text) {
    return test::message_of<ConfigError>([&] { make_train_spec_of_hugging_face(text, "here/config.json"); });
  };
  EXPECT_THAT(fault("{"), HasSubstr("here/config.json describes no model that can be built here"));
  EXPECT_THAT(fault(R"({"architectures": ["GPT2LMHeadModel"]})"), HasSubstr("expected LlamaForCausalLM"));
  EXPECT_THAT(fault(R"({"architectures": ["LlamaForCausalLM"]})"), HasSubstr("hidden_size"));
  EXPECT_THAT(fault(json(R"(, "hidden_act": "gelu")")), HasSubstr("hidden_act: expected \"silu\", found \"gelu\""));
  EXPECT_THAT(fault(json(R"(, "attention_bias": true)")), HasSubstr("attention_bias"));
  EXPECT_THAT(fault(json(R"(, "head_dim": 15)")),
              HasSubstr("head_dim: expected an even number, 2 to 4194304, found 15"));
  EXPECT_THAT(fault(json(R"(, "head_dim": 4194304)")), HasSubstr("num_attention_heads * head_dim: expected at most"));
  EXPECT_THAT(fault(json(R"(, "num_key_value_heads": 3)")), HasSubstr("a multiple of num_key_value_heads"));
  EXPECT_THAT(fault(json(R"(, "num_key_value_heads": 0)")), HasSubstr("num_key_value_heads: expected 1 to"));
  EXPECT_THAT(fault(json(R"(, "rope_scaling": {"type": "dynamic"})")), HasSubstr("found \"dynamic\""));
  EXPECT_THAT(fault(json(R"(, "rope_scaling": {"type": "yarn"})")), HasSubstr("factor of the rotary scaling"));
}

}  // namespace
}  // namespace titan::models
