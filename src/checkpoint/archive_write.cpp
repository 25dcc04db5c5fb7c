#include <ATen/ATen.h>

#include <cstdio>

#include "checkpoint/archive.h"
#include "checkpoint/dtype.h"
#include "checkpoint/pickle_writer.h"
#include "checkpoint/value_pickle.h"
#include "checkpoint/zip_writer.h"

namespace titan::checkpoint {
namespace {

void number_tuple(PickleWriter& out, at::IntArrayRef numbers) {
  if (numbers.empty()) {
    out.empty_tuple();
    return;
  }
  out.mark();
  for (const std::int64_t number : numbers) out.integer(number);
  out.tuple_from_mark();
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks) of the storage "data/0".
std::string tensor_pickle(const at::Tensor& tensor) {
  PickleWriter out(2);
  out.global("torch._utils", "_rebuild_tensor_v2");
  out.mark();
  out.mark();
  out.text("storage");
  out.global("torch", storage_class(tensor.scalar_type()));
  out.text("0");
  out.text("cpu");
  out.integer(tensor.numel());
  out.tuple_from_mark();
  out.persistent_id();
  out.integer(0);
  number_tuple(out, tensor.sizes());
  number_tuple(out, tensor.strides());
  out.boolean(false);
  out.global("collections", "OrderedDict");
  out.empty_tuple();
  out.reduce();
  out.tuple_from_mark();
  out.reduce();
  return out.finish();
}

void leading_records(ZipWriter& zip, const std::string& pickle) {
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", "64");
  zip.add("archive/byteorder", "little");
}

std::uint64_t finish(ZipWriter& zip) {
  zip.add("archive/version", "3\n");
  // 40 digits that tell one content from another.
  std::array<char, 41> id{};
  std::snprintf(id.data(), id.size(), "%040u", zip.combined_crc());
  zip.add("archive/.data/serialization_id", std::string_view(id.data(), 40));
  return zip.finish();
}

}  // namespace

std::uint64_t write_tensor_archive(OutputFile& out, const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  ZipWriter zip(out);
  leading_records(zip, tensor_pickle(host));
  zip.add("archive/data/0", host.const_data_ptr(), host.nbytes());
  return finish(zip);
}

std::uint64_t write_value_archive(OutputFile& out, const Value& value) {
  ZipWriter zip(out);
  leading_records(zip, pickle_value(value, 2));
  return finish(zip);
}

}  // namespace titan::checkpoint
