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
  const Ended passes = compile("engine.forward(x); engine.backward()");
  EXPECT_NE(passes.status, 0);
  for (const std::string text :
       {"Engine has no forward(): train_batch(), or eval_batch() for outputs without training, "
        "runs "
        "the passes of all micro batches",
        "Engine has no backward(): train_batch(), or step() with a batch, runs the passes"}) {
    EXPECT_NE(passes.output.find(text), std::string::npos) << passes.output;
  }
}

}  // namespace
}  // namespace penstock::testing
