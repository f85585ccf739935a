#include <string>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "tensor/error.h"
#include "tests/checkpoint/support.h"

namespace penstock::checkpoint::testing {
namespace {

TEST(Names, FilesNameLayerAndModelIndex) {
  EXPECT_EQ(model_states_file(3, 0), "layer_03-model_00-model_states.safetensors");
  EXPECT_EQ(model_states_file(123, 12), "layer_123-model_12-model_states.safetensors");
  EXPECT_EQ(optim_states_file(3, 0), "layer_03-model_00-optim_states.safetensors");
  EXPECT_EQ(optim_states_file(3, 1, 7), "layer_03-model_01-data_07-optim_states.safetensors");
  EXPECT_THROW(model_states_file(-1, 0), tensor::InvalidArgument);
}

TEST(Names, TagsAreNamesOfDirectories) {
  for (const char* tag : {"step10", "global_step100", "a.b", "x tmp", "epoch 3 (best)", "\xC3\xA9",
                          "tmp", "latest2"}) {
    EXPECT_NO_THROW(validate_tag(tag)) << tag;
  }
  for (const std::string& tag :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"),
        std::string("a\\b"), std::string("latest"), std::string("a.tmp"), std::string("a.old"),
        std::string(" a"), std::string("a "), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\xff"), std::string(201, 'a')}) {
    EXPECT_THROW(validate_tag(tag), tensor::InvalidArgument) << tag;
  }
  EXPECT_NO_THROW(validate_tag(std::string(200, 'a')));
}

}  // namespace
}  // namespace penstock::checkpoint::testing
