// Extracts the cause from the error texts of a device's libraries.
#pragma once

#include <string>
#include <string_view>

namespace titan::dist {

// Returns the first line of `text`, followed by NCCL's "Last error:", the only part that names the cause.
std::string reason_in(std::string_view text);

// True if `text` reports an error of this rank's own device: CUDA's, also one that NCCL met or its watchdog found. No
// other rank is to blame then.
bool is_device_error(std::string_view text);

// Returns what to do about `text`, the error with which ranks could not connect, as a sentence after it.
std::string advice_to_connect(std::string_view text, bool has_device);

}  // namespace titan::dist
