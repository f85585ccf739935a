// `--set path=value` on a configuration.
#pragma once

#include <string_view>

#include "engine/json_value.h"

namespace penstock::engine {

// Sets the value at a dotted path, "optimizer.params.lr=3e-4": missing sections are made, a number
// picks an element of a list ("optimizer.groups.0.lr=0"). The value is read as JSON and, where it
// is not JSON, taken as a string, so that `optimizer.type=SGD` needs no quotes. Throws ConfigError;
// checks form only, the keys are checked with the whole configuration.
void apply_override(JsonValue& root, std::string_view assignment);

}  // namespace penstock::engine
