// Checks one value against its row of the key table.
#pragma once

#include <optional>
#include <string>

#include "engine/config_keys.h"
#include "engine/json_value.h"

namespace penstock::engine {

// The value in a message: `the string "true"`, `4.5`, `a list`.
std::string describe(const JsonValue& value);

// What is wrong with the value's type or range; nothing if the row's system could take it. Values
// that this version refuses pass here: see refusal().
std::optional<std::string> value_fault(const KeyRow& row, const JsonValue& value);

// Why this version does not take a value that passes value_fault(); nothing if it does.
std::optional<std::string> refusal(const KeyRow& row, const JsonValue& value);

}  // namespace penstock::engine
