// penstock-ckpt list
#include <algorithm>
#include <iostream>

#include <nlohmann/json.hpp>

#include "checkpoint/inspect.h"
#include "tools/ckpt/arguments.h"

namespace penstock::tools {

namespace {

using checkpoint::TagState;
using checkpoint::TagSummary;
using nlohmann::json;
using nlohmann::ordered_json;

// A counter of engine.json; null when there is none.
json counter(const TagSummary& tag, const char* name) {
  const json engine = json::parse(tag.engine_json, nullptr, /*allow_exceptions=*/false);
  return engine.is_object() && engine.contains(name) ? engine[name] : json();
}

std::string shown(const json& value) {
  return value.is_null() ? "-" : value.dump();
}

const char* name_of(TagState state) {
  switch (state) {
    case TagState::kComplete:
      return "complete";
    case TagState::kDamaged:
      return "damaged";
    case TagState::kUnfinished:
      return "unfinished";
    case TagState::kReplaced:
      return "replaced";
  }
  return "?";
}

// Whether its manifest and engine.json could be.
bool was_read(const TagSummary& tag) {
  return tag.saved_at > 0;
}

// What to say of a tag beside its numbers.
std::string note(const TagSummary& tag, const std::string& latest) {
  switch (tag.state) {
    case TagState::kComplete:
      return tag.name == latest ? "latest" : "";
    case TagState::kDamaged:
      return "damaged";
    case TagState::kUnfinished:
      return "unfinished: a save is under way, or was cut short";
    case TagState::kReplaced:
      return "was being replaced";
  }
  return "";
}

void print(const checkpoint::DirectorySummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"tag", "step", "samples", "size", "saved (UTC)"}};
  for (const TagSummary& tag : summary.tags) {
    rows.push_back({tag.name, shown(counter(tag, "global_steps")),
                    shown(counter(tag, "global_samples")),
                    was_read(tag) ? human_bytes(tag.bytes) : "-",
                    was_read(tag) ? utc(tag.saved_at) : "-", note(tag, summary.latest)});
  }
  std::cout << columns(rows);
  for (const TagSummary& tag : summary.tags) {
    if (tag.faults.empty()) continue;
    std::cout << "\n" << tag.name << " is damaged:\n";
    for (const std::string& fault : tag.faults) std::cout << "  " << fault << '\n';
  }
  if (!summary.latest_fault.empty()) {
    std::cout << "\nnothing loads without a tag: " << summary.latest_fault << '\n';
  }
}

void print_json(const checkpoint::DirectorySummary& summary) {
  ordered_json tags = ordered_json::array();
  for (const TagSummary& tag : summary.tags) {
    ordered_json row = {{"tag", tag.name}, {"state", name_of(tag.state)}};
    if (was_read(tag)) {
      row["step"] = counter(tag, "global_steps");
      row["samples"] = counter(tag, "global_samples");
      row["bytes"] = tag.bytes;
      row["saved_at"] = tag.saved_at;
    }
    if (!tag.faults.empty()) row["faults"] = tag.faults;
    tags.push_back(std::move(row));
  }
  ordered_json out = {{"latest", summary.latest}, {"tags", std::move(tags)}};
  if (!summary.latest_fault.empty()) out["latest_fault"] = summary.latest_fault;
  std::cout << out.dump(2) << '\n';
}

}  // namespace

int list(const Words& words) {
  Arguments arguments("list DIR [--json]",
                      "The checkpoints in a directory, oldest first. Manifests are checked, data "
                      "files by their sizes\n(verify reads them). Ends with status 1 if a file is "
                      "missing or was changed, or nothing loads\nwithout a tag.");
  arguments.word("dir", kDirectory);
  arguments.options().add_options()("json", "print JSON");
  if (!arguments.parse(words)) return kGood;
  const checkpoint::DirectorySummary summary =
      checkpoint::summarize(directory_of_checkpoints(arguments.text("dir")));
  if (arguments.flag("json")) {
    print_json(summary);
  } else {
    print(summary);
  }
  const bool damaged =
      std::ranges::any_of(summary.tags, [](const TagSummary& tag) { return !tag.faults.empty(); });
  return damaged || !summary.latest_fault.empty() ? kBad : kGood;
}

}  // namespace penstock::tools
