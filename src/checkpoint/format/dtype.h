// The tensor element types that a checkpoint may hold, under PyTorch's names.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace titan::checkpoint {

// Returns "float32", "bfloat16", …: the name after "torch." in Python. Throws CheckpointError for unsupported types.
std::string dtype_name(c10::ScalarType dtype);
std::optional<c10::ScalarType> dtype_from_name(std::string_view name);

// Returns "FloatStorage", "BFloat16Storage", …, the storage class in a torch.save archive. Types newer than those
// classes (float8, uint16 to uint64) have none and cannot be stored.
std::string storage_class(c10::ScalarType dtype);
std::optional<c10::ScalarType> dtype_from_storage_class(std::string_view name);

}  // namespace titan::checkpoint
