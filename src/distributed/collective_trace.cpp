#include "distributed/collective_trace.h"

#include <cstdlib>
#include <fstream>
#include <mutex>

#include "base/error.h"

namespace titan::dist {
namespace {

struct TraceFile {
  std::mutex mutex;
  std::ofstream file;
  std::string path;
};

TraceFile* open_trace() {
  const char* path = std::getenv("TITAN_TRACE_COLLECTIVES");
  if (!path || !*path) return nullptr;
  auto* trace = new TraceFile;  // never freed: threads may still use it at exit
  trace->path = path;
  trace->file.open(path, std::ios::trunc);
  return trace;
}

}  // namespace

void trace_collective(int global_rank, const char* kind, const std::string& group, std::int64_t input_numel,
                      std::int64_t output_numel, at::ScalarType dtype) {
  if (global_rank != 0) return;
  static TraceFile* const trace = open_trace();
  if (!trace) return;
  const std::lock_guard lock(trace->mutex);
  trace->file << kind << ' ' << group << ' ' << input_numel << ' ' << output_numel << ' '
              << c10::getDtypeNames(dtype).first << std::endl;
  if (!trace->file) throw Error("cannot write " + trace->path + ", which TITAN_TRACE_COLLECTIVES names", kExitFailed);
}

}  // namespace titan::dist
