// Operators of the models that have no C++ kernel for the meta device (PyTorch's are written in Python): shapes and
// dtypes only. With them a model runs without values, which is how train/dry_run/memory_estimate.h counts its memory.
#pragma once

namespace titan::nn {

// Registers the kernels, once per process; further calls do nothing.
void register_meta_kernels();

}  // namespace titan::nn
