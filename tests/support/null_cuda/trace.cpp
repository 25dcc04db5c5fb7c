#include "tests/support/null_cuda/trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/support/null_cuda/observer.h"
#include "tests/support/null_cuda/settings.h"

namespace titan_null {
namespace {

using Counts = std::map<std::string, long>;

struct Trace {
  std::mutex mutex;
  std::unordered_map<const void*, std::pair<const char*, long>> launches;  // by the address of the name
  Counts calls, waits;
  long num_launches = 0;
  std::array<std::size_t, 64> peaks{};
};

Trace& trace() {
  static auto& all = *new Trace;
  return all;
}

std::string readable(const char* mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  return name;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

void write_counts(std::ostream& out, const char* name, const Counts& counts) {
  out << ",\n\"" << name << "\": {";
  const char* between = "\n  ";
  for (const auto& [what, count] : counts) {
    out << between << quoted(what) << ": " << count;
    between = ",\n  ";
  }
  out << "}";
}

}  // namespace

long count_launch(const char* kernel) {
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  auto& [name, count] = all.launches[kernel];
  name = kernel;
  ++count;
  return ++all.num_launches;
}

void count_call(const char* function) {
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  ++all.calls[function];
}

void count_wait(const char* function) {
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  ++all.waits[function];
}

void note_memory(int device, std::size_t bytes) {
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  auto& peak = all.peaks.at(static_cast<std::size_t>(device));
  peak = std::max(peak, bytes);
}

void write_trace() {
  if (settings().trace_folder.empty()) return;
  Trace& all = trace();
  const std::lock_guard lock(all.mutex);
  if (all.num_launches == 0 && all.calls.empty()) return;
  Counts launches;
  for (const auto& [address, launch] : all.launches) launches[readable(launch.first)] += launch.second;
  const std::string file =
      settings().trace_folder + "/null_cuda." + std::to_string(own_rank()) + "." + std::to_string(::getpid()) + ".json";
  std::ofstream out(file);
  out << "{\"rank\": " << own_rank() << ", \"pid\": " << ::getpid() << ", \"num_launches\": " << all.num_launches
      << ",\n\"peak_bytes\": [";
  for (int device = 0; device < settings().num_devices; ++device)
    out << (device > 0 ? ", " : "") << all.peaks[static_cast<std::size_t>(device)];
  out << "]";
  write_counts(out, "waits", all.waits);
  write_counts(out, "calls", all.calls);
  write_counts(out, "launches", launches);
  out << "}\n";
}

namespace {

// Writes the counts of a process that ends by returning from main() or by exit().
__attribute__((destructor)) void at_exit() {
  write_trace();
  end_observer();
}

}  // namespace
}  // namespace titan_null

// Programs whose threads still run end by _exit(), which runs no destructors.
extern "C" void _exit(int status) {
  titan_null::write_trace();
  titan_null::end_observer();
  static const auto real = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_NEXT, "_exit"));
  real(status);
  __builtin_unreachable();
}
