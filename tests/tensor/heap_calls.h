// Counts how often the program calls operator new. Linking heap_calls.cpp replaces that operator;
// it is apart because compilers look through a replacement that they can see.
#pragma once

namespace penstock::testing {

long heap_calls();

}  // namespace penstock::testing
