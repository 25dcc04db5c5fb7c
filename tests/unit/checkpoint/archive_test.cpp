#include "checkpoint/format/archive.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "checkpoint/format/zip_writer.h"
#include "checkpoint/io/crc32.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

TEST(Crc32, KnownAnswersAndPieces) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xCBF43926u);  // the check value that every CRC catalogue gives
  EXPECT_EQ(crc32(0, "", 0), 0u);
  std::string text(1000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37 + i / 7);
  const std::uint32_t whole = crc32(0, text.data(), text.size());
  for (std::size_t cut : {1u, 15u, 16u, 17u, 500u, 999u})
    EXPECT_EQ(crc32(crc32(0, text.data(), cut), text.data() + cut, text.size() - cut), whole);
}

TEST(Archive, TensorsOfAllTypesRoundTrip) {
  const TemporaryFolder folder;
  auto tensors = sample_tensors();
  tensors.emplace_back("scalar", at::scalar_tensor(2.5, at::kDouble));
  tensors.emplace_back("transposed", at::arange(12, at::kFloat).reshape({3, 4}).t());
  tensors.emplace_back("int8", at::arange(5, at::kChar));
  for (const auto& [name, tensor] : tensors) {
    std::uint64_t length = 0;
    {
      OutputFile out(folder / name);
      out.append("before", 6);
      length = write_tensor_archive(out, tensor);
      out.append("after", 5);
      out.finish();
    }
    const InputFile file(folder / name);
    ASSERT_EQ(file.size(), length + 11);
    const ZipReader zip(file, 6, length, name);
    EXPECT_EQ((zip.payload_offset(zip.get("data/0")) - 6) % 64, 0u);
    const StoredTensor stored(zip);
    EXPECT_EQ(stored.dtype(), tensor.scalar_type());
    const at::Tensor back = at::empty(tensor.sizes(), tensor.options());
    stored.read_box(std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim()), 0), back);
    EXPECT_TRUE(at::equal(back, tensor)) << name;
  }
}

TEST(Archive, BoxesReadOnlyTheirPartAndCast) {
  const TemporaryFolder folder;
  const at::Tensor whole = at::arange(5 * 4 * 3, at::kFloat).reshape({5, 4, 3});
  std::uint64_t length = 0;
  {
    OutputFile out(folder / "t");
    length = write_tensor_archive(out, whole);
    out.finish();
  }
  const InputFile file(folder / "t");
  const ZipReader zip(file, 0, length, "t");
  const StoredTensor stored(zip);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    const at::Tensor rows = at::zeros({2, 4, 3}, dtype);
    stored.read_box({3, 0, 0}, rows);
    EXPECT_TRUE(at::equal(rows, whole.narrow(0, 3, 2).to(dtype)));
    const at::Tensor inner = at::zeros({5, 2, 2}, dtype);
    stored.read_box({0, 1, 1}, inner);
    EXPECT_TRUE(at::equal(inner, whole.narrow(1, 1, 2).narrow(2, 1, 2).to(dtype)));
    const at::Tensor wide = at::zeros({2, 8, 3}, dtype);
    stored.read_box({1, 0, 0}, wide.narrow(1, 2, 4));  // a target that is not contiguous
    EXPECT_TRUE(at::equal(wide.narrow(1, 2, 4), whole.narrow(0, 1, 2).to(dtype)));
    EXPECT_TRUE(at::equal(wide.narrow(1, 6, 2), at::zeros({2, 2, 3}, dtype)));
  }
}

TEST(Archive, EveryCutAndEveryFlippedByteOfATensorIsFound) {
  const TemporaryFolder folder;
  const at::Tensor tensor = at::arange(32, at::kFloat);
  std::uint64_t length = 0;
  {
    OutputFile out(folder / "t");
    length = write_tensor_archive(out, tensor);
    out.finish();
  }
  std::string good(length, '\0');
  InputFile(folder / "t").read(0, good.data(), length);
  const auto read = [&](const std::string& bytes) {
    {
      OutputFile out(folder / "damaged");
      out.append(bytes.data(), bytes.size());
      out.finish();
    }
    const InputFile file(folder / "damaged");
    const ZipReader zip(file, 0, bytes.size(), "t");
    const StoredTensor stored(zip);
    if (stored.sizes() != std::vector<std::int64_t>{32}) throw CheckpointError("other sizes");
    const at::Tensor back = at::zeros({32}, at::kFloat);
    stored.read_box({0}, back);
    return back;
  };
  EXPECT_TRUE(at::equal(read(good), tensor));
  for (std::size_t size = 0; size < length; size += 7)
    EXPECT_THROW(read(good.substr(0, size)), CheckpointError) << size;
  // A flip in padding or in a field that no reader needs may pass; then the values must be right.
  int found = 0;
  for (std::size_t at = 0; at < length; ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    try {
      EXPECT_TRUE(at::equal(read(damaged), tensor)) << "undetected damage at byte " << at;
    } catch (const CheckpointError&) {
      ++found;
    }
  }
  EXPECT_GT(found, 128);  // at least the payload
}

}  // namespace
}  // namespace titan::checkpoint
