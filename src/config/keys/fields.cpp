#include "config/keys/fields.h"

#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "config/keys/largest_sizes.h"
#include "config/keys/make_field.h"
#include "facts/optimizer_facts.h"

namespace titan::config {
namespace {

#define KEY(path)                                                                     \
  detail::make_field<std::remove_cvref_t<decltype(std::declval<JobConfig&>().path)>>( \
      #path, [](const JobConfig& c) { return detail::read(c.path); },                 \
      [](JobConfig& c, const FieldValue& v) { detail::write(c.path, v); })

const Rule kAny{};
const Rule kNonEmpty{.non_empty = true};
const Rule kListOrString{.or_one_string = true};

Rule at_least(double min) { return {.min = min}; }
Rule above(double min, std::optional<double> max = {}) { return {.min = min, .max = max, .min_excluded = true}; }
Rule between(double min, double max) { return {.min = min, .max = max}; }
Rule from_below(double min, double max) { return {.min = min, .max = max, .max_excluded = true}; }  // [min, max)
Rule minus_one_or(Rule rule) {
  rule.or_minus_one = true;
  return rule;
}
Rule one_of(StringList choices, StringList not_built = {}) {
  return {.choices = std::move(choices), .choices_not_built = std::move(not_built)};
}

const Status kSupported{};
Status no_effect(std::string reason) { return {Support::kNoEffect, std::move(reason)}; }
Status needless(std::string reason) { return {Support::kNoEffect, std::move(reason), /*is_only_noted=*/true}; }
Status dormant(std::string switch_key) { return {Support::kDormant, "it only refines " + std::move(switch_key)}; }
Status not_built(std::string reason) { return {Support::kNotBuilt, std::move(reason)}; }

// [training.dataloader], [validation.dataloader]
Status one_thread() { return no_effect("one thread of each rank always loads ahead"); }
Status always_pinned() { return no_effect("batches are page-locked whenever the device is cuda"); }

class Table {
 public:
  Table() {
    add_run();
    add_model_and_optimizer();
    add_training();
    add_parallelism();
    add_checkpoint();
    add_memory_and_speed();
    add_comm();
    add_rest();
  }
  std::vector<Field> rows;

 private:
  void add(Field field, const char* doc, Rule rule, Status status) {
    field.doc = doc;
    field.rule = std::move(rule);
    field.status = std::move(status);
    rows.push_back(std::move(field));
  }

  // One line per key reads as a table.
  // clang-format off
  void add_run() {
    add(KEY(job.config_file), "TOML file to read (same as --config)", kAny, kSupported);
    add(KEY(job.dump_folder), "folder for everything the run writes", kNonEmpty, kSupported);
    add(KEY(job.description), "free text, for people", kAny, kSupported);
    add(KEY(job.print_config), "log the resolved configuration at the start", kAny, kSupported);
    add(KEY(job.save_config_file), "further copy of the resolved configuration, under dump_folder", kAny, no_effect("the resolved configuration always goes to <job.dump_folder>/config.toml"));
    add(KEY(job.custom_config_module), "Python module with further options", kAny, not_built("this program has no Python in it; models and datasets are added in C++, see CONTRIBUTING.md"));

    add(KEY(profiling.enable_profiling), "record steps with Kineto, as torch.profiler does, and write Chrome traces of them", kAny, kSupported);
    add(KEY(profiling.save_traces_folder), "where traces go, under dump_folder", kNonEmpty, kSupported);
    add(KEY(profiling.profile_freq), "steps of one profiling cycle, and between memory snapshots", at_least(1), kSupported);
    add(KEY(profiling.profiler_active), "steps recorded in each cycle", at_least(1), kSupported);
    add(KEY(profiling.profiler_warmup), "warm-up steps before the recorded ones", at_least(0), kSupported);
    add(KEY(profiling.enable_memory_snapshot), "write what the GPU's memory holds and did, for pytorch.org/memory_viz, every profile_freq steps and when it is full", kAny, kSupported);
    add(KEY(profiling.save_memory_snapshot_folder), "where snapshots go, under dump_folder", kNonEmpty, kSupported);
    add(KEY(profiling.ranks), "which ranks write traces and snapshots: all, or some, as in 0,4-7 (not a key of TorchTitan)", kNonEmpty, kSupported);

    add(KEY(metrics.log_freq), "steps between two logged rows", at_least(1), kSupported);
    add(KEY(metrics.enable_tensorboard), "also write TensorBoard files", kAny, kSupported);
    add(KEY(metrics.disable_color_printing), "plain console output", kAny, kSupported);
    add(KEY(metrics.save_tb_folder), "where TensorBoard files go, under dump_folder", kNonEmpty, kSupported);
    add(KEY(metrics.save_for_all_ranks), "TensorBoard files of every rank, in rank_N of that folder, not of one", kAny, kSupported);
    add(KEY(metrics.enable_csv), "also write metrics.csv and validation.csv (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(metrics.gradient_histograms), "also write histograms of the norms of the gradients, by layer, to the TensorBoard files (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(metrics.enable_wandb), "also log to Weights & Biases", kAny, no_effect("its files have a format of their own that changes with its versions; docs/metrics.md says how metrics.jsonl gets there"));
  }

  void add_model_and_optimizer() {
    add(KEY(model.name), "which model:", kNonEmpty, kSupported);
    add(KEY(model.flavor), "which size of it, by the name of a flavor", kNonEmpty, kSupported);
    add(KEY(model.from), "folder of a model in Hugging Face's format: its config.json has name and sizes, in place of flavor, and its weights and tokenizer are what training starts from (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(model.hf_assets_path), "folder with tokenizer.model or tokenizer.json", kNonEmpty, kSupported);
    add(KEY(model.tokenizer_path), "deprecated name of hf_assets_path; wins over it when set", kNonEmpty, kSupported);
    add(KEY(model.converters), "conversions of the built model: [\"quantize.linear.float8\"] computes the matmuls of linear layers in float8, as torchao does", kAny, kSupported);
    add(KEY(model.print_after_conversion), "print the model after the conversions", kAny, no_effect("the log says how many layers were converted"));
    add(KEY(model.args.dim), "width of the residual stream", between(1, kLargestWidth), kSupported);
    add(KEY(model.args.n_layers), "transformer blocks", between(1, kMostLayers), kSupported);
    add(KEY(model.args.n_heads), "query heads", between(1, kLargestWidth), kSupported);
    add(KEY(model.args.n_kv_heads), "key/value heads; divides n_heads", between(1, kLargestWidth), kSupported);
    add(KEY(model.args.vocab_size), "rows of the embedding", between(1, kLargestVocabulary), kSupported);
    add(KEY(model.args.multiple_of), "the feed-forward width is rounded up to a multiple of this", between(1, kLargestWidth), kSupported);
    add(KEY(model.args.ffn_dim_multiplier), "scales the feed-forward width before rounding", above(0, 1000), kSupported);
    add(KEY(model.args.norm_eps), "epsilon of RMSNorm", at_least(0), kSupported);
    add(KEY(model.args.rope_theta), "base of the RoPE frequencies", above(0), kSupported);
    add(KEY(model.args.max_seq_len), "longest sequence the model is made for, tokens", at_least(1), kSupported);
    add(KEY(model.args.enable_weight_tying), "make the output projection and the embedding one parameter, which starts with a standard deviation of dim^-0.5, not 1: use a lower learning rate (of TorchTitan's models, Qwen3 alone has it)", kAny, kSupported);
    add(KEY(model.args.head_dim), "width of a head; even (None: the flavor's, and in Llama dim / n_heads)", between(2, kLargestWidth), kSupported);
    add(KEY(model.args.hidden_dim), "width of the feed-forward (in Llama, in place of multiple_of and ffn_dim_multiplier)", between(1, kLargestHidden), kSupported);
    add(KEY(model.args.qk_norm), "normalize each head of the queries and of the keys (Qwen3)", kAny, kSupported);
    add(KEY(model.args.qkv_bias), "add a bias to queries, keys and values (Qwen2; not a key of TorchTitan)", kAny, kSupported);
    add(KEY(model.args.no_rope_layer_interval), "every so many blocks, one has no rotary embedding; 0: all blocks have it (SmolLM3; not a key of TorchTitan)", at_least(0), kSupported);
    add(KEY(model.args.depth_init), "initial std of output projections by layer depth, not by model depth", kAny, kSupported);
    add(KEY(model.args.attn_mask_type), "block_causal: a token attends to its own document alone, up to the EOS token that ends it", one_of({"causal", "block_causal"}), kSupported);
    add(KEY(model.args.rope_scaling_args.type), "how RoPE frequencies are scaled: llama3 (low frequencies alone), linear (all of them) or yarn (not a key of TorchTitan)", one_of({"llama3", "linear", "yarn"}), kSupported);
    add(KEY(model.args.rope_scaling_args.scaling_factor), "divisor of the scaled RoPE frequencies; 1: none is scaled", above(0), kSupported);
    add(KEY(model.args.rope_scaling_args.low_freq_factor), "llama3: wavelengths above original/low are fully scaled", above(0), kSupported);
    add(KEY(model.args.rope_scaling_args.high_freq_factor), "llama3: wavelengths below original/high are left alone", above(0), kSupported);
    add(KEY(model.args.rope_scaling_args.original_max_position_embeddings), "llama3 and yarn: context length of the unscaled model, tokens", at_least(1), kSupported);
    add(KEY(model.args.rope_scaling_args.beta_fast), "yarn: frequencies that turn more often in the original length are left alone (not a key of TorchTitan)", above(0), kSupported);
    add(KEY(model.args.rope_scaling_args.beta_slow), "yarn: frequencies that turn less often in the original length are fully scaled (not a key of TorchTitan)", above(0), kSupported);
    add(KEY(model.args.rope_scaling_args.attention_factor), "yarn: queries and keys are multiplied by it; None: 0.1 ln(scaling_factor) + 1 (not a key of TorchTitan)", above(0), kSupported);

    add(KEY(optimizer.name), "which optimizer", one_of(optimizer_names(), {"Adam"}), kSupported);
    add(KEY(optimizer.lr), "peak learning rate", at_least(0), kSupported);
    add(KEY(optimizer.beta1), "decay of the first moment", from_below(0, 1), kSupported);
    add(KEY(optimizer.beta2), "decay of the second moment", from_below(0, 1), kSupported);
    add(KEY(optimizer.eps), "added to the root of the second moment", at_least(0), kSupported);
    add(KEY(optimizer.weight_decay), "decoupled weight decay, of every parameter that optimizer.no_decay does not name", at_least(0), kSupported);
    add(KEY(optimizer.state_dtype), "dtype of the moments; None: that of training.dtype. bfloat16 halves their memory; each step computes in float32 and rounds them to the nearest. A change below 1/512 of a value is lost, so beta2 must be below 0.996 (docs/optimizer.md; not a key of TorchTitan)", one_of({"float32", "bfloat16"}), kSupported);
    add(KEY(optimizer.no_decay), "parameters without weight decay: the kinds norm, bias and embedding, and patterns of names (layers.*.attention.wo.*), where * is any text (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(optimizer.lr_factors), "\"PATTERN=FACTOR\" each (tok_embeddings.*=0.1): parameters whose names match learn at FACTOR times the rate of every step; the first match counts (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(optimizer.implementation), "all three give the same numbers here", one_of({"fused", "foreach", "for-loop"}), kSupported);
    add(KEY(optimizer.early_step_in_backward), "step each parameter as soon as its gradient is ready", kAny, not_built("the optimizer steps once, after clipping"));

    add(KEY(lr_scheduler.warmup_steps), "steps of linear warm-up", at_least(0), kSupported);
    add(KEY(lr_scheduler.total_steps), "steps the schedule spans; None: training.steps", at_least(1), kSupported);
    add(KEY(lr_scheduler.decay_ratio), "part of the schedule that decays; None: all after the warm-up", between(0, 1), kSupported);
    add(KEY(lr_scheduler.decay_type), "shape of the decay", one_of({"linear", "sqrt", "cosine"}), kSupported);
    add(KEY(lr_scheduler.min_lr_factor), "factor the decay ends at, of optimizer.lr", between(0, 1), kSupported);
  }

  void add_training() {
    add(KEY(training.dataset), "kind of data: text, jsonl, chat, indexed, or c4_test, c4 (JSONL in TorchTitan's order)", kNonEmpty, kSupported);
    add(KEY(training.dataset_path), "file or folder with the data", kNonEmpty, kSupported);
    add(KEY(training.dataset_text_key), "the field of JSON lines that holds the document, also of a mixture's (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(training.dataset_mix), "several datasets, \"WEIGHT KIND PATH\" each, instead of dataset and dataset_path (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(training.data_order), "order of the data; elastic: shuffled, the same at any number of ranks; auto: torchtitan for c4_test and c4, else elastic (not a key of TorchTitan)", one_of({"auto", "torchtitan", "elastic"}), kSupported);
    add(KEY(training.on_bad_record), "what to do with a record that cannot be used (not a key of TorchTitan)", one_of({"error", "skip"}), kSupported);
    add(KEY(training.on_nan), "what to do where the gradients are NaN or infinite; stop: before such a state is saved; warn: once, and go on; skip: leave out the update of that step; rollback: go back to the newest good checkpoint, and on behind the data so far (not a key of TorchTitan)", one_of({"stop", "warn", "skip", "rollback"}), kSupported);
    add(KEY(training.on_spike), "what to do where the loss or the norm of the gradients lies far above what it was: ignore it, warn, or skip the update of that step (not a key of TorchTitan)", one_of({"ignore", "warn", "skip"}), kSupported);
    add(KEY(training.spike_window), "steps before it that a step is compared with (not a key of TorchTitan)", between(2, 1 << 20), kSupported);
    add(KEY(training.spike_sigma), "standard deviations above their mean that make a spike (not a key of TorchTitan)", above(0), kSupported);
    add(KEY(training.local_batch_size), "sequences of one microbatch on one rank", between(1, kMostTokens), kSupported);
    add(KEY(training.global_batch_size), "sequences of one step over all ranks; -1: one microbatch per rank", minus_one_or(between(1, kMostTokens * kLargestWorld)), kSupported);
    add(KEY(training.seq_len), "tokens of one sequence; even", between(2, kMostTokens), kSupported);
    add(KEY(training.max_norm), "gradients are clipped to this L2 norm", above(0, 1e38), kSupported);
    add(KEY(training.steps), "optimizer steps to run", at_least(1), kSupported);
    add(KEY(training.enable_cpu_offload), "keep shards, gradients and optimizer state on the host (on a CPU they are there already)", kAny, kSupported);
    add(KEY(training.dtype), "dtype of parameters and optimizer state", one_of({"float32", "bfloat16"}), kSupported);
    add(KEY(training.mixed_precision_param), "dtype of the forward and backward pass; float16 (not a value of TorchTitan) scales the loss", one_of({"bfloat16", "float32", "float16"}), kSupported);
    add(KEY(training.mixed_precision_reduce), "dtype of gradient reductions; bfloat16 and float16 (not values of TorchTitan) halve the traffic, float16 scales the loss", one_of({"float32", "bfloat16", "float16"}), kSupported);
    add(KEY(training.gc_freq), "steps between two runs of Python's garbage collector", at_least(1), no_effect("there is no Python garbage collector"));
    add(KEY(training.gc_debug), "Python garbage collector debugging", kAny, no_effect("there is no Python garbage collector"));
    add(KEY(training.device), "where to train; auto: cuda when there is one (not a key of TorchTitan)", one_of({"auto", "cpu", "cuda"}), kSupported);
    add(KEY(training.dataloader.num_workers), "loading processes", at_least(0), one_thread());
    add(KEY(training.dataloader.persistent_workers), "keep loading processes between epochs", kAny, one_thread());
    add(KEY(training.dataloader.pin_memory), "batches in page-locked memory", kAny, always_pinned());
    add(KEY(training.dataloader.prefetch_factor), "batches loaded ahead by each process", at_least(1), one_thread());
  }

  void add_parallelism() {
    add(KEY(parallelism.data_parallel_replicate_degree), "copies of the weights (HSDP; DDP with a shard degree of 1)", between(1, kLargestWorld), kSupported);
    add(KEY(parallelism.data_parallel_shard_degree), "ranks that share one copy (FSDP); -1: all that are left", minus_one_or(between(1, kLargestWorld)), kSupported);
    add(KEY(parallelism.fsdp_reshard_after_forward), "free gathered weights after the forward pass: always, never, default (always, but for the last group: norm and output), or a number of neighbours to re-shard over (not in TorchTitan)", {.choices = {"default", "always", "never"}, .number_in_string = true}, kSupported);
    add(KEY(parallelism.fsdp_wrap), "which modules are gathered and reduced together; block: each block, the embedding, and norm with output; size:N: each module whose parameters that no inner group has are N or more; or names of modules, * for any name, each a group: [\"layers.*.attention\", \"output\"]; the rest is one group (not a key of TorchTitan)", kListOrString, kSupported);
    add(KEY(parallelism.tensor_parallel_degree), "ranks that share each matrix product", between(1, kLargestWorld), kSupported);
    add(KEY(parallelism.disable_loss_parallel), "with tensor parallelism: each rank gathers all logits before the loss", kAny, kSupported);
    add(KEY(parallelism.enable_async_tensor_parallel), "with tensor parallelism: its collectives run beside the products, in parts", kAny, kSupported);
    add(KEY(parallelism.pipeline_parallel_degree), "ranks that divide the layers among them (a pipeline); each has one stage of layers, or several", between(1, kLargestWorld), kSupported);
    add(KEY(parallelism.module_fqns_per_model_part), "the modules of each pipeline stage, in the model's order, in place of an even division: [[\"tok_embeddings\", \"layers.0\"], [\"layers.1\", \"norm\", \"output\"]]", kAny, kSupported);
    add(KEY(parallelism.pipeline_parallel_first_stage_less_layers), "layers that the first pipeline stage has fewer than others, since it has the embedding", between(0, kMostLayers), kSupported);
    add(KEY(parallelism.pipeline_parallel_last_stage_less_layers), "layers that the last pipeline stage has fewer than others, since it has the output projection", between(0, kMostLayers), kSupported);
    add(KEY(parallelism.pipeline_parallel_layers_per_stage), "layers of a pipeline stage; None: as many as give each rank one stage, or two if the schedule has several", between(1, kMostLayers), kSupported);
    add(KEY(parallelism.pipeline_parallel_schedule), "order in which a pipeline's ranks run microbatches forward and backward, in upper or lower case (titan-train schedule draws it):", kNonEmpty, kSupported);
    add(KEY(parallelism.pipeline_parallel_schedule_csv), "CSV file with the order of a pipeline's forwards and backwards, in place of the schedule's own", kAny, kSupported);
    add(KEY(parallelism.pipeline_parallel_microbatch_size), "sequences of one pipeline microbatch; divides training.local_batch_size", between(1, kMostTokens), kSupported);
    add(KEY(parallelism.pipeline_parallel_expert_parallel_overlap), "overlap pipeline with expert communication", kAny, dormant("parallelism.expert_parallel_degree"));
    add(KEY(parallelism.context_parallel_degree), "ranks that share each sequence", between(1, kLargestWorld), kSupported);
    add(KEY(parallelism.context_parallel_load_balancer), "how a sequence is dealt out to the ranks that share it; headtail: a part from the front and one from the end to each; ptrr: small parts, such that ranks have about as many keys to attend to, also within documents; None: in order, so that the last rank has most to do", one_of({"headtail", "ptrr"}), kSupported);
    add(KEY(parallelism.context_parallel_rotate_method), "how keys and values are exchanged; allgather: each rank gets those of whole sequences at once; alltoall: they go round the ranks in a ring, and each step attends to those of one rank", one_of({"allgather", "alltoall"}), kSupported);
    add(KEY(parallelism.expert_parallel_degree), "ranks that share the experts", at_least(1), not_built("no model here has experts"));
    add(KEY(parallelism.expert_tensor_parallel_degree), "ranks that share each expert", at_least(1), not_built("no model here has experts"));
    add(KEY(parallelism.expert_parallel_comm_backend), "how tokens reach their experts", one_of({"standard", "deepep"}), dormant("parallelism.expert_parallel_degree"));
  }

  void add_checkpoint() {
    add(KEY(checkpoint.enable), "save and load checkpoints", kAny, kSupported);
    add(KEY(checkpoint.enable_ft_dataloader_checkpoints), "data position in checkpoints of fault-tolerant runs", kAny, dormant("fault_tolerance.enable"));
    add(KEY(checkpoint.folder), "where checkpoints go, under job.dump_folder", kNonEmpty, kSupported);
    add(KEY(checkpoint.interval), "steps between two checkpoints", at_least(1), kSupported);
    add(KEY(checkpoint.interval_minutes), "also save when so many minutes have passed since the last checkpoint; 0: never (not a key of TorchTitan)", at_least(0), kSupported);
    add(KEY(checkpoint.initial_load_path), "checkpoint to start from while checkpoint.folder does not exist: a folder, or one .pt, .pth or .safetensors file with the weights", kNonEmpty, kSupported);
    add(KEY(checkpoint.initial_load_model_only), "take only the weights from it", kAny, kSupported);
    add(KEY(checkpoint.initial_load_in_hf), "it is in Hugging Face's safetensors format; without it, model.hf_assets_path is", kAny, kSupported);
    add(KEY(checkpoint.initial_load_in_hf_quantized), "and its weights are quantized", kAny, not_built("quantized weights are not read"));
    add(KEY(checkpoint.last_save_model_only), "the last checkpoint has only weights; a run cannot resume from it", kAny, kSupported);
    add(KEY(checkpoint.last_save_in_hf), "the last checkpoint is a folder in Hugging Face's format (safetensors, index, config.json)", kAny, kSupported);
    add(KEY(checkpoint.last_save_as), "format of a last checkpoint that has only weights; file: its folder holds one file, which torch.load(weights_only=True) opens (not a key of TorchTitan)", one_of({"dcp", "file"}), kSupported);
    add(KEY(checkpoint.export_dtype), "dtype of a last checkpoint that has only weights", one_of({"float32", "float16", "bfloat16"}), kSupported);
    add(KEY(checkpoint.async_mode), "write checkpoints while training goes on, from a copy on the host, page-locked on cuda; both names do the same", one_of({"disabled", "async", "async_with_pinned_mem"}), kSupported);
    add(KEY(checkpoint.files_per_rank), "files that a rank writes at the same time; more help where one does not fill the file system (not a key of TorchTitan)", at_least(1), kSupported);
    add(KEY(checkpoint.on_save_error), "stop, or warn and go on, when a checkpoint cannot be written (not a key of TorchTitan)", one_of({"stop", "warn"}), kSupported);
    add(KEY(checkpoint.keep_latest_k), "older checkpoints are deleted; 0 keeps all", at_least(0), kSupported);
    add(KEY(checkpoint.memory_interval), "steps between two copies of the state in the memory of this machine, from which a start after a crash goes on; 0: none (not a key of TorchTitan)", at_least(0), kSupported);
    add(KEY(checkpoint.memory_folder), "where these copies are, below a folder for each run: on a file system in memory (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(checkpoint.load_step), "step to load; -1: the latest", minus_one_or(at_least(0)), kSupported);
    add(KEY(checkpoint.allow_export_overflow), "write infinities where export_dtype cannot hold a weight; else that is an error, and the weights are saved as they are (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(checkpoint.allow_changed), "keys whose change would make it another run (model, tokenizer, data, seed), and that may differ from the checkpoint's all the same (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(checkpoint.exclude_from_loading), "parts not to load", one_of({"model", "optimizer", "lr_scheduler", "dataloader", "train_state"}), kSupported);
    add(KEY(checkpoint.enable_first_step_checkpoint), "also save after step 1", kAny, kSupported);
    add(KEY(checkpoint.create_seed_checkpoint), "save the initial weights as step 0 and exit", kAny, kSupported);
    add(KEY(checkpoint.load_only), "load, never save", kAny, kSupported);
  }

  void add_memory_and_speed() {
    add(KEY(activation_checkpoint.mode), "recompute activations in the backward pass", one_of({"none", "selective", "full"}, {"memory_budget"}), kSupported);
    add(KEY(activation_checkpoint.selective_ac_option), "selective: every how many blocks, as a string; op: in every block, all but attention and every second linear layer's output", {.choices = {"op"}, .number_in_string = true}, kSupported);
    add(KEY(activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns), "op: linear layers, by parts of their names, whose shapes are always recomputed and not counted", kAny, kSupported);
    add(KEY(activation_checkpoint.early_stop), "stop recomputing once all is there", kAny, not_built("a block is always recomputed to its end"));
    add(KEY(activation_checkpoint.memory_budget), "0: as full, 1: as none", between(0, 1), dormant("activation_checkpoint.mode = \"memory_budget\""));
    add(KEY(activation_checkpoint.visualize_memory_budget_pareto), "plot the trade-off of memory_budget", kAny, dormant("activation_checkpoint.mode = \"memory_budget\""));
    add(KEY(activation_checkpoint.preserve_rng_state), "recompute with the random state of the forward pass", kAny, kSupported);
    add(KEY(activation_checkpoint.determinism_check), "default: recomputed linear layers, attention and blocks must have the shapes, dtypes and devices of the forward pass", one_of({"default", "none"}), kSupported);
    add(KEY(activation_checkpoint.debug), "an error of determinism_check lists what ran in both passes", kAny, kSupported);

    add(KEY(compile.enable), "torch.compile", kAny, needless("nothing is compiled; titan-train's own fused kernels compute the same (on a GPU with cuda.kernels = \"own\")"));
    add(KEY(compile.components), "what to compile", one_of({"model", "loss"}), dormant("compile.enable"));
    add(KEY(compile.backend), "compiler backend", kNonEmpty, dormant("compile.enable"));

    add(KEY(quantize.linear.float8.enable_fsdp_float8_all_gather), "gather weights in float8, half the bytes of 16 bits; with recipe_name = \"tensorwise\" or unset", kAny, kSupported);
    add(KEY(quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp), "compute the scales of all weights that are gathered in float8 with one all-reduce per step, in place of one per gather; they are the same", kAny, kSupported);
    add(KEY(quantize.linear.float8.recipe_name), "tensorwise (also if unset): one scale per tensor, gradients in e5m2; rowwise: one per row and column, a power of two, gradients in e4m3; rowwise_with_gw_hp: the same, but gradients of weights are not computed in float8", one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp"}), kSupported);
    add(KEY(quantize.linear.float8.filter_fqns), "linear layers left alone: all whose name has one of these in it; \"auto_filter_small_kn\" stands for those too small to gain by float8. Those with a dimension that is not a multiple of 16 always are", kAny, kSupported);
    add(KEY(quantize.linear.float8.emulate), "round to float8 as usual and multiply in float32, on any device; to see the losses of float8 without a GPU that has it", kAny, kSupported);
    add(KEY(quantize.linear.mx.mxfp8_dim1_cast_kernel_choice), "kernel of the cast", one_of({"triton", "cuda", "torch"}), dormant("model.converters"));
    add(KEY(quantize.linear.mx.recipe_name), "recipe", kNonEmpty, dormant("model.converters"));
    add(KEY(quantize.linear.mx.filter_fqns), "linear layers left alone", kAny, dormant("model.converters"));
    add(KEY(quantize.grouped_mm.float8.fqns), "expert layers to quantize", kListOrString, dormant("model.converters"));
    add(KEY(quantize.grouped_mm.mx.recipe_name), "recipe", one_of({"mxfp8"}), dormant("model.converters"));
    add(KEY(quantize.grouped_mm.mx.fqns), "expert layers to quantize", kListOrString, dormant("model.converters"));
  }

  void add_comm() {
    add(KEY(comm.init_timeout_seconds), "timeout of communication up to the end of the first step, and of saves in the background, whose ranks may be slow at different times", at_least(1), kSupported);
    add(KEY(comm.train_timeout_seconds), "timeout after the first step", at_least(1), kSupported);
    add(KEY(comm.trace_buf_size), "last collectives in the file that each rank writes when one does not end; 0: no file", between(0, 1 << 20), kSupported);
    add(KEY(comm.save_traces_folder), "where these files go, under job.dump_folder", kNonEmpty, kSupported);
    add(KEY(comm.save_traces_file_prefix), "start of their names, before the rank", kAny, kSupported);
    add(KEY(comm.mode), "kind of communication; for fake ranks use --dry-run", one_of({"default"}, {"fake_backend", "local_tensor"}), kSupported);
  }

  void add_rest() {
    add(KEY(memory_estimation.enable), "estimate memory instead of training", kAny, not_built("--dry-run estimates it, without a run"));
    add(KEY(memory_estimation.disable_fake_mode), "with real tensors", kAny, dormant("memory_estimation.enable"));

    add(KEY(fault_tolerance.enable), "TorchFT", kAny, not_built("there is no TorchFT here; a failed job resumes from its checkpoints"));
    add(KEY(fault_tolerance.process_group), "its backend", one_of({"gloo", "nccl"}), dormant("fault_tolerance.enable"));
    add(KEY(fault_tolerance.process_group_timeout_ms), "its timeout", at_least(1), dormant("fault_tolerance.enable"));
    add(KEY(fault_tolerance.replica_id), "replica this process belongs to", at_least(0), dormant("fault_tolerance.enable"));
    add(KEY(fault_tolerance.group_size), "replicas", at_least(0), dormant("fault_tolerance.enable"));
    add(KEY(fault_tolerance.min_replica_size), "replicas a step needs", at_least(1), dormant("fault_tolerance.enable"));
    add(KEY(fault_tolerance.semi_sync_method), "synchronization of replicas", one_of({"local_sgd", "diloco"}), dormant("fault_tolerance.enable"));

    add(KEY(experimental.custom_import), "Python module to import", kAny, not_built("this program has no Python in it; models and datasets are added in C++, see CONTRIBUTING.md"));
    add(KEY(experimental.custom_args_module), "Python module with further options", kAny, not_built("this program has no Python in it; models and datasets are added in C++, see CONTRIBUTING.md"));

    add(KEY(validation.enable), "evaluate during training", kAny, kSupported);
    add(KEY(validation.dataset), "kind of data, as training.dataset", kNonEmpty, kSupported);
    add(KEY(validation.dataset_path), "file or folder with the data", kNonEmpty, kSupported);
    add(KEY(validation.dataset_text_key), "the field of JSON lines that holds the document (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(validation.local_batch_size), "sequences of one batch on one rank", between(1, kMostTokens), kSupported);
    add(KEY(validation.seq_len), "tokens of one sequence", between(2, kMostTokens), kSupported);
    add(KEY(validation.freq), "steps between two evaluations", at_least(1), kSupported);
    add(KEY(validation.steps), "batches of one evaluation; -1: all the data", minus_one_or(at_least(1)), kSupported);
    add(KEY(validation.at_last_step), "evaluate after the last step too, whatever freq is (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(validation.prompts), "texts that the model continues, greedily, after each evaluation and the last step; the log has what it writes (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(validation.prompt_tokens), "tokens that it writes after each of them at most (not a key of TorchTitan)", at_least(1), kSupported);
    add(KEY(validation.dataloader.num_workers), "loading processes", at_least(0), one_thread());
    add(KEY(validation.dataloader.persistent_workers), "keep loading processes between epochs", kAny, one_thread());
    add(KEY(validation.dataloader.pin_memory), "batches in page-locked memory", kAny, always_pinned());
    add(KEY(validation.dataloader.prefetch_factor), "batches loaded ahead by each process", at_least(1), one_thread());

    add(KEY(chat.chat_template), "file with the chat template, or a folder that has one; None: the tokenizer's (not a key of TorchTitan)", kNonEmpty, kSupported);
    add(KEY(chat.too_long), "what to do with a conversation of more than seq_len + 1 tokens; error: refuse to start; cut: leave out its end; drop: leave it out (not a key of TorchTitan)", one_of({"error", "cut", "drop"}), kSupported);
    add(KEY(chat.loss_weight), "what counts as much as any other in the loss; token: each token of an answer; sample: each conversation (not a key of TorchTitan)", one_of({"token", "sample"}), kSupported);
    add(KEY(lora.rank), "rank of the adapters that are trained instead of the model (LoRA); 0: no adapters, the model is trained (not a table of TorchTitan)", between(0, kLargestWidth), kSupported);
    add(KEY(lora.alpha), "the adapters' product is multiplied by alpha / rank; None: the rank, which is PEFT's scale where both have their default, 8", above(0), kSupported);
    add(KEY(lora.dropout), "part of an adapter's input that training sets to zero", from_below(0, 1), kSupported);
    add(KEY(lora.targets), "the linear layers that have an adapter: patterns of their names, * for any text, or last parts of names, here or in Hugging Face's format (wq, q_proj). The output projection has none", kNonEmpty, kSupported);
    add(KEY(lora.base_dtype), "dtype in which the frozen weights are kept; None: that of training.dtype", one_of({"float32", "bfloat16"}), kSupported);
    add(KEY(evaluation.tasks), "what the model is scored on, each \"KIND PATH\" or \"NAME=KIND PATH\", with \" fewshot=PATH\" for solved questions; kinds: hellaswag, arc, mmlu, choice (multiple choice), text, jsonl or jsonl:FIELD (perplexity); docs/evaluation.md (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(evaluation.freq), "steps between two passes over all tasks (not a key of TorchTitan)", at_least(1), kSupported);
    add(KEY(evaluation.at_last_step), "score after the last step too, whatever freq is (not a key of TorchTitan)", kAny, kSupported);
    add(KEY(evaluation.local_batch_size), "texts that one rank scores at once, at most (not a key of TorchTitan)", between(1, kMostTokens), kSupported);
    add(KEY(evaluation.limit), "take only the first items of each task; None: all (not a key of TorchTitan)", at_least(1), kSupported);
    add(KEY(evaluation.num_fewshot), "solved questions before each question of multiple choice, from a task's fewshot=PATH; a task with fewshot=N:PATH has its own number (not a key of TorchTitan)", at_least(0), kSupported);

    add(KEY(debug.seed), "fixes initialization and the order of the data; None: drawn anew for each run, the order as with 0", at_least(0), kSupported);
    add(KEY(debug.deterministic), "two runs are equal to the last bit", kAny, kSupported);
    add(KEY(debug.deterministic_warn_only), "only warn where an operator has no deterministic form", kAny, not_built("an operator without a deterministic form is an error under debug.deterministic"));
    add(KEY(debug.moe_force_load_balance), "deal tokens to experts in turn", kAny, no_effect("no model here has experts"));
    add(KEY(debug.checksum_freq), "steps between two records of checksums of every parameter and gradient, for titan-train compare, and between two comparisons of the copies that ranks hold, which every save makes, too; 0: none (not a key of TorchTitan)", at_least(0), kSupported);
    add(KEY(debug.memory_check_freq), "above 0: each update on a CPU checks that no bit of weights and moments has changed while nothing wrote it, and every so many steps gathered weights, gradients and the rest are checked; 0: no checks (not a key of TorchTitan)", at_least(0), kSupported);

    add(KEY(cpu.kernels), "on CPU; own: this program's causal attention, RMSNorm, rotary embedding, SwiGLU, cross entropy, AdamW, and products in 16 bits where PyTorch's are slow; aten: PyTorch's (not a key of TorchTitan)", one_of({"own", "aten"}), kSupported);
    add(KEY(cpu.mkl_path), "code of MKL for float32 products; by_instructions: what the processor can run; by_vendor: MKL's choice, slow on processors that are not Intel's (not a key of TorchTitan)", one_of({"by_instructions", "by_vendor"}), kSupported);
    add(KEY(cpu.instructions), "most of the processor's instructions that products, kernels and libraries use, as if it had no others (not a key of TorchTitan)", one_of({"all", "avx512_bf16", "avx512", "avx2"}), kSupported);
    add(KEY(cuda.kernels), "on a GPU; aten: PyTorch's operators; own: this program's RMSNorm, rotary embedding and SwiGLU, and a loss that never has all logits in float32 (on an H100 5 % faster, in 15 % less memory; not a key of TorchTitan)", one_of({"aten", "own"}), kSupported);
    add(KEY(cuda.attention), "on a GPU; auto: the kernel that PyTorch chooses; or one alone, which ends the run where it does not take the model's attention: cudnn and flash take no float32. Documents are attended by flash's kernel where cudnn is asked for, prompts, a growing cache of keys and scored texts by any but cuDNN's (not a key of TorchTitan)", one_of({"auto", "cudnn", "flash", "efficient", "math"}), kSupported);
  }
  // clang-format on
};

}  // namespace

std::span<const TableDoc> table_docs() {
  static const std::vector<TableDoc> kTables = {
      {"job", "the run as a whole"},
      {"profiling", "traces of where time and memory go"},
      {"metrics", "what is logged, and how often"},
      {"model", "which model, and its tokenizer"},
      {"model.args", "sizes of the model; what is left out is the flavor's (not a table of TorchTitan)"},
      {"model.args.rope_scaling_args", "rotary embedding beyond the length of pre-training (Llama 3.1)"},
      {"optimizer", "how weights are updated"},
      {"lr_scheduler", "the learning rate over the steps"},
      {"training", "data, batch, sequence, steps and dtypes"},
      {"training.dataloader", "TorchTitan's knobs of PyTorch's DataLoader"},
      {"parallelism", "how the model is spread over ranks; the degrees multiply to the number of ranks"},
      {"checkpoint", "saving and resuming"},
      {"activation_checkpoint", "recomputing activations to save memory"},
      {"compile", "torch.compile"},
      {"quantize.linear.float8", "float8 linear layers"},
      {"quantize.linear.mx", "MX linear layers"},
      {"quantize.grouped_mm.float8", "float8 experts"},
      {"quantize.grouped_mm.mx", "MX experts"},
      {"comm", "communication between ranks"},
      {"memory_estimation", "TorchTitan's memory estimate; here: --dry-run"},
      {"fault_tolerance", "TorchFT"},
      {"experimental", "Python modules of the user"},
      {"validation", "loss on a held-out set"},
      {"validation.dataloader", "as [training.dataloader]"},
      {"chat", "conversations to train and validate on (not a table of TorchTitan)"},
      {"lora", "adapters of low rank, trained in place of the model (not a table of TorchTitan)"},
      {"evaluation", "scores on tasks, such as multiple choice (not a table of TorchTitan)"},
      {"debug", "seeds and determinism"},
      {"cpu", "which code computes on processors (not a table of TorchTitan)"},
      {"cuda", "which code computes on GPUs (not a table of TorchTitan)"},
  };
  return kTables;
}

std::span<const Field> fields() {
  static const Table table;
  return table.rows;
}

const Field* find_field(std::string_view key) {
  static const auto index = [] {
    std::map<std::string, const Field*, std::less<>> by_key;
    for (const Field& field : fields()) by_key[field.key] = &field;
    return by_key;
  }();
  const auto it = index.find(key);
  return it == index.end() ? nullptr : it->second;
}

bool is_table(std::string_view name) {
  static const auto tables = [] {
    std::set<std::string, std::less<>> names = {""};
    for (const Field& field : fields()) {
      for (auto dot = field.key.find('.'); dot != std::string::npos; dot = field.key.find('.', dot + 1))
        names.insert(field.key.substr(0, dot));
    }
    return names;
  }();
  return tables.contains(name);
}

const StringList& field_names() {
  static const auto names = [] {
    StringList all;
    for (const Field& field : fields()) all.push_back(field.key);
    return all;
  }();
  return names;
}

std::string table_of(const Field& field) { return field.key.substr(0, field.key.rfind('.')); }

std::string last_part_of(const Field& field) { return field.key.substr(field.key.rfind('.') + 1); }

FieldValue default_value(const Field& field) {
  static const JobConfig defaults;
  return field.get(defaults);
}

}  // namespace titan::config
