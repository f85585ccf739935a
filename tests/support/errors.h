// The text of an expected error.
#pragma once

#include <string>

namespace penstock::testing {

// What the E that a call throws says.
template <class E, class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace penstock::testing
