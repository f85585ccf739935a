#include "engine/config_validate.h"

#include <algorithm>

#include "engine/config_check_value.h"
#include "engine/config_keys.h"
#include "engine/config_problems.h"
#include "engine/config_rules.h"
#include "engine/config_suggest.h"

namespace penstock::engine {

namespace {

// A place in the document: the path as the user wrote it ("optimizer.groups[1].lr") and as the
// table has it ("optimizer.groups[].lr").
struct Place {
  std::string written;
  std::string table;

  Place member(std::string_view name) const {
    const std::string dot = written.empty() ? "" : ".";
    return {written + dot + std::string(name), canonical_path(table + dot + std::string(name))};
  }
  Place element(std::size_t index) const {
    return {written + "[" + std::to_string(index) + "]", table + "[]"};
  }
};

// The last word of a path.
std::string_view leaf(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

// Walks a document along the key table and calls `visit` for each known key.
class Walker {
 public:
  Walker(const JsonValue& root, Problems* problems) : problems_(problems) {
    optimizer_type_ = type_of(root, "optimizer.type");
    scheduler_type_ = type_of(root, "scheduler.type");
  }

  template <typename Visit>
  void walk(const JsonValue& section, const Place& place, const Visit& visit) {
    const auto* members = section.get_if<JsonValue::Object>();
    if (members == nullptr) {
      if (!section.is_null() || place.written.empty()) {
        add(section, place, "expected an object, got " + describe(section));
      }
      return;
    }
    for (const auto& [name, value] : *members) {
      const Place below = place.member(name);
      const bool plain = name.find_first_of(".[") == std::string::npos && !name.empty();
      if (!plain) {
        add(value, below, "unknown key; sections are nested objects, no dots in a name");
      } else if (is_section(below.table)) {
        walk(value, below, visit);
      } else if (const KeyRow* row = find_key(below.table, variant(below.table))) {
        visit(*row, value, below);
        if (row->type & kObjectList) walk_list(value, below, visit);
      } else {
        unknown(value, place, name);
      }
    }
    check_required(section, place);
  }

 private:
  template <typename Visit>
  void walk_list(const JsonValue& list, const Place& place, const Visit& visit) {
    const auto* items = list.get_if<JsonValue::Array>();
    if (items == nullptr) return;  // its wrong type is known already
    for (std::size_t i = 0; i < items->size(); ++i) {
      if ((*items)[i].get_if<JsonValue::Object>()) walk((*items)[i], place.element(i), visit);
    }
  }

  static std::string_view type_of(const JsonValue& root, std::string_view path) {
    const JsonValue* type = given(root, path);
    const auto* word = type ? type->get_if<std::string>() : nullptr;
    return word ? match_choice(find_key(path, {})->rule.choices, *word) : std::string_view();
  }

  std::string_view variant(std::string_view path) const {
    if (path.starts_with("optimizer.")) return optimizer_type_;
    return path.starts_with("scheduler.") ? scheduler_type_ : std::string_view();
  }

  void add(const JsonValue& value, const Place& place, const std::string& fact) {
    if (problems_ != nullptr) problems_->add(value.line, json_escaped(place.written), fact);
  }

  void unknown(const JsonValue& value, const Place& section, const std::string& name) {
    const Place place = section.member(name);
    if (const KeyRow* other = find_key(place.table, {})) {
      const std::string_view type = variant(place.table);
      add(value, place, "a key of " + choices_text(other->of) + ", not of " + std::string(type));
      return;
    }
    std::string fact = "unknown key";
    if (const std::string meant = suggestion(section, name); !meant.empty()) {
      fact += "; did you mean " + meant + "?";
    } else {
      fact += "; docs/config.md lists all keys";
    }
    add(value, place, fact);
  }

  // The nearest key of the same section, else a key of that name in another section.
  std::string suggestion(const Place& section, const std::string& name) const {
    const std::string prefix = section.table.empty() ? "" : section.table + ".";
    std::vector<std::string_view> siblings;
    std::string elsewhere;
    for (const KeyChapter& chapter : key_chapters()) {
      for (const KeyRow& row : chapter.rows) {
        if (leaf(row.path) == name && elsewhere.empty()) elsewhere = row.path;
        const bool fits = find_key(row.path, variant(row.path)) != nullptr;
        if (!fits || !row.path.starts_with(prefix)) continue;
        const std::string_view rest = row.path.substr(prefix.size());
        siblings.push_back(rest.substr(0, rest.find_first_of(".[")));
      }
    }
    const std::string_view near = nearest(name, siblings);
    return near.empty() ? elsewhere : section.member(near).written;
  }

  // Keys that a top-level section or a list's object must have. Below a section they may lie one
  // level deeper (scheduler.params.total_num_steps), so they are looked for from the section.
  void check_required(const JsonValue& section, const Place& place) {
    const bool top = !place.table.empty() && place.table.find('.') == std::string::npos;
    if (!top && !place.table.ends_with("[]")) return;
    const std::string prefix = place.table + ".";
    const std::string_view type = variant(prefix);
    for (const KeyChapter& chapter : key_chapters()) {
      for (const KeyRow& row : chapter.rows) {
        if (row.default_text != kRequired || !row.path.starts_with(prefix)) continue;
        const bool fits = row.of.empty() || (!type.empty() && find_key(row.path, type) == &row);
        const std::string_view rest = row.path.substr(prefix.size());
        const bool of_item = rest.find('[') != std::string_view::npos;  // checked at the item
        if (!fits || of_item || given(section, rest) != nullptr) continue;
        const std::string owner = row.of.empty() ? "" : " by " + std::string(type);
        add(section, place.member(rest), "required" + owner + ", but not given");
      }
    }
  }

  Problems* problems_;
  std::string_view optimizer_type_;
  std::string_view scheduler_type_;
};

}  // namespace

void validate_config(const JsonValue& root, std::string_view origin) {
  Problems faults(origin);
  Walker(root, &faults)
      .walk(root, {}, [&](const KeyRow& row, const JsonValue& value, const Place& place) {
        if (const auto fact = value_fault(row, value)) faults.add(value.line, place.written, *fact);
      });
  faults.throw_if_any();

  Problems contradictions(origin);
  find_contradictions(root, contradictions);
  contradictions.throw_if_any();

  Problems refusals(origin);
  Walker(root, nullptr)
      .walk(root, {}, [&](const KeyRow& row, const JsonValue& value, const Place& place) {
        if (const auto fact = refusal(row, value)) refusals.add(value.line, place.written, *fact);
      });
  refusals.throw_if_any();
}

std::vector<std::string> keys_without_effect(const JsonValue& root) {
  std::vector<std::string> notes;
  const JsonValue* fp16 = given(root, "fp16.enabled");
  const bool fp16_on = fp16 != nullptr && fp16->get_if<bool>() != nullptr && *fp16->get_if<bool>();
  Walker(root, nullptr)
      .walk(root, {}, [&](const KeyRow& row, const JsonValue& value, const Place& place) {
        if (value.is_null()) return;
        if (row.path.starts_with("fp16.") && row.path != "fp16.enabled" && !fp16_on) {
          notes.push_back(place.written + ": belongs to fp16, which is off");
        } else if (row.status == KeyStatus::kHint) {
          notes.push_back(place.written + ": " + std::string(row.text));
        }
      });
  return notes;
}

}  // namespace penstock::engine
