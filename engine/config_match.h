// Regular expressions in a configuration: optimizer.groups and frozen_parameters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace penstock::engine {

// Why `pattern` cannot be used as a regular expression (ECMAScript); nothing if it can.
std::optional<std::string> regex_fault(std::string_view pattern);

}  // namespace penstock::engine
