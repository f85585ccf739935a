// The commands of penstock-ckpt. Each takes the words after its name and returns the exit status;
// exceptions are told by main, which ends with kCannotLook.
#pragma once

#include <string>
#include <vector>

namespace penstock::tools {

inline constexpr int kGood = 0;
inline constexpr int kBad = 1;  // something is damaged, or differs
inline constexpr int kCannotLook = 2;

using Words = std::vector<std::string>;

int list(const Words& words);
int show(const Words& words);
int verify(const Words& words);
int diff(const Words& words);

}  // namespace penstock::tools
