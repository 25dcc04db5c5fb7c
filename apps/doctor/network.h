// Checks of how ranks find each other. Nothing here is collective.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "base/env.h"

namespace titan::doctor {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.7"
};

// Of this machine that are up, IPv4 before IPv6.
std::vector<Interface> interfaces();

// The addresses of a host, in the order in which they would be tried; nothing where it has none.
std::vector<std::string> resolve(const std::string& host);

// All of them.
Checks check_network(const LaunchEnv& launch, const EnvGetter& get = get_env);

// Of those, what decides:

// Who started this process, and as which of how many.
Check check_launch(const LaunchEnv& launch);
// A variable with the name of an interface (GLOO_SOCKET_IFNAME), or with beginnings of names (NCCL_SOCKET_IFNAME).
Check check_gloo_interface(const std::string& name, const std::vector<Interface>& present);
Check check_nccl_interface(const std::string& names, const std::vector<Interface>& present);
// The address that Gloo takes when no variable names an interface: `addresses` are those of the host's name.
Check check_host_name(const std::string& host, const std::vector<std::string>& addresses,
                      const std::vector<Interface>& present, bool is_one_machine);
// Where the ranks meet; `addresses` are those of the launch's master_addr.
Check check_master(const LaunchEnv& launch, const std::vector<std::string>& addresses);

}  // namespace titan::doctor
