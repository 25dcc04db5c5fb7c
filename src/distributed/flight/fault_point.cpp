#include "distributed/flight/fault_point.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string>
#include <thread>

#include "base/error.h"

namespace titan::dist {
namespace {

constexpr const char* kFaultVariable = "TITAN_FAULT_POINT";
constexpr int kIllegalAddress = 700;  // cudaErrorIllegalAddress

struct OrderedFault {
  int rank = -1, n = 1;
  std::string at, action;
};

OrderedFault read_ordered_fault() {
  const char* text = std::getenv(kFaultVariable);
  std::istringstream words(text ? text : "");
  OrderedFault fault;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "rank" && !value.empty()) {
      fault.rank = std::atoi(value.c_str());
    } else if (key == "n" && !value.empty()) {
      fault.n = std::atoi(value.c_str());
    } else if (key == "at") {
      fault.at = value;
    } else if (key == "do") {
      fault.action = value;
    } else {
      throw ConfigError(std::string("environment: ") + kFaultVariable + ": cannot read '" + word + "'");
    }
  }
  return fault;
}

[[noreturn]] void sleep_until_ended() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace

const bool has_fault_point = std::getenv(kFaultVariable) != nullptr;

Fault meet_fault(int rank, std::string_view kind) {
  static const OrderedFault fault = read_ordered_fault();
  static std::atomic<int> seen = 0;
  if ((fault.rank >= 0 && fault.rank != rank) || (!fault.at.empty() && fault.at != kind)) return Fault::kNone;
  if (++seen != fault.n) return Fault::kNone;
  if (fault.action == "kill") ::kill(::getpid(), SIGKILL);
  if (fault.action == "hang") sleep_until_ended();
  if (fault.action == "bad_alloc") throw std::bad_alloc();
  if (fault.action == "device_error")
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kIllegalAddress,
                                "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be "
                                "asynchronously reported at some other API call");
  if (fault.action == "extra") return Fault::kExtra;
  if (fault.action == "shape") return Fault::kShape;
  if (fault.action == "dtype") return Fault::kDtype;
  throw ConfigError(std::string("environment: ") + kFaultVariable + ": no fault is named '" + fault.action + "'");
}

}  // namespace titan::dist
