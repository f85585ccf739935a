// Whatever bytes stand in a configuration, it is read or refused with a ConfigError.
#include <random>

#include "config_support.h"

namespace penstock::engine {
namespace {

const char* const kDocument = R"({
  "train_batch_size": 32, "gradient_clipping": 0.5, "frozen_parameters": ["^0\\.(a|b)*"],
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.8, 0.95]},
                "groups": [{"match": "bias$", "weight_decay": 0}]},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": [0.1, 0.2], "cycle_max_lr": 1,
                "cycle_first_step_size": 10, "cycle_second_stair_count": 2, "decay_step_size": 5}},
  "pipeline": {"stages": 2, "bounds": [0, 3, 6]}, "fp16": {"enabled": false, "loss_scale": 0},
  "zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8, "offload_param": {"device": "none"}}
})";

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t edits = below(4); edits > 0; --edits) edit(text);
    edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  void edit(std::string& text) {
    if (text.empty()) return;
    const std::size_t at = below(text.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(20, text.size() - at));
    constexpr std::string_view kLikely = "{}[]\",:0123456789.eE+-\\ntf*(|)?\n";
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text[at] = kLikely[below(kLikely.size())];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, 1, kLikely[below(kLikely.size())]);
        break;
      case 4:  // another digit in place of one: most results are still JSON
        if (const auto digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
          text[digit] = static_cast<char>('0' + below(10));
        }
        break;
      case 5:
        text.insert(below(text.size()), text.substr(at, length));
        break;
    }
  }

  std::mt19937 random_;
};

TEST(ConfigFuzz, MutatedBytesGiveAConfigOrAConfigError) {
  ASSERT_NO_THROW(parse_config(kDocument, "fuzz"));
  Mutator mutator(7);
  int accepted = 0;
  int past_parser = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = mutator.mutate(kDocument);
    try {
      parse_config(text, "fuzz");
      ++accepted;
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      ASSERT_TRUE(message.starts_with("[config] ")) << message;
      if (message.find("JSON syntax") == std::string::npos) ++past_parser;
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(past_parser, 2000) << "too few mutations reach the checks";
}

TEST(ConfigFuzz, MutatedOverridesGiveAConfigOrAConfigError) {
  Mutator mutator(11);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string plain = round % 2 == 0 ? "optimizer.groups.0.match=^bias[0-9]+$"
                                             : "scheduler.params.decay_lr_rate=0.0101";
    const std::string overrides[] = {mutator.mutate(plain)};
    try {
      parse_config(kDocument, "fuzz", overrides);
      ++accepted;
    } catch (const ConfigError&) {
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\n" << overrides[0];
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace penstock::engine
