// A weight that ranks gathered in float8 (torchao/float8/fsdp_utils.py).
#pragma once

#include "nn/float8/float8_matrix.h"

namespace titan::nn {

// A layer that can compute with a weight in float8 hands this out with its parameter (Parameter::float8), and a
// component that gathers the parameter in float8 fills it. While `matrix` is defined, the parameter's own tensor has a
// shape and gets gradients, but has no values.
struct GatheredFloat8 {
  Float8Matrix matrix;  // e4m3 [out, in], with one scale; undefined while the weight is not gathered in float8

  bool is_there() const { return matrix.values.defined(); }
};

}  // namespace titan::nn
