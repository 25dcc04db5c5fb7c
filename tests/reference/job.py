"""Reads the part of a training job (TOML plus command line) that the reference understands.

The keys and their defaults are those of TorchTitan 0.2.2, duplicated here on purpose: a wrong default in the program
must show as a difference.
"""
import copy
import tomllib

# Keys that change numbers. A key that is absent here and set in a job is either harmless (see IGNORED) or refused.
DEFAULTS = {
    "job": {"dump_folder": "./outputs"},
    "model": {"name": "llama3", "flavor": "debugmodel", "hf_assets_path": "./tests/assets/tokenizer", "args": {}},
    "optimizer": {
        "name": "AdamW",
        "lr": 8e-4,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.1,
        "state_dtype": None,
        "no_decay": [],
        "lr_factors": [],
        "implementation": "fused",
    },
    "lr_scheduler": {
        "warmup_steps": 200,
        "total_steps": None,
        "decay_ratio": None,
        "decay_type": "linear",
        "min_lr_factor": 0.0,
    },
    "training": {
        "dataset": "c4_test",
        "dataset_path": None,
        "local_batch_size": 8,
        "global_batch_size": -1,
        "seq_len": 2048,
        "max_norm": 1.0,
        "steps": 10000,
        "dtype": "float32",
        "mixed_precision_param": "bfloat16",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": False,
    },
    "parallelism": {
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": -1,
        "fsdp_reshard_after_forward": "default",
        "tensor_parallel_degree": 1,
        "disable_loss_parallel": False,
        "context_parallel_degree": 1,
        "context_parallel_load_balancer": "headtail",
        "context_parallel_rotate_method": "allgather",
        "pipeline_parallel_degree": 1,
        "module_fqns_per_model_part": None,
        "pipeline_parallel_first_stage_less_layers": 1,
        "pipeline_parallel_last_stage_less_layers": 1,
        "pipeline_parallel_layers_per_stage": None,
        "pipeline_parallel_schedule": "1F1B",
        "pipeline_parallel_microbatch_size": 1,
    },
    "lora": {"rank": 0, "alpha": None, "dropout": 0.0, "targets": ["layers.*"], "base_dtype": None},
    "debug": {"seed": None},
}
# Tables that do not change what is computed. Activation checkpointing recomputes the same values.
IGNORED = {"metrics", "checkpoint", "activation_checkpoint", "profiling", "comm", "compile", "validation"}
IGNORED_KEYS = {
    ("parallelism", "enable_async_tensor_parallel"),  # PyTorch has it on CUDA only
    ("job", "description"),
    ("job", "print_config"),
    ("training", "data_order"),  # the reference knows only torchtitan
    ("training", "gc_freq"),
    ("debug", "deterministic"),
}


def parse_value(text, default):
    """Converts a command-line word to the type of the key's default; keys without a default are guessed."""
    if text == "None":
        return None
    if text in ("true", "false"):
        return text == "true"
    if isinstance(default, list):
        return text.split(",")
    if isinstance(default, float):
        return float(text)
    if isinstance(default, int):
        return int(text)
    if default is None:
        for convert in (int, float):
            try:
                return convert(text)
            except ValueError:
                pass
    return text


def merge(job, section, key, value):
    if section in IGNORED or (section, key) in IGNORED_KEYS:
        return
    if section not in job or key not in job[section]:
        raise SystemExit(f"reference: unknown key {section}.{key}")
    job[section][key] = value


def override(job, words):
    """Applies `--section.key value`, `--section.key=value`, `--section.flag` and `--section.no-flag`."""
    index = 0
    while index < len(words):
        name, has_value, value = words[index].partition("=")
        index += 1
        if not name.startswith("--") or "." not in name:
            raise SystemExit(f"reference: cannot read the argument '{name}'")
        section, _, key = name[2:].replace("-", "_").partition(".")
        if not has_value:
            if index == len(words) or words[index].startswith("--"):
                merge(job, section, key.removeprefix("no_"), not key.startswith("no_"))
                continue
            value = words[index]
            index += 1
        if key.startswith("args."):
            job["model"]["args"][key[5:]] = parse_value(value, None)
            continue
        merge(job, section, key, parse_value(value, DEFAULTS.get(section, {}).get(key)))


def load_job(path, words=()):
    """Returns the job of a TOML file with command-line overrides, with every key of DEFAULTS."""
    job = copy.deepcopy(DEFAULTS)
    with open(path, "rb") as file:
        for section, table in tomllib.load(file).items():
            for key, value in table.items():
                merge(job, section, key, value)
    override(job, list(words))
    return job
