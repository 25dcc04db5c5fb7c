#include "config/command_line/program.h"
#include "config/load.h"
#include "models/catalog.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {

bool run_toml(std::string_view input) {
  static const bool knows_models = [] {
    config::Program program;
    program.check_model = models::check_model;
    program.check_plan = models::check_plan;
    config::set_program(std::move(program));
    return true;
  }();
  require(knows_models, "no models");
  return accepts([&] { config::load_job_config_text(input, "/nowhere/fuzz.toml", {}, {}, 8); });
}

Seeds toml_seeds() {
  return {{"keys", R"([job]
dump_folder = "out" # a comment
[model]
name = "llama3"
flavor = 'debugmodel'
[model.args]
dim = 64
n_layers = 2
n_heads = 4
n_kv_heads = 2
vocab_size = 128
multiple_of = 16
ffn_dim_multiplier = 1.5
[optimizer]
lr = 8e-4
eps = 1e-8
[training]
local_batch_size = 8
seq_len = 2_048
max_norm = 1.0
steps = 10
dataset = "c4_test"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
context_parallel_degree = 1
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatch_size = 2
[activation_checkpoint]
mode = "selective"
[quantize.linear.float8]
filter_fqns = ["output", "router"]
)"},
          {"tables", R"(include = []
metrics = {log_freq = 1, enable_csv = true}
training.steps = 0x10
"validation"."enable" = false
[job]
description = """
several
lines\u00e9"""
save_config_file = '''None'''
[checkpoint]
interval = +5
)"}};
}

}  // namespace titan::fuzz
