#include "config/keys/source.h"

#include <gmock/gmock.h>

#include "support.h"

namespace titan::config {
namespace {

Origin flag(const std::string& key) { return {nullptr, {}, "command line", "--" + key}; }

class AtItsPlace : public ::testing::Test {
 protected:
  Origins origins_ = {{"training.steps", flag("training.steps")}, {"training.seq_len", flag("training.seq_len")}};
};

TEST_F(AtItsPlace, GoesByKeysNotByWords) {
  const std::string message = "training.steps is named in passing";
  EXPECT_EQ(with_location(Fault{message, {"training.seq_len"}}, origins_),
            "command line: error: --training.seq_len: " + message);
  EXPECT_EQ(with_location(Fault{message, {}}, origins_), "error: " + message);
}

TEST_F(AtItsPlace, TheFirstKeyThatWasGivenIsThePlaceAndOthersAreNotes) {
  EXPECT_EQ(with_location(Fault{"m", {"debug.seed", "training.steps", "training.seq_len", "training.steps"}}, origins_),
            "command line: error: --training.steps: m\n     = training.seq_len is set by --training.seq_len");
  EXPECT_EQ(with_location(Fault{"m", {"debug.seed"}}, origins_), "error: m");
}

TEST_F(AtItsPlace, AFlagSaysItsKeyOnce) {
  EXPECT_EQ(with_location(Fault{"training.steps: m", {"training.steps"}}, origins_),
            "command line: error: --training.steps: m");
}

TEST_F(AtItsPlace, ErrorsBelowAKeyKeepTheirOwnOnes) {
  const Fault fault = below_key("training.dataset_path", DataError("too short for m", {"training.seq_len"}));
  EXPECT_EQ(fault.message, "training.dataset_path: too short for m");
  EXPECT_THAT(fault.keys, ::testing::ElementsAre("training.dataset_path", "training.seq_len"));
  EXPECT_EQ(with_location(ConfigError("m", {"training.steps"}), origins_), "command line: error: --training.steps: m");
}

TEST(ThrowIfWrong, AllErrorsAreOne) {
  EXPECT_EQ(error_of([] { throw_if_wrong({}); }), "no error");
  EXPECT_EQ(error_of([] { throw_if_wrong({"error: a"}); }), "error: a");
  EXPECT_EQ(error_of([] { throw_if_wrong({"error: a", "error: b"}); }), "error: a\nerror: b\n2 errors");
}

}  // namespace
}  // namespace titan::config
