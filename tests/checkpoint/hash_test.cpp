#include "checkpoint/hash.h"

#include <algorithm>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace penstock::checkpoint {
namespace {

// The values are those of Python's xxhash.xxh3_64_hexdigest.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(to_hex(checksum_of("")), "2d06800538d394c2");
  EXPECT_EQ(to_hex(checksum_of("penstock")), "fb5a0b813e4c7327");
}

TEST(Checksum, DoesNotDependOnHowTheBytesArrive) {
  std::string bytes;
  for (int i = 0; i < 25600; ++i) bytes.push_back(static_cast<char>(i % 256));
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, bytes.size()}) {
    Checksum checksum;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      checksum.update(std::as_bytes(std::span(bytes).subspan(i, std::min(step, bytes.size() - i))));
    }
    checksum.update({});
    EXPECT_EQ(to_hex(checksum.value()), "98276b6025d637ae") << step;
  }
}

TEST(Checksum, HexadecimalIsExact) {
  std::uint64_t value = 0;
  EXPECT_TRUE(from_hex("00000000000000ff", value));
  EXPECT_EQ(value, 255u);
  EXPECT_EQ(to_hex(255), "00000000000000ff");
  for (const char* text : {"ff", "00000000000000FF", "00000000000000fg", "0x000000000000ff",
                           "+0000000000000ff", "000000000000000ff", ""}) {
    EXPECT_FALSE(from_hex(text, value)) << text;
  }
}

}  // namespace
}  // namespace penstock::checkpoint
