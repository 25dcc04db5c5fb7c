#include "apps/doctor/network.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/process/rank_process.h"
#include "base/text.h"

namespace titan::doctor {
namespace {

std::optional<std::string> address_text(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return std::nullopt;
  return std::string(text.data());
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const auto* each = first; each; each = each->ai_next)
    if (const auto address = address_text(each->ai_addr, each->ai_addrlen)) addresses.push_back(*address);
  return addresses;
}

Check check_launch(const LaunchEnv& launch) {
  const std::int64_t machines = (launch.world_size + launch.local_world_size - 1) / launch.local_world_size;
  std::string found = to_string(launch.launcher);
  if (launch.launcher == Launcher::kAlone) found = "started alone";
  if (launch.launcher == Launcher::kTorchrun) found = "--nproc, torchrun, or another launcher with its variables";
  found += ", " + counted(launch.world_size, "rank") + " on " + counted(machines, "machine");
  return ok("launch", found);
}

Check check_gloo_interface(const std::string& name, const std::vector<dist::Interface>& present) {
  const auto it = std::ranges::find(present, name, &dist::Interface::name);
  if (it != present.end()) return ok("GLOO_SOCKET_IFNAME", name + " (" + it->address + ")");
  return failure("GLOO_SOCKET_IFNAME", name + ", and this machine's interfaces are " + dist::text_of(present),
                 "set it to one of these, or unset it");
}

Check check_nccl_interface(const std::string& names, const std::vector<dist::Interface>& present) {
  if (names.starts_with('^')) return ok("NCCL_SOCKET_IFNAME", names + " (all but these)");
  const bool is_exact = names.starts_with('=');
  for (const auto& name : split(is_exact ? names.substr(1) : names, ',')) {
    const auto it = std::ranges::find_if(
        present, [&](const auto& each) { return is_exact ? each.name == name : each.name.starts_with(name); });
    if (it != present.end()) return ok("NCCL_SOCKET_IFNAME", names + ": " + it->name + " (" + it->address + ")");
  }
  return failure("NCCL_SOCKET_IFNAME", names + ", and this machine's interfaces are " + dist::text_of(present),
                 "set it to one of these, or unset it");
}

Check check_host_name(const std::string& host, const std::vector<std::string>& addresses,
                      const std::vector<dist::Interface>& present, bool is_one_machine) {
  const std::string advice =
      "set GLOO_SOCKET_IFNAME to the interface that the other machines reach, of " + dist::text_of(present);
  if (addresses.empty()) {
    const std::string found = "\"" + host + "\" has no address";
    return is_one_machine ? ok("host name", found + "; ranks of one machine need none")
                          : failure("host name", found, advice + ", or add the name to /etc/hosts");
  }
  const auto it = std::ranges::find(present, addresses.front(), &dist::Interface::address);
  const std::string found = "\"" + host + "\" is " + addresses.front() +
                            (it == present.end() ? ", which no interface of this machine has" : " (" + it->name + ")");
  if (is_one_machine) return ok("host name", found + "; ranks of one machine use 127.0.0.1");
  if (it == present.end() || is_loopback(addresses.front())) return failure("host name", found, advice);
  return ok("host name", found);
}

Check check_master(const LaunchEnv& launch, const std::vector<std::string>& addresses) {
  if (launch.world_size == 1) return ok("meeting point", "one rank needs none");
  if (launch.master_port == 0) return ok("meeting point", "a file in the temporary folder");
  const std::string found = launch.master_addr + ":" + std::to_string(launch.master_port);
  if (addresses.empty())
    return failure("meeting point", found + ", and " + launch.master_addr + " has no address",
                   "set MASTER_ADDR to a name or an address of the machine of rank 0");
  const bool is_one_machine = launch.local_world_size == launch.world_size;
  if (!is_one_machine && is_loopback(addresses.front()))
    return failure("meeting point", found + ", which means another machine on each",
                   "set MASTER_ADDR to an address of the machine of rank 0 that the others reach");
  return ok("meeting point", found + (launch.use_agent_store ? ", served by the launcher" : ""));
}

Checks check_network(const LaunchEnv& launch, const EnvGetter& get) {
  const auto present = dist::interfaces();
  const bool is_one_machine = launch.local_world_size == launch.world_size;
  Checks checks = {check_launch(launch)};
  const auto gloo = get("GLOO_SOCKET_IFNAME");
  if (gloo) checks.push_back(check_gloo_interface(*gloo, present));
  if (const auto nccl = get("NCCL_SOCKET_IFNAME")) checks.push_back(check_nccl_interface(*nccl, present));
  const auto host = host_name();
  if (!gloo) checks.push_back(check_host_name(host, resolve(host), present, is_one_machine));
  checks.push_back(check_master(launch, resolve(launch.master_addr)));
  return checks;
}

}  // namespace titan::doctor
