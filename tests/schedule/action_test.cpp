// The text of actions and cells, there and back.
#include "schedule/action.h"

#include <gtest/gtest.h>

#include "tests/schedule/streams.h"

namespace penstock::schedule {
namespace {

TEST(Action, TextAndBack) {
  for (const char* text : {"0F0", "2B13", "10I4", "7W2147483647", "(0F7;7B3)OVERLAP_F_B", ""}) {
    EXPECT_EQ(to_text(parse_cell(text)), text);
  }
  const Cell cell = parse_cell("12I34");
  ASSERT_EQ(cell.actions().size(), 1u);
  EXPECT_EQ(cell.actions()[0], (Action{ActionKind::kBackwardInput, StageId{12}, MicroBatchId{34}}));
  EXPECT_TRUE(Cell().idle());
  EXPECT_TRUE(parse_cell("(0F7;7B3)OVERLAP_F_B").overlapped());
}

TEST(Action, RefusesWhatIsNotTheWholeCell) {
  for (const char* text : {"F0",
                           "0F",
                           "0X0",
                           "0F0 ",
                           " 0F0",
                           "0F0x",
                           "-1F0",
                           "0F-1",
                           "00F0",
                           "0F01",
                           "0F2147483648",
                           "0f0",
                           "0FF0",
                           "(0F0;1B0)",
                           "(0F0;1B0)OVERLAP_F_B ",
                           "(0F0,1B0)OVERLAP_F_B",
                           "(0F0;1B0;2F0)OVERLAP_F_B",
                           "(1B0;0F0)OVERLAP_F_B",
                           "(0F0;1I0)OVERLAP_F_B",
                           "(0F0;0B0)OVERLAP_F_B",
                           "()OVERLAP_F_B",
                           "(",
                           "0UNSHARD"}) {
    EXPECT_THROW(parse_cell(text), ScheduleError) << text;
  }
  EXPECT_EQ(error_of([] { parse_cell("0F0junk"); }),
            "\"0F0junk\" is not an action: something follows the micro batch; expected stage, kind "
            "and micro batch, such as 2F0 (kinds F, B, I, W), or (0F7;7B3)OVERLAP_F_B");
}

}  // namespace
}  // namespace penstock::schedule
