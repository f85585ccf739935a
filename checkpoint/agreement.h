// How ranks agree that all of them may go on.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::comm {
class World;
}

namespace penstock::checkpoint {

// What fn threw, as text; nothing when it returned. fn must not communicate.
template <class Fn>
std::optional<std::string> failure_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Collective. Returns when no rank has a failure; else throws the same FileError on every rank:
// "[where] ranks 1, 3: failure; consequence".
void agree(comm::World& world, std::string_view where, const std::optional<std::string>& failure,
           std::string_view consequence);

// Collective. Throws the same FileError on every rank unless the value is the same on all;
// `shown` is this rank's value as people read it.
void agree_same(comm::World& world, std::string_view where, std::uint64_t value,
                std::string_view shown);

}  // namespace penstock::checkpoint
