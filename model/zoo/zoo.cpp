#include "model/zoo/zoo.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/error.h"

namespace penstock::model {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// The keys and values after the model's name; each is taken once, and none may be left.
class Options {
 public:
  Options(std::string_view model, std::string_view text) : model_(model) {
    if (text.empty()) return;
    for (const std::string_view part : split(text, ',')) {
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        fail("expected key=value, got \"" + std::string(part) + "\"");
      }
      const std::string key(part.substr(0, equals));
      if (!values_.emplace(key, part.substr(equals + 1)).second) {
        fail(key + " is given twice");
      }
    }
  }

  template <class Number>
  void take(const std::string& key, Number& target) {
    if (const auto text = take_text(key)) target = number<Number>(key, *text);
  }
  void take(const std::string& key, bool& target) {
    const auto text = take_text(key);
    if (!text) return;
    if (*text != "true" && *text != "false") fail_value(key, "true or false", *text);
    target = *text == "true";
  }
  void take(const std::string& key, std::vector<std::int64_t>& target) {
    const auto text = take_text(key);
    if (!text) return;
    target.clear();
    for (const std::string_view part : split(*text, 'x')) {
      target.push_back(number<std::int64_t>(key, part));
    }
  }
  void take(const std::string& key, Activation& target) {
    static const std::map<std::string_view, Activation> kNames = {{"relu", Activation::kRelu},
                                                                  {"tanh", Activation::kTanh},
                                                                  {"silu", Activation::kSilu},
                                                                  {"gelu", Activation::kGelu}};
    const auto text = take_text(key);
    if (!text) return;
    const auto found = kNames.find(*text);
    if (found == kNames.end()) fail_value(key, "relu, tanh, silu or gelu", *text);
    target = found->second;
  }

  void check_all_taken() const {
    if (values_.empty()) return;
    std::string known;
    for (const std::string& key : known_) known += (known.empty() ? "" : ", ") + key;
    fail("unknown key " + values_.begin()->first + "; known are " + known);
  }

 private:
  std::optional<std::string> take_text(const std::string& key) {
    known_.push_back(key);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    std::string text = std::move(found->second);
    values_.erase(found);
    return text;
  }

  template <class Number>
  Number number(const std::string& key, std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      fail_value(key, std::is_integral_v<Number> ? "a whole number" : "a number", text);
    }
    return value;
  }

  [[noreturn]] void fail_value(const std::string& key, const std::string& expected,
                               std::string_view got) const {
    fail(key + ": expected " + expected + ", got \"" + std::string(got) + "\"");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw tensor::InvalidArgument("[model] " + model_ + ": " + what);
  }

  std::string model_;
  std::map<std::string, std::string> values_;
  std::vector<std::string> known_;
};

struct Gpt2Size {
  std::string_view name;
  std::int64_t layers, heads, width;
};
constexpr Gpt2Size kGpt2Sizes[] = {{"gpt2", 12, 12, 768},
                                   {"gpt2-medium", 24, 16, 1024},
                                   {"gpt2-large", 36, 20, 1280},
                                   {"gpt2-xl", 48, 25, 1600}};

Gpt2Config change(Gpt2Config config, Options options) {
  const std::int64_t width = config.width;
  options.take("layers", config.layers);
  options.take("width", config.width);
  if (config.width != width) config.heads = std::max<std::int64_t>(1, config.width / 64);
  options.take("heads", config.heads);
  options.take("context", config.context);
  options.take("vocabulary", config.vocabulary);
  options.take("dropout", config.dropout);
  options.take("attention_dropout", config.attention_dropout);
  options.take("layer_norm_epsilon", config.layer_norm_epsilon);
  options.take("tied", config.tied);
  options.check_all_taken();
  check(config);
  return config;
}

LlamaConfig change(LlamaConfig config, Options options) {
  const LlamaConfig before = config;
  options.take("layers", config.layers);
  options.take("width", config.width);
  if (config.width != before.width) config.heads = std::max<std::int64_t>(1, config.width / 64);
  options.take("heads", config.heads);
  if (config.heads != before.heads) config.kv_heads = config.heads;
  options.take("kv_heads", config.kv_heads);
  const bool other_heads = config.width != before.width || config.heads != before.heads;
  if (other_heads && config.heads > 0) config.head = config.width / config.heads;
  options.take("head", config.head);
  if (config.width != before.width) config.inner = 4 * config.width;
  options.take("inner", config.inner);
  options.take("context", config.context);
  options.take("vocabulary", config.vocabulary);
  options.take("rms_epsilon", config.rms_epsilon);
  options.take("rope_theta", config.rope_theta);
  options.take("tied", config.tied);
  options.check_all_taken();
  check(config);
  return config;
}

ZooModel mlp(Options options) {
  MlpConfig config;
  options.take("widths", config.widths);
  options.take("activation", config.activation);
  options.check_all_taken();
  return {make_mlp(config), config};
}

ZooModel alexnet(Options options) {
  AlexNetConfig config;
  options.take("num_classes", config.num_classes);
  options.check_all_taken();
  return {make_alexnet(config), config};
}

}  // namespace

Gpt2Config change_gpt2(const Gpt2Config& config, std::string_view keys) {
  return change(config, Options("gpt2", keys));
}

LlamaConfig change_llama(const LlamaConfig& config, std::string_view keys) {
  return change(config, Options("llama", keys));
}

ZooModel make_model(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  if (colon + 1 == text.size()) {
    throw tensor::InvalidArgument("[model] expected key=value after \"" + std::string(text) + "\"");
  }
  Options options(name, colon < text.size() ? text.substr(colon + 1) : std::string_view());
  for (const Gpt2Size& size : kGpt2Sizes) {
    if (size.name != name) continue;
    Gpt2Config config;
    config.layers = size.layers;
    config.heads = size.heads;
    config.width = size.width;
    config = change(config, std::move(options));
    return {make_gpt2(config), config};
  }
  if (name == "llama") {
    const LlamaConfig config = change(LlamaConfig(), std::move(options));
    return {make_llama(config), config};
  }
  if (name == "mlp") return mlp(std::move(options));
  if (name == "alexnet") return alexnet(std::move(options));
  throw tensor::InvalidArgument("[model] unknown model \"" + std::string(name) +
                                "\"; known are gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama, mlp "
                                "and alexnet");
}

}  // namespace penstock::model
