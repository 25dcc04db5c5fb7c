// The engine as a library: includes every public header. docs/library.md describes its use, and examples/ has a
// complete program. The headers that these include are installed too; no others are.
#pragma once

#include "base/env.h"
#include "base/error.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/step_folders.h"
#include "distributed/mesh.h"
#include "distributed/tensor/dtensor.h"
#include "distributed/world.h"
#include "library/run_rank.h"
#include "library/state_items.h"
#include "nn/checkpointed.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "optim/adamw.h"
#include "optim/clip_grad_norm.h"
#include "optim/lr_schedule.h"
#include "parallel/autograd_collectives.h"
#include "parallel/fsdp/fully_shard.h"
#include "parallel/fsdp/wrap_policy.h"
#include "parallel/tensor_parallel/parallelize_module.h"

namespace titan {

using dist::DeviceMesh;
using dist::DTensor;
using dist::Replicate;
using dist::Shard;
using dist::World;
using fsdp::fully_shard;
using optim::clip_grad_norm;
using tp::parallelize_module;

}  // namespace titan
