// Reads what the libraries of a device say when they fail. They put everything into one text.
#pragma once

#include <string>
#include <string_view>

namespace titan::dist {

// Returns the first line of `text`, and after it what NCCL says last ("Last error:"), which is the only part that names the
// cause.
std::string reason_in(std::string_view text);

// True if `text` tells of an error of this rank's own device: CUDA's, also one that NCCL met or that its watchdog found. No
// other rank is to blame then.
bool is_device_error(std::string_view text);

}  // namespace titan::dist
