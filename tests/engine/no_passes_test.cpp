// Calling a pass of the engine does not compile, and the compiler says what to call instead.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace penstock::testing {
namespace {

// What the compiler makes of a function that calls the engine so.
Ended compile(const std::string& call) {
  const std::string source =
      "#include \"engine/engine.h\"\n"
      "void call(penstock::engine::Engine& engine, penstock::tensor::Tensor x) { " +
      call + "; }\n";
  return run_command("printf '%s' '" + source +
                     "' | " PENSTOCK_CXX " -std=c++20 -fsyntax-only -I'" PENSTOCK_SOURCE_DIR
                     "' -x c++ - 2>&1");
}

TEST(EnginePasses, DoNotCompileAndNameTheCallsThatDo) {
  const Ended trained = compile("engine.train_batch(); engine.step({.inputs = {x}})");
  EXPECT_EQ(trained.status, 0) << trained.output;
  for (const std::string call : {"engine.forward(x)", "engine.forward()"}) {
    const Ended forward = compile(call);
    EXPECT_NE(forward.status, 0);
    EXPECT_NE(forward.output.find("Engine has no forward(): train_batch(), or eval_batch() for "
                                  "outputs without training, runs the passes of all micro batches"),
              std::string::npos)
        << forward.output;
  }
  const Ended backward = compile("engine.backward(x)");
  EXPECT_NE(backward.status, 0);
  EXPECT_NE(backward.output.find("Engine has no backward(): train_batch(), or step() with a batch"),
            std::string::npos)
      << backward.output;
}

}  // namespace
}  // namespace penstock::testing
