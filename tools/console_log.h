// The log sink of the tools: writes events to standard error through spdlog.
#pragma once

#include <memory>

#include "tensor/log.h"

namespace penstock::tools {

// Lines such as "12:03:41 info  step 10: loss 2.31". Safe to share between ranks on threads.
std::unique_ptr<tensor::Log> make_console_log(bool verbose);

}  // namespace penstock::tools
