#include "schedule/text.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "schedule/scan.h"

namespace penstock::schedule {
namespace {

constexpr std::string_view kSeparator = " | ";
constexpr std::string_view kExample = "3: RecvActivation(c0 m5 b1) | ForwardPass(c0 m5 b1)";

void append(std::string& out, const Instruction& instruction) {
  const Operands has_operands = operands(instruction.opcode);
  out += name(instruction.opcode);
  out += '(';
  const auto append_operand = [&](Operands operand, char letter, std::int32_t value) {
    if (!has(has_operands, operand)) return;
    if (out.back() != '(') out += ' ';
    out += letter;
    out += std::to_string(value);
  };
  append_operand(Operands::kChunk, 'c', instruction.chunk.value);
  append_operand(Operands::kMicroBatch, 'm', instruction.micro_batch.value);
  append_operand(Operands::kBuffer, 'b', instruction.buffer.value);
  out += ')';
}

void append(std::string& out, std::size_t index, const Step& step) {
  out += std::to_string(index);
  out += ':';
  for (std::size_t i = 0; i < step.size(); ++i) {
    out += i == 0 ? " " : kSeparator;
    append(out, step[i]);
  }
  out += '\n';
}

// Reads one line, from left to right.
class LineParser {
 public:
  LineParser(std::string_view line, std::size_t step) : line_(line), step_(step) {}

  Step parse() {
    Step step;
    const std::string number = std::to_string(step_) + ":";
    if (!take(number)) fail("\"" + number + "\", the number of the step and a colon");
    if (at_end()) return step;
    if (!take(" ")) fail("a space or the end of the line");
    step.push_back(parse_instruction());
    while (!at_end()) {
      if (!take(kSeparator)) fail("\" | \" or the end of the line");
      step.push_back(parse_instruction());
    }
    return step;
  }

 private:
  Instruction parse_instruction() {
    const std::size_t length = std::min(rest().find('('), rest().size());
    const std::optional<Opcode> opcode = opcode_named(rest().substr(0, length));
    if (!opcode) fail("the name of an opcode and \"(\"");
    position_ += length;
    if (!take("(")) fail("\"(\"");

    Instruction parsed;
    parsed.opcode = *opcode;
    first_operand_ = true;
    parse_operand(*opcode, Operands::kChunk, " c", parsed.chunk);
    parse_operand(*opcode, Operands::kMicroBatch, " m", parsed.micro_batch);
    parse_operand(*opcode, Operands::kBuffer, " b", parsed.buffer);
    if (!take(")")) fail("\")\": " + std::string(name(*opcode)) + " has no more operands");
    return parsed;
  }

  template <class IdType>
  void parse_operand(Opcode opcode, Operands operand, std::string_view spaced, IdType& id) {
    if (!has(operands(opcode), operand)) return;
    const std::string prefix(spaced.substr(first_operand_ ? 1 : 0));
    first_operand_ = false;
    if (!take(prefix)) {
      fail("\"" + prefix + "\" and a number, an operand of " + std::string(name(opcode)));
    }
    id = IdType{parse_number()};
  }

  std::int32_t parse_number() {
    std::string_view after = rest();
    const std::optional<std::int32_t> number = take_number(after);
    if (!number) fail("a number from 0 to 2147483647 without leading zeros");
    position_ = line_.size() - after.size();
    return *number;
  }

  std::string_view rest() const { return line_.substr(position_); }
  bool at_end() const { return position_ == line_.size(); }

  bool take(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    position_ += expected.size();
    return true;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw ScheduleError("[schedule::parse_text] line " + std::to_string(step_ + 1) + ", column " +
                        std::to_string(position_ + 1) + ": expected " + expected + ", found " +
                        (at_end() ? "the end of the line" : quoted(rest())) +
                        "; a step has the form \"" + std::string(kExample) + "\"");
  }

  std::string_view line_;
  std::size_t step_;  // also the number of the line, from 0
  std::size_t position_ = 0;
  bool first_operand_ = true;
};

}  // namespace

std::string to_text(const Instruction& instruction) {
  std::string out;
  append(out, instruction);
  return out;
}

std::string to_text(std::span<const Step> steps) {
  std::string out;
  for (std::size_t i = 0; i < steps.size(); ++i) append(out, i, steps[i]);
  return out;
}

std::string to_text(const Schedule& schedule) {
  std::string out;
  std::size_t index = 0;
  for (const Step& step : steps(schedule)) append(out, index++, step);
  return out;
}

std::vector<Step> parse_text(std::string_view text) {
  std::vector<Step> steps;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    steps.push_back(LineParser(text.substr(0, length), steps.size()).parse());
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return steps;
}

}  // namespace penstock::schedule
