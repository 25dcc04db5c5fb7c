"""The llama3 job files published with TorchTitan 0.2.2, as tables of keys and values, each with a job size."""
import json


def _sizes(name, flavor, lr, warmup, steps, batch, ac, **changes):
    """Returns the tables that the three large ones share."""
    job = {
        "job": {"dump_folder": "./outputs", "description": f"{name} training"},
        "profiling": {"enable_profiling": True, "save_traces_folder": "profile_trace", "profile_freq": 100},
        "metrics": {"log_freq": 10, "enable_tensorboard": True, "save_tb_folder": "tb"},
        "model": {"name": "llama3", "flavor": flavor, "hf_assets_path": f"./assets/hf/Llama-3.1-{flavor}"},
        "optimizer": {"name": "AdamW", "lr": lr, "eps": 1e-8},
        "lr_scheduler": {"warmup_steps": warmup},
        "training": {"local_batch_size": batch, "seq_len": 8192, "max_norm": 1.0, "steps": steps, "dataset": "c4"},
        "parallelism": {
            "data_parallel_replicate_degree": 1,
            "data_parallel_shard_degree": -1,
            "tensor_parallel_degree": 1,
            "pipeline_parallel_degree": 1,
            "context_parallel_degree": 1,
        },
        "checkpoint": {
            "enable": False,
            "folder": "checkpoint",
            "interval": 500,
            "last_save_model_only": True,
            "export_dtype": "float32",
            "async_mode": "disabled",
        },
        "compile": {"enable": False, "components": ["model", "loss"]},
        "activation_checkpoint": ac,
        "quantize.linear.float8": {
            "enable_fsdp_float8_all_gather": False,
            "precompute_float8_dynamic_scale_for_fsdp": False,
            "filter_fqns": ["output"],
        },
        "validation": {"enable": False, "dataset": "c4_validation", "freq": 500, "steps": 1200},
    }
    for table, values in changes.items():
        job[table.replace("__", ".")].update(values)
    return job


_DEBUG = {
    "job": {"dump_folder": "./outputs", "description": "Llama 3 debug training", "print_config": False},
    "profiling": {
        "enable_profiling": False,
        "save_traces_folder": "profile_trace",
        "profile_freq": 10,
        "enable_memory_snapshot": False,
        "save_memory_snapshot_folder": "memory_snapshot",
    },
    "metrics": {
        "log_freq": 1,
        "disable_color_printing": False,
        "enable_tensorboard": False,
        "save_tb_folder": "tb",
        "enable_wandb": False,
    },
    "model": {"name": "llama3", "flavor": "debugmodel", "hf_assets_path": "./tests/assets/tokenizer"},
    "optimizer": {"name": "AdamW", "lr": 8e-4, "eps": 1e-8},
    "lr_scheduler": {"warmup_steps": 2, "decay_ratio": 0.8, "decay_type": "linear", "min_lr_factor": 0.0},
    "training": {"local_batch_size": 8, "seq_len": 2048, "max_norm": 1.0, "steps": 10, "dataset": "c4_test"},
    "parallelism": {
        "data_parallel_replicate_degree": 1,
        "data_parallel_shard_degree": -1,
        "fsdp_reshard_after_forward": "default",
        "tensor_parallel_degree": 1,
        "enable_async_tensor_parallel": False,
        "pipeline_parallel_degree": 1,
        "pipeline_parallel_schedule": "Interleaved1F1B",
        "context_parallel_degree": 1,
    },
    "checkpoint": {
        "enable": False,
        "folder": "checkpoint",
        "interval": 10,
        "last_save_model_only": False,
        "export_dtype": "float32",
        "async_mode": "disabled",
    },
    "activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"},
    "compile": {"enable": False, "components": ["model", "loss"]},
    "quantize.linear.float8": {
        "enable_fsdp_float8_all_gather": False,
        "precompute_float8_dynamic_scale_for_fsdp": False,
        "filter_fqns": ["output"],
    },
    "validation": {"enable": False, "dataset": "c4_validation", "freq": 5, "steps": 10},
}

# name -> (ranks, tables)
PUBLISHED = {
    "debug_model": (1, _DEBUG),
    "llama3_8b": (
        64,
        _sizes("Llama 3 8B", "8B", 3e-4, 200, 1000, 1, {"mode": "selective", "selective_ac_option": "op"}),
    ),
    "llama3_70b": (
        64,
        _sizes(
            "Llama 3 70B", "70B", 1.5e-4, 200, 1000, 8, {"mode": "full"}, parallelism={"tensor_parallel_degree": 8}
        ),
    ),
    "llama3_405b": (
        128,
        _sizes(
            "Llama 3 405B",
            "405B",
            8e-5,
            600,
            3000,
            2,
            {"mode": "full"},
            model={"converters": ["float8"]},
            parallelism={"tensor_parallel_degree": 8, "enable_async_tensor_parallel": True},
            compile={"enable": True},
            quantize__linear__float8={
                "enable_fsdp_float8_all_gather": True,
                "precompute_float8_dynamic_scale_for_fsdp": True,
            },
        ),
    ),
}


def to_toml(tables):
    """Returns TOML text; JSON's spelling of these values is TOML's, too."""
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def write_published(folder, name):
    path = folder / f"{name}.toml"
    path.write_text(to_toml(PUBLISHED[name][1]))
    return path


# Command lines that follow a file.
OVERRIDES = [
    [],
    ["--training.steps", "1_000", "--optimizer.lr=3e-4", "--checkpoint.enable", "--training.max_norm", "1"],
    ["--checkpoint.exclude_from_loading", "optimizer,dataloader", "--debug.seed=7", "--lr_scheduler.decay_ratio", "None"],
    ["--training.dataloader.prefetch-factor", "2", "--checkpoint.no-last-save-model-only", "--metrics.log-freq=5"],
    ["--training.steps=1", "--training.steps=2", "--parallelism.context_parallel_load_balancer", "None"],
]
