// Translates between the names of TorchTitan 0.2.2, which are ours, and those of its main branch, where modules were
// renamed in April 2026: attention.qkv_linear.wq, wk and wv (pull request 2878), and lm_head (2937). Keys of the model,
// of the optimizer's state and of its parameter groups contain these names alike; all other keys are the same.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace titan::checkpoint {

// Return `key` with one side's names in place of the other's: "layers.0.attention.qkv_linear.wq.weight" and
// "layers.0.attention.wq.weight". Other keys are returned unchanged.
std::string to_own_names(const std::string& key);
std::string to_main_names(const std::string& key);

// True if `keys`, all keys of a checkpoint, contain an attention.qkv_linear: it is TorchTitan main's. Either name of
// the output projection may then occur, since it was renamed 11 days later. Throws CheckpointError, with `what` for the
// checkpoint, if a renamed module also occurs under its old name.
bool has_main_names(const std::vector<std::string>& keys, const std::string& what);

// True for a key of attention.qkv_linear.wqkv, which is wq, wk and wv in one parameter. Main splits its weight while it
// saves (since June 2026), but not the optimizer's state.
bool is_fused(const std::string& key);
CheckpointError fused_error(const std::string& what, const std::string& key);

// Returns `keys`, all keys of a checkpoint, with our names if has_main_names(), unless `wanted` has main's names:
// another program's model may have such modules. Throws fused_error() if `wanted` has a part of a fused tensor.
std::vector<std::string> own_names(const std::vector<std::string>& keys, const std::vector<std::string>& wanted,
                                   const std::string& what);

}  // namespace titan::checkpoint
