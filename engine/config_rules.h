// What the keys of a configuration say together.
#pragma once

#include <string_view>

#include "engine/config_problems.h"
#include "engine/json_value.h"

namespace penstock::engine {

// The value at a dotted path of a document; nullptr if it is not there, null, or "auto" where that
// stands for the default.
const JsonValue* given(const JsonValue& root, std::string_view path);

// Adds each contradiction between the keys of a document whose single values are valid.
void find_contradictions(const JsonValue& root, Problems& problems);

}  // namespace penstock::engine
