// config.json of Hugging Face's transformers, as several of its versions write it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/job_config.h"
#include "models/llama3/hugging_face.h"
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

TEST(HuggingFaceConfig, WhatWeExportIsReadBack) {
  for (const char* name : {"llama3", "llama2"}) {
    for (const auto& [flavor, args] : llama_flavors().at(name)) {
      if (args.block_causal) continue;  // which is a matter of training
      const std::string exported = llama_hugging_face_config(args);
      const LlamaArgs found = llama_args_from_hugging_face(exported, "config.json");
      EXPECT_EQ(llama_hugging_face_config(found), exported) << flavor;
      EXPECT_EQ(found.hidden_dim(), args.hidden_dim()) << flavor;
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
  const LlamaArgs plain = llama_args_from_hugging_face(json(""), "");
  EXPECT_EQ(plain.kv_heads(), 8);
  EXPECT_EQ(plain.rope_theta, 10000);
  EXPECT_EQ(plain.norm_eps, 1e-6);
  EXPECT_EQ(plain.max_seq_len, 2048);
  EXPECT_FALSE(plain.rope_scaling);
  const std::string llama3 = R"("rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
                                "original_max_position_embeddings": 128)";
  for (const std::string& more : {R"(, "rope_theta": 5e5, "rope_scaling": {)" + llama3 + "}",
                                  R"(, "rope_parameters": {"rope_theta": 500000, )" + llama3 + "}"}) {
    const LlamaArgs scaled = llama_args_from_hugging_face(json(more), "");
    EXPECT_EQ(scaled.rope_theta, 500000);
    ASSERT_TRUE(scaled.rope_scaling);
    EXPECT_EQ(scaled.rope_scaling->scaling_factor, 4);
    EXPECT_EQ(scaled.rope_scaling->high_freq_factor, 3);
    EXPECT_EQ(scaled.rope_scaling->original_max_position_embeddings, 128);
  }
  EXPECT_EQ(llama_args_from_hugging_face(json(R"(, "rope_parameters": {"rope_type": "default"})"), "").rope_theta,
            10000);
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
  EXPECT_THAT(fault(json(R"(, "head_dim": 16)")),
              HasSubstr("head_dim: expected hidden_size / num_attention_heads = 8"));
  EXPECT_THAT(fault(json(R"(, "num_key_value_heads": 3)")), HasSubstr("a multiple of the key heads"));
  EXPECT_THAT(fault(json(R"(, "num_key_value_heads": 0)")), HasSubstr("num_key_value_heads: expected at least 1"));
  EXPECT_THAT(fault(json(R"(, "rope_scaling": {"type": "yarn"})")), HasSubstr("found \"yarn\""));
}

}  // namespace
}  // namespace titan::models
