// quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp: a step has one all-reduce for the scales of all
// weights that are gathered in float8, in place of one per gather.
#pragma once

#include "nn/module.h"
#include "parallel/fsdp/float8_scales.h"
#include "train/step/step_guest.h"

namespace titan::train {

class Float8Scaling : public StepGuest {
 public:
  // `model` must outlive this.
  explicit Float8Scaling(nn::Module& model) : model_(model) {}

  void before_step() override { fsdp::precompute_float8_scales(model_); }
  // The update changes the weights. What is gathered after it, for validation, computes its own scales.
  at::Tensor before_update(const StepView& /*step*/) override {
    fsdp::forget_float8_scales(model_);
    return {};
  }

 private:
  nn::Module& model_;
};

}  // namespace titan::train
