// How long tests wait for other ranks.
#pragma once

namespace penstock::testing {

// Time within which any test on several ranks must end.
inline constexpr double kTimeoutSeconds = 60.0;

}  // namespace penstock::testing
