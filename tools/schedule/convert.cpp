#include <array>
#include <string>
#include <utility>

#include "schedule/csv.h"
#include "schedule/lowering.h"
#include "schedule/text.h"
#include "tools/schedule/pipes.h"

namespace penstock::tools {
namespace {

using schedule::CsvTransfers;
using schedule::Table;

CsvTransfers placement_named(const std::string& name) {
  constexpr std::array kPlacements = {std::pair{"none", CsvTransfers::kNone},
                                      std::pair{"early", CsvTransfers::kEarly},
                                      std::pair{"late", CsvTransfers::kLate}};
  for (const auto& [known, placement] : kPlacements) {
    if (name == known) return placement;
  }
  throw std::invalid_argument("--placement is \"" + name + "\"; expected none, early or late");
}

// As `show --text` prints them, for all ranks.
std::string streams_of(const std::string& name, Table table) {
  const std::uint64_t identity = schedule::hash(table);
  std::string out;
  for (const auto& schedule : schedule::lower_all(name, schedule::source_of(std::move(table)),
                                                  {.content_hash = identity})) {
    if (!out.empty()) out += '\n';
    out += "rank " + std::to_string(schedule->rank().value) + '\n' + schedule::to_text(*schedule);
  }
  return out;
}

}  // namespace

int convert(const Words& words) {
  CommandLine line("convert NAME [options]",
                   std::string("A schedule as a table in PyTorch's CSV form, or as streams of "
                               "instructions.\n") +
                       kNameHelp);
  const PipeOptions options(line);
  std::string name;
  std::string to = "csv";
  std::string placement = "none";
  std::string out;
  bool merge = false;
  auto add = line.options.add_options();
  line.named.add_options()("name", po::value(&name));
  add("to", po::value(&to)->value_name("FORM")->default_value(to),
      "csv, or text: the instructions of each rank");
  add("merge-backward", po::bool_switch(&merge),
      "adjacent I and W of one stage and micro batch become B");
  add("placement", po::value(&placement)->value_name("WHERE")->default_value(placement),
      "transfers in the CSV: none; early: received as soon as sent, as PyTorch lowers; late: "
      "received right before they are needed");
  add("out,o", po::value(&out)->value_name("FILE"), "where to (default: standard output)");
  if (!line.parse(words, "name")) return kGood;

  const CsvTransfers transfers = placement_named(placement);
  if (to != "csv" && to != "text") {
    throw std::invalid_argument("--to is \"" + to + "\"; expected csv or text");
  }
  if (to == "text" && transfers != CsvTransfers::kNone) {
    throw std::invalid_argument("--placement " + placement +
                                " is for CSV; text has the transfers where they run");
  }
  Table table = table_named(name, options);
  if (merge) table = schedule::merge_backward(table);
  write_output(
      out, to == "csv" ? schedule::to_csv(table, transfers) : streams_of(name, std::move(table)));
  return kGood;
}

}  // namespace penstock::tools
