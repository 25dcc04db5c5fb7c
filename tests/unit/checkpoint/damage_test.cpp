// Truncated, torn and flipped files give an error that names the place, never a crash or wrong values.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/planner.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ranks(1, [&](Ranks& ranks) { save(ck_, {shard("w", content_, 0, 1), value("step", 3)}, ranks); });
  }

  void overwrite(const std::string& name, const std::string& bytes) {
    std::ofstream(ck_ / name, std::ios::binary) << bytes;
  }

  // Returns "" if the load succeeds with the right content, else the error.
  std::string load_error() {
    const auto errors = run_ranks(2, [&](Ranks& ranks) {
      TensorItem item = shard("w", content_, ranks.rank(), 2);
      const at::Tensor want = item.local.clone();
      item.local.zero_();
      const Values values = load(ck_, {item, value("step", {})}, ranks);
      if (!at::equal(item.local, want) || values.at("step") != Value(3)) throw std::runtime_error("WRONG CONTENT");
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  }

  TemporaryFolder folder_;
  fs::path ck_ = folder_ / "ck";
  at::Tensor content_ = at::arange(40, at::kFloat).reshape({8, 5});
};

TEST_F(Damage, TheUndamagedOneLoads) { EXPECT_EQ(load_error(), ""); }

TEST_F(Damage, MissingMetadataIsNoCheckpoint) {
  fs::remove(ck_ / ".metadata");
  EXPECT_FALSE(is_complete(ck_));
  EXPECT_NE(load_error().find("no .metadata file"), std::string::npos);
}

TEST_F(Damage, TruncatedDataNamesFileSizeAndItems) {
  const std::string data = read_file(ck_ / "__0_0.distcp");
  overwrite("__0_0.distcp", data.substr(0, data.size() - 1));
  const std::string error = load_error();
  EXPECT_NE(error.find("__0_0.distcp has " + std::to_string(data.size() - 1) + " bytes and is truncated; lost: w"),
            std::string::npos)
      << error;
}

TEST_F(Damage, AMissingDataFileIsNamed) {
  fs::remove(ck_ / "__0_0.distcp");
  EXPECT_NE(load_error().find("__0_0.distcp: No such file"), std::string::npos);
}

TEST_F(Damage, EveryCutOfMetadataIsAnError) {
  const std::string metadata = read_file(ck_ / ".metadata");
  for (std::size_t size = 0; size < metadata.size(); ++size) {
    EXPECT_THROW(decode_metadata(metadata.substr(0, size), ".metadata"), CheckpointError) << size;
  }
}

TEST_F(Damage, FlippedMetadataNeverGivesWrongContent) {
  const std::string metadata = read_file(ck_ / ".metadata");
  for (std::size_t at = 0; at < metadata.size(); at += 3) {
    std::string damaged = metadata;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    overwrite(".metadata", damaged);
    EXPECT_EQ(load_error().find("WRONG CONTENT"), std::string::npos) << at;
  }
}

TEST_F(Damage, FlippedPayloadIsFoundWhenAllOfItIsRead) {
  const std::string data = read_file(ck_ / "__0_0.distcp");
  const float one = 39.0F;  // the last element
  const auto at = data.find(std::string(reinterpret_cast<const char*>(&one), 4));
  ASSERT_NE(at, std::string::npos);
  std::string damaged = data;
  damaged[at + 1] ^= 1;
  overwrite("__0_0.distcp", damaged);
  const auto errors = run_ranks(1, [&](Ranks& ranks) { load(ck_, {shard("w", content_, 0, 1)}, ranks); });
  EXPECT_NE(errors[0].find("do not match their checksum"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("w in "), std::string::npos) << errors[0];
}

TEST_F(Damage, PathsOutOfTheFolderAreRefused) {
  Metadata metadata = read_metadata(ck_);
  for (const char* path : {"../secret", "/etc/passwd", "a/../../b"}) {
    set_location(metadata, {"w", 0}, {path, 0, 10});
    const std::string bytes = encode_metadata(metadata, {{"w", 0}, {"step", std::nullopt}}, ck_, "id");
    EXPECT_THROW(decode_metadata(bytes, "x"), CheckpointError) << path;
  }
}

}  // namespace
}  // namespace titan::checkpoint
