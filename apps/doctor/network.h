// Checks of how ranks find each other. Nothing here is collective.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor/check.h"
#include "base/env.h"
#include "distributed/network_interfaces.h"

namespace titan::doctor {

// Returns the addresses of a host in the order in which they would be tried; empty if it has none.
std::vector<std::string> resolve(const std::string& host);

// Runs the checks below that apply.
Checks check_network(const LaunchEnv& launch, const EnvGetter& get = get_env);

// The single checks:

// Reports what started this process, and on how many ranks and machines.
Check check_launch(const LaunchEnv& launch);
// Check a variable that names an interface (GLOO_SOCKET_IFNAME) or prefixes of names (NCCL_SOCKET_IFNAME).
Check check_gloo_interface(const std::string& name, const std::vector<dist::Interface>& present);
Check check_nccl_interface(const std::string& names, const std::vector<dist::Interface>& present);
// Checks the address that Gloo uses if no variable names an interface. `addresses`: those of the host's name.
Check check_host_name(const std::string& host, const std::vector<std::string>& addresses,
                      const std::vector<dist::Interface>& present, bool is_one_machine);
// Checks the address where the ranks meet. `addresses`: those of the launch's master_addr.
Check check_master(const LaunchEnv& launch, const std::vector<std::string>& addresses);

}  // namespace titan::doctor
