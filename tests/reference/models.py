"""Finds the reference model of a job and builds it."""
import torch

import llama
import lora
import qwen3

MODELS = {"llama3": llama.Llama, "qwen3": qwen3.Qwen3}


def model_class(job):
    name = job["model"]["name"]
    if name not in MODELS:
        raise SystemExit(f"reference: model.name '{name}' is not one of {', '.join(MODELS)}")
    return MODELS[name]


def model_args(job):
    return model_class(job).Args.from_job(job)


def build_on_meta(job, dtype):
    """Returns the job's model without memory for its weights."""
    options, dtypes = job["lora"], {"float32": torch.float32, "bfloat16": torch.bfloat16}
    with torch.device("meta"):
        model = model_class(job)(model_args(job)).to(dtype)
        return lora.adapt(model, options, dtype, dtypes[options["base_dtype"]] if options["base_dtype"] else dtype)


def allocate(model, device):
    """Gives the weights of a model on the meta device memory on a device, with any values."""
    model.to_empty(device=device)
    model.tie()


def build_initialized(job, seed, dtype=torch.float32):
    """Returns the full model on the CPU with the weights that one rank draws for `seed` (None: an unseeded draw)."""
    if seed is not None:
        torch.manual_seed(seed)
    # Built on "meta", so that the layers' own default initialization draws nothing from the generator.
    model = build_on_meta(job, dtype)
    allocate(model, "cpu")
    model.init_weights()
    lora.init_adapters(model)
    return model
