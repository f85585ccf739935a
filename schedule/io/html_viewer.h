// The page that shows traces, without their data. Private to html.cpp.
#pragma once

#include <string_view>

namespace penstock::schedule {

// What stands before and after the data, which is the text of a JSON script element.
extern const std::string_view kViewerHead;
extern const std::string_view kViewerTail;

}  // namespace penstock::schedule
