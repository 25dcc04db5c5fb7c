// All settings of a training run: one struct per TOML table, one member per key.
//
// Names, nesting and defaults are TorchTitan 0.2.2's, so its TOML files load here. One default differs:
// model.hf_assets_path, because TorchTitan's names a folder of its own tests. keys/fields.cpp is the only place that
// says what each key means, which values it allows, whether this program supports it and whether TorchTitan has it;
// this file has names, types, defaults and units. load.h checks every value against that table. An absent (nullopt)
// value is `None` on the command line; in TOML, leave the key out. Choices are strings, spelled as in TOML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::config {

struct Job {
  std::optional<std::string> config_file;
  std::string dump_folder = "./outputs";
  std::string description = "default job";
  bool print_config = false;
  std::optional<std::string> save_config_file;
  std::string custom_config_module;

  bool operator==(const Job&) const = default;
};

struct Profiling {
  bool enable_profiling = false;
  std::string save_traces_folder = "profile_traces";
  std::int64_t profile_freq = 10;    // steps
  std::int64_t profiler_active = 1;  // steps
  std::int64_t profiler_warmup = 3;  // steps
  bool enable_memory_snapshot = false;
  std::string save_memory_snapshot_folder = "memory_snapshot";
  std::string ranks = "all";

  bool operator==(const Profiling&) const = default;
};

struct Metrics {
  std::int64_t log_freq = 10;  // steps
  bool enable_tensorboard = false;
  bool disable_color_printing = false;
  std::string save_tb_folder = "tb";
  bool save_for_all_ranks = false;
  bool enable_wandb = false;
  bool enable_csv = false;
  bool gradient_histograms = false;

  bool operator==(const Metrics&) const = default;
};

// [model.args.rope_scaling_args]
struct RopeScalingArgs {
  std::optional<double> scaling_factor;
  std::optional<double> low_freq_factor;
  std::optional<double> high_freq_factor;
  std::optional<std::int64_t> original_max_position_embeddings;  // tokens
  std::optional<std::string> type;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;
  std::optional<double> attention_factor;

  bool operator==(const RopeScalingArgs&) const = default;
};

// [model.args]
struct ModelArgs {
  std::optional<std::int64_t> dim;
  std::optional<std::int64_t> n_layers;
  std::optional<std::int64_t> n_heads;
  std::optional<std::int64_t> n_kv_heads;
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> multiple_of;
  std::optional<double> ffn_dim_multiplier;
  std::optional<double> norm_eps;
  std::optional<double> rope_theta;
  std::optional<std::int64_t> max_seq_len;  // tokens
  std::optional<bool> depth_init;
  std::optional<bool> enable_weight_tying;
  std::optional<std::int64_t> head_dim;
  std::optional<std::int64_t> hidden_dim;  // width of the feed-forward
  std::optional<bool> qk_norm;
  std::optional<bool> qkv_bias;
  std::optional<std::int64_t> no_rope_layer_interval;  // blocks
  std::optional<std::string> attn_mask_type;
  RopeScalingArgs rope_scaling_args;

  bool operator==(const ModelArgs&) const = default;
};

struct Model {
  std::string name = "llama3";
  std::string flavor = "debugmodel";
  std::optional<std::string> from;
  std::string hf_assets_path = "./assets/tokenizer";
  std::optional<std::string> tokenizer_path;
  std::vector<std::string> converters;
  bool print_after_conversion = false;
  ModelArgs args;

  bool operator==(const Model&) const = default;
};

struct Optimizer {
  std::string name = "AdamW";
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::optional<std::string> state_dtype;
  std::vector<std::string> no_decay;
  std::vector<std::string> lr_factors;
  std::string implementation = "fused";
  bool early_step_in_backward = false;

  bool operator==(const Optimizer&) const = default;
};

struct LRScheduler {
  std::int64_t warmup_steps = 200;
  std::optional<std::int64_t> total_steps;
  std::optional<double> decay_ratio;
  std::string decay_type = "linear";
  double min_lr_factor = 0.0;

  bool operator==(const LRScheduler&) const = default;
};

// [training.dataloader], [validation.dataloader]
struct DataLoader {
  std::int64_t num_workers = 0;
  bool persistent_workers = false;
  bool pin_memory = false;
  std::optional<std::int64_t> prefetch_factor;  // batches

  bool operator==(const DataLoader&) const = default;
};

struct Training {
  std::string dataset = "c4_test";
  std::optional<std::string> dataset_path;
  std::vector<std::string> dataset_mix;
  std::string dataset_text_key = "text";
  std::string data_order = "auto";
  std::string on_bad_record = "error";
  std::string on_nan = "stop";
  std::string on_spike = "warn";
  std::int64_t spike_window = 128;  // steps
  double spike_sigma = 6.0;
  std::int64_t local_batch_size = 8;    // sequences
  std::int64_t global_batch_size = -1;  // sequences
  std::int64_t seq_len = 2048;          // tokens
  double max_norm = 1.0;
  std::int64_t steps = 10000;
  bool enable_cpu_offload = false;
  std::string dtype = "float32";
  std::string mixed_precision_param = "bfloat16";
  std::string mixed_precision_reduce = "float32";
  std::int64_t gc_freq = 50;  // steps
  bool gc_debug = false;
  std::string device = "auto";
  DataLoader dataloader;

  bool operator==(const Training&) const = default;
};

struct Parallelism {
  std::int64_t data_parallel_replicate_degree = 1;
  std::int64_t data_parallel_shard_degree = -1;
  std::string fsdp_reshard_after_forward = "default";
  std::vector<std::string> fsdp_wrap = {"block"};
  std::int64_t tensor_parallel_degree = 1;
  bool disable_loss_parallel = false;
  bool enable_async_tensor_parallel = false;
  std::int64_t pipeline_parallel_degree = 1;
  std::optional<std::vector<std::vector<std::string>>> module_fqns_per_model_part;
  std::int64_t pipeline_parallel_first_stage_less_layers = 1;
  std::int64_t pipeline_parallel_last_stage_less_layers = 1;
  std::optional<std::int64_t> pipeline_parallel_layers_per_stage;
  std::string pipeline_parallel_schedule = "1F1B";
  std::optional<std::string> pipeline_parallel_schedule_csv = "";
  std::int64_t pipeline_parallel_microbatch_size = 1;  // sequences
  bool pipeline_parallel_expert_parallel_overlap = true;
  std::int64_t context_parallel_degree = 1;
  std::optional<std::string> context_parallel_load_balancer = "headtail";
  std::string context_parallel_rotate_method = "allgather";
  std::int64_t expert_parallel_degree = 1;
  std::int64_t expert_tensor_parallel_degree = 1;
  std::string expert_parallel_comm_backend = "standard";

  bool operator==(const Parallelism&) const = default;
};

struct Checkpoint {
  bool enable = false;
  bool enable_ft_dataloader_checkpoints = true;
  std::string folder = "checkpoint";
  std::int64_t interval = 500;  // steps
  double interval_minutes = 0;
  std::optional<std::string> initial_load_path;
  bool initial_load_model_only = true;
  bool initial_load_in_hf = false;
  bool initial_load_in_hf_quantized = false;
  bool last_save_model_only = true;
  bool last_save_in_hf = false;
  std::string last_save_as = "dcp";
  std::string export_dtype = "float32";
  std::string async_mode = "disabled";
  std::int64_t files_per_rank = 1;
  std::string on_save_error = "stop";
  std::int64_t keep_latest_k = 10;
  std::int64_t memory_interval = 0;  // steps
  std::string memory_folder = "/dev/shm/titan-train";
  std::int64_t load_step = -1;
  bool allow_export_overflow = false;
  std::vector<std::string> allow_changed;
  std::vector<std::string> exclude_from_loading;
  bool enable_first_step_checkpoint = false;
  bool create_seed_checkpoint = false;
  bool load_only = false;

  bool operator==(const Checkpoint&) const = default;
};

struct ActivationCheckpoint {
  std::string mode = "selective";
  std::string selective_ac_option = "2";
  std::vector<std::string> per_op_sac_force_recompute_mm_shapes_by_fqns = {"moe.router.gate"};
  bool early_stop = false;
  double memory_budget = 0.5;
  bool visualize_memory_budget_pareto = false;
  bool preserve_rng_state = true;
  std::string determinism_check = "default";
  bool debug = false;

  bool operator==(const ActivationCheckpoint&) const = default;
};

struct Compile {
  bool enable = false;
  std::vector<std::string> components = {"model", "loss"};
  std::string backend = "inductor";

  bool operator==(const Compile&) const = default;
};

// [quantize.linear.float8]
struct Float8Linear {
  bool enable_fsdp_float8_all_gather = false;
  bool precompute_float8_dynamic_scale_for_fsdp = false;
  std::optional<std::string> recipe_name;
  std::vector<std::string> filter_fqns;
  bool emulate = false;

  bool operator==(const Float8Linear&) const = default;
};

// [quantize.linear.mx]
struct MXLinear {
  std::string mxfp8_dim1_cast_kernel_choice = "triton";
  std::string recipe_name = "mxfp8_cublas";
  std::vector<std::string> filter_fqns = {"output"};

  bool operator==(const MXLinear&) const = default;
};

// [quantize.grouped_mm.float8]
struct Float8GroupedMM {
  std::vector<std::string> fqns;

  bool operator==(const Float8GroupedMM&) const = default;
};

// [quantize.grouped_mm.mx]
struct MXGroupedMM {
  std::string recipe_name = "mxfp8";
  std::vector<std::string> fqns;

  bool operator==(const MXGroupedMM&) const = default;
};

struct QuantizedLinear {
  Float8Linear float8;
  MXLinear mx;

  bool operator==(const QuantizedLinear&) const = default;
};

struct QuantizedGroupedMM {
  Float8GroupedMM float8;
  MXGroupedMM mx;

  bool operator==(const QuantizedGroupedMM&) const = default;
};

struct Quantize {
  QuantizedLinear linear;
  QuantizedGroupedMM grouped_mm;

  bool operator==(const Quantize&) const = default;
};

struct Comm {
  std::int64_t init_timeout_seconds = 300;
  std::int64_t train_timeout_seconds = 100;
  std::int64_t trace_buf_size = 20000;  // entries
  std::string save_traces_folder = "comm_traces";
  std::string save_traces_file_prefix = "rank_";
  std::string mode = "default";

  bool operator==(const Comm&) const = default;
};

struct MemoryEstimation {
  bool enable = false;
  bool disable_fake_mode = false;

  bool operator==(const MemoryEstimation&) const = default;
};

struct FaultTolerance {
  bool enable = false;
  std::string process_group = "gloo";
  std::int64_t process_group_timeout_ms = 10000;
  std::int64_t replica_id = 0;
  std::int64_t group_size = 0;
  std::int64_t min_replica_size = 1;
  std::optional<std::string> semi_sync_method;

  bool operator==(const FaultTolerance&) const = default;
};

struct Experimental {
  std::string custom_import;
  std::string custom_args_module;

  bool operator==(const Experimental&) const = default;
};

struct Validation {
  bool enable = false;
  std::string dataset = "c4_validation";
  std::optional<std::string> dataset_path;
  std::string dataset_text_key = "text";
  std::int64_t local_batch_size = 8;  // sequences
  std::int64_t seq_len = 2048;        // tokens
  std::int64_t freq = 10;             // steps
  std::int64_t steps = -1;
  bool at_last_step = false;
  std::vector<std::string> prompts = {};
  std::int64_t prompt_tokens = 32;
  DataLoader dataloader = {};

  bool operator==(const Validation&) const = default;
};

struct Chat {
  std::optional<std::string> chat_template;
  std::string too_long = "error";
  std::string loss_weight = "token";

  bool operator==(const Chat&) const = default;
};

struct Lora {
  std::int64_t rank = 0;
  std::optional<double> alpha;
  double dropout = 0;
  std::vector<std::string> targets = {"layers.*"};
  std::optional<std::string> base_dtype;

  bool operator==(const Lora&) const = default;
};

struct Evaluation {
  std::vector<std::string> tasks;
  std::int64_t freq = 500;  // steps
  bool at_last_step = true;
  std::int64_t local_batch_size = 8;  // sequences
  std::optional<std::int64_t> limit;  // items of each task
  std::int64_t num_fewshot = 0;       // items

  bool operator==(const Evaluation&) const = default;
};

struct Debug {
  std::optional<std::int64_t> seed;
  bool deterministic = false;
  bool deterministic_warn_only = false;
  bool moe_force_load_balance = false;
  std::int64_t checksum_freq = 0;      // steps
  std::int64_t memory_check_freq = 0;  // steps

  bool operator==(const Debug&) const = default;
};

struct Cpu {
  std::string kernels = "own";
  std::string mkl_path = "by_instructions";
  std::string instructions = "all";

  bool operator==(const Cpu&) const = default;
};

struct Cuda {
  std::string kernels = "aten";
  std::string attention = "auto";

  bool operator==(const Cuda&) const = default;
};

struct JobConfig {
  Job job;
  Profiling profiling;
  Metrics metrics;
  Model model;
  Optimizer optimizer;
  LRScheduler lr_scheduler;
  Training training;
  Parallelism parallelism;
  Checkpoint checkpoint;
  ActivationCheckpoint activation_checkpoint;
  Compile compile;
  Quantize quantize;
  Comm comm;
  MemoryEstimation memory_estimation;
  FaultTolerance fault_tolerance;
  Experimental experimental;
  Validation validation;
  Chat chat;
  Lora lora;
  Evaluation evaluation;
  Debug debug;
  Cpu cpu;
  Cuda cuda;

  bool operator==(const JobConfig&) const = default;
};

}  // namespace titan::config
