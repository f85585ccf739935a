// Readers under inputs that nobody would write: random changes of good ones, the same in every run
// of the same seed. A target says what must hold for each input.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::fuzz {

// What an input has shown to be wrong with the code.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* claim) {
  if (!holds) throw Violation(claim);
}

struct Target {
  std::string_view name;
  std::vector<std::string> seeds;   // inputs to change, all of which are accepted
  std::vector<std::string> tokens;  // what inputs are made of
  std::string_view separators;      // what stands between parts that may change places
  // Whether the reader accepts the input. Any exception, or a report of a sanitizer, is a find.
  bool (*accepts)(std::string_view input);
};

Target config_target();
Target csv_target();
Target override_target();

// Makes inputs by changing seeds, and those changed inputs that were accepted and not become short.
class Mutator {
 public:
  Mutator(const Target& target, std::uint64_t seed);

  std::string next();
  // To be built upon.
  void keep(const std::string& accepted);

 private:
  std::uint64_t random();
  std::size_t below(std::size_t bound);
  void change(std::string& input);
  void change_bytes(std::string& input);
  void change_token(std::string& input);
  void swap_neighbours(std::string& input);

  std::vector<std::string> seeds_, pool_;
  std::size_t shortest_ = 0;  // of what is kept
  std::vector<std::string> tokens_;
  std::string_view separators_;
  std::uint64_t state_;
};

}  // namespace penstock::fuzz
