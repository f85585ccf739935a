#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace penstock::fuzz {
namespace {

constexpr std::size_t kLongest = 4096;  // bytes of an input
constexpr std::size_t kPool = 512;      // inputs to build upon

}  // namespace

Mutator::Mutator(const Target& target, std::uint64_t seed)
    : seeds_(target.seeds), tokens_(target.tokens), separators_(target.separators), state_(seed) {
  for (const std::string& input : seeds_) shortest_ += input.size() / seeds_.size() / 2;
}

// SplitMix64.
std::uint64_t Mutator::random() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::size_t Mutator::below(std::size_t bound) {
  return static_cast<std::size_t>(random() % bound);
}

std::string Mutator::next() {
  const bool anew = pool_.empty() || below(2) == 0;
  std::string input = anew ? seeds_[below(seeds_.size())] : pool_[below(pool_.size())];
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(input);
  if (input.size() > kLongest) input.resize(kLongest);
  return input;
}

void Mutator::keep(const std::string& accepted) {
  // What little is left of an input is accepted more often, and would soon be all there is.
  if (accepted.size() < shortest_) return;
  if (pool_.size() < kPool) {
    pool_.push_back(accepted);
  } else {
    pool_[below(kPool)] = accepted;
  }
}

void Mutator::change(std::string& input) {
  const std::size_t way = input.empty() ? 0 : below(4);
  if (way == 0) return change_token(input);
  if (way == 1) return change_bytes(input);
  swap_neighbours(input);
}

// Two parts that one separator parts.
void Mutator::swap_neighbours(std::string& input) {
  const std::size_t middle = input.find_first_of(separators_, below(input.size()));
  if (middle == input.npos || middle == 0) return;
  const std::size_t before = input.find_last_of(separators_, middle - 1);
  const std::size_t begin = before == input.npos ? 0 : before + 1;
  const std::size_t end = std::min(input.find_first_of(separators_, middle + 1), input.size());
  const std::string left = input.substr(begin, middle - begin);
  const std::string right = input.substr(middle + 1, end - middle - 1);
  input.replace(begin, end - begin, right + input[middle] + left);
}

void Mutator::change_bytes(std::string& input) {
  const std::size_t at = below(input.size());
  const std::size_t length = 1 + below(std::min<std::size_t>(16, input.size() - at));
  switch (below(5)) {
    case 0:
      input[at] = static_cast<char>(random());
      break;
    case 1:
      input.erase(at, length);
      break;
    case 2:
      input.insert(below(input.size() + 1), input.substr(at, length));
      break;
    case 3:  // a neighbour in the alphabet: another digit or letter
      input[at] = static_cast<char>(input[at] + (below(2) == 0 ? 1 : -1));
      break;
    default:
      input.resize(at);
  }
}

void Mutator::change_token(std::string& input) {
  const std::string& token = tokens_[below(tokens_.size())];
  const std::size_t at = below(input.size() + 1);
  // Over a token that is there, or in between.
  const std::string& other = tokens_[below(tokens_.size())];
  const std::size_t found = input.find(other, at);
  if (found != input.npos) {
    input.replace(found, below(2) == 0 ? other.size() : 0, token);
  } else {
    input.insert(at, token);
  }
}

}  // namespace penstock::fuzz
