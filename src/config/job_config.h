// Every knob of a training run: one struct per TOML table, one member per key.
//
// Names, nesting and defaults are TorchTitan 0.2.2's, so its TOML files load here. Ours on top: the table [model.args]
// and the keys training.device, .dataset_mix, .data_order, .on_bad_record and .on_nan. One default differs:
// model.hf_assets_path, because TorchTitan's names a folder of its own tests. An absent (nullopt) value is `None` on
// the command line; TOML has no spelling for it but leaving the key out. Which keys this program carries out, and the
// values each one allows, are in fields.h; a value read by load.h has been checked against both. Choices are strings,
// spelled as in TOML.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace titan::config {

struct Job {
  std::optional<std::string> config_file;       // TOML file this configuration was read from
  std::string dump_folder = "./outputs";        // folder for everything the run writes
  std::string description = "default job";      // free text, for people
  bool print_config = false;                    // log the resolved configuration at the start
  std::optional<std::string> save_config_file;  // further copy of the resolved configuration, under dump_folder
  std::string custom_config_module;             // Python module with further options

  bool operator==(const Job&) const = default;
};

struct Profiling {
  bool enable_profiling = false;                                // collect profiler traces
  std::string save_traces_folder = "profile_traces";            // where traces go, under dump_folder
  std::int64_t profile_freq = 10;                               // steps of one profiling cycle
  std::int64_t profiler_active = 1;                             // steps recorded in each cycle
  std::int64_t profiler_warmup = 3;                             // warm-up steps before the recorded ones
  bool enable_memory_snapshot = false;                          // dump device memory snapshots
  std::string save_memory_snapshot_folder = "memory_snapshot";  // where snapshots go, under dump_folder

  bool operator==(const Profiling&) const = default;
};

struct Metrics {
  std::int64_t log_freq = 10;           // steps between two logged rows
  bool enable_tensorboard = false;      // also write TensorBoard files
  bool disable_color_printing = false;  // plain console output
  std::string save_tb_folder = "tb";    // where TensorBoard files go, under dump_folder
  bool save_for_all_ranks = false;      // TensorBoard files of every rank, not of one
  bool enable_wandb = false;            // also log to Weights & Biases

  bool operator==(const Metrics&) const = default;
};

// [model.args.rope_scaling_args]: Llama 3.1's stretching of RoPE frequencies. What is absent comes from the flavor.
struct RopeScalingArgs {
  std::optional<double> scaling_factor;                          // divisor of low frequencies
  std::optional<double> low_freq_factor;                         // wavelengths above original/low are fully scaled
  std::optional<double> high_freq_factor;                        // wavelengths below original/high are left alone
  std::optional<std::int64_t> original_max_position_embeddings;  // context length of the unscaled model, tokens

  bool operator==(const RopeScalingArgs&) const = default;
};

// [model.args]: overrides of the flavor's shape. What is absent comes from the flavor.
struct ModelArgs {
  std::optional<std::int64_t> dim;            // width of the residual stream
  std::optional<std::int64_t> n_layers;       // transformer blocks
  std::optional<std::int64_t> n_heads;        // query heads
  std::optional<std::int64_t> n_kv_heads;     // key/value heads; divides n_heads
  std::optional<std::int64_t> vocab_size;     // rows of the embedding
  std::optional<std::int64_t> multiple_of;    // the feed-forward width is rounded up to a multiple of this
  std::optional<double> ffn_dim_multiplier;   // scales the feed-forward width before rounding
  std::optional<double> norm_eps;             // epsilon of RMSNorm
  std::optional<double> rope_theta;           // base of the RoPE frequencies
  std::optional<std::int64_t> max_seq_len;    // longest sequence the model is made for, tokens
  std::optional<bool> depth_init;             // initial std of output projections by layer depth, not by model depth
  std::optional<std::string> attn_mask_type;  // causal, or block_causal: attention within documents alone
  RopeScalingArgs rope_scaling_args;

  bool operator==(const ModelArgs&) const = default;
};

struct Model {
  std::string name = "llama3";                        // which model
  std::string flavor = "debugmodel";                  // which size of it
  std::string hf_assets_path = "./assets/tokenizer";  // folder with tokenizer.model or tokenizer.json
  std::optional<std::string> tokenizer_path;          // deprecated: when set, load.h copies it over hf_assets_path
  std::vector<std::string> converters;                // conversions applied to the built model, for example float8
  bool print_after_conversion = false;                // print the model after the conversions
  ModelArgs args;

  bool operator==(const Model&) const = default;
};

struct Optimizer {
  std::string name = "AdamW";            // which optimizer
  double lr = 8e-4;                      // peak learning rate
  double beta1 = 0.9;                    // decay of the first moment
  double beta2 = 0.95;                   // decay of the second moment
  double eps = 1e-8;                     // added to the root of the second moment
  double weight_decay = 0.1;             // decoupled weight decay, of every parameter
  std::string implementation = "fused";  // fused, foreach or for-loop
  bool early_step_in_backward = false;   // step each parameter as soon as its gradient is ready

  bool operator==(const Optimizer&) const = default;
};

struct LRScheduler {
  std::int64_t warmup_steps = 200;          // steps of linear warm-up
  std::optional<std::int64_t> total_steps;  // steps the schedule spans; absent: training.steps
  std::optional<double> decay_ratio;        // part of the schedule that decays; absent: all after the warm-up
  std::string decay_type = "linear";        // linear, sqrt or cosine
  double min_lr_factor = 0.0;               // factor the decay ends at, of optimizer.lr

  bool operator==(const LRScheduler&) const = default;
};

// [training.dataloader], [validation.dataloader]
struct DataLoader {
  std::int64_t num_workers = 0;                 // loading processes
  bool persistent_workers = false;              // keep them between epochs
  bool pin_memory = false;                      // batches in page-locked memory
  std::optional<std::int64_t> prefetch_factor;  // batches loaded ahead by each worker

  bool operator==(const DataLoader&) const = default;
};

struct Training {
  std::string dataset = "c4_test";                 // kind of data
  std::optional<std::string> dataset_path;         // file or folder with the data
  std::vector<std::string> dataset_mix;            // ours: "WEIGHT KIND PATH" of several datasets, instead of those two
  std::string data_order = "auto";                 // ours: torchtitan, elastic; auto: elastic but for c4_test
  std::string on_bad_record = "error";             // ours: error or skip, for a record that cannot be used
  std::string on_nan = "stop";                     // ours: or warn, where loss or gradients are no numbers any more
  std::int64_t local_batch_size = 8;               // sequences of one microbatch on one rank
  std::int64_t global_batch_size = -1;             // sequences of one step over all ranks; -1: no accumulation
  std::int64_t seq_len = 2048;                     // tokens of one sequence
  double max_norm = 1.0;                           // gradients are clipped to this L2 norm
  std::int64_t steps = 10000;                      // optimizer steps to run
  bool enable_cpu_offload = false;                 // keep shards, gradients and optimizer state on the host
  std::string dtype = "float32";                   // dtype of parameters and optimizer state
  std::string mixed_precision_param = "bfloat16";  // dtype of the forward and backward pass
  std::string mixed_precision_reduce = "float32";  // dtype of gradient reductions
  std::int64_t gc_freq = 50;                       // steps between two runs of Python's garbage collector
  bool gc_debug = false;                           // Python garbage collector debugging
  std::string device = "auto";                     // ours: auto, cpu or cuda
  DataLoader dataloader;

  bool operator==(const Training&) const = default;
};

struct Parallelism {
  std::int64_t data_parallel_replicate_degree = 1;     // copies of the weights (DDP, HSDP)
  std::int64_t data_parallel_shard_degree = -1;        // ranks that share one copy (FSDP); -1: all that are left
  std::string fsdp_reshard_after_forward = "default";  // default, always, never, or a number of ranks
  std::int64_t tensor_parallel_degree = 1;             // ranks that share each matrix product
  bool disable_loss_parallel = false;                  // gather the logits before the loss
  bool enable_async_tensor_parallel = false;           // overlap tensor-parallel collectives with products
  std::int64_t pipeline_parallel_degree = 1;           // ranks that share the stack of layers
  std::optional<std::vector<std::vector<std::string>>> module_fqns_per_model_part;  // modules of each pipeline stage
  std::int64_t pipeline_parallel_first_stage_less_layers = 1;                       // layers less in the first stage
  std::int64_t pipeline_parallel_last_stage_less_layers = 1;                        // layers less in the last stage
  std::optional<std::int64_t> pipeline_parallel_layers_per_stage;                   // layers of each stage
  std::string pipeline_parallel_schedule = "1F1B";                         // order of forward and backward microbatches
  std::optional<std::string> pipeline_parallel_schedule_csv = "";          // file with a schedule
  std::int64_t pipeline_parallel_microbatch_size = 1;                      // sequences of one pipeline microbatch
  bool pipeline_parallel_expert_parallel_overlap = true;                   // overlap pipeline with expert communication
  std::int64_t context_parallel_degree = 1;                                // ranks that share each sequence
  std::optional<std::string> context_parallel_load_balancer = "headtail";  // how a sequence is dealt out
  std::string context_parallel_rotate_method = "allgather";                // allgather or alltoall of keys and values
  std::int64_t expert_parallel_degree = 1;                                 // ranks that share the experts
  std::int64_t expert_tensor_parallel_degree = 1;                          // ranks that share each expert
  std::string expert_parallel_comm_backend = "standard";                   // standard or deepep

  bool operator==(const Parallelism&) const = default;
};

struct Checkpoint {
  bool enable = false;                            // save and load checkpoints
  bool enable_ft_dataloader_checkpoints = true;   // data position in checkpoints of fault-tolerant runs
  std::string folder = "checkpoint";              // where checkpoints go, under job.dump_folder
  std::int64_t interval = 500;                    // steps between two checkpoints
  double interval_minutes = 0;                    // also after so many minutes without one; 0: never
  std::optional<std::string> initial_load_path;   // checkpoint to start from while `folder` does not exist
  bool initial_load_model_only = true;            // take only the weights from it
  bool initial_load_in_hf = false;                // it is in Hugging Face's safetensors format
  bool initial_load_in_hf_quantized = false;      // and its weights are quantized
  bool last_save_model_only = true;               // the last checkpoint has only weights; it cannot be resumed from
  bool last_save_in_hf = false;                   // the last checkpoint is in Hugging Face's safetensors format
  std::string export_dtype = "float32";           // dtype of a last checkpoint that has only weights
  std::string async_mode = "disabled";            // disabled, async or async_with_pinned_mem
  std::int64_t files_per_rank = 1;                // that a rank writes at the same time
  std::string on_save_error = "stop";             // or warn
  std::int64_t keep_latest_k = 10;                // older checkpoints are deleted; 0 keeps all
  std::int64_t load_step = -1;                    // step to load; -1: the latest
  std::vector<std::string> allow_changed;         // keys that may differ from the checkpoint's run
  std::vector<std::string> exclude_from_loading;  // parts not to load: optimizer, lr_scheduler, dataloader, ...
  bool enable_first_step_checkpoint = false;      // also save after step 1
  bool create_seed_checkpoint = false;            // save the initial weights as step 0 and exit
  bool load_only = false;                         // load, never save

  bool operator==(const Checkpoint&) const = default;
};

struct ActivationCheckpoint {
  std::string mode = "selective";         // none, selective, full or memory_budget
  std::string selective_ac_option = "2";  // every how many blocks; "op": per operator
  std::vector<std::string> per_op_sac_force_recompute_mm_shapes_by_fqns = {"moe.router.gate"};  // for "op"
  bool early_stop = false;                      // stop recomputing once all is there
  double memory_budget = 0.5;                   // 0: as full, 1: as none; for memory_budget
  bool visualize_memory_budget_pareto = false;  // plot the trade-off of memory_budget
  bool preserve_rng_state = true;               // recompute with the random state of the forward pass
  std::string determinism_check = "default";    // how recomputed tensors are compared
  bool debug = false;                           // an error of determinism_check lists both passes

  bool operator==(const ActivationCheckpoint&) const = default;
};

struct Compile {
  bool enable = false;                                      // torch.compile
  std::vector<std::string> components = {"model", "loss"};  // what to compile
  std::string backend = "inductor";                         // compiler backend

  bool operator==(const Compile&) const = default;
};

// [quantize.linear.float8]
struct Float8Linear {
  bool enable_fsdp_float8_all_gather = false;             // gather weights in float8
  bool precompute_float8_dynamic_scale_for_fsdp = false;  // one reduction for all scales
  std::optional<std::string> recipe_name;                 // tensorwise, rowwise or rowwise_with_gw_hp
  std::vector<std::string> filter_fqns;                   // linear layers left alone
  bool emulate = false;                                   // compute in high precision

  bool operator==(const Float8Linear&) const = default;
};

// [quantize.linear.mx]
struct MXLinear {
  std::string mxfp8_dim1_cast_kernel_choice = "triton";  // triton, cuda or torch
  std::string recipe_name = "mxfp8_cublas";              // recipe
  std::vector<std::string> filter_fqns = {"output"};     // linear layers left alone

  bool operator==(const MXLinear&) const = default;
};

// [quantize.grouped_mm.float8]
struct Float8GroupedMM {
  std::vector<std::string> fqns;  // expert layers to quantize

  bool operator==(const Float8GroupedMM&) const = default;
};

// [quantize.grouped_mm.mx]
struct MXGroupedMM {
  std::string recipe_name = "mxfp8";  // recipe
  std::vector<std::string> fqns;      // expert layers to quantize

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
  std::int64_t init_timeout_seconds = 300;         // timeout of communication up to the end of the first step
  std::int64_t train_timeout_seconds = 100;        // timeout after it
  std::int64_t trace_buf_size = 20000;             // entries of the flight recorder; 0: off
  std::string save_traces_folder = "comm_traces";  // where its traces go, under job.dump_folder
  std::string save_traces_file_prefix = "rank_";   // start of their names
  std::string mode = "default";                    // default, fake_backend or local_tensor

  bool operator==(const Comm&) const = default;
};

struct MemoryEstimation {
  bool enable = false;             // estimate memory instead of training
  bool disable_fake_mode = false;  // with real tensors

  bool operator==(const MemoryEstimation&) const = default;
};

struct FaultTolerance {
  bool enable = false;                            // TorchFT
  std::string process_group = "gloo";             // its backend
  std::int64_t process_group_timeout_ms = 10000;  // its timeout
  std::int64_t replica_id = 0;                    // replica this process belongs to
  std::int64_t group_size = 0;                    // replicas
  std::int64_t min_replica_size = 1;              // replicas a step needs
  std::optional<std::string> semi_sync_method;    // local_sgd or diloco

  bool operator==(const FaultTolerance&) const = default;
};

struct Experimental {
  std::string custom_import;       // Python module to import
  std::string custom_args_module;  // Python module with further options

  bool operator==(const Experimental&) const = default;
};

struct Validation {
  bool enable = false;                      // evaluate during training
  std::string dataset = "c4_validation";    // kind of data
  std::optional<std::string> dataset_path;  // file or folder with the data
  std::int64_t local_batch_size = 8;        // sequences of one batch on one rank
  std::int64_t seq_len = 2048;              // tokens of one sequence
  std::int64_t freq = 10;                   // steps between two evaluations
  std::int64_t steps = -1;                  // batches of one evaluation; -1: all the data
  std::vector<std::string> prompts;         // texts that the model continues now and then
  std::int64_t prompt_tokens = 32;          // tokens of each continuation at most
  DataLoader dataloader;

  bool operator==(const Validation&) const = default;
};

struct Debug {
  std::optional<std::int64_t>
      seed;                    // fixes initialization and data order; absent: drawn anew for each run, data as with 0
  bool deterministic = false;  // two runs are equal to the last bit
  bool deterministic_warn_only = false;  // only warn where an operator has no deterministic form
  bool moe_force_load_balance = false;   // deal tokens to experts in turn

  bool operator==(const Debug&) const = default;
};

// [cpu]: not a table of TorchTitan
struct Cpu {
  std::string kernels = "own";               // whose fused operators: this program's, or PyTorch's
  std::string mkl_path = "by_instructions";  // how MKL chooses its code for float32 products

  bool operator==(const Cpu&) const = default;
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
  Debug debug;
  Cpu cpu;

  bool operator==(const JobConfig&) const = default;
};

}  // namespace titan::config
