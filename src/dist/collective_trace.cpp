#include "dist/collective_trace.h"

#include <c10/core/ScalarType.h>

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
  auto* trace = new TraceFile;  // until the process ends, whenever its threads do
  trace->path = path;
  trace->file.open(path, std::ios::trunc);
  return trace;
}

}  // namespace

void trace_collective(int global_rank, const char* kind, const std::string& group, const at::Tensor& input,
                      const at::Tensor& output) {
  if (global_rank != 0) return;
  static TraceFile* const trace = open_trace();
  if (!trace) return;
  const std::lock_guard lock(trace->mutex);
  trace->file << kind << ' ' << group << ' ' << input.numel() << ' ' << output.numel() << ' '
              << c10::getDtypeNames(input.scalar_type()).first << std::endl;
  if (!trace->file) throw Error("cannot write " + trace->path + ", which TITAN_TRACE_COLLECTIVES names", kExitFailed);
}

}  // namespace titan::dist
