#include "distributed/network_interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <array>
#include <memory>

#include "base/text.h"

namespace titan::dist {

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  std::vector<Interface> v4, v6;
  for (const auto* each = first; each; each = each->ifa_next) {
    if (!each->ifa_addr || !(each->ifa_flags & IFF_UP)) continue;
    const bool is_v4 = each->ifa_addr->sa_family == AF_INET;
    if (!is_v4 && each->ifa_addr->sa_family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      (is_v4 ? v4 : v6).push_back({each->ifa_name, text.data()});
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

std::string text_of(const std::vector<Interface>& interfaces) {
  std::vector<std::string> words;
  for (const auto& [name, address] : interfaces) words.push_back(name + " (" + address + ")");
  return words.empty() ? "none" : join(words, ", ");
}

}  // namespace titan::dist
