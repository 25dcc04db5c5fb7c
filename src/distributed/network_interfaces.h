// Lists the network interfaces of this machine.
#pragma once

#include <string>
#include <vector>

namespace titan::dist {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7"
};

// Returns the interfaces of this machine that are up, one for each address, IPv4 before IPv6.
std::vector<Interface> interfaces();

// Returns "lo (127.0.0.1), eth0 (10.0.0.7)"; "none" if there are none.
std::string text_of(const std::vector<Interface>& interfaces);

}  // namespace titan::dist
