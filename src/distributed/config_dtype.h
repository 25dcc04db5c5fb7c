// The names that configurations use for dtypes.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace titan::dist {

// Returns the dtype named "float32", "bfloat16" or "float16". The configuration was validated before.
inline c10::ScalarType dtype_of(const std::string& name) {
  if (name == "float16") return c10::ScalarType::Half;
  return name == "bfloat16" ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
}

}  // namespace titan::dist
