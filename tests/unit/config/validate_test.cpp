#include "config/validate.h"

#include <gmock/gmock.h>

#include "config/keys/fields.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class Change>
std::string fault(Change change, std::int64_t world_size = 1) {
  JobConfig config;
  change(config);
  return error_of([&] { validate(config, world_size); });
}

template <class Change>
std::vector<std::string> warnings(Change change) {
  JobConfig config;
  change(config);
  return validate(config);
}

TEST(Validate, DefaultsAreFineOnAnyNumberOfRanks) {
  for (const int world_size : {1, 2, 3, 64}) EXPECT_THAT(validate(JobConfig{}, world_size), IsEmpty());
}

std::vector<Fault> faults_of(const JobConfig& config, std::int64_t world_size) {
  return cross_check(config, world_size).errors;
}

JobConfig wrong_in_all_ways() {
  JobConfig c;
  c.lr_scheduler.total_steps = 1;
  c.training.seq_len = 7;
  c.model.args.dim = 10;
  c.model.args.n_heads = 4;
  c.model.args.n_kv_heads = 3;
  c.model.args.max_seq_len = 2;
  c.model.args.rope_scaling_args.low_freq_factor = 4;
  c.model.args.rope_scaling_args.high_freq_factor = 1;
  c.parallelism.tensor_parallel_degree = 5;
  c.training.dataset_mix = {"1 nothing a", "2"};
  c.training.data_order = "torchtitan";
  c.checkpoint.allow_changed = {"training.step"};
  c.checkpoint.keep_latest_k = 1;
  c.checkpoint.create_seed_checkpoint = c.checkpoint.load_only = true;
  c.checkpoint.export_dtype = "bfloat16";
  c.checkpoint.last_save_in_hf = c.checkpoint.initial_load_in_hf = true;
  c.checkpoint.last_save_as = "file";
  c.parallelism.fsdp_wrap = {"block", "output"};
  c.checkpoint.last_save_model_only = c.checkpoint.initial_load_model_only = false;
  c.validation.enable = true;
  return c;
}

// The keys of a fault decide where it is shown, and whether it is shown at all.
TEST(Validate, FaultsCarryTheKeysThatTheyName) {
  std::vector<Fault> faults = faults_of(wrong_in_all_ways(), 3);
  EXPECT_EQ(faults.size(), 24u);
  JobConfig batch;
  batch.training.global_batch_size = 9;
  JobConfig reshard;
  reshard.parallelism.fsdp_reshard_after_forward = "3";
  for (const JobConfig& config : {batch, reshard})
    for (const Fault& fault : faults_of(config, 2)) faults.push_back(fault);
  EXPECT_EQ(faults.size(), 26u);
  for (const Fault& fault : faults) {
    EXPECT_FALSE(fault.keys.empty()) << fault.message;
    for (const std::string& key : fault.keys) {
      EXPECT_NE(find_field(key), nullptr) << key;
      EXPECT_THAT(fault.message, HasSubstr(key));
    }
  }
  EXPECT_THAT(faults.back().keys, ElementsAre("parallelism.fsdp_reshard_after_forward"));
}

TEST(Validate, MixturesOfDatasets) {
  const auto mixed = [](JobConfig& c) { c.training.dataset_mix = {"1 text a", "1 text b"}; };
  EXPECT_THAT(warnings(mixed), IsEmpty());
  EXPECT_THAT(warnings([&](JobConfig& c) {
                mixed(c);
                c.training.dataset_path = "c";
              }),
              ElementsAre(HasSubstr("training.dataset_path are not")));
  EXPECT_THAT(fault([&](JobConfig& c) {
                mixed(c);
                c.training.data_order = "torchtitan";
              }),
              HasSubstr("needs the elastic order"));
}

TEST(Validate, Profiling) {
  const auto profiled = [](JobConfig& c) { c.profiling.enable_profiling = true; };
  EXPECT_EQ(fault(profiled), "no error");
  EXPECT_THAT(fault([&](JobConfig& c) {
                profiled(c);
                c.profiling.profiler_active = 8;
              }),
              AllOf(HasSubstr("profiling.profile_freq (10)"), HasSubstr("set it to at least 11")));
  const auto ranks = [&](const char* list) {
    return fault(
        [&](JobConfig& c) {
          profiled(c);
          c.profiling.ranks = list;
        },
        4);
  };
  EXPECT_EQ(ranks("0,2-3"), "no error");
  EXPECT_THAT(ranks("2-4"), AllOf(HasSubstr("names rank 4"), HasSubstr("are 0 to 3")));
  EXPECT_THAT(ranks("4-2"), HasSubstr("names no ranks"));
}

TEST(Validate, SequenceLength) {
  EXPECT_THAT(fault([](JobConfig& c) { c.training.seq_len = 255; }),
              AllOf(HasSubstr("training.seq_len (255)"), HasSubstr("use 254 or 256")));
  const auto degrees = [](std::int64_t length) {
    return fault(
        [=](JobConfig& c) {
          c.training.seq_len = length;
          c.parallelism.tensor_parallel_degree = 4;
          c.parallelism.context_parallel_degree = 2;
        },
        8);
  };
  EXPECT_EQ(degrees(32), "no error");
  EXPECT_THAT(degrees(40), AllOf(HasSubstr("context_parallel_degree (2) = 16"), HasSubstr("use 32 or 48")));
  EXPECT_THAT(degrees(8), HasSubstr("use 16"));
  const auto held_out = [](std::int64_t degree) {
    return fault([=](JobConfig& c) {
      c.validation.enable = true;
      c.validation.seq_len = 38;
      c.training.seq_len = 64;
      c.parallelism.tensor_parallel_degree = degree;
    });
  };
  EXPECT_THAT(held_out(1), ::testing::Not(HasSubstr("validation.seq_len (38)")));
  EXPECT_THAT(held_out(2), AllOf(HasSubstr("validation.seq_len (38)"), HasSubstr("use 36 or 40")));
}

TEST(Validate, DegreesAndWorldSize) {
  Parallelism p;
  EXPECT_EQ(resolve_shard_degree(p, 6), 6);
  p.data_parallel_replicate_degree = 2;
  EXPECT_EQ(resolve_shard_degree(p, 6), 3);
  EXPECT_THAT(error_of([&] { resolve_shard_degree(p, 5); }),
              AllOf(HasSubstr("data_parallel_replicate_degree (2)"), HasSubstr("context_parallel_degree (1)"),
                    HasSubstr("tensor_parallel_degree (1)"), HasSubstr("pipeline_parallel_degree (1)"),
                    HasSubstr("multiple of 2")));
  p.data_parallel_shard_degree = 2;
  EXPECT_EQ(resolve_shard_degree(p, 4), 2);
  EXPECT_THAT(error_of([&] { resolve_shard_degree(p, 8); }),
              AllOf(HasSubstr("data_parallel_shard_degree (2)"), HasSubstr("is not 8"), HasSubstr("start 4 ranks"),
                    HasSubstr("set parallelism.data_parallel_shard_degree to 4")));
}

TEST(Validate, GlobalBatch) {
  JobConfig config;
  config.training.local_batch_size = 4;
  EXPECT_EQ(num_accumulation_steps(config, 2), 1);
  config.training.global_batch_size = 24;
  EXPECT_EQ(num_accumulation_steps(config, 2), 3);
  config.training.global_batch_size = 20;
  EXPECT_THAT(error_of([&] { num_accumulation_steps(config, 2); }),
              AllOf(HasSubstr("global_batch_size (20)"), HasSubstr("local_batch_size (4)"), HasSubstr("ranks (2) = 8"),
                    HasSubstr("use 16 or 24")));
  config.training.global_batch_size = 4;
  EXPECT_THAT(error_of([&] { validate(config, 2); }), HasSubstr("use 8, or -1"));
  config.parallelism.tensor_parallel_degree = 2;  // the two ranks share one microbatch
  EXPECT_EQ(num_accumulation_steps(config, 2), 1);
}

TEST(Validate, Schedule) {
  EXPECT_THAT(warnings([](JobConfig& c) { c.training.steps = 100; }),
              ElementsAre(AllOf(HasSubstr("lr_scheduler.warmup_steps (200)"), HasSubstr("training.steps (100)"))));
  const auto wsd = [](std::int64_t warmup, double ratio) {
    return warnings([=](JobConfig& c) {
      c.training.steps = 10;
      c.lr_scheduler.warmup_steps = warmup;
      c.lr_scheduler.decay_ratio = ratio;
    });
  };
  EXPECT_THAT(wsd(2, 0.8), IsEmpty());
  EXPECT_THAT(wsd(3, 0.8), ElementsAre(HasSubstr("cut to 7 steps")));
  EXPECT_THAT(wsd(8, 0.25), IsEmpty());  // 2.5 steps round to the even 2, as in Python
  EXPECT_THAT(fault([](JobConfig& c) { c.lr_scheduler.total_steps = 9999; }),
              AllOf(HasSubstr("lr_scheduler.total_steps (9999)"), HasSubstr("training.steps (10000)")));
  EXPECT_EQ(fault([](JobConfig& c) { c.lr_scheduler.total_steps = 20000; }), "no error");
}

TEST(Validate, FusedAttentionIsNotForFloat32) {
  const auto with = [](const char* attention, const char* dtype) {
    return fault([&](JobConfig& c) {
      c.cuda.attention = attention;
      c.training.mixed_precision_param = dtype;
    });
  };
  EXPECT_THAT(with("cudnn", "float32"), HasSubstr("cuda.attention = \"cudnn\" takes bfloat16 and float16"));
  EXPECT_THAT(with("flash", "float32"), HasSubstr("use \"auto\""));
  EXPECT_EQ(with("efficient", "float32"), "no error");
  EXPECT_EQ(with("flash", "bfloat16"), "no error");
}

TEST(Validate, RollingBackNeedsCheckpoints) {
  const auto rollback = [](JobConfig& c) { c.training.on_nan = "rollback"; };
  EXPECT_THAT(fault(rollback), HasSubstr("set checkpoint.enable = true"));
  EXPECT_EQ(fault([&](JobConfig& c) {
              rollback(c);
              c.checkpoint.enable = true;
            }),
            "no error");
  EXPECT_THAT(fault([&](JobConfig& c) {
                rollback(c);
                c.checkpoint.enable = c.checkpoint.load_only = true;
              }),
              HasSubstr("checkpoint.load_only forbids"));
  EXPECT_THAT(fault([&](JobConfig& c) {
                rollback(c);
                c.checkpoint.enable = true;
                c.training.mixed_precision_param = "float16";
              }),
              HasSubstr("not for float16"));
}

TEST(Validate, CopiesInMemory) {
  EXPECT_THAT(fault([](JobConfig& c) { c.checkpoint.memory_interval = 2; }),
              HasSubstr("needs checkpoint.enable = true"));
  const auto copies = [](JobConfig& c) { c.checkpoint.memory_interval = c.checkpoint.enable = 1; };
  EXPECT_EQ(fault(copies), "no error");
  EXPECT_THAT(fault([&](JobConfig& c) {
                copies(c);
                c.checkpoint.load_only = true;
              }),
              HasSubstr("checkpoint.load_only forbids them"));
}

// The limit is that of one rank: ranks share a sequence, and a pipeline has a part of the batch at a time.
TEST(Validate, TokensOfAMicrobatchOnARank) {
  const auto long_sequences = [](JobConfig& c) {
    c.training.local_batch_size = 16;
    c.training.seq_len = 10 << 20;
  };
  EXPECT_THAT(fault(long_sequences), HasSubstr("training.local_batch_size (16) * training.seq_len (10485760) tokens"));
  EXPECT_EQ(fault(
                [&](JobConfig& c) {
                  long_sequences(c);
                  c.parallelism.context_parallel_degree = 2;
                },
                2),
            "no error");
  EXPECT_EQ(fault(
                [&](JobConfig& c) {
                  long_sequences(c);
                  c.parallelism.pipeline_parallel_degree = 2;
                },
                2),
            "no error");
  EXPECT_THAT(fault([](JobConfig& c) {
                c.validation.enable = true;
                c.validation.local_batch_size = 1 << 17;
              }),
              HasSubstr("validation.local_batch_size (131072) * validation.seq_len (2048) tokens"));
}

TEST(Validate, TokensOfAStepFitInto64Bits) {
  const auto step = [](std::int64_t sequences) {
    return fault([=](JobConfig& c) {
      c.training.local_batch_size = 1;
      c.training.seq_len = 1 << 11;
      c.training.global_batch_size = sequences;
    });
  };
  EXPECT_EQ(step(std::int64_t{1} << 36), "no error");
  EXPECT_THAT(step((std::int64_t{1} << 36) + 1), HasSubstr("tokens are more than a step can have, 140737488355328"));
}

TEST(Validate, Checkpoint) {
  EXPECT_THAT(fault([](JobConfig& c) { c.checkpoint.keep_latest_k = 1; }), HasSubstr("use 0 (keep all) or at least 2"));
  EXPECT_THAT(fault([](JobConfig& c) { c.checkpoint.create_seed_checkpoint = true; }),
              HasSubstr("needs checkpoint.enable"));
  const auto seed = [](JobConfig& c) { c.checkpoint.enable = c.checkpoint.create_seed_checkpoint = true; };
  EXPECT_EQ(fault(seed), "no error");
  EXPECT_EQ(fault(seed, 2), "no error");  // the weights do not depend on the number of ranks
  EXPECT_THAT(fault([](JobConfig& c) {
                c.checkpoint.enable = c.checkpoint.create_seed_checkpoint = c.checkpoint.load_only = true;
              }),
              HasSubstr("checkpoint.load_only"));
  const auto full_save = [](auto member, auto value) {
    return fault([=](JobConfig& c) {
      c.checkpoint.last_save_model_only = c.checkpoint.initial_load_model_only = false;
      c.checkpoint.*member = value;
    });
  };
  EXPECT_THAT(full_save(&Checkpoint::export_dtype, "bfloat16"),
              HasSubstr("checkpoint.export_dtype = \"bfloat16\" needs"));
  EXPECT_THAT(full_save(&Checkpoint::last_save_in_hf, true), HasSubstr("checkpoint.last_save_in_hf needs"));
  EXPECT_THAT(full_save(&Checkpoint::initial_load_in_hf, true), HasSubstr("checkpoint.initial_load_in_hf needs"));
  EXPECT_THAT(full_save(&Checkpoint::last_save_as, "file"), HasSubstr("checkpoint.last_save_as = \"file\" needs"));
  EXPECT_THAT(fault([](JobConfig& c) {
                c.checkpoint.last_save_as = "file";
                c.checkpoint.last_save_in_hf = true;
              }),
              HasSubstr("two formats of the last checkpoint"));
  EXPECT_THAT(warnings([](JobConfig& c) {
                c.checkpoint.initial_load_path = "p";
                c.checkpoint.load_step = 3;
                c.checkpoint.load_only = true;
              }),
              ElementsAre(HasSubstr("initial_load_path"), HasSubstr("load_step"), HasSubstr("load_only")));
}

TEST(Validate, ANewOptimizerInTheMiddleOfTheSchedule) {
  const auto without = [](StringList parts) {
    return warnings([=](JobConfig& c) {
      c.checkpoint.enable = true;
      c.checkpoint.exclude_from_loading = parts;
    });
  };
  EXPECT_THAT(without({"optimizer"}),
              ElementsAre(HasSubstr("exclude_from_loading has optimizer, but not lr_scheduler")));
  EXPECT_THAT(without({"optimizer", "lr_scheduler"}), IsEmpty());
  EXPECT_THAT(without({"lr_scheduler"}), IsEmpty());
}

TEST(Validate, Shape) {
  const auto shape = [](std::int64_t dim, std::int64_t heads, std::int64_t kv_heads) {
    return fault([=](JobConfig& c) {
      c.model.args.dim = dim;
      c.model.args.n_heads = heads;
      c.model.args.n_kv_heads = kv_heads;
    });
  };
  EXPECT_EQ(shape(64, 4, 2), "no error");
  EXPECT_THAT(shape(64, 4, 3), HasSubstr("n_heads (4) must be a multiple of model.args.n_kv_heads (3)"));
  EXPECT_THAT(shape(66, 4, 2), HasSubstr("the next one is 68"));
  EXPECT_THAT(shape(60, 4, 2), HasSubstr("must be even: rotary embedding turns pairs; set model.args.dim to 64"));
  EXPECT_THAT(shape(64, 12, 5), HasSubstr("nearest number of key/value heads is 4"));
  const auto heads = [](std::int64_t num_heads, std::int64_t degree) {
    return fault([=](JobConfig& c) {
      c.model.args.n_kv_heads = num_heads;
      c.parallelism.tensor_parallel_degree = degree;
      c.training.seq_len = 64;
    });
  };
  EXPECT_THAT(heads(8, 12), HasSubstr("model.args.n_kv_heads (8) must be a multiple of "
                                      "parallelism.tensor_parallel_degree (12), as each rank has whole heads; set the "
                                      "degree to 4"));
  EXPECT_THAT(heads(8, 4), ::testing::Not(HasSubstr("whole heads")));
  EXPECT_THAT(fault([](JobConfig& c) {
                c.model.args.rope_scaling_args.low_freq_factor = 4;
                c.model.args.rope_scaling_args.high_freq_factor = 4;
              }),
              HasSubstr("low_freq_factor (4.0) must be less than"));
}

TEST(Validate, HeldOutSet) {
  const auto with = [](std::int64_t seq_len) {
    return fault([=](JobConfig& c) {
      c.validation.enable = true;
      c.validation.seq_len = seq_len;
      c.training.seq_len = 64;
    });
  };
  EXPECT_EQ(with(64), "no error");
  EXPECT_THAT(with(66), HasSubstr("validation.seq_len (66) is more than training.seq_len (64)"));
}

TEST(Validate, IntervalsLongerThanTheRun) {
  const auto with = [](std::int64_t steps) {
    return warnings([=](JobConfig& c) {
      c.training.steps = steps;
      c.lr_scheduler.warmup_steps = 0;
      c.checkpoint.enable = c.validation.enable = true;
      c.checkpoint.interval = c.validation.freq = 20;
      c.validation.dataset_path = "held_out.jsonl";
    });
  };
  EXPECT_THAT(with(20), IsEmpty());
  EXPECT_THAT(with(19), ElementsAre(AllOf(HasSubstr("checkpoint.interval (20)"), HasSubstr("training.steps (19)")),
                                    AllOf(HasSubstr("validation.freq (20)"), HasSubstr("training.steps (19)"))));
}

TEST(Validate, AllErrorsAtOnce) {
  const std::string error = fault(
      [](JobConfig& c) {
        c.training.seq_len = 3;
        c.checkpoint.keep_latest_k = 1;
        c.parallelism.data_parallel_shard_degree = 3;
      },
      2);
  EXPECT_THAT(error, AllOf(HasSubstr("seq_len"), HasSubstr("keep_latest_k"), HasSubstr("data_parallel_shard_degree")));
}

}  // namespace
}  // namespace titan::config
