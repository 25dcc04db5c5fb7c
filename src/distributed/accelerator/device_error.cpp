#include "distributed/accelerator/device_error.h"

#include "base/text.h"

namespace titan::dist {
namespace {

constexpr std::string_view kLastError = "Last error:";
// c10d's watchdog puts its group, its rank and these words before what it says.
constexpr std::string_view kOfWatchdog = "Process group watchdog thread terminated with exception: ";

}  // namespace

std::string reason_in(std::string_view text) {
  const auto lines = split(text, '\n');
  std::string reason = lines.empty() ? "" : lines.front();
  if (const auto at = reason.find(kOfWatchdog); at != std::string::npos) reason.erase(0, at + kOfWatchdog.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with(kLastError)) continue;
    const auto rest = trim(std::string_view(lines[i]).substr(kLastError.size()));
    const auto last = rest.empty() && i + 1 < lines.size() ? trim(lines[i + 1]) : rest;
    if (!last.empty()) reason.append("; NCCL's last error: ").append(last);
  }
  return reason;
}

bool is_device_error(std::string_view text) {
  return text.find("CUDA error") != std::string_view::npos ||
         text.find("unhandled cuda error") != std::string_view::npos;
}

std::string advice_to_connect(std::string_view text, bool has_device) {
  if (is_device_error(text))
    return ". This rank's own device failed: see what nvidia-smi and dmesg say about it, and which processes hold its "
           "memory";
  return ". Did a rank fail to start? On several networks, name the interface in GLOO_SOCKET_IFNAME" +
         std::string(has_device ? ", and NCCL's in NCCL_SOCKET_IFNAME or NCCL_IB_HCA" : "");
}

}  // namespace titan::dist
